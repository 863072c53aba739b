import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pods_jax.rollout import strips
from pods_jax.rollout.draw import Drawing, choose, inverse_cdf, penalised, rollout_uniforms, seen_tokens
from pods_jax.rollout.restrict import restrict

V = 12
LOGIT = st.integers(-3000, 3000).map(lambda i: np.float32(i / 100))
LARGEST = float(np.nextafter(np.float32(1), np.float32(0)))  # the largest uniform below 1
_inverse_cdf = jax.jit(inverse_cdf)
_restrict = jax.jit(restrict, static_argnames=("top_k", "top_p", "min_p"))


def softmax(logits):
    mass = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return mass / mass.sum(-1, keepdims=True)


# ---------------------------------------------------------------- the draw


@settings(deadline=None)
@given(
    arrays(np.float32, (4, V), elements=LOGIT),
    arrays(bool, (4, V)),
    arrays(np.float32, 4, elements=st.one_of(st.sampled_from([0.0, LARGEST]), st.floats(0, LARGEST, width=32))),
)
def test_a_draw_is_a_token_of_positive_probability(logits, excluded, uniforms):
    excluded[:, 5] &= ~excluded.all(-1)  # one token at least stays
    logits[excluded] = -np.inf
    tokens = np.asarray(_inverse_cdf(logits, uniforms))
    assert ((tokens >= 0) & (tokens < V)).all()
    assert np.isfinite(logits[np.arange(4), tokens]).all()


def test_a_draw_from_a_large_vocabulary_is_never_an_excluded_token():
    """Every uniform that the generator can give (a multiple of 2**-23) next to a step of the cumulative mass."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, 1000).astype(np.float32)
    logits[rng.random(1000) < 0.5] = -np.inf
    steps = np.floor(np.cumsum(softmax(logits)) * 2**23)[:, None] + np.arange(-2, 3)
    uniforms = np.unique(steps[(steps >= 0) & (steps < 2**23)]).astype(np.float32) / 2**23
    tokens = np.asarray(_inverse_cdf(np.tile(logits, (len(uniforms), 1)), uniforms))
    assert np.isfinite(logits[tokens]).all()


def test_evenly_spread_uniforms_give_every_token_its_share():
    logits = np.random.default_rng(0).normal(0, 2, V).astype(np.float32)
    uniforms = ((np.arange(4096) + 0.5) / 4096).astype(np.float32)
    counts = np.bincount(_inverse_cdf(np.tile(logits, (4096, 1)), uniforms), minlength=V)
    np.testing.assert_allclose(counts, 4096 * softmax(logits), atol=1.01)


# ---------------------------------------------------------------- top-k and top-p


def top_k_top_p(logits, top_k, top_p):
    """transformers' TopKLogitsWarper, then its TopPLogitsWarper, on one row, in float64."""
    logits = logits.astype(np.float64)
    if top_k:
        logits = np.where(logits < np.sort(logits)[-min(top_k, V)], -np.inf, logits)
    ascending = np.argsort(logits)
    dropped = np.cumsum(softmax(logits)[ascending]) <= 1 - top_p
    dropped[-1] = False
    logits[ascending[dropped]] = -np.inf
    return logits


@pytest.mark.parametrize("top_k", [0, 1, 5, 100])
@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.9, 1.0])
def test_top_k_then_top_p_equals_transformers(top_k, top_p):
    logits = np.random.default_rng(0).normal(0, 2, (64, V)).astype(np.float32)
    expected = np.stack([top_k_top_p(row, top_k, top_p) for row in logits])
    np.testing.assert_array_equal(_restrict(logits, top_k=top_k, top_p=top_p), expected.astype(np.float32))


def test_tokens_that_tie_with_the_last_one_kept_are_kept():
    tied = jnp.array([[2.0, 1.0, 1.0, 0.0]])
    assert jnp.isfinite(restrict(tied, 2, 1.0)).tolist() == [[True, True, True, False]]
    assert jnp.isfinite(restrict(jnp.zeros((1, 4)), 0, 0.4)).all()


@settings(deadline=None)
@given(arrays(np.float32, (2, V), elements=LOGIT))
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(logits):
    kept = np.isfinite(_restrict(logits, top_k=0, top_p=0.7))
    for row, keep in zip(logits, kept, strict=True):
        probabilities = softmax(row)
        assert keep[row == row.max()].all()
        assert probabilities[keep].sum() >= 0.7 - 1e-5
        last = row[keep].min()
        assert probabilities[row > last].sum() < 0.7 + 1e-5  # without its least probable members it falls short
        assert not keep[row < last].any()


