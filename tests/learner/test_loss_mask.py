"""Observation tokens: whatever their log-probabilities, loss and gradient do not know of them."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pods_jax.buckets import pad_prompts
from pods_jax.config.schema import ObjectiveConfig, default_config, from_mapping
from pods_jax.groups import Group, Prompt, Request, joined, pack_groups, subset, unpack_groups
from pods_jax.learner import Batch, init_state, make_update
from pods_jax.learner.batch import Kept, make_batch
from pods_jax.learner.logprobs import group_logprobs
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.objective import CORRECTIONS, LEVELS, LOSSES, SURROGATES, policy_loss
from pods_jax.parallel import make_mesh
from pods_jax.training.metrics import mismatch_metrics, rollout_metrics

MODEL = Decoder(
    ModelConfig(
        vocab_size=7, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4,
    )
)  # fmt: skip
PROMPTS = [[1], [2, 3, 4], [5, 6], [3, 3]]
P, M, T = 4, 4, 8
LIMIT = 12
GRADIENTS = optax.trace(decay=0.0)  # an optimizer whose state is the last gradient
OFF_POLICY = {"epsilon": 0.1, "epsilon_high": 1.2, "beta": 0.2, "importance_sampling_cap": 1.1}


def params():
    return jax.tree.map(lambda x: x * 8, init_params(MODEL, jax.random.key(0)))


@functools.cache
def batch() -> Batch:
    """Random rollouts of several turns, some of one, and one that is left out."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, T + 1, (P, M))
    mask = rng.random((P, M, T)) < 0.6
    mask[..., 0] = True
    mask[2] = True
    mask &= np.arange(T) < lengths[..., None]
    lengths[1, 2] = 0
    behaviour, old, reference = (np.float32(rng.normal(-2, 0.5, (P, M, T))) for _ in range(3))
    prompts, prompt_lengths = pad_prompts(PROMPTS)
    return jax.tree.map(
        jnp.asarray,
        Batch(
            prompts=prompts,
            prompt_lengths=prompt_lengths,
            completions=np.int32(rng.integers(0, 7, (P, M, T))),
            lengths=np.int32(lengths),
            advantages=np.float32(rng.normal(size=(P, M))),
            behaviour_logprobs=behaviour,
            old_logprobs=old,
            ref_logprobs=reference,
            loss_mask=mask,
        ),
    )


def own():
    """[P, M, T] the tokens that count."""
    b = batch()
    return np.asarray(b.loss_mask) & (np.arange(T) < np.asarray(b.lengths)[..., None])


CHOICES = [*itertools.zip_longest(sorted(LOSSES), sorted(SURROGATES), sorted(LEVELS), sorted(CORRECTIONS))]
COMBINATIONS = [tuple(x or y for x, y in zip(choice, CHOICES[0], strict=True)) for choice in CHOICES]
"""Every name of every family is in one of them."""


def options_of(loss_type, surrogate, level, correction):
    return OFF_POLICY | {
        "loss_type": loss_type,
        "surrogate": surrogate,
        "importance_sampling_level": level,
        "importance_sampling_mode": correction,
    }


def rows() -> Batch:
    """The batch's rollouts without their prompts, [P M, ...]."""
    rollouts = batch()._replace(prompts=None, prompt_lengths=None)
    return jax.tree.map(lambda x: x.reshape(P * M, *x.shape[2:]), rollouts)


@functools.cache
def loss_and_gradient(names):
    """(log-probabilities of the policy, the old one, the reference, the behaviour) -> loss, metrics, and gradient."""
    mask = jnp.asarray(own().reshape(P * M, T))
    options = options_of(*names) | {"max_completion_length": LIMIT}

    def loss(logprobs, old, reference, behaviour):
        others = {"ref_logprobs": reference, "behaviour_logprobs": behaviour}
        return policy_loss(logprobs, old, rows().advantages, mask, **others, **options)

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


