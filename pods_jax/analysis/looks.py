"""How the groups of a figure look, and what they are called in it."""

import dataclasses
from collections.abc import Sequence

from pods_jax.analysis.groups import Group
from pods_jax.analysis.labels import differences
from pods_jax.analysis.style import SHADES, Look, look_of

_LINES = ("-", "--", "-.", ":")


def looks_of(groups: Sequence[Group]) -> list[Look]:
    """The methods' looks."""
    return _told_apart(groups, [look_of(g.method) for g in groups])


def sized_looks(groups: Sequence[Group], size: str, main: tuple[int, int]) -> list[Look]:
    """Named by size, "n" or "m". PODS keeps its colour at the main sizes, GRPO at every size; the others get shades."""
    pods = [g for g in groups if g.method == "pods"]
    usual = next((g for g in pods if (g.n, g.m) == main), None)
    shaded = [g for g in pods if g is not usual]
    looks = []
    for g in groups:
        look, label = look_of(g.method), f"{size} = {getattr(g, size)}"
        name = label if g.method == "pods" and (g.n, g.m) != main else f"{label} ({look.label})"
        shade = _shade(shaded.index(g)) if g in shaded else {}
        looks.append(dataclasses.replace(look, label=name, **shade))
    return _told_apart(groups, looks)


def _shade(place: int) -> dict[str, str]:
    return {"color": SHADES[place % len(SHADES)], "marker": "v^DP"[place % len(SHADES)]}


def _told_apart(groups: Sequence[Group], looks: Sequence[Look]) -> list[Look]:
    """Where names are equal, with what differs; where colours and markers are equal, with lines that differ."""
    found = []
    for place, (group, look) in enumerate(zip(groups, looks, strict=True)):
        same = [g for g, other in zip(groups, looks, strict=True) if other.label == look.label]
        parts = differences([g.config for g in same])[same.index(group)]
        before = [other for other in looks[:place] if (other.color, other.marker) == (look.color, look.marker)]
        line = _LINES[len(before) % len(_LINES)]
        found.append(dataclasses.replace(look, label=", ".join([look.label, *parts]), line=line))
    return found
