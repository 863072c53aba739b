"""Every method can be told from every other, by people with the common colour blindnesses too."""

import itertools

import matplotlib.colors
import numpy as np
import pytest

from pods_jax.analysis.style import LOOKS, WIDTH_IN, look_of, new_figure

# Full deficiency, on linear RGB: Machado, Oliveira and Fernandes 2009, table 1.
VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ.sum(1)


def lab(color: str, vision: str) -> np.ndarray:
    rgb = np.array(matplotlib.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.array(VISIONS[vision]) @ linear, 0, 1) / WHITE
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISIONS)
def test_colours_are_far_apart(vision):
    """At least 10 in CIE 1976 colour difference, where about 2.3 can just be seen."""
    for a, b in itertools.combinations(LOOKS.values(), 2):
        assert np.linalg.norm(lab(a.color, vision) - lab(b.color, vision)) > 10, (a.label, b.label, vision)


def test_no_two_methods_share_a_marker_or_a_name():
    for field in ("marker", "label", "color"):
        assert len({getattr(look, field) for look in LOOKS.values()}) == len(LOOKS)


def test_other_methods_get_a_look_that_stays():
    assert look_of("shortest") == look_of("shortest")
    assert look_of("reward_per_token").label == "reward-per-token"


def test_the_style_ends_with_the_figure():
    before = matplotlib.rcParams["font.size"]
    with new_figure(2.0) as figure:
        assert matplotlib.rcParams["font.size"] == 8
        assert figure.get_size_inches().tolist() == [WIDTH_IN, 2.0]
    assert matplotlib.rcParams["font.size"] == before


def test_colours_can_be_seen_on_white():
    """Contrast (WCAG 2.2, 1.4.3) of at least 2; the palest of the palette, a yellow, has 1.3."""
    for look in LOOKS.values():
        rgb = np.array(matplotlib.colors.to_rgb(look.color))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        assert 1.05 / (TO_XYZ[1] @ linear + 0.05) > 2, look.label