def kept_by_sorting(row, top_k, top_p, min_p):
    """The definition of `restrict` on one row, in float64; None where rounding decides whether top_p is reached."""
    row = row.astype(np.float64)
    mass = np.exp(row - row.max())
    kept = mass >= min_p
    if top_k:
        in_top = row >= np.sort(row)[::-1][min(top_k, len(row)) - 1]
        mass = np.where(in_top, mass, 0)
        kept &= in_top
    if top_p < 1:
        above = np.array([mass[row > x].sum() for x in row]) / mass.sum()
        if np.abs(above - top_p).min() < 1e-5 * top_p:
            return None
        kept &= above < top_p
    return kept & (row > -np.inf)


TIED = st.sampled_from([-2.0, -0.0, 0.0, 1.0, 1.0000001, 3.0])
EXTREME = st.sampled_from([-np.inf, -3.4e38, -1e30, -1e-45, -0.0, 0.0, 1e-45, 1e-38, 5.0, 80.0, 1e4, 3.4e38])
ROWS = st.one_of(*(arrays(np.float32, (2, V), elements=x) for x in (LOGIT, TIED, EXTREME)))


@settings(max_examples=300)
@given(
    ROWS, st.sampled_from([0, 1, 3, 11, 12, 40]), st.sampled_from([1e-6, 0.45, 0.97, 1.0]), st.sampled_from([0.0, 0.3])
)
def test_the_bisected_bounds_are_those_of_a_sort(logits, top_k, top_p, min_p):
    assume((logits > -np.inf).any(-1).all())
    expected = [kept_by_sorting(row, top_k, top_p, min_p) for row in logits]
    assume(all(row is not None for row in expected))
    found = np.asarray(_restrict(logits, top_k=top_k, top_p=top_p, min_p=min_p))
    np.testing.assert_array_equal(found > -np.inf, expected)
    np.testing.assert_array_equal(found[found > -np.inf], logits[found > -np.inf])


@pytest.mark.parametrize("top_k", [0, 7])
@pytest.mark.parametrize("top_p", [0.6, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.1, 1.0])
def test_what_is_left_is_what_transformers_leaves(top_k, top_p, min_p):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    logits = np.random.default_rng(1).normal(0, 2, (64, 50)).astype(np.float32)
    scores = torch.tensor(logits)
    if top_k:
        scores = transformers.TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = transformers.TopPLogitsWarper(top_p)(None, scores)
    if min_p:
        scores = transformers.MinPLogitsWarper(min_p)(None, scores)
    np.testing.assert_array_equal(_restrict(logits, top_k=top_k, top_p=top_p, min_p=min_p), scores.numpy())


def test_the_repetition_penalty_is_that_of_transformers():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 2, (8, 20)).astype(np.float32)
    tokens = rng.integers(0, 20, (8, 6))
    expected = transformers.RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor(tokens), torch.tensor(logits))
    seen = seen_tokens(jnp.asarray(tokens), jnp.full(8, 6), 20)
    np.testing.assert_allclose(penalised(jnp.asarray(logits), seen, 1.3), expected.numpy(), rtol=1e-6)


def test_padding_is_not_seen():
    seen = seen_tokens(jnp.array([[3, 1, 0], [2, 0, 0]]), jnp.array([2, 0]), 4)
    assert seen.tolist() == [[False, True, False, True], [False] * 4]


