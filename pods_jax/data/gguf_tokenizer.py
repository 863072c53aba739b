"""The tokenizer that a GGUF file describes in its metadata, rebuilt with `tokenizers`."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pods_jax.errors import UserError
from pods_jax.model_files import GGUFFile
from pods_jax.registry import nearest

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedTokenizerFast


CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type


class Kind(NamedTuple):
    """A kind of byte-level BPE.

    Attributes:
      split: cuts text into the pieces within which bytes are merged.
      nfc: whether text is brought into Unicode's composed form first.
      ignore_merges: whether a piece that is a token is taken whole, whatever the merges say.
    """

    split: Callable[[], "PreTokenizer"]
    nfc: bool = False
    ignore_merges: bool = False


def _split_digits() -> "PreTokenizer":
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])


def _split_words(digits: str) -> "PreTokenizer":
    """The pattern of OpenAI's cl100k tokenizer, which Llama 3 and Qwen2 took over but for the run of digits."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
    rest = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    pattern = Regex(f"{words}|{digits}|{rest}")
    return Sequence([Split(pattern, "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


KINDS = {
    "smollm": Kind(_split_digits),
    "llama-bpe": Kind(functools.partial(_split_words, r"\p{N}{1,3}"), ignore_merges=True),
    "qwen2": Kind(functools.partial(_split_words, r"\p{N}"), nfc=True),
}
"""By tokenizer.ggml.pre; "llama-bpe" is Llama 3, and "qwen2" also Qwen2.5 and Qwen3."""


def read_tokenizer(path: Path) -> tuple["PreTrainedTokenizerFast", tuple[int, ...]]:
    """The tokenizer of a GGUF file, and the ids of its end-of-turn tokens beside the end-of-sequence one.

    Raises:
      UserError: the file is not GGUF, or its kind of tokenizer is not supported.
    """
    from transformers import PreTrainedTokenizerFast

    file = GGUFFile(path)
    tokens = file["tokenizer.ggml.tokens"]
    ids = {name: file.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "unknown", "padding", "eot")}
    special = {name: None if i is None else tokens[i] for name, i in ids.items()}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_byte_pair_tokenizer(file, tokens),
        bos_token=special["bos"],
        eos_token=special["eos"],
        unk_token=special["unknown"],
        pad_token=special["padding"],
        chat_template=file.get("tokenizer.chat_template"),
    )
    return tokenizer, () if ids["eot"] is None else (ids["eot"],)


def _byte_pair_tokenizer(file: GGUFFile, tokens: list[str]) -> "Tokenizer":
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    if (model := file["tokenizer.ggml.model"]) != "gpt2":
        raise UserError(f"{file.path}: tokenizer model '{model}' is not supported, only 'gpt2' (byte-level BPE)")
    merges = [tuple(merge.split(" ")) for merge in file["tokenizer.ggml.merges"]]
    kind, vocab = _kind(file), {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=kind.ignore_merges))
    tokenizer.pre_tokenizer = kind.split()
    if kind.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    for token, role in zip(tokens, file["tokenizer.ggml.token_type"], strict=True):
        if role in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=role == CONTROL, normalized=False)])
    if file.get("tokenizer.ggml.add_bos_token"):
        _prepend(tokenizer, tokens[file["tokenizer.ggml.bos_token_id"]])
    return tokenizer


def _kind(file: GGUFFile) -> Kind:
    name = file["tokenizer.ggml.pre"]
    if name not in KINDS:
        raise UserError(f"{file.path}: tokenizer.ggml.pre '{name}' is not supported: {nearest(name, KINDS)}")
    return KINDS[name]


def _prepend(tokenizer: "Tokenizer", bos: str) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
