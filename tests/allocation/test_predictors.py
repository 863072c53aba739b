import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_world import through_a_file

from pods_jax.allocation.outcomes import Outcome
from pods_jax.allocation.predictors import BetaPosteriors, GaussianProcess, ValueModel, embed, sigmoid
from pods_jax.groups import Prompt

RNG = np.random.default_rng(0)


def prompt(*tokens):
    return Prompt(0, 0, "", "", "", tokens)


# ---------------------------------------------------------------- posteriors


def test_without_decay_a_posterior_counts():
    posteriors = BetaPosteriors()
    assert posteriors.of(7) == (1, 1)
    for successes, count in ((3, 8), (0, 4), (2.5, 4)):
        posteriors.update(7, Outcome(successes, count, 0.0, varies=True))
    assert posteriors.of(7) == (1 + 5.5, 1 + 16 - 5.5)
    assert posteriors.of(8) == (1, 1)


def test_decay_draws_towards_the_prior():
    posteriors = BetaPosteriors(decay=0.25)
    posteriors.update(0, Outcome(6, 8, 0.0, varies=True))
    assert posteriors.of(0) == (7, 3)
    posteriors.update(0, Outcome(0, 8, 0.0, varies=False))
    assert posteriors.of(0) == (0.25 * 7 + 0.75, 0.25 * 3 + 0.75 + 8)


def test_an_outcome_without_rollouts_forgets_nothing():
    posteriors = BetaPosteriors(decay=0.5)
    posteriors.update(0, Outcome(8, 8, 0.0, varies=False))
    posteriors.update(0, Outcome(0, 0, 0.0, varies=False))
    assert posteriors.of(0) == (9, 1)


def test_posteriors_are_restored_through_a_file():
    posteriors, other = BetaPosteriors(0.5), BetaPosteriors(0.5)
    posteriors.update(3, Outcome(1, 3, 0.0, varies=True))
    posteriors.update(1, Outcome(0.3, 3, 0.0, varies=True))
    other.load_state_dict(through_a_file(posteriors.state_dict()))
    assert [other.of(i) for i in (3, 1, 0)] == [posteriors.of(i) for i in (3, 1, 0)]
    empty = BetaPosteriors()
    empty.load_state_dict(through_a_file(BetaPosteriors().state_dict()))
    assert empty.of(3) == (1, 1)


# ---------------------------------------------------------------- embedding


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=30), min_size=1, max_size=5))
def test_embeddings_are_unit_vectors_that_depend_on_a_prompts_tokens_only(token_lists):
    prompts = [prompt(*tokens) for tokens in token_lists]
    points = embed(prompts, 64)
    lengths = np.linalg.norm(points, axis=1)
    assert all(length == pytest.approx(1) or length == 0 for length in lengths)  # 0 where all signs cancel
    for i, p in enumerate(prompts):
        np.testing.assert_array_equal(embed([p], 64)[0], points[i])


def test_prompts_of_like_tokens_are_near():
    base = [int(t) for t in RNG.integers(0, 50_000, 40)]
    other = [int(t) for t in RNG.integers(0, 50_000, 40)]
    points = embed([prompt(*base), prompt(*base[:-1], 7), prompt(*base[::-1]), prompt(*other)], 256)
    near, reversed_, far = np.linalg.norm(points[1:] - points[0], axis=1)
    assert near < 0.5 * reversed_ < 0.8 * far
    assert embed([prompt()], 8).tolist() == [[0] * 8]


def test_coordinates_are_signed_and_even():
    """The values of 2,000 single tokens: each coordinate and sign is as frequent as any other (chi-squared)."""
    points = embed([prompt(t) for t in range(2000)], 16)
    counts = np.concatenate([(points > 0).sum(0), (points < 0).sum(0)])
    assert counts.sum() == 2000
    assert ((counts - 62.5) ** 2 / 62.5).sum() < 61.1  # 31 degrees of freedom, p = 0.001


def test_sigmoid():
    x = np.array([-800.0, -3.0, 0.0, 3.0, 800.0])
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(sigmoid(x), 1 / (1 + np.exp(-x)), atol=1e-15)


# ---------------------------------------------------------------- Gaussian process


