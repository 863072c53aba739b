"""The OpenAI-compatible completions API with token ids, as vLLM serves it: bodies of requests, and answers checked."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pods_jax.errors import UserError
from pods_jax.fields import OBJECT, TEXT, Rule, field, list_of, one_line, shown
from pods_jax.rollout.engine import SamplingParams

PATH = "/v1/completions"
ROUNDING = 1e-3
"""Amount by which a log-probability may exceed 0."""

_LIST = Rule("a list", lambda x: type(x) is list)
_TOKEN = "token_id:"


class Choice(NamedTuple):
    """A completion: its T or fewer token ids, and their log-probabilities."""

    tokens: Int[np.ndarray, " t"]
    logprobs: Float[np.ndarray, " t"]


class Limits(NamedTuple):
    """Bounds of a right answer: its number of choices, tokens in each, the ids of the vocabulary, those that end."""

    count: int
    max_new_tokens: int
    vocab_size: int
    eos_ids: Collection[int]


def request_body(
    model: str, prompt: Sequence[int], count: int, sampling: SamplingParams, eos_ids: Sequence[int],
    absent_ids: Sequence[range] = (), seed: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The body of a request for `count` completions of a tokenised prompt.

    It sets every parameter of the distribution: servers have defaults of their own (from generation_config.json).
    Both ways are asked for in which vLLM returns ids: `token_ids`, and `logprobs.tokens` as "token_id:17".
    """
    absent = {str(i): -100 for ids in absent_ids for i in ids}
    return {
        "model": model,
        "prompt": list(prompt),
        "n": count,
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": list(eos_ids),
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "stream": False,
    } | ({"logit_bias": absent} if absent else {}) | ({} if seed is None else {"seed": seed})  # fmt: skip


def read_choices(answer: Any, limits: Limits, place: str) -> list[Choice]:
    """The completions of an answer, in the order of their indices.

    place: the server, for messages.

    Raises:
      UserError: a field is missing or of another form, or the number of completions, a length, an id or a
        log-probability is impossible.
    """
    if not OBJECT.fits(answer):
        raise UserError(f"{place}: the answer {shown(answer)} is no object")
    found = field(answer, "choices", list_of(OBJECT), place)
    if len(found) != limits.count:
        raise UserError(f"{place}: {len(found)} choices for n = {limits.count}")
    ordered = sorted(enumerate(found), key=lambda pair: pair[1].get("index", pair[0]))
    if [choice.get("index", i) for i, choice in ordered] != list(range(limits.count)):
        raise UserError(f"{place}: the choices have the indices {shown([c.get('index') for c in found])}")
    return [_choice(choice, limits, f"{place}: choice {i}") for i, (_, choice) in enumerate(ordered)]


def _choice(raw: dict[str, Any], limits: Limits, place: str) -> Choice:
    scores = field(raw, "logprobs", OBJECT, place)
    tokens = _array(_token_ids(raw, scores, place), "iu", f"{place}: token ids")
    logprobs = _array(field(scores, "token_logprobs", _LIST, place), "iuf", f"{place}: token_logprobs")
    if len(tokens) != len(logprobs):
        raise UserError(f"{place}: {len(tokens)} tokens and {len(logprobs)} log-probabilities")
    if tokens.min() < 0 or tokens.max() >= limits.vocab_size:
        raise UserError(f"{place}: token ids {tokens.min()} to {tokens.max()} of {limits.vocab_size} in the vocabulary")
    if (strange := logprobs[~(np.isfinite(logprobs) & (logprobs <= ROUNDING))]).size:
        raise UserError(f"{place}: {strange[0]} is no log-probability")
    _check_end(tokens, limits, f"{place} (finish_reason {shown(raw.get('finish_reason'))})")
    return Choice(tokens.astype(np.int32), np.minimum(logprobs, 0).astype(np.float32))


def _token_ids(raw: dict[str, Any], scores: dict[str, Any], place: str) -> list[Any]:
    if raw.get("token_ids") is not None:
        return field(raw, "token_ids", _LIST, place)
    texts = field(scores, "tokens", list_of(TEXT), place)
    if strange := [text for text in texts if not text.removeprefix(_TOKEN).isdecimal() or not text.startswith(_TOKEN)]:
        raise UserError(
            f"{place}: no token_ids, and {one_line(shown(strange[0]))} among the tokens: the server must know "
            "return_token_ids or return_tokens_as_token_ids"
        )
    return [int(text.removeprefix(_TOKEN)) for text in texts]


def _array(values: list[Any], kinds: str, what: str) -> np.ndarray:
    """The values as an array of one axis that is not empty. kinds: of its dtype."""
    try:
        array = np.array(values)
    except (ValueError, OverflowError):  # ragged, or too large
        array = np.empty(0)
    if array.ndim != 1 or array.dtype.kind not in kinds or not array.size:
        raise UserError(f"{what} are {shown(values)}, expected a list of numbers with at least one")
    return array


def _check_end(tokens: np.ndarray, limits: Limits, place: str) -> None:
    """Raises a UserError unless the tokens end with the first end-of-sequence token, or at the limit."""
    ends = np.flatnonzero(np.isin(tokens, list(limits.eos_ids)))
    if len(tokens) > limits.max_new_tokens:
        raise UserError(f"{place}: {len(tokens)} tokens for max_tokens = {limits.max_new_tokens}")
    if ends.size and ends[0] != len(tokens) - 1:
        raise UserError(
            f"{place}: {len(tokens) - 1 - ends[0]} tokens after the end-of-sequence token {tokens[ends[0]]}"
        )
    if not ends.size and len(tokens) < limits.max_new_tokens:
        raise UserError(
            f"{place}: {len(tokens)} of {limits.max_new_tokens} tokens, and no end-of-sequence token "
            f"{sorted(limits.eos_ids)}: it must be among the ids and end a completion, and the server's context must "
            "hold prompt and completion"
        )
