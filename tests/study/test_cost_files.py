"""A file of step costs is of one definition: another one neither takes it for its own nor overwrites it."""

import json
from pathlib import Path

import pytest
from study.cost_files import measure_once, read_costs
from study.regime import FULL
from study.regime_stages import step_seconds

from pods_jax.errors import UserError

RECORDS = Path(__file__).parents[2] / "docs" / "results" / "regime"
SPEC = "configs/demo.py:pods"
ONE = {"few": (SPEC, "selection.num_kept=4"), "all": (SPEC,)}


@pytest.fixture
def file(tmp_path):
    """A file of measured costs."""
    measure_once(tmp_path / "new" / "costs.json", ONE, lambda definitions: {"seconds": len(definitions)})
    return tmp_path / "new" / "costs.json"


def _never(definitions):
    raise AssertionError(definitions)


def test_what_was_measured_is_there_and_not_measured_again(file):
    assert read_costs(file, ONE)["seconds"] == len(ONE)
    measure_once(file, ONE, _never)


@pytest.mark.parametrize(
    "other",
    [
        {**ONE, "few": (SPEC, "selection.num_kept=8")},
        {**ONE, "few": ("configs/demo.py:random", "selection.num_kept=4")},
        {**ONE, "new": (SPEC,)},
        {"all": (SPEC,)},
    ],
    ids=["key", "config", "another method", "a method less"],
)
def test_a_file_of_another_definition_is_refused_and_kept(file, other):
    before = file.read_text()
    for use in (lambda: read_costs(file, other), lambda: measure_once(file, other, _never)):
        with pytest.raises(UserError, match=r"costs.json was measured with another definition .* delete it"):
            use()
    assert file.read_text() == before


def test_a_file_without_definitions_is_refused(file):
    file.write_text(json.dumps({"seconds": {}}))
    with pytest.raises(UserError, match="another definition"):
        read_costs(file, ONE)


@pytest.mark.parametrize("task", FULL.tasks, ids=lambda task: task.name)
def test_the_committed_ones_are_of_the_study_of_today(task):
    assert step_seconds(FULL, task, RECORDS)
