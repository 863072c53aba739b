"""The noise scale in whole runs: what is logged, and that training and resumption do not notice it."""

import numpy as np
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.errors import UserError
from pods_jax.io import read_jsonl
from pods_jax.training import Reporter, train

NAMES = ("prompts", "low", "high", "inter", "intra", "signal", "inter_trace", "intra_trace")
NOISE = {f"noise_scale/{name}" for name in NAMES}


def lines(folder, name="metrics.jsonl", without=("time",)):
    return [{k: v for k, v in r.items() if not any(w in k for w in without)} for r in read_jsonl(folder / name)]


@pytest.fixture
def measured(tiny):
    tiny.diagnostics.noise_scale_every_steps, tiny.diagnostics.noise_scale_num_prompts = 2, 6
    tiny.objective.beta, tiny.objective.entropy_coef = 0.1, 0.01  # all groups have gradients
    tiny.training.num_steps = 5
    return tiny


def built(config):
    return from_mapping(config)[0]


def test_it_is_logged_and_changes_nothing_and_goes_on_to_the_same_end(measured, tmp_path, capsys):
    train(built(measured), tmp_path / "on", Reporter())
    assert "noise    before step 1: B = " in capsys.readouterr().out
    metrics = read_jsonl(tmp_path / "on" / "metrics.jsonl")
    assert [m["step"] for m in metrics if NOISE & m.keys()] == [1, 3, 5]
    first = metrics[0]
    assert NOISE | {"time/noise_scale_s"} <= first.keys()
    record, *others = read_jsonl(tmp_path / "on" / "noise_scale.jsonl")
    assert (record["step"], [r["step"] for r in others]) == (1, [3, 5])
    assert (record["n"], record["m"], record["rollouts"], len(record["successes"])) == (8, 4, 16, 6)
    assert record["signal"] == first["noise_scale/signal"]
    assert np.shape(record["covariance"]) == (3, 3)

    measured.training.num_steps = 2
    train(built(measured), tmp_path / "resumed", Reporter())
    measured.training.num_steps = 5
    train(built(measured), tmp_path / "resumed", Reporter())
    for name in ("metrics.jsonl", "noise_scale.jsonl"):
        assert lines(tmp_path / "resumed", name) == lines(tmp_path / "on", name)

    measured.diagnostics.noise_scale_every_steps = 0
    train(built(measured), tmp_path / "off", Reporter())
    assert lines(tmp_path / "off") == lines(tmp_path / "on", without=("time", "noise_scale"))
    assert not (tmp_path / "off" / "noise_scale.jsonl").read_text()


def test_prompts_are_compared_so_one_is_not_enough(measured, tmp_path):
    measured.data.options = {"base": 3, "digits": 2, "num_train": 1, "num_test": 8}
    with pytest.raises(UserError, match="needs two training prompts"):
        train(built(measured), tmp_path / "run", Reporter())
