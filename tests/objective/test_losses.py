import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.objective import LEVELS, LOSSES, SURROGATES, group_advantages, policy_loss
from pods_jax.objective.losses import completion_mask

RNG = np.random.default_rng(0)
R, T = 4, 5
LENGTHS = np.array([5, 2, 0, 3])
MASK = np.arange(T) < LENGTHS[:, None]
LOGPROBS, OLD, REF, BEHAVIOUR = (np.float32(RNG.normal(-2, 0.5, (R, T))) for _ in range(4))
ADVANTAGES = np.float32([1.5, -0.7, 2.0, -1.2])
LIMIT = 8  # max_completion_length, more than T


def loss_of(logprobs=LOGPROBS, old=OLD, mask=MASK, advantages=ADVANTAGES, ref=REF, **options):
    options = {"max_completion_length": LIMIT, "behaviour_logprobs": jnp.asarray(BEHAVIOUR)} | options
    old, ref = (None if x is None else jnp.asarray(x) for x in (old, ref))
    return policy_loss(
        jnp.asarray(logprobs), old, jnp.asarray(advantages), jnp.asarray(mask), ref_logprobs=ref, **options
    )


def gradient(logprobs=LOGPROBS, **options):
    return np.asarray(jax.grad(lambda x: loss_of(x, **options)[0])(jnp.asarray(logprobs)))


# ---------------------------------------------------------------- the formulas, as plain loops


def clipped_surrogate(ratio, advantage, epsilon=0.2, epsilon_high=None, delta=None):
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    clipped = min(max(ratio, 1 - epsilon), high)
    unclipped = ratio if delta is None else min(ratio, delta)
    return -min(unclipped * advantage, clipped * advantage)


def kl(log_ratio, estimator):
    """log_ratio = log reference - log policy."""
    return {"k1": -log_ratio, "k2": log_ratio**2 / 2, "k3": math.exp(log_ratio) - log_ratio - 1}[estimator]


def sequence_ratio(r):
    """GSPO (Zheng et al. 2025): the geometric mean of the sequence's token ratios."""
    return math.exp(sum(float(LOGPROBS[r, t]) - float(OLD[r, t]) for t in range(LENGTHS[r])) / LENGTHS[r])


def surrogate_loss(name, ratio, r, t, **clip):
    advantage = float(ADVANTAGES[r])
    if name == "cispo":
        return -min(ratio, clip["epsilon_high"]) * advantage * float(LOGPROBS[r, t])
    return -ratio * advantage if name == "reinforce" else clipped_surrogate(ratio, advantage, **clip)


def token_loss(r, t, surrogate="clip", importance_sampling_level="token", importance_sampling_cap=None, **options):
    """The loss of one token; options: the clipping's, and the KL's."""
    beta, estimator = options.pop("beta", 0.0), options.pop("kl_estimator", "k3")
    corrected = options.pop("use_bias_correction_kl", True)
    ratio = math.exp(float(LOGPROBS[r, t]) - float(OLD[r, t]))
    level = ratio if importance_sampling_level == "token" else sequence_ratio(r)
    weight = math.exp(float(OLD[r, t]) - float(BEHAVIOUR[r, t]))
    weight = 1.0 if importance_sampling_cap is None else min(weight, importance_sampling_cap)
    penalty = beta * kl(float(REF[r, t]) - float(LOGPROBS[r, t]), estimator) * (level if corrected else 1)
    return weight * surrogate_loss(surrogate, level, r, t, **options) + penalty


def expected_loss(loss_type="grpo", **options):
    """Sequence 2 has no tokens: it counts as a sequence, as in TRL."""
    sums = [sum(token_loss(r, t, **options) for t in range(LENGTHS[r])) for r in (0, 1, 3)]
    lengths = LENGTHS[[0, 1, 3]]
    return {
        "grpo": sum(s / n for s, n in zip(sums, lengths, strict=True)) / 4,
        "dapo": sum(sums) / lengths.sum(),
        "bnpo": sum(sums) / lengths.sum(),
        "dr_grpo": sum(sums) / LIMIT / 4,
    }[loss_type]


