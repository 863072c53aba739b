"""An allocator that does everything an allocator may do, and judges nothing: for tests of the loop around it."""

import dataclasses

from pods_jax.allocation.base import Exhausted, register
from pods_jax.groups import Group, Prompt, Request, joined

PILOTS = (2, 3, 5)


@register("juggler")
class Juggler:
    """Rounds of unequal requests; drops every third pilot, keeps the others for later, joins them with a commit.

    Hands over three groups of 5 to 8, or, every fourth round, asks for nothing and hands over what it has. Has enough
    after `limit` groups.
    """

    def __init__(self, config):
        self._limit = dict(config.allocation.options).get("limit", 10**9)
        self._round, self._handed_over = 0, 0
        self._buffer: list[Group] = []
        self._joined: list[Group] = []
        self._committing: list[Group] = []

    @property
    def _idle(self):
        return self._round % 4 == 0 and bool(self._joined)

    def requests(self, stream):
        if self._handed_over >= self._limit:
            raise Exhausted(f"the juggler has thrown {self._handed_over} groups")
        self._round += 1
        if self._idle:
            return []
        self._committing, self._buffer = self._buffer[:2], self._buffer[2:]
        pilots = [Request(p, n, "pilot") for p, n in zip(stream.next(3), PILOTS, strict=True)]
        return pilots + [Request(g.request.prompt, 3, "commit", first=len(g.rewards)) for g in self._committing]

    def observe(self, groups):
        pilots, commits = groups[:3], groups[3:]
        self._joined += [joined(pair) for pair in zip(self._committing, commits, strict=True)]
        self._committing = []
        self._buffer += [g for g in pilots if g.request.prompt.uid % 3]
        if len(self._joined) < 3 and not self._idle:
            return []
        ready, self._joined = self._joined[:3], self._joined[3:]
        self._handed_over += len(ready)
        return ready

    def held(self):
        return [*self._buffer, *self._joined, *self._committing]

    def metrics(self):
        return {"juggler/in_the_air": float(len(self.held()))}

    def state_dict(self):
        assert not self._committing
        groups = {"buffer": self._buffer, "joined": self._joined}
        return {k: [_plain(g) for g in v] for k, v in groups.items()} | {
            "round": self._round,
            "handed_over": self._handed_over,
        }

    def load_state_dict(self, state):
        self._round, self._handed_over = state["round"], state["handed_over"]
        self._buffer, self._joined = ([_group(g) for g in state[k]] for k in ("buffer", "joined"))


def _plain(group):
    return {f.name: getattr(group, f.name) for f in dataclasses.fields(group)} | {
        "request": dataclasses.asdict(group.request)
    }


def _group(fields):
    request = dict(fields["request"])
    prompt = request.pop("prompt")
    prompt["tokens"] = tuple(prompt["tokens"])
    texts = {k: tuple(fields[k]) for k in ("texts", "reasons")}
    return Group(**fields | texts | {"request": Request(Prompt(**prompt), **request)})
