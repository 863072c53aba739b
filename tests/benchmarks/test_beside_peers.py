"""Comparisons with peers at their tiniest: that they run, not how fast."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmark import beside_peers
from benchmark.contenders import Result
from benchmark.workload import write_model

ROOT = Path(__file__).parents[2]


def test_ratios_are_ours_over_theirs():
    own, peer = beside_peers.table_rows(
        "case", {"ours": Result(1.0, 2.0, 200.0, 10), "peer": Result(4.0, 6.0, 50.0, 40)}
    )
    assert "speed_up" not in own
    assert (peer["speed_up"], peer["cpu_ratio"], peer["memory"]) == (4.0, 3.0, 0.25)


def test_a_side_without_a_result_has_a_note_and_the_others_theirs():
    fine = Result(1.0, 2.0, 200.0, 10)
    own, peer = beside_peers.table_rows("case", {"ours": fine, "peer": "killed (out of memory)"})
    assert own == {"case": "case", "side": "ours", **fine._asdict()}
    assert peer == {"case": "case", "side": "peer", "note": "killed (out of memory)"}
    own, peer = beside_peers.table_rows("case", {"ours": "killed (out of memory)", "peer": fine})
    assert own["note"] == "killed (out of memory)"
    assert "speed_up" not in peer


def test_cases_are_told_as_they_come(monkeypatch, tmp_path):
    """Those that are measured are kept where a later one interrupts the command."""
    monkeypatch.setattr(beside_peers, "write_model", lambda shape, folder: None)
    outcomes = iter([{"ours": Result(1.0, 2.0, 200.0, 10)}])
    monkeypatch.setattr(beside_peers, "compare", lambda sides, repeats: next(outcomes))
    cases = [(name, {"ours": {"contender": "ours/update"}}) for name in "ab"]
    rows = beside_peers.run_cases("tiny", cases, 1)
    assert [row["case"] for row in next(rows)] == ["a"]


def test_torch_takes_the_gradient_of_the_same_loss(tmp_path):
    """The strongest torch is still the plain one: -(advantage x log-probability) over completions."""
    torch = pytest.importorskip("torch")
    peers = pytest.importorskip("benchmark.peers", reason="the extra 'peers' brings what it needs")
    write_model("tiny", tmp_path)
    options = {"folder": str(tmp_path), "prompt_tokens": 5, "new_tokens": 4, "rows": 3}
    seen = {}

    def capture(parameters, limit):
        seen["gradients"] = [p.grad.clone() for p in parameters]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.utils, "clip_grad_norm_", capture)
        torch.manual_seed(0)
        assert peers.update(options)() == 3 * 9
    torch.manual_seed(0)
    model = peers.load(str(tmp_path)).train()
    ids, advantages = torch.randint(3, model.config.vocab_size, (3, 9)), torch.randn(3, 1)
    logprobs = torch.log_softmax(model(input_ids=ids).logits[:, 4:-1], -1).gather(-1, ids[:, 5:, None])[..., 0]
    (-(advantages * logprobs).mean()).backward()
    for ours, plain in zip(seen["gradients"], model.parameters(), strict=True):
        torch.testing.assert_close(ours, plain.grad, rtol=1e-4, atol=1e-6)


def test_transformers_ends_completions_where_their_first_token_says(tmp_path):
    torch = pytest.importorskip("torch")
    peers = pytest.importorskip("benchmark.peers", reason="the extra 'peers' brings what it needs")
    write_model("tiny", tmp_path)
    options = {"folder": str(tmp_path), "prompt_tokens": 5, "new_tokens": 12, "n": 8, "mean_length": 3}
    torch.manual_seed(0)
    tokens = peers.tails(options)()
    torch.manual_seed(0)
    assert peers.tails(options | {"new_tokens": 24})() >= tokens >= 8


def test_the_command_line_leaves_out_missing_peers_and_writes_json(tmp_path):
    sizes = ["--shape=tiny", "--counts", "2", "--prompt-tokens=4", "--new-tokens=4", "--repeats=1"]
    command = [sys.executable, "experiments/benchmark.py", "update", *sizes, f"--json={tmp_path / 'out.json'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    written = json.loads((tmp_path / "out.json").read_text())
    rows = {row["side"]: row for row in written["update"]}
    assert rows.keys() == {"ours", "ours, no shared prompt", "torch"}
    assert rows["ours"]["seconds"] > 0
    assert rows["ours"]["peak_bytes"] > 50e6
    assert written["machine"]["cores"] > 0
    if beside_peers.missing_package("torch/update"):
        assert rows["torch"]["note"] == "not installed: torch"
        assert "not installed: torch" in done.stdout
    else:
        assert rows["torch"]["seconds"] > 0
