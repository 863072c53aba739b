import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pods_jax.buckets import pad_prompts
from pods_jax.config.schema import ObjectiveConfig, OptimizerConfig
from pods_jax.learner import Batch, init_state, make_optimizer, make_update
from pods_jax.models.decoder import Decoder, ModelConfig, Weight, model_weights
from pods_jax.objective import LEVELS, LOSSES, SURROGATES, policy_loss
from pods_jax.parallel import make_mesh
from pods_jax.rollout import generate, token_logprobs

CONFIG = ModelConfig(
    vocab_size=7,
    hidden_size=8,
    intermediate_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
)
MODEL = Decoder(CONFIG)
PROMPTS = [[1], [2, 3, 4], [5, 6], [3, 3, 3]]
P, M, T = 4, 4, 5
TEMPERATURE, LIMIT = 0.8, 16
GRADIENTS = optax.trace(decay=0.0)  # an optimizer whose state is the last gradient
PLAIN = {"beta": 0.0}
OFF_POLICY = {"epsilon": 0.1, "epsilon_high": 0.3, "beta": 0.2, "kl_estimator": "k3", "importance_sampling_cap": 1.1}


def params():
    """Fresh arrays every time: an update takes its state's away."""
    rng = np.random.default_rng(0)

    def draw(w):
        return jnp.asarray(rng.normal(0, 0.7, w.shape), jnp.float32)

    return jax.tree.map(draw, model_weights(CONFIG), is_leaf=lambda x: isinstance(x, Weight))


@functools.cache
def batch(off_policy):
    """Sampled groups with ragged lengths, one rollout left out; if off_policy, with older and reference policies."""
    sizes = {"num_generations": M, "max_new_tokens": T, "temperature": TEMPERATURE, "eos_ids": (0,)}
    completions = jax.tree.map(jnp.asarray, generate(MODEL, params(), PROMPTS, key=jax.random.key(0), **sizes))
    rng = np.random.default_rng(1)
    older, reference = (completions.logprobs + jnp.float32(rng.normal(0, 0.3, (P, M, T))) for _ in range(2))
    prompts, prompt_lengths = pad_prompts(PROMPTS)
    return Batch(
        prompts=jnp.asarray(prompts),
        prompt_lengths=jnp.asarray(prompt_lengths),
        completions=completions.tokens,
        lengths=jnp.asarray(completions.lengths).at[1, 2].set(0),
        advantages=jnp.float32(rng.normal(size=(P, M))),
        behaviour_logprobs=completions.logprobs,
        old_logprobs=older if off_policy else None,
        ref_logprobs=reference if off_policy else None,
    )


def options_of(off_policy, surrogate, level):
    options = (OFF_POLICY if off_policy else PLAIN) | {"surrogate": surrogate, "importance_sampling_level": level}
    return options | ({"epsilon_high": 1.1} if surrogate == "cispo" else {})


@functools.cache
def compiled_update(loss_type, micro_batch_size, off_policy, chunk_size, surrogate="clip", level="token"):
    objective = ObjectiveConfig(loss_type=loss_type, **options_of(off_policy, surrogate, level))
    sizes = {"micro_batch_size": micro_batch_size, "chunk_size": chunk_size, "max_completion_length": LIMIT}
    return make_update(MODEL, GRADIENTS, objective, temperature=TEMPERATURE, mesh=make_mesh(1, 1, 1), **sizes)


def start():
    return init_state(MODEL, params(), GRADIENTS, make_mesh(1, 1, 1))


def in_blocks(batch, size):
    """Each group as several of `size` rollouts, with a copy of its prompt each."""
    prompts = {k: jnp.repeat(getattr(batch, k), M // size, 0) for k in ("prompts", "prompt_lengths")}
    rollouts = batch._replace(prompts=None, prompt_lengths=None)
    return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[2:]), rollouts)._replace(**prompts)


@functools.cache
def first_step(*case):
    """State, metrics and log-probabilities [P, M, T] of one update."""
    blocks = in_blocks(batch(case[2]), min(M, case[1] or M))
    state, metrics, logprobs = compiled_update(*case)(start(), blocks)
    return state, metrics, logprobs.reshape(P, M, T)


# ---------------------------------------------------------------- the same, on plain rows of prompt and completion


