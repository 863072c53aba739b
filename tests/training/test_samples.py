"""The sample of a group: its extremes among kept and dropped rollouts, in a record and in words."""

import numpy as np
import pytest

from pods_jax.analysis.runs import describe, sample_text
from pods_jax.groups import Group, Prompt, Request
from pods_jax.learner.batch import Kept
from pods_jax.training.samples import sample_record

REWARDS = np.array([0.0, 1.0, 0.25, np.nan, 0.75, 0.5], np.float32)


def group(uid=0):
    n = len(REWARDS)
    return Group(
        request=Request(Prompt(uid, 0, f"prompt {uid}", "gold", "", (1, 2)), n),
        tokens=np.zeros((n, 3), int),
        logprobs=np.zeros((n, 3)),
        lengths=np.arange(n),
        truncated=np.arange(n) == 5,
        texts=tuple("abcdef"),
        rewards=REWARDS,
        correct=REWARDS == 1,
        policy_versions=np.zeros(n, int),
        reasons=("mismatch", "match", "mismatch", "crashed", "mismatch", "no answer"),
        parts={"correctness": REWARDS, "format": np.full(n, 0.5)},
    )


def kept(rows, uid=0):
    return Kept(group(uid), np.array(rows, int), np.linspace(-1.5, 1.5, len(rows)))


def test_the_extremes_of_both_sorts_are_shown_with_all_that_happened_to_them():
    record = sample_record(7, [kept([0, 1, 4])], None)
    assert (record["step"], record["prompt"], record["gold"], record["reads"]) == (7, "prompt 0", "gold", None)
    assert record["kept"] == [0, 1, 4]
    np.testing.assert_array_equal(record["rewards"], REWARDS)
    assert [r["completion"] for r in record["rollouts"]] == ["b", "a", "f", "d"]
    assert record["rollouts"][0] == {
        "kept": True, "advantage": 0.0, "reward": 1.0, "parts": {"correctness": 1.0, "format": 0.5}, "correct": True,
        "reason": "match", "tokens": 1, "truncated": False, "completion": "b", "reads": None,
    }  # fmt: skip
    assert [r["advantage"] for r in record["rollouts"]] == [0.0, -1.5, None, None]


@pytest.mark.parametrize(("rows", "shown"), [([2], "cbd"), ([2, 2, 5], "fcbd"), (range(6), "bd")])
def test_of_few_rollouts_all_are_shown_once(rows, shown):
    assert [r["completion"] for r in sample_record(1, [kept(rows)], None)["rollouts"]] == list(shown)


def test_a_group_that_teaches_something_goes_first():
    idle = kept([0, 2])._replace(advantages=np.zeros(2))
    assert sample_record(1, [kept([]), idle, kept([1, 2], uid=3)], None)["prompt"] == "prompt 3"
    assert sample_record(1, [idle, kept([], uid=3)], None)["prompt"] == "prompt 0"


def test_a_person_reads_what_happened():
    record = sample_record(7, [kept([0, 1])], lambda prompt, output: f"<{prompt}|{output}>")
    assert sample_text(record) == (
        "==== step 7: 2 of 6 rollouts kept ====\n"
        "prompt: prompt 0\n"
        "reads:  <prompt 0|gold>\n"
        "gold:   gold\n"
        "\n"
        "---- kept, advantage +1.50; reward 1, correctness 1, format 0.5; right (match); 1 tokens ----\n"
        "b\n"
        "reads:  <prompt 0|b>\n"
        "\n"
        "---- kept, advantage -1.50; reward 0, correctness 0, format 0.5; wrong (mismatch); 0 tokens ----\n"
        "a\n"
        "reads:  <prompt 0|a>\n"
        "\n"
        "---- dropped; reward 0.75, correctness 0.75, format 0.5; wrong (mismatch); 4 tokens ----\n"
        "e\n"
        "reads:  <prompt 0|e>\n"
        "\n"
        "---- dropped; reward not finite, correctness not finite, format 0.5; wrong (crashed); 3 tokens ----\n"
        "d\n"
        "reads:  <prompt 0|d>\n"
        "\n"
    )


def test_what_a_log_file_has_no_number_for_is_told_too():
    rollout = sample_record(1, [kept([])], None)["rollouts"][-1] | {"reward": None, "truncated": True, "parts": {}}
    assert describe(rollout) == "dropped; reward not finite; wrong (crashed); 3 tokens, cut at the limit"
