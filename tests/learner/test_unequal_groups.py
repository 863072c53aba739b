"""The update on groups of 3, 5 and 8 rollouts, against a loss accounted for row by row in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pods_jax.config.schema import default_config, from_mapping
from pods_jax.groups import Group, Prompt, Request
from pods_jax.learner import init_state, make_update
from pods_jax.learner.batch import make_batch
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.parallel import make_mesh
from pods_jax.rollout import generate, token_logprobs
from pods_jax.training.step import select_groups

MODEL = Decoder(
    ModelConfig(
        vocab_size=7, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4,
    )
)  # fmt: skip
PROMPTS, SIZES, T = [(1,), (2, 3, 4), (5, 6)], (3, 5, 8), 5
GRADIENTS = optax.trace(decay=0.0)  # an optimizer whose state is the last gradient
CLIP, LIMIT = 0.2, 5


def params(seed=0):
    return jax.tree.map(lambda x: x * 8, init_params(MODEL, jax.random.key(seed)))


@functools.cache
def groups():
    """Sampled from another policy than the one that is updated; one reward is not a number."""
    sizes = {"num_generations": max(SIZES), "max_new_tokens": T, "eos_ids": (0,)}
    sampled = jax.device_get(generate(MODEL, params(1), PROMPTS, key=jax.random.key(0), **sizes))
    rewards = np.float32(np.random.default_rng(0).integers(0, 3, sampled.lengths.shape))
    rewards[2, 1] = np.nan
    return [
        Group(
            Request(Prompt(i, i, "", "", "", prompt), n), sampled.tokens[i, :n], sampled.logprobs[i, :n],
            sampled.lengths[i, :n], sampled.truncated[i, :n], ("",) * n, rewards[i, :n], rewards[i, :n] == 2,
            np.zeros(n, int),
        )
        for i, (prompt, n) in enumerate(zip(PROMPTS, SIZES, strict=True))
    ]  # fmt: skip


def config(loss_type="grpo", num_prompts=4, num_kept=4, micro=None, rule="all"):
    c = default_config()
    c.rollout.num_prompts, c.selection.num_kept, c.rollout.max_completion_length = num_prompts, num_kept, T
    c.objective.loss_type, c.objective.old_logprobs, c.selection.rule = loss_type, "behaviour", rule
    c.optimizer.micro_batch_size_per_device = micro
    return from_mapping(c)[0]


@functools.cache
def compiled(objective, micro):
    return make_update(
        MODEL, GRADIENTS, objective, temperature=1.0, micro_batch_size=micro, chunk_size=None,
        max_completion_length=LIMIT, mesh=make_mesh(1, 1, 1),
    )  # fmt: skip


def updated(c, groups):
    kept, _ = select_groups(c, groups, jax.random.key(0))
    batch = make_batch(c, kept, 1)
    update = compiled(c.objective, c.optimizer.micro_batch_size_per_device)
    return update(init_state(MODEL, params(), GRADIENTS, make_mesh(1, 1, 1)), batch), batch


# ---------------------------------------------------------------- the truth


def advantages(rewards):
    rewards = np.float64(rewards)
    centred = rewards - np.nanmean(rewards)
    return np.nan_to_num(centred / (np.nanstd(rewards, ddof=1) + 1e-4))


@functools.cache
def rows():
    """Every rollout of a finite reward: tokens, prompt and completion length, advantage, sampling log-probabilities."""
    found = []
    for g in groups():
        prompt = g.request.prompt.tokens
        for i, advantage in enumerate(advantages(g.rewards)):
            if np.isfinite(g.rewards[i]):
                tokens = np.concatenate([prompt, g.tokens[i], np.zeros(3 - len(prompt), int)])
                found.append((tokens.astype(int), len(prompt), int(g.lengths[i]), advantage, np.float64(g.logprobs[i])))
    return [np.array(column) for column in zip(*found, strict=True)]


def weighted_logprobs(params, weights):
    tokens, prompt_lengths, lengths, _, _ = rows()
    ints = (jnp.asarray(x, jnp.int32) for x in (tokens, prompt_lengths, lengths))
    logprobs = token_logprobs(MODEL, params, *ints, max_completion_length=T)
    return (logprobs * weights).sum(), logprobs


def expected(loss_type):
    """The clipped loss by hand, and its gradient through d loss / d log-probability of every token."""
    _, _, lengths, advantage, behaviour = rows()
    gradient = jax.jit(jax.grad(weighted_logprobs, has_aux=True))
    logprobs = np.float64(gradient(params(), jnp.zeros((len(lengths), T)))[1])
    mask = np.arange(T) < lengths[:, None]
    ratio, a = np.exp(np.where(mask, logprobs - behaviour, 0)), advantage[:, None]
    clipped = np.clip(ratio, 1 - CLIP, 1 + CLIP)
    weight = {
        "grpo": mask / lengths[:, None] / len(lengths),
        "dapo": mask / lengths.sum(),
        "dr_grpo": mask / LIMIT / len(lengths),
    }[loss_type]
    loss = -(weight * np.minimum(ratio * a, clipped * a)).sum()
    slope = -weight * np.where(ratio * a <= clipped * a, ratio * a, 0)
    assert (slope[mask] == 0).any()  # some are clipped
    return loss, gradient(params(), jnp.float32(slope))[0]


@pytest.mark.parametrize(
    "case",
    [
        {"loss_type": "grpo", "num_kept": 8, "num_prompts": 3},  # a block a group
        {"loss_type": "dapo", "num_kept": 4},  # the larger groups are cut
        {"loss_type": "dr_grpo", "num_kept": 4, "micro": 2},  # and cut finer, by micro-batches
    ],
    ids=str,
)
def test_loss_and_gradient_are_those_of_the_rows(case):
    (state, metrics, _), _ = updated(config(**case), groups())
    loss, gradient = expected(case["loss_type"])
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5)
    for (path, g), e in zip(jax.tree.leaves_with_path(state.opt_state.trace), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-6, err_msg=jax.tree_util.keystr(path))


def test_padding_changes_nothing():
    """The same groups in a batch for 3 groups and in one for 16."""
    (_, few, _), small = updated(config(num_kept=8, num_prompts=3), groups())
    (_, many, _), large = updated(config(num_kept=8, num_prompts=16), groups())
    assert (small.lengths.shape, large.lengths.shape) == ((3, 8), (16, 8))
    for name in few:
        np.testing.assert_allclose(few[name], many[name], rtol=1e-6, atol=1e-8, err_msg=name)


def test_numbers_of_groups_share_a_program():
    """2, 3 and 4 groups are 4, 5 and 6 blocks of 4: the usual 4 or less, or 6."""
    c = config("dapo")
    updated(c, groups()[1:2])
    updated(c, groups())
    before = compiled(c.objective, None)._cache_size()
    updated(c, groups()[1:])
    updated(c, [*groups(), groups()[0]])
    assert compiled(c.objective, None)._cache_size() == before
