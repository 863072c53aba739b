"""The process that renders a chat template for `chat.ChatTemplate`: `python chat_worker.py`, which imports jinja2 only.

A template is a stranger's program: it may loop for ever or fill the memory. So it runs here, under limits that the
system enforces. The process answers each line of JSON on stdin with one line of JSON on stdout, until stdin ends:

    {"template": text, "date": "2025-01-31"} -> {"reads": names of the variables that it reads}
    {"variables": {"messages": [...], ...}}  -> {"text": rendered, "dated": whether it asked for the date}

or {"error": reason}. A request that takes more than PROCESSOR_S of processor time ends the process, by SIGPROF.
"""

import datetime
import json
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.sandbox

PROCESSOR_S = 0.5
MEMORY_BYTES = 512 << 20
MAX_CHARACTERS = 16 << 20


class GenerationTag(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}, by which templates mark answers; it is rendered as its content."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


class Renderer:
    """One template, in the environment in which transformers' `apply_chat_template` renders it."""

    def __init__(self, template: str, date: str):
        self.dated = False
        self._now = datetime.datetime.fromisoformat(date)
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise, "strftime_now": self._strftime}
        self._template = environment.from_string(template)
        self.reads = sorted(jinja2.meta.find_undeclared_variables(environment.parse(template)))

    def render(self, variables: dict[str, Any]) -> str:
        text = self._template.render(variables)
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"it renders {len(text)} characters")
        return text

    def _strftime(self, form: str) -> str:
        self.dated = True
        return self._now.strftime(form)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def answers() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that answers requests one by one, with the template of the latest request that had one."""
    renderer = None

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal renderer
        if "template" in request:
            renderer = Renderer(request["template"], request["date"])
            return {"reads": renderer.reads}
        text = renderer.render(request["variables"])
        return {"text": text, "dated": renderer.dated}

    return answer


def main() -> None:
    """Serves requests until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which closes stdin
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # a program passes on what it ignores and blocks
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    if sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    answer = answers()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
        try:
            reply = answer(request)
        except Exception as error:  # of any class, raised by the template: the parent reports it
            reply = {"error": f"{type(error).__name__}: {error}"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
