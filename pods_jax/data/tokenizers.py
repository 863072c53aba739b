"""Text to token ids and back: the tokenizers of pretrained models, and one of single characters for toy tasks."""

import datetime
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pods_jax.data.chat import (
    ChatOptions,
    ChatTemplate,
    Message,
    conversation,
    read_template,
    with_system,
)  # fmt: skip
from pods_jax.data.tokenizer_files import (
    GENERATION_CONFIG,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    Vocabulary,
    gaps,
    read_folder,
)
from pods_jax.errors import UserError
from pods_jax.fields import one_line, shown
from pods_jax.model_files import local_model

FILES = ("*.json", "*.jinja", "*.txt", "*.model")
OWN_FILES = (
    TOKENIZER,
    TOKENIZER_CONFIG,
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    TEMPLATE,
)
"""The files in a model's folder that belong to its tokenizer."""


@runtime_checkable
class Tokenizer(Protocol):
    """A tokenizer as the rest of the code sees it.

    Attributes:
      vocab_size: one more than the largest id; the model's vocabulary may be larger, by padding.
      eos_ids: every id that ends a completion.
      pad_id: id that fills arrays. Padding is recognised by lengths, never by this id.
    """

    vocab_size: int
    eos_ids: tuple[int, ...]
    pad_id: int

    def encode_prompt(self, user: str, system: str | None = None, earlier: Sequence[Message] = ()) -> list[int]:
        """The ids (at least one) of a prompt to which the model answers. earlier: the messages before `user`."""
        ...

    def encode_observation(self, text: str, role: str = "user", ended: bool = True) -> list[int]:
        """The ids that follow a turn of the model's: an observation, and all that comes before the model's next turn.

        role: of the observation's message in a chat template.
        ended: True if the turn has the id that ends it; False: the ids begin with that id, if the template has one.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, without special tokens and without ids that end a completion."""
        ...

    def absent_ids(self, size: int) -> tuple[range, ...]:
        """The ids below `size` (the size of a model's vocabulary) that belong to no token."""
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

    def encode_prompt(self, user: str, system: str | None = None, earlier: Sequence[Message] = ()) -> list[int]:
        return _not_empty(self.encode(_plain(user, system, earlier)), "")

    def encode_observation(self, text: str, role: str = "user", ended: bool = True) -> list[int]:
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._chars[i] for i in ids)

    def absent_ids(self, size: int) -> tuple[range, ...]:
        return ()