@pytest.mark.parametrize("top_k", [0, 20])
def test_only_the_maxima_of_strips_are_sorted(top_k):
    """By the operations of the compiled program: their operands have an entry for each strip, not for each token."""
    size = 40_000

    def sorted_sizes(function):
        text = jax.jit(function).lower(jnp.zeros((8, size)), jnp.zeros(8)).compile().as_text()
        sorts = re.findall(r"(?:\bsort|custom-call)\((.*)(?=.*(?:TopK|dimensions=\{1\}))", text)
        operands = [name for line in sorts for name in re.findall(r"%([\w.-]+)", line.partition(")")[0])]
        shapes = [re.search(rf"%{re.escape(name)} = [a-z0-9]+\[8,(\d+)\]", text) for name in operands]
        return {int(shape[1]) for shape in shapes if shape}

    drawing = Drawing(greedy=False, top_k=top_k, top_p=0.9, min_p=0.01)
    found = sorted_sizes(lambda logits, u: choose(logits, u, drawing).tokens)
    assert found == ({-(-size // strips.STRIP)} if top_k else set())
    assert sorted_sizes(lambda logits, u: jnp.sort(logits, -1)) == {size}
    assert sorted_sizes(lambda logits, u: jax.lax.top_k(logits, 20)[0]) == {size}


LARGE = 64 * 1024
PEAKED, FLAT, TIED_FLAT = (np.random.default_rng(3).normal(0, scale, (8, LARGE)) for scale in (4, 0.01, 0))
TIED_STEPS = np.round(np.random.default_rng(4).normal(0, 4, (8, LARGE)))


def least_kept(row, top_k, top_p):
    """The least logit that top-k, then top-p leave of a row, by sorting it, and a bound that rounding may lead to."""
    values, counts = np.unique(row.astype(np.float64), return_counts=True)
    values, counts = values[::-1], counts[::-1]
    in_top = np.cumsum(counts) - counts < (top_k or len(row))
    mass = np.where(in_top, counts * np.exp(values - values[0]), 0)
    above = (np.cumsum(mass) - mass) / mass.sum()
    return [values[in_top & (above < top_p + slack)].min() for slack in (-1e-5, 1e-5)]


@pytest.mark.parametrize("logits", [PEAKED, FLAT, TIED_FLAT, TIED_STEPS], ids=["peaked", "flat", "tied", "steps"])
@pytest.mark.parametrize(("top_k", "top_p"), [(50, 1.0), (0, 0.9), (50, 0.9), (300, 0.5)])
def test_bounds_among_the_candidates_are_those_of_all_tokens(logits, top_k, top_p):
    """Also where strips tie, and without top-k, where all tokens are candidates."""
    logits = logits.astype(np.float32)
    found = np.asarray(_restrict(logits, top_k=top_k, top_p=top_p)) > -np.inf
    for row, kept in zip(logits, found, strict=True):
        least = row[kept].min()
        np.testing.assert_array_equal(kept, row >= least)
        most, fewest = least_kept(row, top_k, top_p)
        assert fewest <= least <= most


# ---------------------------------------------------------------- uniforms

KEY = jax.random.key(7)


def test_a_uniform_depends_only_on_prompt_sample_and_token():
    whole = rollout_uniforms(KEY, jnp.array([3, 8]), jnp.array([[0, 1, 2, 3], [4, 5, 6, 7]]), 6)
    part = rollout_uniforms(KEY, jnp.array([8]), jnp.array([[6]]), 3)
    np.testing.assert_array_equal(part[0, 0], whole[1, 2, :3])


def test_uniforms_of_different_rollouts_differ():
    samples = jnp.tile(jnp.arange(5), (5, 1))
    whole = np.asarray(rollout_uniforms(KEY, jnp.arange(5), samples, 8))
    assert len(np.unique(whole)) == whole.size
    assert 0 < whole.min() <= whole.max() < 1
    assert not np.array_equal(whole, rollout_uniforms(jax.random.key(8), jnp.arange(5), samples, 8))


def test_the_least_uniform_lies_within_the_first_step(monkeypatch):
    """Else the first token's share would be at least 2^-23, however improbable it is."""
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.zeros(shape))
    (least,) = np.unique(rollout_uniforms(KEY, jnp.arange(2), jnp.zeros((2, 3), int), 4))
    assert least == 2**-24
    logits = jnp.log(jnp.array([[1e-9, 0.5, 0.5]]))
    assert inverse_cdf(logits, jnp.array([least])).item() == 1


# ---------------------------------------------------------------- ids without a token


@pytest.mark.parametrize("top", [(0, 1.0), (3, 1.0), (0, 0.9)], ids=str)
@pytest.mark.parametrize("greedy", [False, True])
def test_absent_ids_are_never_drawn(greedy, top):
    """They have the largest logits; log-probabilities are still over the whole vocabulary, as the learner's are."""
    absent = (range(0, 1), range(5, 8), range(199, 200))
    rows = 4096
    logits = jnp.asarray(np.random.default_rng(0).normal(size=200), jnp.float32)
    logits = logits.at[np.r_[0, 5:8, 199]].set(9.0)
    uniforms = jnp.linspace(0, 1, rows, endpoint=False)
    drawing = Drawing(greedy, *top, absent_ids=absent)
    tokens, logprobs, _ = choose(jnp.broadcast_to(logits, (rows, 200)), uniforms, drawing)
    assert not set(np.asarray(tokens).tolist()) & {0, 5, 6, 7, 199}
    np.testing.assert_allclose(logprobs, jax.nn.log_softmax(logits)[tokens], rtol=1e-5)
    whole = (_restrict(jnp.delete(logits, np.r_[0, 5:8, 199])[None], top_k=top[0], top_p=top[1]) > -np.inf).sum()
    assert len(set(np.asarray(tokens).tolist())) == (1 if greedy else whole)
