"""Text to token ids and back: the tokenizers of pretrained models, and one of single characters for toy tasks.

transformers is imported where it is used: it may bring torch along, and the character tokenizer needs neither.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pods_jax.errors import UserError
from pods_jax.io import read_json
from pods_jax.model_files import local_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FILES = ("*.json", "*.jinja", "*.txt", "*.model")
GENERATION_CONFIG = "generation_config.json"
OWN_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    GENERATION_CONFIG,
)
"""Of the files of a model's folder, those that make its tokenizer (and say which ids end a completion)."""


@runtime_checkable
class Tokenizer(Protocol):
    """What the rest of the code asks of a tokenizer.

    Attributes:
      vocab_size: one more than the largest id; the model's vocabulary may be padded beyond it.
      eos_ids: every id that ends a completion.
      pad_id: fills arrays; what is padding is known from lengths, never from this id.
    """

    vocab_size: int
    eos_ids: tuple[int, ...]
    pad_id: int

    def encode_prompt(self, user: str, system: str | None = None) -> list[int]:
        """The ids after which the model answers `user`."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens skipped."""
        ...


class CharTokenizer:
    """One id a character; 0 pads and 1 ends a sequence."""

    pad_id = 0
    eos_ids = (1,)

    def __init__(self, alphabet: str):
        if repeated := sorted({c for c in alphabet if alphabet.count(c) > 1}):
            raise UserError(f"the alphabet {alphabet!r} repeats {repeated[0]!r}")
        self._chars = ["", "", *alphabet]
        self._ids = {c: i for i, c in enumerate(self._chars) if c}
        self.vocab_size = len(self._chars)

    def encode(self, text: str) -> list[int]:
        """One id a character. UserError for a character outside the alphabet."""
        if unknown := sorted(set(text) - self._ids.keys()):
            raise UserError(f"no id for the character {unknown[0]!r} in {text!r}: alphabet {''.join(self._ids)!r}")
        return [self._ids[c] for c in text]

    def encode_prompt(self, user: str, system: str | None = None) -> list[int]:
        return self.encode(_plain_prompt(user, system))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._chars[i] for i in ids)


class HFTokenizer:
    """A tokenizer of transformers, with its chat template where it has one.

    Args:
      tokenizer: a fast tokenizer of transformers.
      more_eos_ids: ids that end a completion beside the tokenizer's own end-of-sequence token.
      folder: where its files are, for `save` to copy; None: transformers writes new ones.

    Raises:
      UserError: no token is known to end a completion.
    """

    def __init__(
        self, tokenizer: "PreTrainedTokenizerBase", more_eos_ids: Sequence[int] = (), folder: Path | None = None
    ):
        own = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        self.eos_ids = tuple(dict.fromkeys((*own, *more_eos_ids)))
        if not self.eos_ids:
            raise UserError(f"the tokenizer {tokenizer.name_or_path} names no end-of-sequence token")
        self.pad_id = self.eos_ids[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self.vocab_size = 1 + max(tokenizer.get_vocab().values())
        self._tokenizer, self._folder = tokenizer, folder

    def encode_prompt(self, user: str, system: str | None = None) -> list[int]:
        """The chat template's prompt for an answer; without a template, plain text after the tokenizer's own BOS.

        system: None leaves the message out, in which case some templates put one of their own; "" is an empty one.
        """
        if self._tokenizer.chat_template is None:
            return self._tokenizer.encode(_plain_prompt(user, system))
        return self._tokenizer.encode(self._render(user, system), add_special_tokens=False)  # the template holds them

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def save(self, folder: Path) -> None:
        """Writes the files from which `load_tokenizer` and transformers load it again."""
        if self._folder is None:
            self._tokenizer.save_pretrained(folder)
            ends = {"eos_token_id": list(self.eos_ids)}
            (folder / GENERATION_CONFIG).write_text(json.dumps(ends) + "\n", encoding="utf-8")
            return
        for name in OWN_FILES:
            if (self._folder / name).exists():
                shutil.copyfile(self._folder / name, folder / name)

    def _render(self, user: str, system: str | None) -> str:
        from jinja2 import TemplateError

        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": user})
        try:
            return self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise UserError(f"the chat template of {self._tokenizer.name_or_path} failed: {error}") from error


def load_tokenizer(path_or_repo: str | Path) -> HFTokenizer:
    """The tokenizer of a folder, a hub id "org/name", a .gguf file or "smollm2-135m".

    Raises:
      UserError: there is none, or it is of a kind that is not supported.
    """
    path = local_model(path_or_repo, FILES)
    if path.suffix == ".gguf":
        from pods_jax.data.gguf_tokenizer import read_tokenizer

        return HFTokenizer(*read_tokenizer(path))
    return HFTokenizer(_read_folder(path), _generation_eos_ids(path / GENERATION_CONFIG), path)


def _read_folder(path: Path) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    if not path.is_dir():
        raise UserError(f"{path}: neither a folder nor a .gguf file")
    try:
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: no tokenizer that transformers can load: {reason}") from error


def _generation_eos_ids(path: Path) -> list[int]:
    ids = read_json(path).get("eos_token_id") if path.exists() else None
    return ids if isinstance(ids, list) else [] if ids is None else [ids]


def _plain_prompt(user: str, system: str | None) -> str:
    return f"{system}\n\n{user}" if system else user
