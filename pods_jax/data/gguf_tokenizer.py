"""The tokenizer that a GGUF file describes in its metadata, rebuilt with `tokenizers`."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pods_jax.data.tokenizer_files import Vocabulary, end_ids
from pods_jax.errors import UserError
from pods_jax.fields import FLAG, TEXT, list_of, one_line, shown, whole
from pods_jax.gguf_reader import GGUFFile
from pods_jax.registry import nearest

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

# Values of tokenizer.ggml.token_type; unused tokens pad the embedding.
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5
TYPE = whole(0, 6)


class Kind(NamedTuple):
    """A kind of byte-level BPE.

    Attributes:
      split: function that gives the pre-tokenizer, which cuts text into pieces; bytes are merged within a piece only.
      nfc: whether text is first brought into Unicode's composed form.
      ignore_merges: whether a piece that is itself a token becomes that token, whatever the merges are.
    """

    split: Callable[[], "PreTokenizer"]
    nfc: bool = False
    ignore_merges: bool = False


def _split_digits() -> "PreTokenizer":
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])


def _split_words(digits: str) -> "PreTokenizer":
    """The pattern of OpenAI's cl100k tokenizer, as Llama 3 and Qwen2 use it: they differ in runs of digits."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
    rest = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    pattern = Regex(f"{words}|{digits}|{rest}")
    return Sequence([Split(pattern, "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


_QWEN2 = Kind(functools.partial(_split_words, r"\p{N}"), nfc=True)
KINDS = {
    "smollm": Kind(_split_digits),
    "llama-bpe": Kind(functools.partial(_split_words, r"\p{N}{1,3}"), ignore_merges=True),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}
"""The kinds by their names in tokenizer.ggml.pre. "llama-bpe" is Llama 3; "qwen2" is also Qwen2.5 and Qwen3;
"deepseek-r1-qwen" is R1's distillates of Qwen."""


NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
ENDS = ("eos", "eot", "eom")  # of a sequence, a turn, a message


def read_tokenizer(path: Path) -> Vocabulary:
    """The tokenizer of a GGUF file.

    Raises:
      UserError: the file is not GGUF, its kind of tokenizer is not supported, or its parts do not fit each other.
    """
    file = GGUFFile(path)
    tokens = file.field("tokenizer.ggml.tokens", list_of(TEXT))
    id_rule = whole(0, len(tokens) - 1)
    ids = {name: file.field(f"tokenizer.ggml.{name}_token_id", id_rule, None) for name in (*NAMES, *ENDS)}
    named = {theirs: ids[ours] for ours, theirs in NAMES.items() if ids[ours] is not None}
    backend = _byte_pair_tokenizer(file, tokens)
    if file.field("tokenizer.ggml.add_bos_token", FLAG, False):
        if ids["bos"] is None:
            raise UserError(f"{path}: tokenizer.ggml.add_bos_token is true, but there is no bos_token_id")
        _prepend(backend, tokens[ids["bos"]])
    return Vocabulary(
        place=path,
        backend=backend,
        tokens={name: tokens[i] for name, i in named.items()},
        token_ids={f"{name}_id": i for name, i in named.items() if name in ("bos_token", "pad_token")}
        | {"eos_token_id": end_ids(*(ids[name] for name in ENDS))},
        template=file.field("tokenizer.chat_template", TEXT, None),
    )


def _byte_pair_tokenizer(file: GGUFFile, tokens: list[str]) -> "Tokenizer":
    from tokenizers import AddedToken, decoders, normalizers

    if (model := file.field("tokenizer.ggml.model", TEXT)) != "gpt2":
        raise UserError(f"{file.path}: tokenizer model {shown(model)} is not supported, only 'gpt2' (byte-level BPE)")
    kind = _kind(file)
    types = file.field("tokenizer.ggml.token_type", list_of(TYPE))
    tokenizer = _without_added_tokens(file, tokens, types, kind)
    tokenizer.pre_tokenizer = kind.split()
    if kind.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    for token, role in zip(tokens, types, strict=True):
        if role in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=role == CONTROL, normalized=False)])
    return tokenizer


def _without_added_tokens(file: GGUFFile, tokens: list[str], types: list[int], kind: Kind) -> "Tokenizer":
    """A tokenizer with the file's tokens and merges. UserError if they do not fit each other."""
    from tokenizers import Tokenizer, models

    if len(types) != len(tokens):
        raise UserError(f"{file.path}: tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens")
    vocab = {token: i for i, (token, role) in enumerate(zip(tokens, types, strict=True)) if role != UNUSED}
    if len(vocab) + types.count(UNUSED) != len(tokens):
        raise UserError(f"{file.path}: tokenizer.ggml.tokens repeats a token")
    try:
        return Tokenizer(models.BPE(vocab, _merges(file), ignore_merges=kind.ignore_merges))
    except Exception as error:  # the package raises no narrower class
        raise UserError(f"{file.path}: tokenizer.ggml.merges: {one_line(error)}") from error


def _merges(file: GGUFFile) -> list[tuple[str, str]]:
    """Pairs of tokens, in the order in which they are merged."""
    merges = [tuple(merge.split(" ")) for merge in file.field("tokenizer.ggml.merges", list_of(TEXT))]
    if odd := next((merge for merge in merges if len(merge) != 2), None):
        raise UserError(f"{file.path}: tokenizer.ggml.merges: {shown(' '.join(odd))} is no pair of tokens")
    return merges


def _kind(file: GGUFFile) -> Kind:
    name = file.field("tokenizer.ggml.pre", TEXT)
    if name not in KINDS:
        raise UserError(f"{file.path}: tokenizer.ggml.pre {shown(name)} is not supported: {nearest(name, KINDS)}")
    return KINDS[name]


def _prepend(tokenizer: "Tokenizer", bos: str) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
