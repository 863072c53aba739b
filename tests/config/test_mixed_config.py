"""configs/mixed.py: its arguments are valid, differ only in allocation and selection, and train at a smaller size."""

from pathlib import Path

import pytest

from pods_jax.analysis.runs import read_run
from pods_jax.config.load import load_config
from pods_jax.config.schema import from_mapping, to_dict
from pods_jax.training import Reporter, train

FILE = Path(__file__).parents[2] / "configs" / "mixed.py"
METHODS = ("grpo", "dapo", "pilot_commit", "pods", "pilot_commit_pods")


def test_methods_differ_only_in_allocation_and_selection():
    configs = [to_dict(load_config(f"{FILE}:{method}", [])) for method in METHODS]
    chosen = [(c.pop("allocation"), c.pop("selection")) for c in configs]
    assert all(c == configs[0] for c in configs)
    assert len({str(c) for c in chosen}) == len(METHODS)


@pytest.mark.parametrize("method", ["dapo", "pilot_commit_pods"])
def test_methods_train(tiny, tmp_path, method):
    """At the size of the tests."""
    config = load_config(f"{FILE}:{method}", [])
    tiny.allocation.name = config.allocation.name
    tiny.allocation.options = dict(config.allocation.options)
    tiny.selection.rule, tiny.selection.num_kept = config.selection.rule, config.selection.num_kept // 4
    tiny.rollout.num_generations = 8
    if "candidates" in tiny.allocation.options:
        tiny.allocation.options.candidates = 12
    tiny.data.options = {"base": 2, "digits": 1, "num_train": 3, "num_test": 1}
    tiny.evaluation.num_prompts, tiny.training.num_steps = 1, 2
    train(from_mapping(tiny)[0], tmp_path / "run", Reporter())
    record = read_run(tmp_path / "run")
    assert record.evals[-1]["step"] <= 2
    assert record.evals[-1]["rollouts/generated"] > 0
