"""Advice from the files of a run."""

import dataclasses
import json

import numpy as np
import pytest

from pods_jax import commands
from pods_jax.analysis.advice import advise, lines, pooled, read_measured
from pods_jax.analysis.regimes import GRID
from pods_jax.config.schema import Config, to_dict
from pods_jax.errors import UserError


def write_run(folder, successes, components=(1.0, 2.0, 20.0), spread=0.01, measurements=3, seconds=(0.1, 0.3), **keys):
    """A run's files: n = m = 16 with 2 prompts a step; sampling and update take `seconds` of a step of 0.5 s."""
    config = to_dict(Config())
    config["rollout"] |= {"num_prompts": 2, "num_generations": 16}
    config["selection"] |= {"rule": "all", "num_kept": 16}
    for key, value in keys.items():
        section, name = key.split("__")
        config[section][name] = value
    (folder / "config.json").write_text(json.dumps(config))
    record = dict(zip(("signal", "inter", "intra"), components, strict=True)) | {
        "covariance": (spread * np.eye(3)).tolist(), "count": 32, "rollouts": 32, "successes": successes,
    }  # fmt: skip
    steps = [{"step": 1 + 20 * i} | record for i in range(measurements)]
    (folder / "noise_scale.jsonl").write_text("".join(json.dumps(s) + "\n" for s in steps))
    sample, update = seconds
    metrics = [
        {
            "step": s, "time/sample_s": sample if s > 1 else 60.0, "time/verify_s": 0.0, "time/update_s": update,
            "time/step_s": 0.5, "rollouts/generated": 32.0 * s, "rollouts/trained": 32.0 * s,
        }
        for s in range(1, 6)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics))


RARE = [0] * 24 + [1] * 8
EVEN = [16] * 32


def test_what_a_run_measured_is_read(tmp_path):
    write_run(tmp_path, RARE)
    found = read_measured(tmp_path)
    assert (found.num_prompts, found.n, found.m, found.steps) == (2, 16, 16, [1, 21, 41])
    assert found.scale.in_prompts == pytest.approx((22, 2, 20))
    np.testing.assert_allclose(found.scale.covariance, 0.01 / 3 * np.eye(3))
    assert found.scale.count == 94
    assert found.weights @ GRID == pytest.approx(8 / 32 / 32, abs=0.01)
    assert dataclasses.astuple(found.seconds) == pytest.approx((0.1, 0.1 / 32, 0.3 / 32))


def test_rare_success_and_intra_noise_let_pods_pay_and_even_success_and_inter_noise_do_not(tmp_path):
    write_run(tmp_path, RARE, seconds=(0.02, 0.45))
    few = advise(read_measured(tmp_path))[0]
    assert (few.name, few.baseline, few.verdict) == ("PODS 64 -> 16", "GRPO 16 -> 16", "pays")
    assert few.steps[1] < few.steps[0] < few.steps[2]
    assert few.seconds[0] == pytest.approx(few.steps[0] / few.step_cost)
    write_run(tmp_path, EVEN, components=(1.0, 20.0, 0.5))
    assert advise(read_measured(tmp_path))[0].verdict == "does not pay"


def test_a_step_cost_counts_all_that_is_generated(tmp_path):
    write_run(tmp_path, EVEN)
    pods, commit = advise(read_measured(tmp_path))
    assert pods.step_cost == pytest.approx((0.1 + 0.1 * 4 + 0.3) / 0.5)
    assert commit.name == "Pilot-Commit 4 + 12"
    assert commit.step_cost == pytest.approx(
        (0.1 + 0.1 * (12 + 4 / (15 / 16 - 1 / 16 + 1 / 16)) / 16 + 0.3) / 0.5, rel=0.1
    )


def test_a_run_of_pods_is_compared_at_its_own_sizes(tmp_path):
    write_run(tmp_path, RARE, selection__rule="max_variance", selection__num_kept=4)
    first = advise(read_measured(tmp_path))[0]
    assert (first.name, first.baseline) == ("PODS 16 -> 4", "GRPO 4 -> 4")


def test_the_lines_say_regime_and_verdicts(tmp_path):
    write_run(tmp_path, RARE)
    measured = read_measured(tmp_path)
    noise, prompts, *advice = lines(measured, advise(measured))
    assert noise.startswith("noise    B = 22 [")
    assert "3 measurement(s), step 1 to 41" in noise
    assert "mean success rate 0.8%; 100% of the prompts at 5 % or less, 0% at 95 % or more" in prompts
    assert all(line.startswith("advice   ") and "in steps" in line for line in advice)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"selection__rule": "max_reward"}, "max_reward"),
        ({"objective__scale_rewards": "batch"}, "scale_rewards"),
        ({"spread": np.nan}, "at least 3"),
        ({"successes": [0] * 31 + [32]}, "no prompt had right and wrong"),
    ],
)
def test_what_the_model_does_not_describe_is_refused(tmp_path, change, message):
    write_run(tmp_path, **{"successes": RARE} | change)
    with pytest.raises(UserError, match=message):
        read_measured(tmp_path)


def test_a_run_without_measurements_is_told_how_to_make_them(tmp_path):
    write_run(tmp_path, RARE, measurements=0)
    with pytest.raises(UserError, match="noise_scale_every_steps"):
        read_measured(tmp_path)


def test_components_are_averaged_before_they_are_divided():
    records = [
        {"signal": s, "inter": 1.0, "intra": w, "covariance": np.eye(3).tolist(), "count": 9}
        for s, w in ((1.0, 1.0), (3.0, 7.0))
    ]
    assert pooled(records).in_prompts == pytest.approx((2.5, 0.5, 2.0))


def test_the_command_prints_the_lines_and_numbers(tmp_path, monkeypatch, capsys):
    write_run(tmp_path, RARE)
    monkeypatch.setattr("sys.argv", ["plan", "--advise", str(tmp_path), "--json"])
    commands.plan()
    *said, last = capsys.readouterr().out.splitlines()
    measured = read_measured(tmp_path)
    assert said == lines(measured, advise(measured))
    assert [a["name"] for a in json.loads(last)["advice"]] == ["PODS 64 -> 16", "Pilot-Commit 4 + 12"]


def test_the_command_wants_a_config_or_a_run(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["plan"])
    with pytest.raises(SystemExit):
        commands.plan()
    assert "--config (a step to plan) or --advise" in capsys.readouterr().err
