"""The table of chips, and what is made of topologies."""

import importlib.util

import pytest

from pods_jax.errors import UserError
from pods_jax.planning.chips import CHIPS, GiB, chip_name, topology_devices


@pytest.mark.parametrize("name", CHIPS)
def test_numbers_are_of_the_right_size(name):
    """Intensity at which arithmetic and memory take equally long: some hundred operations a byte for every chip."""
    chip = CHIPS[name]
    assert 100 < chip.flops_per_s / chip.hbm_bytes_per_s < 600
    assert 2 < chip.hbm_bytes_per_s / chip.link_bytes_per_s < 15
    assert 10 * GiB < chip.hbm_bytes < 200 * GiB
    assert chip.source


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-40GB"),
        ("NVIDIA A100-SXM-64GB", None),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", None),
        ("NVIDIA A100X", None),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 120GB", None),
        ("NVIDIA GH200 480GB", None),
        ("TPU v4 lite", None),
        ("NVIDIA L4", None),
        ("TPU v3", None),
        ("cpu", None),
    ],
)
def test_devices_are_recognised(kind, name):
    assert chip_name(kind) == name


def test_without_libtpu_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[plan\]'"):
        topology_devices("v5e:2x2")


@pytest.mark.parametrize("topology", ["v5e", "v9:2x2", "gpu:8", "4x4"])
def test_what_is_no_topology(topology):
    with pytest.raises(UserError, match="neither 'local' nor CHIP:LAYOUT"):
        topology_devices(topology)