@functools.cache
def row_program():
    """weights [P M, T] -> gradient of the weighted sum of the batch's log-probabilities, and these [P M, T]."""
    rows = np.zeros((P, M, 3 + T), np.int32)
    for p, prompt in enumerate(PROMPTS):
        rows[p, :, : len(prompt)] = prompt
        rows[p, :, len(prompt) : len(prompt) + T] = batch(False).completions[p]
    rows = jnp.asarray(rows.reshape(P * M, -1))
    lengths = jnp.repeat(batch(False).prompt_lengths, M), batch(False).lengths.ravel()
    options = {"temperature": TEMPERATURE, "max_completion_length": T}

    def weighted(params, weights):
        logprobs = token_logprobs(MODEL, params, rows, *lengths, **options)
        return (logprobs * weights).sum(), logprobs

    return functools.partial(jax.jit(jax.grad(weighted, has_aux=True)), params())


@functools.cache
def row_logprobs():
    return row_program()(jnp.zeros((P * M, T)))[1]


def expected_step(loss_type, off_policy, surrogate="clip", level="token"):
    """Loss and parameter gradient of the whole batch."""
    b = jax.tree.map(lambda x: x.reshape(P * M, *x.shape[2:]) if x.shape[:2] == (P, M) else x, batch(off_policy))
    own = np.flatnonzero(np.asarray(b.lengths))  # the one that is left out is no sequence of the loss
    old, reference, behaviour = (
        x if x is None else x[own] for x in (b.old_logprobs, b.ref_logprobs, b.behaviour_logprobs)
    )
    mask = jnp.arange(T) < b.lengths[own, None]
    options = options_of(off_policy, surrogate, level) | {"loss_type": loss_type, "max_completion_length": LIMIT}
    options |= {"ref_logprobs": reference, "behaviour_logprobs": behaviour}
    loss = jax.value_and_grad(lambda x: policy_loss(x[own], old, b.advantages[own], mask, **options)[0])
    value, weights = loss(row_logprobs())
    return value, row_program()(weights)[0]


ON_POLICY_CASE = ("grpo", None, False, None)
OFF_POLICY_CASES = [
    ("grpo", 8, True, 7),  # micro-batches of two groups
    ("dapo", 4, True, None),  # of one
    ("dr_grpo", 2, True, None),  # of half a group
]
CASES = [ON_POLICY_CASE, *OFF_POLICY_CASES]


@pytest.mark.parametrize(("loss_type", "micro_batch_size", "off_policy", "chunk_size"), CASES)
def test_loss_and_gradient_equal_those_of_the_whole_batch(loss_type, micro_batch_size, off_policy, chunk_size):
    state, metrics, _ = first_step(loss_type, micro_batch_size, off_policy, chunk_size)
    loss, gradient = expected_step(loss_type, off_policy)
    assert len(np.unique(batch(off_policy).lengths)) > 3
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5, atol=1e-7)  # a small sum of terms near 1
    assert_same_gradient(state, gradient)
    norm = np.sqrt(sum(np.square(np.float64(g)).sum() for g in jax.tree.leaves(gradient)))
    np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-5)


def assert_same_gradient(state, gradient):
    for (path, g), e in zip(jax.tree.leaves_with_path(state.opt_state.trace), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6, err_msg=jax.tree_util.keystr(path))


CHOICES = itertools.product(*(enumerate(sorted(family)) for family in (LOSSES, SURROGATES, LEVELS)))
FAST = [(i % len(LOSSES), i, 2 * i % len(LEVELS)) for i in range(len(SURROGATES))]  # every name is among them
COMBINATIONS = [
    pytest.param(*names, marks=[pytest.mark.slow] * (numbers not in FAST))
    for numbers, names in (zip(*choice, strict=True) for choice in CHOICES)
]


@pytest.mark.parametrize(("loss_type", "surrogate", "level"), COMBINATIONS)
def test_micro_batches_change_no_loss_and_no_gradient(loss_type, surrogate, level):
    """Halves of groups, off-policy, with a KL and the importance correction."""
    state, metrics, _ = first_step(loss_type, 2, True, None, surrogate, level)
    loss, gradient = expected_step(loss_type, True, surrogate, level)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5, atol=1e-7)  # a small sum of terms near 1
    assert_same_gradient(state, gradient)


@pytest.mark.parametrize("case", CASES)
def test_an_update_returns_the_logprobs_before_it(case):
    _, _, logprobs = first_step(*case)
    counted = np.arange(T) < np.asarray(batch(False).lengths)[..., None]
    expected = np.asarray(row_logprobs()).reshape(P, M, T)
    np.testing.assert_allclose(np.asarray(logprobs)[counted], expected[counted], rtol=0, atol=1e-5)


