"""Chat templates, which turn messages into the text of a prompt, in a process of their own. For `HFTokenizer`."""

import contextlib
import dataclasses
import datetime
import json
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pods_jax.data import chat_worker
from pods_jax.errors import UserError
from pods_jax.fields import one_line

SYSTEM_ROLES = ("system", "user", "none")
OWN_VARIABLES = ("messages", "add_generation_prompt", "tools", "documents")
LAST_RESORT_S = 60
"""Wall-clock limit of one rendering, for a process that its limit of processor time does not end."""

Message = Mapping[str, str]
"""{"role": ..., "content": ...}."""


@dataclasses.dataclass(frozen=True)
class ChatOptions:
    """A run's choices about its prompts.

    Attributes:
      template: a file with a Jinja template; None: the model's own.
      kwargs: variables for the template, such as enable_thinking.
      system_role: place of the system message: "system", a message of its own; "user", in the user's first message,
        before its text and a blank line; "none", left out.
      date: the date that templates may print; None: today.
    """

    template: str | None = None
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    system_role: str = "system"
    date: datetime.date | None = None


class ChatTemplate:
    """A chat template and the process that renders it, which starts with the first prompt.

    Args:
      text: the template.
      place: name of the file or folder that the template comes from, for error messages.
      tokens: the tokenizer's special tokens, which the template may print, by name (bos_token, eos_token, ...).
      kwargs: the template's other variables.
      date: the date that the template may print.

    Attributes:
      text, place: as given.
      dated: whether any prompt rendered so far depends on the date.
    """

    def __init__(
        self, text: str, place: str, tokens: Mapping[str, str], kwargs: Mapping[str, Any], date: datetime.date
    ):
        self.text = text
        self.place = place
        self.dated = False
        self._tokens = tokens
        self._kwargs = kwargs
        self._date = date
        self._worker: subprocess.Popen | None = None

    def render(self, messages: Sequence[Message], answer: bool = True) -> str:
        """The text of a conversation; with `answer`, up to where the model's answer begins.

        Raises:
          UserError: the template fails, does not end, fills the memory, or does not read one of the kwargs.
        """
        variables = {
            "messages": [dict(m) for m in messages],
            "tools": None,
            "documents": None,
            **self._tokens,
            **self._kwargs,
            "add_generation_prompt": answer,
        }
        if self._worker is None:
            self._start()
        reply = self._ask({"variables": variables})
        self.dated |= reply["dated"]
        return reply["text"]

    def close(self) -> None:
        """Ends the process; the next prompt starts another."""
        if self._worker is not None:
            self._stop()
            self._worker = None

    def _start(self) -> None:
        command = [sys.executable, "-P", chat_worker.__file__]
        self._worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._stop = weakref.finalize(self, _end, self._worker)
        reads = self._ask({"template": self.text, "date": self._date.isoformat()})["reads"]
        for name in self._kwargs:
            if name in OWN_VARIABLES:
                raise UserError(f"data.chat_template_kwargs: '{name}' is what a prompt is made of")
            if name not in reads:
                raise UserError(
                    f"data.chat_template_kwargs: the chat template of {self.place} does not read {one_line(name)!r}"
                )

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's reply. Every failure is a UserError, and ends the worker."""
        try:
            line = _answer(self._worker, json.dumps(request).encode() + b"\n")
        except TypeError as error:
            raise UserError(f"data.chat_template_kwargs: {one_line(error)}") from error
        reply = json.loads(line) if line else {"error": _death(self._worker)}
        if "error" in reply:
            self.close()
            raise UserError(f"the chat template of {self.place} failed: {one_line(reply['error'])}")
        return reply


def _answer(worker: subprocess.Popen, request: bytes) -> bytes:
    """The process's line of reply; empty if the process ends first."""
    try:
        worker.stdin.write(request)
        worker.stdin.flush()
    except BrokenPipeError:
        return b""
    if not select.select([worker.stdout], [], [], LAST_RESORT_S)[0]:
        worker.kill()
    return worker.stdout.readline()


def _death(worker: subprocess.Popen) -> str:
    """The reason why a process gave no reply."""
    code = worker.wait()
    if code == -signal.SIGPROF:
        return f"it does not end (stopped after {chat_worker.PROCESSOR_S:g} s of processor time)"
    return f"it does not end (stopped after {LAST_RESORT_S} s)" if code == -signal.SIGKILL else f"exit code {code}"


def _end(worker: subprocess.Popen) -> None:
    worker.kill()
    worker.wait()
    with contextlib.suppress(BrokenPipeError):  # from a request that it did not live to read
        worker.stdin.close()
    worker.stdout.close()


# ---------------------------------------------------------------- messages


def conversation(user: str, system: str | None, earlier: Sequence[Message], system_role: str) -> list[Message]:
    """The messages of a prompt: the system message, the earlier ones, and the user's last one.

    If the earlier messages begin with a system message, it replaces `system`.

    Raises:
      UserError: an entry of `earlier` is no message.
    """
    turns = [checked_message(m) for m in earlier]
    if turns and turns[0]["role"] == "system":
        system = turns.pop(0)["content"]
    turns.append({"role": "user", "content": user})
    if system is None or system_role == "none":
        return turns
    if system_role == "system":
        return [{"role": "system", "content": system}, *turns]
    first = next(i for i, m in enumerate(turns) if m["role"] == "user")
    turns[first] = {"role": "user", "content": with_system(system, turns[first]["content"])}
    return turns


def with_system(system: str, user: str) -> str:
    """The system message and then a user's, in one text."""
    return f"{system}\n\n{user}" if system else user


def checked_message(message: Any) -> Message:
    """A message with a role and a content, both texts. UserError for anything else."""
    if not isinstance(message, Mapping) or message.keys() != {"role", "content"}:
        raise UserError(f"a message needs a role and a content, got {one_line(message, 80)}")
    if not all(isinstance(value, str) for value in message.values()):
        raise UserError(f"role and content of a message must be texts, got {one_line(message, 80)}")
    return message


def read_template(path: str | Path) -> str:
    """The template in a file. UserError if it cannot be read."""
    file = Path(path).expanduser()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"data.chat_template = '{path}' cannot be read: {one_line(error)}") from error