@pytest.mark.parametrize("names", COMBINATIONS, ids=str)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1.0, 30.0, 1e4]))
def test_observations_change_no_loss_and_have_no_gradient(names, seed, scale):
    """To the bit, whatever all four policies think of them."""
    noise = np.float32(np.random.default_rng(seed).normal(0, scale, (4, P * M, T)))
    mask = own().reshape(P * M, T)
    plain = rows().behaviour_logprobs - 0.1, rows().old_logprobs, rows().ref_logprobs, rows().behaviour_logprobs
    noisy = [jnp.where(mask, x, x + more) for x, more in zip(plain, noise, strict=True)]
    expected = loss_and_gradient(names)(*plain)
    jax.tree.map(np.testing.assert_array_equal, loss_and_gradient(names)(*noisy), expected)
    gradient = np.asarray(expected[1])
    assert not gradient[~mask].any()
    assert gradient[mask].any()


# ---------------------------------------------------------------- the update


@functools.cache
def updated(names, micro_batch_size):
    """State and metrics of an update on the batch, in blocks of at most a micro-batch."""
    size = min(M, micro_batch_size or M)
    prompts = {k: jnp.repeat(getattr(batch(), k), M // size, 0) for k in ("prompts", "prompt_lengths")}
    rollouts = batch()._replace(prompts=None, prompt_lengths=None)
    blocks = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[2:]), rollouts)._replace(**prompts)
    return run_update(blocks, names, micro_batch_size)


def run_update(blocks, names, micro_batch_size=None):
    mesh = make_mesh(1, 1, 1)
    update = make_update(
        MODEL, GRADIENTS, ObjectiveConfig(**options_of(*names), entropy_coef=0.1), temperature=1.0,
        micro_batch_size=micro_batch_size, chunk_size=None, max_completion_length=LIMIT, mesh=mesh,
    )  # fmt: skip
    state, metrics, _ = update(init_state(MODEL, params(), GRADIENTS, mesh), blocks)
    return state, metrics


def expected_update(names):
    """Loss and gradient, from the definition, on the rollouts that count."""
    b = batch()
    counts = np.flatnonzero(b.lengths)
    counting = jax.tree.map(lambda x: x[counts], rows())
    mask = jnp.asarray(own().reshape(P * M, T)[counts])

    def loss(params):
        scores = group_logprobs(MODEL, params, b.prompts, b.prompt_lengths, b.completions, entropy_gradient=True)
        logprobs, entropies = (x.reshape(P * M, T)[counts] for x in scores)
        value, _ = policy_loss(
            logprobs, counting.old_logprobs, counting.advantages, mask, ref_logprobs=counting.ref_logprobs,
            behaviour_logprobs=counting.behaviour_logprobs, max_completion_length=LIMIT, **options_of(*names),
        )  # fmt: skip
        entropy = jnp.where(mask, entropies, 0.0).sum() / mask.sum()
        return value - 0.1 * entropy, entropy

    return jax.value_and_grad(loss, has_aux=True)(params())