OPTIONS = [
    {},
    {"epsilon": 0.05},
    {"epsilon": 0.1, "epsilon_high": 0.4},
    {"epsilon": 0.1, "delta": 1.05},
    {"beta": 0.3, "kl_estimator": "k1"},
    {"beta": 0.3, "kl_estimator": "k2"},
    {"beta": 0.3, "kl_estimator": "k3"},
    {"beta": 0.3, "use_bias_correction_kl": False},
    {"beta": 0.3, "importance_sampling_level": "sequence"},
    {"beta": 0.3, "use_bias_correction_kl": True, "importance_sampling_cap": 1.1},
    {"importance_sampling_level": "sequence", "epsilon": 3e-2, "epsilon_high": 4e-2},
    {"importance_sampling_level": "sequence_token", "epsilon": 3e-2, "epsilon_high": 4e-2},
    {"surrogate": "cispo", "epsilon_high": 1.1},
    {"surrogate": "reinforce", "importance_sampling_cap": 0.9},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("loss_type", sorted(LOSSES))
def test_losses_equal_plain_loops(loss_type, options):
    loss, _ = loss_of(loss_type=loss_type, **options)
    np.testing.assert_allclose(loss, expected_loss(loss_type, **options), rtol=1e-5)


def test_the_default_is_grpo_without_kl():
    np.testing.assert_allclose(loss_of()[0], expected_loss("grpo", epsilon=0.2, beta=0.0), rtol=1e-6)


def test_metrics_are_means_over_the_tokens_that_count():
    ratios = np.exp(np.float64(LOGPROBS) - OLD)
    low = MASK & (ratios < 0.9) & (ADVANTAGES < 0)[:, None]
    high = MASK & (ratios > 1.3) & (ADVANTAGES > 0)[:, None]
    log_ratios = np.float64(REF) - LOGPROBS
    kls = [ratios[token] * kl(log_ratios[token], "k3") for token in zip(*np.nonzero(MASK), strict=True)]
    _, metrics = loss_of(epsilon=0.1, epsilon_high=0.3, beta=0.1)
    assert low.any()
    assert high.any()
    np.testing.assert_allclose(metrics["clip_ratio/low_mean"], low.sum() / 10, rtol=1e-6)
    np.testing.assert_allclose(metrics["clip_ratio/high_mean"], high.sum() / 10, rtol=1e-6)
    np.testing.assert_allclose(metrics["clip_ratio/region_mean"], (low | high).sum() / 10, rtol=1e-6)
    np.testing.assert_allclose(metrics["kl"], np.mean(kls), rtol=1e-5)


def test_the_metrics_of_the_importance_correction():
    weights = np.exp(np.float64(OLD) - BEHAVIOUR)[MASK]
    assert 0 < (weights > 1.2).sum() < weights.size
    _, metrics = loss_of(importance_sampling_cap=1.2)
    name = "sampling/importance_sampling_ratio"
    np.testing.assert_allclose(metrics[f"{name}/mean"], np.minimum(weights, 1.2).mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics[f"{name}/capped"], (weights > 1.2).mean(), rtol=1e-6)
    assert not any(key.startswith(name) for key in loss_of()[1])


# ---------------------------------------------------------------- gradients


def test_without_old_logprobs_every_ratio_is_one():
    """The loss is minus the mean advantage, nothing is clipped, and the gradient is REINFORCE's."""
    loss, metrics = loss_of(old=None, epsilon=1e-6)
    np.testing.assert_allclose(loss, -ADVANTAGES[[0, 1, 3]].sum() / 4, rtol=1e-6)
    assert metrics["clip_ratio/region_mean"] == 0
    expected = np.where(MASK, -ADVANTAGES[:, None] / np.maximum(LENGTHS, 1)[:, None] / 4, 0)
    np.testing.assert_allclose(gradient(old=None), expected, rtol=1e-6)


def test_the_on_policy_gradient_is_that_of_the_expected_reward():
    """A policy softmax(θ) over three one-token answers, every answer sampled exactly as often as it is probable.

    d E[r] / d θ_i = p_i (r_i - E[r]), from the definition of the expectation.
    """
    counts, rewards = np.array([2, 3, 5]), np.array([1.0, -0.5, 2.0])
    answers = np.repeat(np.arange(3), counts)
    p = counts / 10

    def loss(theta):
        logprobs = jax.nn.log_softmax(theta)[answers][:, None]
        return policy_loss(logprobs, None, jnp.asarray(rewards[answers], jnp.float32), jnp.ones((10, 1), bool))[0]

    theta_gradient = jax.grad(loss)(jnp.log(jnp.asarray(p, jnp.float32)))
    np.testing.assert_allclose(theta_gradient, -p * (rewards - p @ rewards), rtol=1e-5, atol=1e-7)


def test_k2_and_the_corrected_k1_and_k3_have_the_gradient_of_the_exact_kl_and_k1_has_none():
    """On samples that follow the policy softmax(θ) exactly, with advantage 0: only the KL acts."""
    counts, reference = np.array([2, 3, 5]), np.log([0.5, 0.3, 0.2])
    answers = np.repeat(np.arange(3), counts)
    theta = jnp.log(jnp.asarray(counts / 10, jnp.float32))

    def loss(theta, estimator, corrected=False):
        logprobs, zeros = jax.nn.log_softmax(theta)[answers][:, None], jnp.zeros(10)
        ref = jnp.asarray(reference[answers][:, None], jnp.float32)
        options = {"beta": 1.0, "ref_logprobs": ref, "kl_estimator": estimator, "use_bias_correction_kl": corrected}
        return policy_loss(logprobs, None, zeros, jnp.ones((10, 1), bool), **options)[0]

    exact = jax.grad(lambda x: (jax.nn.softmax(x) * (jax.nn.log_softmax(x) - reference)).sum())(theta)
    np.testing.assert_allclose(jax.grad(loss)(theta, "k2"), exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.grad(loss)(theta, "k1"), 0, atol=1e-6)
    for estimator in ("k1", "k3"):
        np.testing.assert_allclose(jax.grad(loss)(theta, estimator, True), exact, rtol=1e-5, atol=1e-6)


def test_cispo_weighs_every_tokens_score():
    ratios = np.exp(np.float64(LOGPROBS) - OLD)
    assert (ratios > 1.1)[MASK].any()
    expected = -np.minimum(ratios, 1.1) * ADVANTAGES[:, None] / 10 * MASK
    got = gradient(surrogate="cispo", epsilon_high=1.1, loss_type="dapo")
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("clip", [10.0, 0.03])
def test_both_forms_of_gspo_have_the_same_gradient(clip):
    """As long as a sequence has one advantage (Zheng et al. 2025), clipped or not."""
    options = {"epsilon": clip, "loss_type": "grpo"}
    token, sequence = (gradient(importance_sampling_level=level, **options) for level in ("sequence_token", "sequence"))
    np.testing.assert_allclose(token, sequence, rtol=1e-5)
    assert sequence.any()


def test_the_importance_correction_has_no_gradient_of_its_own():
    """On-policy, it multiplies every token's gradient with min(current / behaviour, cap)."""
    weights = np.minimum(np.exp(np.float64(LOGPROBS) - BEHAVIOUR), 1.2)
    got = gradient(old=None, importance_sampling_cap=1.2)
    np.testing.assert_allclose(got, gradient(old=None) * weights, rtol=1e-5)


def test_pods_reweights_the_gradient_of_grpo_by_the_prompts_difficulty():
    """On binary rewards, per prompt with success rate p and in expectation: 1 / (2 sqrt(p (1 - p))).

    A policy softmax(θ) over four one-token answers, two of them right, each sampled exactly as often as it is probable;
    the balanced subset has as many right as wrong, each class in its own proportions.
    """
    counts, right = np.array([1, 2, 3, 6]), np.array([1, 1, 0, 0], bool)  # p = 1/4
    p = counts[right].sum() / counts.sum()
    theta = jnp.log(jnp.asarray(counts / counts.sum(), jnp.float32))

    def slope(copies):
        answers = np.repeat(np.arange(4), copies)
        A = group_advantages(jnp.asarray(right[answers][None], jnp.float32), ddof=0, epsilon=0.0)[0]

        def loss(x):
            return policy_loss(jax.nn.log_softmax(x)[answers][:, None], None, A, jnp.ones((len(A), 1), bool))[0]

        return np.asarray(jax.grad(loss)(theta))

    balanced = counts * np.where(right, 3, 1)  # 3 + 6 right, 3 + 6 wrong
    np.testing.assert_allclose(slope(balanced), slope(counts) / (2 * np.sqrt(p * (1 - p))), rtol=1e-4)
    scores = np.eye(4) - counts / counts.sum()
    means = [np.average(scores[c], axis=0, weights=counts[c]) for c in (right, ~right)]
    np.testing.assert_allclose(slope(counts), -np.sqrt(p * (1 - p)) * (means[0] - means[1]), rtol=1e-4)


def test_clipped_tokens_have_no_gradient():
    ratios = np.exp(np.float64(LOGPROBS) - OLD)
    A = ADVANTAGES[:, None]
    clipped = MASK & np.where(A > 0, ratios > 1.2, ratios < 0.8)
    assert clipped.any()
    np.testing.assert_array_equal(gradient() != 0, MASK & ~clipped)


@pytest.mark.parametrize("options", [{}, {"importance_sampling_level": "sequence"}, {"old": None}], ids=str)
@pytest.mark.parametrize("garbage", [1e4, -1e4, np.inf, -np.inf])
def test_masked_tokens_do_not_matter_whatever_they_hold(garbage, options):
    """The same loss, a gradient of exactly 0 at them and the same elsewhere; with a KL too."""
    options = {"beta": 0.1} | options
    dirty = np.where(MASK, LOGPROBS, np.float32(garbage))
    np.testing.assert_array_equal(loss_of(dirty, **options)[0], loss_of(**options)[0])
    np.testing.assert_array_equal(gradient(dirty, **options), gradient(**options))
    assert not gradient(**options)[~MASK].any()


@pytest.mark.parametrize("garbage", [np.nan, -np.inf])
def test_masked_tokens_do_not_matter_when_the_reference_is_garbage_too(garbage):
    dirty, ref = (np.where(MASK, x, np.float32(garbage)) for x in (LOGPROBS, REF))
    np.testing.assert_array_equal(gradient(dirty, beta=0.1, ref=ref), gradient(beta=0.1))


@pytest.mark.parametrize("loss_type", sorted(LOSSES))
def test_right_padding_does_not_matter(loss_type):
    wide = [np.pad(x, ((0, 0), (0, 3))) for x in (LOGPROBS, OLD, MASK, REF, BEHAVIOUR)]
    options = {"loss_type": loss_type, "beta": 0.1, "importance_sampling_cap": 1.1}
    loss, _ = loss_of(wide[0], wide[1], wide[2], ref=wide[3], behaviour_logprobs=jnp.asarray(wide[4]), **options)
    np.testing.assert_allclose(loss, loss_of(**options)[0], rtol=1e-6)


@settings(max_examples=30)
@given(
    st.permutations(range(R)),
    st.sampled_from(sorted(LOSSES)),
    st.sampled_from(sorted(SURROGATES)),
    st.sampled_from(sorted(LEVELS)),
)
def test_the_order_of_the_rollouts_does_not_matter(order, loss_type, surrogate, level):
    """The loss stays, the gradient moves with its rollouts; groups are no more to a loss than their advantages."""
    options = {"loss_type": loss_type, "surrogate": surrogate, "importance_sampling_level": level}
    options |= {"epsilon_high": 1.2, "beta": 0.1, "importance_sampling_cap": 1.1}
    order = np.array(order)
    moved = {"old": OLD[order], "mask": MASK[order], "advantages": ADVANTAGES[order], "ref": REF[order]}
    moved |= {"behaviour_logprobs": jnp.asarray(BEHAVIOUR[order])}
    loss, metrics = loss_of(LOGPROBS[order], **moved, **options)
    expected, expected_metrics = loss_of(**options)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for name, value in expected_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(
        gradient(LOGPROBS[order], **moved, **options), gradient(**options)[order], rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize("loss_type", sorted(LOSSES))
def test_a_batch_without_tokens_has_loss_zero_and_finite_gradients(loss_type):
    options = {"mask": np.zeros_like(MASK), "loss_type": loss_type, "beta": 0.1}
    loss, metrics = loss_of(**options)
    assert loss == 0
    assert all(value == 0 for value in metrics.values())
    assert not gradient(**options).any()


EXTREMES = np.linspace(-500, 500, 41, dtype=np.float32).reshape(-1, 1) * [1, 0.5, -1]  # log-ratios [41, 3]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("level", sorted(LEVELS))
@pytest.mark.parametrize("surrogate", sorted(SURROGATES))
def test_log_ratios_up_to_500_stay_finite(surrogate, level, dtype):
    """Against the old, the reference and the sampling policy at once; values and gradients."""
    ratios = jnp.asarray(EXTREMES, dtype)
    start, advantages = jnp.full(ratios.shape, -600, dtype), jnp.where(jnp.arange(41) % 2, 1.5, -0.5)
    mask = jnp.arange(3) < jnp.array([3, 1, 0, 2] * 10 + [3])[:, None]

    def loss(logprobs, estimator):
        options = {"surrogate": surrogate, "importance_sampling_level": level, "epsilon_high": 5.0, "delta": 7.0}
        options |= {"beta": 0.1, "ref_logprobs": start - ratios, "kl_estimator": estimator}
        options |= {
            "use_bias_correction_kl": True,
            "importance_sampling_cap": 2.0,
            "behaviour_logprobs": start - ratios,
        }
        return policy_loss(logprobs, start, advantages, mask, **options)[0]

    for estimator in ("k1", "k2", "k3"):
        value, slope = jax.value_and_grad(loss)(start + ratios, estimator)
        assert jnp.isfinite(value)
        assert jnp.isfinite(slope).all()


# ---------------------------------------------------------------- masks and errors


def test_completion_masks_come_from_lengths():
    mask = completion_mask(jnp.array([[0, 2], [3, 1]]), 3)
    assert mask.astype(int).tolist() == [[[0, 0, 0], [1, 1, 0]], [[1, 1, 1], [1, 0, 0]]]


def test_errors():
    with pytest.raises(UserError, match="unknown loss_type 'grop': did you mean 'grpo'"):
        loss_of(loss_type="grop")
    with pytest.raises(ValueError, match="divides by max_completion_length"):
        loss_of(loss_type="dr_grpo", max_completion_length=None)
    with pytest.raises(UserError, match="unknown importance_sampling_level 'word'"):
        loss_of(importance_sampling_level="word")
    with pytest.raises(ValueError, match="kl_estimator must be one of k1, k2, k3, got 'k4'"):
        loss_of(beta=0.1, kl_estimator="k4")
    with pytest.raises(ValueError, match="'cispo' needs epsilon_high"):
        loss_of(surrogate="cispo")
    with pytest.raises(ValueError, match="importance_sampling_floor need behaviour_logprobs"):
        loss_of(importance_sampling_cap=2.0, behaviour_logprobs=None)


def test_a_kl_needs_a_reference():
    with pytest.raises(ValueError, match="ref_logprobs"):
        loss_of(ref=None, beta=0.1)
