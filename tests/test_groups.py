import dataclasses

import numpy as np

from pods_jax.groups import Group, Prompt, Request, joined, pack_groups, subset, unpack_groups


def group(count, first, version):
    at = np.arange(first, first + count)
    request = Request(Prompt(3, 3, "2+2", "4", "", (1, 2)), count, "pilot" if first == 0 else "commit", first)
    return Group(
        request=request,
        tokens=np.tile(at[:, None], (1, 5)),
        logprobs=np.float32(-np.tile(at[:, None], (1, 5))),
        lengths=at + 1,
        truncated=at % 2 == 0,
        texts=tuple(map(str, at)),
        rewards=np.float32(at) / 10,
        correct=at % 3 == 0,
        policy_versions=np.full(count, version),
        reasons=("right",) * count,
        parts={"correctness": np.float32(at)},
    )


def test_joined_keeps_every_rollout_in_order():
    pilot, commit = group(2, 0, 7), group(3, 2, 8)
    union = joined([pilot, commit])
    assert union.request == Request(pilot.request.prompt, 5, "pilot", 0)
    assert union.texts == ("0", "1", "2", "3", "4")
    assert len(union.reasons) == 5
    np.testing.assert_array_equal(union.tokens[:, 0], np.arange(5))
    np.testing.assert_array_equal(union.logprobs[:, 0], -np.arange(5))
    np.testing.assert_array_equal(union.lengths, np.arange(5) + 1)
    np.testing.assert_array_equal(union.truncated, np.arange(5) % 2 == 0)
    np.testing.assert_array_equal(union.correct, np.arange(5) % 3 == 0)
    np.testing.assert_allclose(union.rewards, np.arange(5) / 10, rtol=1e-6)
    np.testing.assert_array_equal(union.policy_versions, [7, 7, 8, 8, 8])
    np.testing.assert_array_equal(union.parts["correctness"], np.arange(5))


def test_subset_takes_rows_of_everything():
    whole = group(5, 0, 7)
    part = subset(whole, np.array([3, 1]))
    assert part.request == Request(whole.request.prompt, 2, "pilot", 0)
    assert part.texts == ("3", "1")
    assert len(part.reasons) == 2
    for name, values in whole.arrays().items():
        np.testing.assert_array_equal(getattr(part, name), values[[3, 1]])
    np.testing.assert_array_equal(part.parts["correctness"], [3, 1])


def test_the_log_probabilities_that_were_drawn_from_go_with_their_rollouts():
    pilot, commit = (dataclasses.replace(g, drawn_logprobs=g.logprobs / 2) for g in (group(2, 0, 7), group(3, 2, 8)))
    union = joined([pilot, commit])
    np.testing.assert_array_equal(union.drawn_logprobs[:, 0], -np.arange(5) / 2)
    np.testing.assert_array_equal(union.behaviour_logprobs, union.drawn_logprobs)
    np.testing.assert_array_equal(subset(union, np.array([4, 0])).drawn_logprobs[:, 0], [-2, 0])
    restored = unpack_groups(pack_groups([pilot, commit]))
    for mine, its in zip((pilot, commit), restored, strict=True):
        np.testing.assert_array_equal(mine.drawn_logprobs, its.drawn_logprobs)


def test_without_them_rollouts_were_drawn_from_the_full_distribution():
    plain = group(2, 0, 7)
    assert joined([plain]).drawn_logprobs is None
    assert plain.behaviour_logprobs is plain.logprobs
    assert unpack_groups(pack_groups([plain]))[0].drawn_logprobs is None