def test_metrics_are_means_over_the_tokens_that_count():
    _, metrics, _ = first_step(*OFF_POLICY_CASES[1])
    b, mask = batch(True), np.arange(T) < np.asarray(batch(True).lengths)[..., None]
    log_ratio = np.float64(row_logprobs()).reshape(P, M, T) - np.asarray(b.old_logprobs)
    high = (log_ratio > np.log(1.3)) & (np.asarray(b.advantages)[..., None] > 0)
    d = np.asarray(b.ref_logprobs) - np.float64(row_logprobs()).reshape(P, M, T)
    np.testing.assert_allclose(metrics["clip_ratio/high_mean"], high[mask].mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["kl"], (np.exp(log_ratio) * (np.exp(d) - d - 1))[mask].mean(), rtol=1e-4)
    assert 0 < metrics["entropy"] < np.log(CONFIG.vocab_size)


@pytest.mark.parametrize("case", CASES)
def test_the_sampler_agrees_with_the_learner(case):
    _, _, logprobs = first_step(*case)
    b = batch(False)
    own = np.arange(b.completions.shape[-1]) < np.asarray(b.lengths)[..., None]
    assert np.abs(logprobs - b.behaviour_logprobs)[own].max() < 1e-5


def test_on_policy_nothing_is_clipped():
    assert first_step(*ON_POLICY_CASE)[1]["clip_ratio/region_mean"] == 0


# ---------------------------------------------------------------- left out, masked, and the entropy bonus


def one_step(batch, **changes):
    """State and metrics of an update on micro-batches of one group."""
    sizes = {"micro_batch_size": M, "chunk_size": None, "max_completion_length": LIMIT}
    objective = ObjectiveConfig(**changes)
    update = make_update(MODEL, GRADIENTS, objective, temperature=TEMPERATURE, mesh=make_mesh(1, 1, 1), **sizes)
    state, metrics, _ = update(start(), batch)
    return state, metrics


@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])  # means over sequences, and over tokens
def test_a_group_without_advantages_is_left_out_at_the_same_gradient(loss_type):
    b = batch(False)
    whole = b._replace(advantages=b.advantages.at[1].set(0))
    out = jnp.zeros_like(b.lengths).at[0].set(b.lengths[1])
    less = whole._replace(lengths=b.lengths.at[1].set(0), left_out_lengths=out, left_out_tokens=out)
    expected, _ = one_step(whole, loss_type=loss_type)
    state, metrics = one_step(less, loss_type=loss_type)
    assert_same_gradient(state, expected.opt_state.trace)
    assert metrics["entropy"] > 0  # of the rollouts that are in


def test_a_batch_of_which_all_is_left_out_has_no_gradient():
    b = batch(False)
    lengths = jnp.maximum(b.lengths, 1)
    state, metrics = one_step(b._replace(lengths=0 * lengths, left_out_lengths=lengths, left_out_tokens=lengths))
    assert metrics["loss"] == metrics["grad_norm"] == 0
    assert not any(np.any(g) for g in jax.tree.leaves(state.opt_state.trace))
    assert np.isnan(metrics["entropy"])


@jax.jit
def mean_entropy(params, policy_mask):
    """Over the tokens of the mask, from the logits of plain rows."""
    rows, starts = [], []
    for prompt, completions in zip(PROMPTS, np.asarray(batch(False).completions), strict=True):
        rows += [np.pad([*prompt, *completion], (0, 3 - len(prompt))) for completion in completions]
        starts += [len(prompt) - 1] * M
    logits = MODEL.apply({"params": params}, jnp.asarray(np.stack(rows))) / TEMPERATURE
    logps = jax.nn.log_softmax(jnp.stack([row[start : start + T] for row, start in zip(logits, starts, strict=True)]))
    entropies = -(jnp.exp(logps) * logps).sum(-1).reshape(P, M, T)
    return jnp.where(policy_mask, entropies, 0.0).sum() / policy_mask.sum()