def recursive_means(points, batches, prior, scale, noise):
    """The authors' update of the mean at all points, batch after batch; batches: (places, values)."""
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    K = np.exp(-0.5 * (distances / scale) ** 2)
    mean = np.full(len(points), prior)
    for places, values in batches:
        inner = K[np.ix_(places, places)] + noise * np.eye(len(places))
        mean = mean + K[:, places] @ np.linalg.inv(inner) @ (values - mean[places])
    return mean


def test_the_mean_is_that_of_the_recursive_update():
    """Examples are seen again, within a batch, too, and others never are."""
    points = RNG.normal(size=(12, 5))
    points /= np.linalg.norm(points, axis=1)[:, None]
    batches = [([0, 1, 2], RNG.normal(size=3)), ([2, 3, 3], RNG.normal(size=3)), ([0, 5, 6], RNG.normal(size=3))]
    process = GaussianProcess(prior_mean=-1.0, scale=0.7, noise=0.05)
    np.testing.assert_array_equal(process.mean(points), np.full(12, -1.0))
    for i, (places, values) in enumerate(batches):
        process.observe([100 + p for p in places], points[places], values)
        np.testing.assert_allclose(
            process.mean(points), recursive_means(points, batches[: i + 1], -1.0, 0.7, 0.05), atol=1e-9
        )


def test_without_noise_the_mean_passes_through_the_last_observations():
    points = np.eye(4)
    process = GaussianProcess(prior_mean=0.0, scale=0.5, noise=1e-9)
    process.observe([0, 1], points[:2], np.array([3.0, -2.0]))
    np.testing.assert_allclose(process.mean(points[:2]), [3, -2], atol=1e-6)


def test_a_process_is_restored_through_a_file():
    points = RNG.normal(size=(6, 3))
    first, second = GaussianProcess(-1.0, 0.4, 0.1), GaussianProcess(-1.0, 0.4, 0.1)
    second.load_state_dict(through_a_file(first.state_dict()))
    assert second.mean(points).tolist() == [-1.0] * 6
    first.observe([4, 2], points[:2], np.array([1.0, 2.0]))
    second.load_state_dict(through_a_file(first.state_dict()))
    for process in (first, second):
        process.observe([2, 9], points[1:3], np.array([0.5, -1.0]))
    np.testing.assert_array_equal(first.mean(points), second.mean(points))


# ---------------------------------------------------------------- value model


def test_a_value_model_descends_the_mean_squared_error():
    points, rates = RNG.normal(size=(7, 4)), RNG.random(7)
    model = ValueModel(4, learning_rate=0.3, num_updates=1)
    assert model.predict(points).tolist() == [0.5] * 7
    model.observe(points, rates)
    before = model.state_dict()["weights"]

    def loss(weights):
        return np.mean((1 / (1 + np.exp(-(points @ weights[:4] + weights[4]))) - rates) ** 2)

    slope = [(loss(before + h) - loss(before - h)) / 2e-6 for h in 1e-6 * np.eye(5)]
    model.observe(points, rates)
    np.testing.assert_allclose(model.state_dict()["weights"], before - 0.3 * np.array(slope), atol=1e-8)


def test_a_value_model_learns_which_tokens_are_hard():
    """Prompts with token 1 are right in 90 % of cases, those with token 2 in 20 %."""
    model = ValueModel(64, learning_rate=2.0, num_updates=8)
    prompts = [prompt(1 + i % 2, *map(int, RNG.integers(10, 1000, 5))) for i in range(400)]
    for start in range(0, 400, 16):
        batch = prompts[start : start + 16]
        model.observe(embed(batch, 64), np.array([0.9 if p.tokens[0] == 1 else 0.2 for p in batch]))
    predicted = model.predict(embed([prompt(1, 20, 30, 40, 50, 60), prompt(2, 20, 30, 40, 50, 60)], 64))
    assert predicted[0] > 0.7
    assert predicted[1] < 0.4
    other = ValueModel(64, 2.0, 8)
    other.load_state_dict(through_a_file(model.state_dict()))
    np.testing.assert_array_equal(other.predict(embed(prompts, 64)), model.predict(embed(prompts, 64)))
