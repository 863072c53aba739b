import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.buckets import bucket
from pods_jax.learner.logprobs import token_logprobs
from pods_jax.models.decoder import Decoder, ModelConfig, Weight, model_weights
from pods_jax.rollout import decode
from pods_jax.rollout.sampler import generate

CONFIG = ModelConfig(
    vocab_size=13,
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    attention_bias=True,
    qk_norm=True,
)
MODEL = Decoder(CONFIG)
RNG = np.random.default_rng(0)
PARAMS = jax.tree.map(
    lambda w: jnp.asarray(RNG.normal(0, 0.7, w.shape), jnp.float32),
    model_weights(CONFIG),
    is_leaf=lambda x: isinstance(x, Weight),
)
PROMPTS = [[4], [1, 2, 3, 4], [7, 8, 9]]
N, T, KEY = 4, 6, jax.random.key(0)
EOS = (7, 8)  # both are in a prompt too, where they end nothing


def sample(prompts=PROMPTS, num_generations=N, max_new_tokens=T, key=KEY, **options):
    sizes = {"num_generations": num_generations, "max_new_tokens": max_new_tokens}
    return generate(MODEL, PARAMS, prompts, key=key, **sizes, **options)


@functools.cache
def free_run():
    """Completions that no token ends."""
    return sample()


def rescored(completions, temperature):
    """The completions' log-probabilities [P, n, T], teacher-forced on plain rows."""
    P, n, T = completions.tokens.shape
    rows = np.zeros((P, n, 4 + T), np.int32)
    for p, prompt in enumerate(PROMPTS):
        rows[p, :, : len(prompt)] = prompt
        rows[p, :, len(prompt) : len(prompt) + T] = completions.tokens[p]
    prompt_lengths = jnp.repeat(jnp.array([len(p) for p in PROMPTS]), n)
    arrays = jnp.asarray(rows.reshape(P * n, -1)), prompt_lengths, jnp.asarray(completions.lengths.ravel())
    score = functools.partial(token_logprobs, MODEL, temperature=temperature, max_completion_length=T)
    return jax.jit(score)(PARAMS, *arrays).reshape(P, n, T)


def next_token_logits(tokens):
    return np.asarray(MODEL.apply({"params": PARAMS}, jnp.asarray([tokens])), np.float64)[0, -1]


# ---------------------------------------------------------------- the distribution


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.4])
def test_logprobs_equal_teacher_forced_ones(temperature):
    completions = sample(temperature=temperature, eos_ids=EOS)
    assert len(np.unique(completions.lengths)) > 1
    np.testing.assert_allclose(completions.logprobs, rescored(completions, temperature), rtol=0, atol=1e-5)


def test_logprobs_under_top_k_are_those_of_the_full_distribution():
    completions = sample(top_k=3, top_p=0.8)
    np.testing.assert_allclose(completions.logprobs, rescored(completions, 1.0), rtol=0, atol=1e-5)


