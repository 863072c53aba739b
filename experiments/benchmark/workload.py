"""The workload that all contenders are given: a model in a folder, prompts, and rewards."""

import dataclasses
import math
import statistics
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pods_jax.models import shapes
from pods_jax.models.decoder import ModelConfig

BENCHMARK_SHAPES = {
    "smollm2-135m": shapes.SHAPES["smollm2-135m"],
    "qwen2.5-1.5b": dataclasses.replace(
        shapes.SHAPES["Qwen/Qwen2.5-Math-1.5B"], rope_theta=1_000_000.0, max_position_embeddings=32_768
    ),
    "tiny": ModelConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=True,
    ),
}
"""Models by name; their weights are random, as only their shapes matter to a clock."""


def write_model(shape: str, folder: Path) -> None:
    """Random weights and a tokenizer, as a folder that this package and transformers load alike."""
    import jax

    from pods_jax.models import Decoder, init_params, save_pretrained

    model = Decoder(BENCHMARK_SHAPES[shape])
    save_pretrained(folder, model, init_params(model, jax.random.key(0)))
    write_tokenizer(model.config.vocab_size, folder)


def write_tokenizer(vocab_size: int, folder: Path) -> None:
    """A tokenizer without merges: every digit of a prompt is a token, and every id has a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    texts = ["<unk>", "<pad>", "<end>", *map(str, range(10))]
    texts += [f"w{i}" for i in range(len(texts), vocab_size)]
    tokenizer = Tokenizer(models.WordLevel({text: i for i, text in enumerate(texts)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "<end>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def digits(count: int, seed: int = 0) -> str:
    """A prompt of `count` tokens."""
    return "".join(map(str, np.random.default_rng(seed).integers(0, 10, count)))


def end_ids(vocab_size: int, mean_length: int | None) -> list[int]:
    """Tokens that end a completion: so many that one of near-uniform draws does after mean_length on average.

    That makes lengths geometric on every side of a comparison, whatever its random numbers are.
    """
    return [] if mean_length is None else list(range(vocab_size - vocab_size // mean_length, vocab_size))


def heavy_tailed_length(first_id: int, vocab_size: int, mean_length: int) -> int:
    """The length of a completion, by its first token: lognormal with sigma = 1 where first tokens are near-uniform.

    So lengths have the same distribution on every side of a comparison, whatever its random numbers are. Three in a
    hundred completions have more than four times the mean, and a fifth of all tokens.
    """
    quantile = (first_id * 40_009 % vocab_size + 0.5) / vocab_size  # a prime: neighbours are far apart
    return math.ceil(mean_length * math.exp(statistics.NormalDist().inv_cdf(quantile) - 0.5))


def reward(completions: Sequence[str], **_) -> list[float]:
    """0 or 1, by the text, so that groups have a variance; the signature is TRL's."""
    return [float(zlib.crc32(text.encode()) % 2) for text in completions]
