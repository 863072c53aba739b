"""Gradients of single groups, against the gradient of each rollout's log-probability on its own, summed in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pods_jax.config.schema import default_config, from_mapping
from pods_jax.groups import Group, Prompt, Request
from pods_jax.learner import init_state, make_update
from pods_jax.learner.batch import block_size, make_batch
from pods_jax.learner.group_gradients import make_group_gradients
from pods_jax.learner.update import BatchLoss
from pods_jax.models.decoder import Decoder, ModelConfig, init_params, model_weights
from pods_jax.models.shardings import weight_shardings
from pods_jax.parallel import batch_sharding, make_mesh, place
from pods_jax.rollout import token_logprobs
from pods_jax.training.noise_measurement import _rows_of
from pods_jax.training.step import select_groups

MODEL = Decoder(
    ModelConfig(
        vocab_size=7, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4,
    )
)  # fmt: skip
PROMPTS, T = [(1,), (2, 3, 4), (5, 6)], 5
GRADIENTS = optax.trace(decay=0.0)  # an optimizer whose state is the last gradient
MESH = make_mesh(1, 1, 1)


def params():
    return jax.tree.map(lambda x: x * 8, init_params(MODEL, jax.random.key(0)))


def groups():
    """Two groups of 4 for each prompt, of any tokens; all rewards of one are equal."""
    rng = np.random.default_rng(0)
    found = []
    for i, prompt in enumerate(PROMPTS):
        for k in range(2):
            rewards = np.float32([1, 0, *rng.integers(0, 2, 2)]) if (i, k) != (1, 0) else np.ones(4, np.float32)
            found.append(
                Group(
                    Request(Prompt(i, i, "", "", "", prompt), 4), rng.integers(0, 7, (4, T)).astype(np.int32),
                    np.zeros((4, T), np.float32), rng.integers(1, T + 1, 4), np.zeros(4, bool), ("",) * 4, rewards,
                    rewards == 1, np.zeros(4, int),
                )
            )  # fmt: skip
    return found


def config(loss_type, micro):
    c = default_config()
    c.rollout.num_prompts, c.rollout.num_generations, c.rollout.max_completion_length = 6, 4, T
    c.selection.num_kept, c.selection.rule = 4, "all"
    c.objective.loss_type, c.optimizer.micro_batch_size_per_device = loss_type, micro
    return from_mapping(c)[0]


def expected(loss_type):
    """The gradient [3, 2, parameters] of each group's share in the loss, times the number of groups."""
    flat, unravel = jax.flatten_util.ravel_pytree(params())

    def summed(flat, row, prompt_length, length, weights):
        logprobs = token_logprobs(MODEL, unravel(flat), row[None], prompt_length[None], length[None])[0]
        return (logprobs[:T] * weights).sum()

    gradient = jax.jit(jax.grad(summed))
    all_groups = groups()
    tokens = sum(g.lengths.sum() for g in all_groups)
    found = np.zeros((6, len(flat)))
    for total, g in zip(found, all_groups, strict=True):
        centred = g.rewards - g.rewards.mean()
        advantages = centred / (g.rewards.std(ddof=1) + 1e-4)
        prompt = g.request.prompt.tokens
        for row, length, advantage in zip(g.tokens, g.lengths, advantages, strict=True):
            whole = np.zeros(3 + T + 1, np.int32)
            whole[: len(prompt)], whole[len(prompt) : len(prompt) + T] = prompt, row
            weight = advantage / (len(all_groups) * 4 * length) if loss_type == "grpo" else advantage / tokens
            weights = jnp.where(jnp.arange(T) < length, weight, 0.0)
            total -= np.float64(gradient(flat, jnp.asarray(whole), np.int32(len(prompt)), np.int32(length), weights))
    return found.reshape(3, 2, -1) * len(all_groups)


@pytest.mark.parametrize(("loss_type", "micro"), [("grpo", 2), ("dapo", None)])
def test_moments_are_those_of_the_groups_gradients(loss_type, micro):
    c = config(loss_type, micro)
    kept, _ = select_groups(c, groups(), jax.random.key(0))
    batch = make_batch(c, kept, 1)
    shardings = weight_shardings(model_weights(MODEL.config), MESH)
    model = MODEL.clone(activations=batch_sharding(MESH))
    loss = BatchLoss(model, c.objective, 1.0, None, T, 0.0, shardings)
    rows = _rows_of(kept, block_size(c))
    assert [[len(r) for r in of_prompt] for of_prompt in rows][1][0] == 0  # the degenerate group is not laid out
    placed = place(batch, batch_sharding(MESH))
    found = make_group_gradients(loss, MESH).moments(params(), None, placed, rows)
    g = expected(loss_type)
    means = g.mean(1)
    np.testing.assert_allclose(found.group_squares, (g**2).sum(-1), rtol=2e-4, atol=1e-9)
    np.testing.assert_allclose(found.prompt_squares, (means**2).sum(-1), rtol=2e-4)
    np.testing.assert_allclose(found.dots, means @ means.mean(0), rtol=2e-3, atol=1e-7)

    update = make_update(
        MODEL, GRADIENTS, c.objective, temperature=1.0, micro_batch_size=micro, chunk_size=None,
        max_completion_length=T, mesh=MESH,
    )  # fmt: skip
    _, metrics, _ = update(init_state(MODEL, params(), GRADIENTS, MESH), batch)
    assert float(metrics["grad_norm"]) ** 2 == pytest.approx(found.dots.mean(), rel=1e-3)
