import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.learner.logprobs import group_logprobs, token_logprobs
from pods_jax.models.decoder import Decoder, ModelConfig, Weight, model_weights

CONFIG = ModelConfig(
    vocab_size=13,
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
)
MODEL = Decoder(CONFIG)
RNG = np.random.default_rng(0)
PARAMS = jax.tree.map(
    lambda w: jnp.asarray(RNG.normal(0, 0.7, w.shape), jnp.float32),
    model_weights(CONFIG),
    is_leaf=lambda x: isinstance(x, Weight),
)
score_rows = jax.jit(
    functools.partial(token_logprobs, MODEL, PARAMS),
    static_argnames=("temperature", "chunk_size", "max_completion_length"),
)
P, N, S, T = 3, 2, 4, 5
PROMPT_LENGTHS, COMPLETION_LENGTHS = np.array([1, 4, 3]), np.array([[5, 3], [0, 1], [5, 4]])
PROMPTS, COMPLETIONS = RNG.integers(0, 13, (P, S)), RNG.integers(0, 13, (P, N, T))
TEMPERATURE = 0.7


def plain_rows():
    """The groups as [P N] rows of prompt, completion and padding, with their lengths."""
    rows = np.full((P, N, S + T), 9)
    for p, length in enumerate(PROMPT_LENGTHS):
        rows[p, :, :length] = PROMPTS[p, :length]
        rows[p, :, length : length + T] = COMPLETIONS[p]
    lengths = np.repeat(PROMPT_LENGTHS, N), COMPLETION_LENGTHS.ravel()
    return tuple(map(jnp.asarray, (rows.reshape(P * N, -1), *lengths)))


@functools.cache
def row_logits():
    return jax.jit(MODEL.apply)({"params": PARAMS}, plain_rows()[0])


@functools.cache
def numpy_scores(temperature):
    """Log-probabilities and entropies [P, N, T] of every completion token, from the model's logits, in float64."""
    rows, prompt_lengths, _ = plain_rows()
    logits = np.asarray(row_logits(), np.float64) / temperature
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    scores = np.zeros((2, P * N, T))
    for r, start in enumerate(prompt_lengths):
        for t in range(T):
            distribution = logprobs[r, start + t - 1]
            scores[:, r, t] = distribution[rows[r, start + t]], -(np.exp(distribution) * distribution).sum()
    return scores.reshape(2, P, N, T)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.4])
def test_scores_equal_log_softmax_and_entropy_in_float64(temperature):
    arrays = map(jnp.asarray, (PROMPTS, PROMPT_LENGTHS, COMPLETIONS))
    scores = jax.jit(functools.partial(group_logprobs, MODEL, temperature=temperature))(PARAMS, *arrays)
    logprobs, entropies = numpy_scores(temperature)
    np.testing.assert_allclose(scores.logprobs, logprobs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scores.entropies, entropies, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("max_completion_length", [None, 3])
def test_row_scores_are_right_within_each_length_and_zero_beyond(max_completion_length):
    options = {"temperature": TEMPERATURE, "max_completion_length": max_completion_length}
    logprobs = score_rows(*plain_rows(), **options)
    width = S + T - 1 if max_completion_length is None else max_completion_length
    expected = np.zeros((P * N, S + T))
    expected[:, :T] = numpy_scores(TEMPERATURE)[0].reshape(P * N, T)
    expected[np.arange(S + T) >= COMPLETION_LENGTHS.ravel()[:, None]] = 0
    assert logprobs.shape == (P * N, width)
    np.testing.assert_allclose(logprobs, expected[:, :width], rtol=1e-4, atol=1e-5)


def test_padding_and_its_width_do_not_matter():
    rows, *lengths = plain_rows()
    beyond = jnp.arange(S + T) >= (lengths[0] + lengths[1])[:, None]
    other = jnp.pad(jnp.where(beyond, 2, rows), ((0, 0), (0, 3)))
    scores = [score_rows(r, *lengths, max_completion_length=T) for r in (rows, other)]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-6)


def score_and_gradient(chunk_size):
    """token_logprobs summed with random weights (so that no two tokens' gradients cancel)."""
    weights = jax.random.normal(jax.random.key(0), (P * N, T))

    def loss(params):
        options = {"chunk_size": chunk_size, "max_completion_length": T, "temperature": TEMPERATURE}
        logprobs = token_logprobs(MODEL, params, *plain_rows(), **options)
        return (logprobs * weights).sum(), logprobs

    return jax.value_and_grad(loss, has_aux=True)


@pytest.fixture(scope="module")
def dense():
    return jax.jit(score_and_gradient(None))(PARAMS)


def test_chunks_change_neither_values_nor_gradients(dense):
    chunked = jax.jit(score_and_gradient(7))(PARAMS)  # 30 tokens in all, 13 in the vocabulary
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), chunked, dense)


@pytest.mark.parametrize("chunk_size", [1, 13, 29, 30])
def test_chunks_of_any_size_give_the_same_values(dense, chunk_size):
    options = {"chunk_size": chunk_size, "max_completion_length": T, "temperature": TEMPERATURE}
    logprobs = score_rows(*plain_rows(), **options)
    np.testing.assert_allclose(logprobs, dense[0][1], rtol=1e-5, atol=1e-5)


def shapes(jaxpr):
    """The shapes of all values of a program, those inside its loops and checkpoints too."""
    for equation in jaxpr.eqns:
        yield from (v.aval.shape for v in equation.outvars)
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from shapes(inner)


def test_logits_of_all_tokens_never_exist_at_once():
    """In the gradient's program no array over the vocabulary has more rows than a chunk (or the hidden size)."""

    def rows(chunk_size):
        program = jax.make_jaxpr(score_and_gradient(chunk_size))(PARAMS)
        return max(np.prod(shape[:-1]) for shape in shapes(program.jaxpr) if shape[-1:] == (CONFIG.vocab_size,))

    assert rows(None) == P * N * T
    assert rows(12) == 12
