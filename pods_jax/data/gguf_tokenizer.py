"""The tokenizer that a GGUF file describes in its metadata, rebuilt with `tokenizers`."""

from pathlib import Path
from typing import TYPE_CHECKING

from pods_jax.errors import UserError
from pods_jax.model_files import GGUFFile
from pods_jax.registry import nearest

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedTokenizerFast


CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type


def _smollm() -> "PreTokenizer":
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])


PRE_TOKENIZERS = {"smollm": _smollm}
"""How text is split before byte-pair merging, by tokenizer.ggml.pre."""


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
    from tokenizers import AddedToken, Tokenizer, decoders, models

    if (model := file["tokenizer.ggml.model"]) != "gpt2":
        raise UserError(f"{file.path}: tokenizer model '{model}' is not supported, only 'gpt2' (byte-level BPE)")
    merges = [tuple(merge.split(" ")) for merge in file["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(file)
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, file["tokenizer.ggml.token_type"], strict=True):
        if kind in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=kind == CONTROL, normalized=False)])
    if file.get("tokenizer.ggml.add_bos_token"):
        _prepend(tokenizer, tokens[file["tokenizer.ggml.bos_token_id"]])
    return tokenizer


def _pre_tokenizer(file: GGUFFile) -> "PreTokenizer":
    name = file["tokenizer.ggml.pre"]
    if name not in PRE_TOKENIZERS:
        hint = nearest(name, PRE_TOKENIZERS)
        raise UserError(f"{file.path}: tokenizer.ggml.pre '{name}' is not supported: {hint}")
    return PRE_TOKENIZERS[name]()


def _prepend(tokenizer: "Tokenizer", bos: str) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