def drawn_from(tokens, temperature, top_k, top_p, min_p, repetition_penalty):
    """transformers' distribution of the token after `tokens`, from its own processors in its own order."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    processors = [
        transformers.RepetitionPenaltyLogitsProcessor(repetition_penalty),
        transformers.TemperatureLogitsWarper(temperature),
        transformers.TopKLogitsWarper(top_k),
        transformers.TopPLogitsWarper(top_p),
        transformers.MinPLogitsWarper(min_p),
    ]
    scores = torch.tensor(next_token_logits(tokens)[None])
    for process in processors:
        scores = process(torch.tensor([tokens]), scores)
    return torch.log_softmax(scores, -1)[0].numpy()


def test_drawn_logprobs_are_those_that_transformers_draws_from():
    options = {"temperature": 0.9, "top_k": 8, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.4}
    completions = sample(eos_ids=EOS, chunk_size=4, num_generations=2, **options)
    np.testing.assert_allclose(completions.logprobs, rescored(completions, 0.9), rtol=0, atol=1e-5)
    assert len(np.unique(completions.lengths)) > 1
    for p, i in np.ndindex(completions.lengths.shape):
        length = completions.lengths[p, i]
        row = completions.tokens[p, i].tolist()
        for t in range(length):
            expected = drawn_from(PROMPTS[p] + row[:t], **options)
            assert completions.drawn_logprobs[p, i, t] == pytest.approx(expected[row[t]], abs=2e-5)
        assert not completions.drawn_logprobs[p, i, length:].any()


def test_the_kernel_leads_to_the_same_tokens():
    whole, kernel = (sample(eos_ids=EOS, chunk_size=4, attention=name) for name in ("whole", "kernel"))
    assert len(np.unique(whole.lengths)) > 1
    np.testing.assert_array_equal(kernel.tokens, whole.tokens)
    np.testing.assert_allclose(kernel.logprobs, whole.logprobs, rtol=0, atol=1e-5)


def test_a_draw_from_the_full_distribution_has_no_other_logprobs():
    assert free_run().drawn_logprobs is None
    assert sample(temperature=0.0, top_k=3).drawn_logprobs is None


def test_a_penalty_changes_greedy_completions_too():
    penalised = sample(temperature=0.0, repetition_penalty=3.0, num_generations=1)
    for prompt, completion in zip(PROMPTS, penalised.tokens, strict=True):
        tokens = list(prompt)
        for token in completion[0]:
            logits = next_token_logits(tokens)
            seen = np.isin(np.arange(CONFIG.vocab_size), tokens)
            assert token == np.where(seen, np.where(logits < 0, logits * 3, logits / 3), logits).argmax()
            tokens.append(int(token))


def test_temperature_zero_takes_the_most_probable_token():
    completions = sample(temperature=0.0, num_generations=1)
    predict = jax.jit(lambda tokens, last: MODEL.apply({"params": PARAMS}, tokens)[0, last].argmax())
    for prompt, completion in zip(PROMPTS, completions.tokens, strict=True):
        tokens = list(prompt)
        for _ in range(T):
            padded = jnp.asarray([tokens + [0] * (4 + T - len(tokens))])
            tokens.append(int(predict(padded, len(tokens) - 1)))
        assert completion[0].tolist() == tokens[len(prompt) :]


def chi_square(temperature, allowed, **options):
    """The statistic of 20 000 first tokens after PROMPTS[1] against softmax(logits / temperature) of allowed tokens."""
    tokens = sample(PROMPTS[1:2], 20_000, 1, jax.random.key(1), temperature=temperature, **options).tokens
    observed = np.bincount(tokens.ravel(), minlength=CONFIG.vocab_size)
    logits = next_token_logits(PROMPTS[1])
    expected = np.exp(logits / temperature) * np.isin(np.arange(CONFIG.vocab_size), np.argsort(-logits)[:allowed])
    expected *= 20_000 / expected.sum()
    assert not observed[expected == 0].any()
    return ((observed - expected)[expected > 0] ** 2 / expected[expected > 0]).sum()


def test_first_tokens_follow_the_softmax():
    assert chi_square(1.0, 13) < 32.9  # the 99.9 % point for 12 degrees of freedom
    assert chi_square(0.6, 13) < 32.9


def test_first_tokens_under_top_k_follow_the_softmax_over_k_tokens():
    assert chi_square(1.4, 4, top_k=4) < 16.3  # 3 degrees of freedom


# ---------------------------------------------------------------- what a rollout depends on


def test_a_rollout_does_not_depend_on_the_batch_or_its_padding():
    alone = sample(PROMPTS[2:], prompt_ids=[2])
    np.testing.assert_array_equal(alone.tokens[0], free_run().tokens[2])
    np.testing.assert_allclose(alone.logprobs[0], free_run().logprobs[2], rtol=0, atol=1e-5)


def test_fewer_generations_and_a_shorter_limit_give_a_part_of_the_same():
    part = sample(num_generations=2, max_new_tokens=4)
    np.testing.assert_array_equal(part.tokens, free_run().tokens[:, :2, :4])
    np.testing.assert_allclose(part.logprobs, free_run().logprobs[:, :2, :4], rtol=0, atol=1e-5)


def test_other_keys_and_prompt_ids_give_other_samples():
    same_prompt = [PROMPTS[1]] * 3
    by_position, by_id = sample(same_prompt), sample(same_prompt, prompt_ids=[5, 5, 6])
    for p, q in ((0, 1), (1, 2)):
        assert not np.array_equal(by_position.tokens[p], by_position.tokens[q])
    np.testing.assert_array_equal(by_id.tokens[0], by_id.tokens[1])
    assert not np.array_equal(by_id.tokens[1], by_id.tokens[2])
    assert not np.array_equal(sample(key=jax.random.key(1)).tokens, free_run().tokens)
    assert len({tuple(row) for row in by_position.tokens.reshape(-1, T).tolist()}) == 3 * N


# ---------------------------------------------------------------- unequal groups


@pytest.mark.parametrize("counts", [[4, 1, 2], [1, 4, 4], [2, 0, 4], [3, 3, 3]], ids=str)
def test_a_prompt_gets_the_first_of_what_it_gets_in_equal_groups(counts):
    completions = sample(num_generations=counts)
    for p, count in enumerate(counts):
        np.testing.assert_array_equal(completions.tokens[p, :count], free_run().tokens[p, :count])
        np.testing.assert_allclose(completions.logprobs[p, :count], free_run().logprobs[p, :count], rtol=0, atol=1e-5)
        assert (completions.lengths[p, :count] == T).all()
        assert completions.truncated[p, :count].all()
        for field in completions[:4]:
            assert not field[p, count:].any()


def test_a_number_of_rollouts_may_be_numpys():
    np.testing.assert_array_equal(sample(num_generations=np.int64(2)).tokens, sample(num_generations=2).tokens)


def test_a_prompts_second_request_goes_on_where_the_first_ended():
    pilot = sample(num_generations=[1, 1, 1])
    commit = sample(PROMPTS[1:2] * 2, num_generations=[2, 1], prompt_ids=[1, 1], first_samples=[1, 3])
    together = np.concatenate([pilot.tokens[1], commit.tokens[0], commit.tokens[1, :1]])
    np.testing.assert_array_equal(together, free_run().tokens[1])


def test_the_number_of_programs_is_bounded_by_buckets_of_pilots_and_commits():
    """Pilots of 2 and commits of 4 rollouts, in every mixture of 8 prompts, in blocks of 2."""
    before = decode.begin._cache_size()
    blocks = set()
    for commits in range(1, 8):
        counts = [2] * (8 - commits) + [4] * commits
        completions = sample([PROMPTS[0]] * 8, num_generations=counts, max_new_tokens=3)
        assert (completions.lengths > 0).sum(1).tolist() == counts
        blocks.add(bucket(8 + commits))
    assert blocks == {12, 16}
    assert decode.begin._cache_size() == before + len(blocks)


# ---------------------------------------------------------------- the end of a completion


def stopped(eos_ids, pad_id):
    """The free run cut after the first token of eos_ids in each row: tokens, lengths, truncated."""
    tokens = np.full_like(free_run().tokens, pad_id)
    lengths, truncated = np.zeros(tokens.shape[:2], int), np.ones(tokens.shape[:2], bool)
    for row in np.ndindex(*tokens.shape[:2]):
        for token in free_run().tokens[row]:
            tokens[row][lengths[row]] = token
            lengths[row] += 1
            if token in eos_ids:
                truncated[row] = False
                break
    return tokens, lengths, truncated


@pytest.mark.parametrize("pad_id", [0, 7], ids=["pad differs from eos", "pad is an eos"])
def test_a_completion_ends_with_its_first_eos_token(pad_id):
    completions = sample(eos_ids=EOS, pad_id=pad_id)
    tokens, lengths, truncated = stopped(EOS, pad_id)
    assert {1, T} <= set(lengths[~truncated])  # rows that end at once, rows that end at the limit
    assert truncated.any()  # and rows that do not end
    np.testing.assert_array_equal(completions.tokens, tokens)
    np.testing.assert_array_equal(completions.lengths, lengths)
    np.testing.assert_array_equal(completions.truncated, truncated)
    beyond = np.arange(T) >= lengths[..., None]
    assert not completions.logprobs[beyond].any()
    np.testing.assert_allclose(completions.logprobs[~beyond], free_run().logprobs[~beyond], rtol=0, atol=1e-6)


def test_without_eos_every_row_is_full_and_truncated():
    assert (free_run().lengths == T).all()
    assert free_run().truncated.all()


def test_decoding_stops_when_every_row_has_ended(monkeypatch):
    steps = []

    def counted(*args):
        jax.debug.callback(lambda: steps.append(1))
        return decode_token(*args)

    decode_token = decode.decode_token
    monkeypatch.setattr(decode, "decode_token", counted)
    completions = sample(max_new_tokens=37, eos_ids=tuple(range(1, 13)))  # a size of its own: nothing compiled yet
    jax.effects_barrier()
    assert len(steps) <= completions.lengths.max() < 10


# ---------------------------------------------------------------- compiled programs


def test_sizes_in_one_bucket_share_a_program():
    free_run()  # buckets of 3 prompts and 4 tokens
    before = decode.begin._cache_size()
    sample([[2], [3] * 4, [1]], temperature=0.7, key=jax.random.key(3), prompt_ids=[9, 4, 4])
    assert decode.begin._cache_size() == before
    sample([[1] * 7, [2] * 2, [3] * 7, [5]])  # buckets of 4 prompts and 8 tokens
    sample([[1] * 8] * 4)
    assert decode.begin._cache_size() == before + 1