@pytest.mark.parametrize("masked", [False, True])
def test_the_entropy_bonus_has_the_gradient_of_the_mean_entropy(masked):
    b = batch(False)._replace(advantages=jnp.zeros((P, M)))
    own = jnp.arange(T) < b.lengths[..., None]
    if masked:
        b = b._replace(policy_mask=jnp.arange(T) % 2 == jnp.zeros_like(b.lengths)[..., None])
        own &= b.policy_mask
    state, metrics = one_step(b, entropy_coef=0.3)
    value, gradient = jax.value_and_grad(mean_entropy)(params(), own)
    np.testing.assert_allclose(metrics["loss"], -0.3 * value, rtol=1e-5)
    assert_same_gradient(state, jax.tree.map(lambda g: -0.3 * g, gradient))


def test_only_tokens_of_the_policy_mask_have_a_surrogate():
    b = batch(False)
    policy_mask = jnp.arange(T) < jnp.full_like(b.lengths, 2)[..., None]
    state, _ = one_step(b._replace(policy_mask=policy_mask), loss_type="dr_grpo")
    shorter = b._replace(lengths=jnp.minimum(b.lengths, 2))
    expected, _ = one_step(shorter, loss_type="dr_grpo")
    assert_same_gradient(state, expected.opt_state.trace)


# ---------------------------------------------------------------- the state


def test_the_state_is_donated_and_the_step_counted():
    update, first = compiled_update(*ON_POLICY_CASE), start()
    second, _, _ = update(first, batch(False))
    assert all(x.is_deleted() for x in jax.tree.leaves(first))
    assert second.step == 1
    assert update(second, batch(False))[0].step == 2


def test_parameters_move_by_the_optimizers_updates():
    """The optimizer of these tests hands out the gradient itself."""
    state, _, _ = first_step(*ON_POLICY_CASE)
    expected = jax.tree.map(jnp.add, params(), state.opt_state.trace)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), state.params, expected)


def test_a_batch_without_tokens_changes_nothing():
    empty = batch(False)._replace(lengths=jnp.zeros_like(batch(False).lengths))
    state, metrics, _ = compiled_update(*ON_POLICY_CASE)(start(), empty)
    assert metrics["loss"] == 0
    assert metrics["grad_norm"] == 0
    jax.tree.map(np.testing.assert_array_equal, state.params, params())


def describe(tree):
    return jax.tree.map(lambda x: (x.shape, str(x.dtype)), tree)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_state_keeps_its_types_and_shapes(dtype):
    """With the real optimizer, and gradients accumulated over micro-batches."""
    optimizer, mesh = make_optimizer(OptimizerConfig(), num_steps=10), make_mesh(1, 1, 1)
    sizes = {"micro_batch_size": 4, "chunk_size": None, "max_completion_length": LIMIT}
    update = make_update(MODEL, optimizer, ObjectiveConfig(), temperature=TEMPERATURE, mesh=mesh, **sizes)
    state = init_state(MODEL, jax.tree.map(lambda x: x.astype(dtype), params()), optimizer, mesh)
    after, metrics, logprobs = jax.eval_shape(update, state, batch(False))
    assert describe(after) == describe(state)
    assert {x.shape for x in jax.tree.leaves(metrics)} == {()}
    assert describe(logprobs) == ((P, M, T), "float32")


@pytest.mark.parametrize(
    ("bad", "loss_is_finite"), [(float("nan"), False), (float("inf"), False), (1e30, True)], ids=str
)
def test_an_update_that_is_not_finite_is_skipped(bad, loss_is_finite):
    """The state stays to the bit, whatever the optimizer; the next update is made as if there had been none.

    The loss may be finite where the norm of its gradient is not.
    """
    optimizer = make_optimizer(OptimizerConfig(learning_rate=0.1), 4)
    sizes = {"micro_batch_size": 8, "chunk_size": None, "max_completion_length": LIMIT}
    update = make_update(MODEL, optimizer, ObjectiveConfig(), temperature=1.0, mesh=make_mesh(1, 1, 1), **sizes)
    good = batch(False)
    poisoned = good._replace(advantages=good.advantages.at[0, 0].set(bad))
    state, metrics, _ = update(init_state(MODEL, params(), optimizer, make_mesh(1, 1, 1)), good)
    assert metrics["skipped_updates"] == 0
    before = jax.device_get(state)
    state, metrics, _ = update(state, poisoned)
    assert metrics["skipped_updates"] == 1
    assert (bool(np.isfinite(metrics["loss"])), bool(np.isfinite(metrics["grad_norm"]))) == (loss_is_finite, False)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(state), before)
    state, _, _ = update(state, good)
    direct, _, _ = update(jax.device_put(before), good)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(state), jax.device_get(direct))