@pytest.mark.parametrize("micro_batch_size", [None, 8, 2])
@pytest.mark.parametrize("names", COMBINATIONS[:3], ids=str)
def test_the_update_counts_the_policys_tokens_in_any_micro_batches(names, micro_batch_size):
    state, metrics = updated(names, micro_batch_size)
    (loss, entropy), gradient = expected_update(names)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-5)
    for found, expected in zip(jax.tree.leaves(state.opt_state.trace), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


def test_a_mask_of_everything_is_no_mask():
    names = COMBINATIONS[0]
    whole = jnp.arange(T) < batch().lengths[..., None]
    results = [run_update(batch()._replace(loss_mask=mask), names) for mask in (whole, None)]
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_the_mismatch_is_of_the_policys_tokens():
    b = batch()._replace(versions=jnp.zeros((P, M), jnp.int32))
    before = b.behaviour_logprobs + 1
    metrics = mismatch_metrics([jnp.where(own(), before, 1e6)], [b], 0)
    assert metrics["sampling/sampling_logp_difference/mean"] == pytest.approx(1.0, rel=1e-5)
    assert metrics["sampling/sampling_logp_difference/max"] == pytest.approx(1.0, rel=1e-5)


# ---------------------------------------------------------------- groups


def group(count, uid=0, first=0, masked=True):
    rng = np.random.default_rng([uid, first])
    lengths = rng.integers(2, T + 1, count)
    mask = (rng.random((count, T)) < 0.5) & (np.arange(T) < lengths[:, None])
    mask[:, 0] = True
    return Group(
        request=Request(Prompt(uid, uid, "", "", "", (1, 2)), count, "plain", first),
        tokens=np.int32(rng.integers(0, 7, (count, T))),
        logprobs=np.float32(rng.normal(size=(count, T))),
        lengths=lengths,
        truncated=np.zeros(count, bool),
        texts=("",) * count,
        rewards=np.float32(rng.normal(size=count)),
        correct=np.zeros(count, bool),
        policy_versions=np.zeros(count, int),
        loss_mask=mask if masked else None,
    )


@pytest.mark.parametrize("masked", [True, False])
def test_groups_are_packed_and_unpacked_with_their_masks(masked):
    groups = [group(3, 0, masked=masked), group(2, 1, masked=masked)]
    for found, expected in zip(unpack_groups(pack_groups(groups)), groups, strict=True):
        assert found.request == expected.request
        assert found.arrays().keys() == expected.arrays().keys()
        for name, values in expected.arrays().items():
            np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)
        np.testing.assert_array_equal(found.own_lengths, found.own_mask.sum(1))


def test_masks_are_joined_and_cut_with_their_rollouts():
    pilot, commit = group(2, 0), group(3, 0, first=2)
    both = joined([pilot, commit])
    np.testing.assert_array_equal(both.loss_mask, np.concatenate([pilot.loss_mask, commit.loss_mask]))
    np.testing.assert_array_equal(subset(both, np.array([4, 0])).loss_mask, both.loss_mask[[4, 0]])


def test_batches_hold_the_masks_of_their_rows_and_the_counts_of_those_left_out():
    c = default_config()
    c.rollout.num_prompts, c.selection.num_kept, c.rollout.max_completion_length = 3, 4, T
    c.optimizer.micro_batch_size_per_device = 2
    config, _ = from_mapping(c)
    groups = [group(6, 0), group(4, 1), group(4, 2)]
    kept = [Kept(g, np.arange(4)[::-1], np.ones(4, np.float32), idle=g is groups[2]) for g in groups]
    made = make_batch(config, kept, 1)
    laid_out = made.lengths > 0
    assert laid_out.sum() == 8
    found = {
        row.tobytes(): mask.tolist()
        for row, mask in zip(made.completions[laid_out], made.loss_mask[laid_out], strict=True)
    }
    expected = {g.tokens[i].tobytes(): g.loss_mask[i].tolist() for g in groups[:2] for i in range(4)}
    assert found == expected
    assert sorted(made.left_out_tokens[made.left_out_lengths > 0]) == sorted(groups[2].own_lengths)
    assert make_batch(config, [Kept(group(4, masked=False), np.arange(4), np.ones(4, np.float32))], 1).loss_mask is None


def test_lengths_and_turns_in_metrics():
    groups = [group(3, 0), group(2, 1)]
    own_lengths = np.concatenate([g.loss_mask.sum(1) for g in groups])
    metrics = rollout_metrics(groups)
    assert metrics["completions/mean_length"] == pytest.approx(own_lengths.mean())
    assert metrics["completions/max_length"] == own_lengths.max()
    assert metrics["turns/observation_tokens"] == pytest.approx(
        np.mean(np.concatenate([g.lengths for g in groups]) - own_lengths)
    )
    strings = ["".join("x" if t else " " for t in row) for g in groups for row in g.loss_mask]
    assert metrics["turns/mean"] == pytest.approx(np.mean([len(s.split()) for s in strings]))
    assert metrics["turns/max"] == max(len(s.split()) for s in strings)
    assert not [name for name in rollout_metrics([group(3, masked=False)]) if name.startswith("turns/")]
