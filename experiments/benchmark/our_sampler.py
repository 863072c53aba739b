"""This package's side of the comparisons of generation. It imports what generating needs, and no trainer."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax

from benchmark.contenders import Repetition
from benchmark.workload import digits, end_ids, heavy_tailed_length
from pods_jax.buckets import bucket
from pods_jax.data.tokenizers import load_tokenizer
from pods_jax.models import load_pretrained
from pods_jax.models.decoder import Decoder, Params
from pods_jax.rollout import generate
from pods_jax.rollout.layout import block_tokens, kv_bytes
from pods_jax.rollout.stop_strings import StopStrings

BLOCK = 4
"""Completions in a block of the sampler, by which its cache is measured."""


@dataclasses.dataclass(frozen=True)
class FirstTokenDecides(StopStrings):
    """Ends completions as `heavy_tailed_length` says, whatever their text is."""

    decode: Callable[[Sequence[int]], str] = str
    strings: tuple[str, ...] = ()
    vocab_size: int = 1
    mean_length: int = 1

    def end(self, ids: Sequence[int], start: int) -> int | None:
        length = heavy_tailed_length(ids[0], self.vocab_size, self.mean_length)
        return length if start < length <= len(ids) else None


def tails(options: dict[str, Any]) -> Repetition:
    """As `sampler`, with lengths of a heavy tail, and room for the cache of a few completions of full length."""
    model, params = load_pretrained(options["folder"], stacked=False)
    tokens = block_tokens(BLOCK, bucket(options["prompt_tokens"]), options["new_tokens"])
    blocks = options["n"] // options["share"] // BLOCK
    return _completing(
        model, params, options,
        stops=FirstTokenDecides(vocab_size=model.config.vocab_size, mean_length=options["mean_length"]),
        max_cache_bytes_per_device=blocks * tokens * kv_bytes(model.config, params["embed"].dtype),
    )  # fmt: skip


def sampler(options: dict[str, Any]) -> Repetition:
    """One prompt, n completions; the tokens counted are those up to the end of each."""
    model, params = load_pretrained(options["folder"], stacked=False)
    return _completing(model, params, options, eos_ids=end_ids(model.config.vocab_size, options["mean_length"]))


def _completing(model: Decoder, params: Params, options: dict[str, Any], **ends: Any) -> Repetition:
    prompt = load_tokenizer(options["folder"]).encode_prompt(digits(options["prompt_tokens"]))
    keys = iter(range(1_000_000))

    def repetition() -> int:
        completions = generate(
            model,
            params,
            [prompt],
            num_generations=options["n"],
            max_new_tokens=options["new_tokens"],
            key=jax.random.key(next(keys)),
            **ends,
        )
        return int(completions.lengths.sum())

    return repetition
