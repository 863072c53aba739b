"""Every comparison at its tiniest: that it runs and counts what it says, not how fast."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmark import accelerator, beside_peers, ours, phases, selection, verification
from benchmark.contenders import Contender, Result, summarise
from benchmark.report import print_table
from benchmark.workload import SHAPES, digits, end_ids, reward, write_model

from pods_jax.config.schema import from_mapping
from pods_jax.data.tokenizers import load_tokenizer
from pods_jax.errors import UserError

ROOT = Path(__file__).parents[2]
OPTIONS = {"prompt_tokens": 8, "new_tokens": 8, "remat": "full", "micro_batch_size": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    write_model("tiny", path)
    return str(path)


def test_a_prompt_has_a_token_a_digit(folder):
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode_prompt(digits(50)) == [3 + int(d) for d in digits(50)]
    assert tokenizer.decode([3, 200]) != tokenizer.decode([3, 201])


def test_one_in_mean_length_tokens_ends_a_completion():
    assert len(end_ids(49_152, 16)) == 49_152 / 16
    assert end_ids(49_152, None) == []


def test_rewards_differ():
    assert set(reward([digits(4, seed) for seed in range(20)])) == {0.0, 1.0}


def test_medians_and_peaks():
    turns = [{"seconds": s, "tokens": 10, "peak_bytes": p} for s, p in ((1.0, 5), (4.0, 9), (2.0, 7))]
    assert summarise(turns) == Result(2.0, 5.0, 9)


def test_ratios_are_ours_over_theirs():
    results = {"case": {"ours": Result(1.0, 200.0, 10), "peer": Result(4.0, 50.0, 40)}}
    own, peer = beside_peers.table_rows(results)
    assert "speed_up" not in own
    assert (peer["speed_up"], peer["memory"]) == (4.0, 0.25)


def test_a_sampler_counts_tokens_up_to_their_ends(folder):
    options = OPTIONS | {"folder": folder, "n": 64}
    assert ours.sampler(options | {"mean_length": None})() == 64 * 8
    mean = ours.sampler(options | {"mean_length": 4})() / 64
    assert mean == pytest.approx(4 * (1 - 0.75**8), rel=0.25)  # of geometric lengths, cut at 8


@pytest.mark.parametrize(("n", "m"), [(4, 4), (6, 2)])
def test_a_step_generates_n_completions(folder, n, m):
    assert n * 8 - 8 <= ours.step(OPTIONS | {"folder": folder, "n": n, "m": m})() <= n * 8


def test_the_command_line_leaves_out_missing_peers_and_writes_json(tmp_path):
    sizes = ["--shape=tiny", "--counts", "2", "--prompt-tokens=4", "--new-tokens=4", "--repeats=1"]
    command = [sys.executable, "experiments/benchmark.py", "update", *sizes, f"--json={tmp_path / 'out.json'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    written = json.loads((tmp_path / "out.json").read_text())
    rows = {row["side"]: row for row in written["update"]}
    assert rows["ours"]["seconds"] > 0
    assert rows["ours"]["peak_bytes"] > 50e6
    assert written["machine"]["cores"] > 0
    if beside_peers.missing_package("torch/update"):
        assert "torch: not installed: torch" in done.stdout


def test_a_contender_that_fails_is_an_error_of_one_line(tmp_path):
    with pytest.raises(UserError, match="ours/update ended with exit code 1"):
        Contender("ours/update", {"folder": str(tmp_path)})


def test_phases_of_a_config(tiny):
    tiny.optimizer.micro_batch_size_per_device = 1
    config, _ = from_mapping(tiny)
    with phases.started(config) as run:
        sizes = phases.config_sizes(run)._replace(P=2, n=2, m=2)
        seconds = phases.measure(run, sizes, repeats=1)
        rows = phases.table_rows(run, sizes, seconds)
    assert list(seconds) == ["prefill", "decode", "verify", "score", "update", "sync"]
    assert all(s > 0 for phase, s in seconds.items() if phase != "decode")  # that one is a difference
    [update] = [row for row in rows if row["phase"] == "update"]
    assert update["tokens_per_s"] == pytest.approx(2 * 2 * sizes.T / seconds["update"])
    assert 0 < update["of_peak"] < 1


def test_exponents():
    assert phases.exponent([2, 4, 8], [3 * x**1.5 for x in (2, 4, 8)]) == pytest.approx(1.5)


def test_an_accelerators_table(capsys):
    rows = accelerator.run(SHAPES["tiny"], counts=[2], rows=[2], S=4, T=8, budget_s=600.0, probe_bytes=2**22)
    assert [row["work"] for row in rows] == ["limits", "decode, n = 2", "update, m = 2"]
    assert 0 < rows[2]["of_limit"] < 1
    assert np.isfinite(rows[1]["of_limit"])
    print_table("gpu", rows)
    assert "update, m = 2" in capsys.readouterr().out
    assert len(accelerator.run(SHAPES["tiny"], counts=[2], rows=[2], S=4, T=8, budget_s=0.0, probe_bytes=2**22)) == 1


def test_selection_is_timed_beside_a_loop_that_finds_the_same_variance():
    ours, loop = selection.table_rows(groups=64, generations=16, kept=4, repeats=3)
    assert loop["speed_up"] == loop["seconds"] / ours["seconds"] > 0
    assert loop["processor_ratio"] == loop["processor_s"] / ours["processor_s"]


def test_choices_of_another_variance_are_noticed():
    rewards = np.float32([[0, 0, 1, 1]])
    selection.assert_equal_variances(rewards, selection.authors_loop(rewards[0], 2)[None], np.array([[1, 3]]))
    with pytest.raises(AssertionError):
        selection.assert_equal_variances(rewards, np.array([[0, 1]]), np.array([[1, 3]]))


PAIRS = [("The answer is \\boxed{1/2}", "0.5"), ("\\boxed{x + x}", "2x"), ("\\boxed{3}", "4")]


def test_verification_is_timed_on_what_is_left_to_workers(tmp_path):
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(json.dumps({"completion": c, "gold": g}) + "\n" for c, g in PAIRS))
    pairs = verification.read_pairs(path)
    assert pairs == PAIRS
    [row] = verification.by_workers(pairs, counts=[1], min_calls=10)
    assert row["share"] == 1 / 3
    assert row["calls_per_s"] > 0
    with pytest.raises(UserError, match="no lines with 'completion' and 'gold'"):
        verification.read_pairs(tmp_path / "absent.jsonl")
    path.write_text("")
    with pytest.raises(UserError, match="it is empty"):
        verification.read_pairs(path)


def test_verification_beside_math_verify():
    pytest.importorskip("math_verify")
    _, peer = verification.beside_math_verify(PAIRS, repeats=1)
    assert peer["agreement"] == 1
