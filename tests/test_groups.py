import numpy as np

from pods_jax.groups import Group, Prompt, Request, joined, subset


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