class HFTokenizer:
    """The tokenizer of a model's files, with its chat template if it has one.

    Args:
      vocabulary: the tokenizer as the files describe it.
      options: the run's choices about prompts.

    Attributes:
      token_ids: bos_token_id, eos_token_id and pad_token_id in the form of config.json; unknown ones are absent.

    Raises:
      UserError: no token is known to end a completion, or the options do not fit.
    """

    def __init__(self, vocabulary: Vocabulary, options: ChatOptions | None = None):
        self._vocabulary = vocabulary
        self._backend = vocabulary.backend
        self._options = ChatOptions() if options is None else options
        self.eos_ids = tuple(vocabulary.token_ids["eos_token_id"])
        if not self.eos_ids:
            raise UserError(f"{vocabulary.place}: the tokenizer names no end-of-sequence token")
        self.pad_id = vocabulary.token_ids.get("pad_token_id", self.eos_ids[0])
        self.token_ids = dict(vocabulary.token_ids) | {"eos_token_id": _one_or_list(self.eos_ids)}
        self._ids = list(self._backend.get_vocab(with_added_tokens=True).values())
        self.vocab_size = 1 + max(self._ids)
        self._chat = _chat_template(vocabulary, self._options)
        self._turn_ends: dict[str, int] = {}

    @property
    def dated(self) -> bool:
        """Whether any prompt so far depends on the date."""
        return self._chat is not None and self._chat.dated

    def encode_prompt(self, user: str, system: str | None = None, earlier: Sequence[Message] = ()) -> list[int]:
        """The chat template's prompt for an answer; without a template, plain text after the tokenizer's own BOS.

        system: the system message. None leaves it out (some templates then write one of their own); "" is an empty one.

        Raises:
          UserError: the template fails, does not take the system message, or leaves nothing to answer.
        """
        if self._chat is None:
            return self._plain_ids(_plain(user, system, earlier))
        text = self._rendered(user, system, earlier)
        ids = _not_empty(self._encode(text, special=False), text)  # the template holds the special tokens
        if ids[-1] in self.eos_ids:
            raise UserError(
                f"the prompt ends with {shown(self._backend.id_to_token(ids[-1]))}, which ends an answer: {shown(text)}"
            )
        return ids

    def encode_observation(self, text: str, role: str = "user", ended: bool = True) -> list[int]:
        """As the chat template writes it; without a template, the plain text.

        Raises:
          UserError: the template fails on such a message, or leaves it out.
        """
        if self._chat is None:
            return self._encode(text, special=False)
        if role not in self._turn_ends:
            self._turn_ends[role] = self._turn_end(role)
        ids = self._encode(self._after_turn(text, role), special=False)
        return ids[self._turn_ends[role] :] if ended else ids

    def _turn_end(self, role: str) -> int:
        """The number of ids that the template writes after a turn of the model's, up to the first that ends it."""
        between, found, _ = self._after_turn(_OBSERVATION, role).partition(_OBSERVATION)
        if not found:
            raise UserError(f"the chat template of {self._chat.place} drops messages of environment.role = '{role}'")
        ids = self._encode(between, special=False)
        return next((i + 1 for i, token in enumerate(ids) if token in self.eos_ids), 0)

    def _after_turn(self, observation: str, role: str) -> str:
        """The text that the template writes after a turn of the model's."""
        messages = [{"role": "user", "content": "."}, {"role": "assistant", "content": _TURN}]
        try:
            text = self._chat.render([*messages, {"role": role, "content": observation}])
        except UserError as error:
            raise UserError(f"{error} (on an observation as a message of environment.role = '{role}')") from error
        _, found, after = text.partition(_TURN)
        if not found:
            raise UserError(f"the chat template of {self._chat.place} drops the model's earlier turns")
        return after

    def decode(self, ids: Sequence[int]) -> str:
        ids = [i for i in ids if i not in self.eos_ids]
        return self._backend.decode(ids, skip_special_tokens=True)

    def absent_ids(self, size: int) -> tuple[range, ...]:
        return tuple(gaps(self._ids, size))

    def save(self, folder: Path) -> None:
        """Writes the files from which `load_tokenizer` and transformers load this tokenizer."""
        if self._vocabulary.folder is None:
            self._write_files(folder)
        else:
            for name in OWN_FILES:
                if (self._vocabulary.folder / name).exists():
                    shutil.copyfile(self._vocabulary.folder / name, folder / name)
        if self._chat is not None and (self._vocabulary.folder is None or self._options.template is not None):
            (folder / TEMPLATE).write_text(self._chat.text, encoding="utf-8")
        _write_json(folder / GENERATION_CONFIG, {**self._vocabulary.generation, **self.token_ids})

    def _write_files(self, folder: Path) -> None:
        self._backend.save(str(folder / TOKENIZER))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        _write_json(folder / TOKENIZER_CONFIG, {**config, **self._vocabulary.tokens})

    def _encode(self, text: str, special: bool) -> list[int]:
        try:
            return self._backend.encode(text, add_special_tokens=special).ids
        except Exception as error:  # the package raises no narrower class
            raise UserError(f"{self._vocabulary.place}: cannot be tokenised: {one_line(error)}") from error

    def _plain_ids(self, text: str) -> list[int]:
        """The ids of a text and of the special tokens that the tokenizer puts before it, without those after it."""
        bare = self._encode(text, special=False)
        whole = self._encode(text, special=True)
        for start in range(len(whole) - len(bare) + 1):
            end = start + len(bare)
            if whole[start:end] == bare:
                return _not_empty(whole[:end], text)
        raise UserError(f"{self._vocabulary.place}: the tokenizer changes a text between its special tokens")

    def _rendered(self, user: str, system: str | None, earlier: Sequence[Message]) -> str:
        role = self._options.system_role
        messages = conversation(user, system, earlier, role)
        without = conversation(user, None, [m for m in earlier if m["role"] != "system"], role)
        if messages == without:
            return self._chat.render(messages)
        try:
            text = self._chat.render(messages)
        except UserError as error:
            if not self._renders(without):
                raise
            raise UserError(f"{error}{SYSTEM_HINT}") from error
        dropped = role == "system" and messages[0]["content"].strip() not in text
        if dropped and self._chat.render(without) == text:
            raise UserError(f"the chat template of {self._chat.place} drops the system message{SYSTEM_HINT}")
        return text

    def _renders(self, messages: Sequence[Message]) -> bool:
        try:
            self._chat.render(messages)
        except UserError:
            return False
        return True


_TURN = "(a turn)"
_OBSERVATION = "(an observation)"
"""Stand-ins by which the places of messages in a rendered conversation are found."""

SYSTEM_HINT = (
    "; without the system message it works: data.system_role = 'user' puts it before the user's, 'none' leaves it out"
)


def load_tokenizer(path_or_repo: str | Path, options: ChatOptions | None = None) -> HFTokenizer:
    """The tokenizer of a folder, a hub id "org/name", a .gguf file or "smollm2-135m".

    Raises:
      UserError: there is none, its kind is not supported, or the options do not fit it.
    """
    path = local_model(path_or_repo, FILES)
    if path.suffix == ".gguf":
        from pods_jax.data.gguf_tokenizer import read_tokenizer

        return HFTokenizer(read_tokenizer(path), options)
    return HFTokenizer(read_folder(path), options)


def _chat_template(vocabulary: Vocabulary, options: ChatOptions) -> ChatTemplate | None:
    """The run's chat template, or else the model's, or None."""
    text = vocabulary.template if options.template is None else read_template(options.template)
    if text is None:
        if options.kwargs:
            raise UserError(f"data.chat_template_kwargs: {vocabulary.place} has no chat template")
        return None
    date = datetime.date.today() if options.date is None else options.date
    return ChatTemplate(text, str(options.template or vocabulary.place), vocabulary.tokens, options.kwargs, date)


def _plain(user: str, system: str | None, earlier: Sequence[Message]) -> str:
    if earlier:
        raise UserError("prompts of several messages need a chat template: set data.chat_template")
    return user if system is None else with_system(system, user)


def _not_empty(ids: list[int], text: str) -> list[int]:
    if not ids:
        raise UserError(f"the prompt has no tokens: it was rendered as {shown(text)}")
    return ids


def _one_or_list(ids: Sequence[int]) -> int | list[int]:
    return list(ids) if len(ids) > 1 else ids[0]


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
