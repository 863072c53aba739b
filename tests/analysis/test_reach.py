"""Runs that are unfinished do not cut the curves of the others, and are named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.analysis.curves import comparable, last_step, remarks
from pods_jax.analysis.runs import RunRecord


def runs_to(*steps, finished=()):
    """One run for each last step, named by its place; finished: the places of those that are."""
    return [RunRecord({}, [], [{"step": 0}, {"step": s}], Path(str(i)), i in finished) for i, s in enumerate(steps)]


@pytest.mark.parametrize(
    ("steps", "finished", "end", "kept"),
    [
        ((40, 40), {0, 1}, 40, [0, 1]),
        ((0, 40), {1}, 40, [1]),  # the other has just begun
        ((36, 40), {1}, 40, [1]),
        ((40, 40), {1}, 40, [0, 1]),  # all but its summary is there
        ((36, 40, 40), set(), 36, [0, 1, 2]),
        ((0, 40, 40), set(), 40, [1, 2]),
        ((0, 40), {0, 1}, 40, [1]),  # the log of a finished run lacks lines
        ((0, 0), set(), 0, [0, 1]),
    ],
)
def test_how_far_curves_go_and_with_which_runs(steps, finished, end, kept):
    runs = runs_to(*steps, finished=finished)
    assert last_step(runs) == end
    assert comparable(runs) == [runs[i] for i in kept]


def test_what_is_said_of_them():
    assert remarks("PODS", runs_to(40, 40, finished={0, 1})) == []
    assert remarks("PODS", runs_to(4, 40, finished={1})) == [
        "0 is left out: unfinished, evaluated up to step 4, and PODS up to 40"
    ]
    assert remarks("PODS", runs_to(4, 40, finished={0, 1})) == [
        "0 is left out: evaluated up to step 4, and PODS up to 40"
    ]
    assert remarks("PODS", runs_to(36, 40)) == [
        "0 is unfinished, evaluated up to step 36: the curves of PODS end at 36",
        "1 is unfinished, evaluated up to step 40: the curves of PODS end at 36",
    ]
    assert remarks("PODS", runs_to(36, 40, finished={0, 1})) == [
        "0 is evaluated up to step 36: the curves of PODS end at 36"
    ]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.sets(st.integers(0, 7)))
def test_some_run_is_drawn_and_every_other_is_named(steps, finished):
    runs = runs_to(*steps, finished=finished)
    kept, said = comparable(runs), "\n".join(remarks("PODS", runs)).splitlines()
    assert kept
    named = {line.split()[0] for line in said}
    assert {str(r.workdir) for r in runs if r not in kept or not r.finished} <= named
