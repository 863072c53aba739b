"""Traffic between devices, read off the text of a compiled program: its collectives, and how often they run."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from pods_jax.planning.hlo import Instruction, Module, array_bytes, parse

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_FUSED = "all-reduce-scatter"
"""The name in TPU programs of an all-reduce of which each device keeps a part: it runs as a reduce-scatter."""


class Traffic(NamedTuple):
    """Number of collectives of one kind that a device runs, and the bytes that it sends in all of them."""

    count: float
    sent_bytes: float


def traffic(program_text: str, unknown_trips: int = 1) -> dict[str, Traffic]:
    """Traffic of one device in one run of the program, by kind of collective.

    Bytes are those of ring algorithms (Patarasuk and Yuan 2009, doi 10.1016/j.jpdc.2008.09.002): in a group of g
    devices, (g - 1) / g of the whole array for all-gather, reduce-scatter and all-to-all, twice that for all-reduce.

    Args:
      program_text: `compiled.as_text()`.
      unknown_trips: iterations assumed of loops that may end early, such as decoding.
    """
    module = parse(program_text)
    totals: dict[str, Traffic] = defaultdict(lambda: Traffic(0.0, 0.0))
    for collective in _executed(module, module.entry, 1.0, unknown_trips):
        kind = collective.kind
        count, sent = totals[kind]
        totals[kind] = Traffic(count + collective.times, sent + collective.sent_bytes)
    return dict(totals)


class Collective(NamedTuple):
    """A collective that a computation reaches.

    Attributes:
      fused: whether its computation is the fusion that makes an all-reduce a reduce-scatter.
      times: how often it runs.
    """

    instruction: Instruction
    fused: bool
    times: float

    @property
    def kind(self) -> str:
        return "reduce-scatter" if self.fused else self.instruction.operation.removesuffix("-start")

    @property
    def channel(self) -> str | None:
        """The number that is a collective's own in its program; None where the compiler wrote none."""
        found = re.search(r"channel_id=(\d+)", self.instruction.rest)
        return found and found[1]

    @property
    def sent_bytes(self) -> float:
        return self.times * (fused_bytes if self.fused else sent_bytes)(self.instruction)


def _executed(module: Module, name: str, times: float, unknown_trips: int) -> Iterator[Collective]:
    """Collectives that a computation reaches; of branches only the one that sends the most.

    An asynchronous collective of a TPU is a fusion that starts it, others that go on with it beside their own work (in
    loops, too), and one that ends it. Each of these fusions names it, by the same channel, and it runs once.
    """
    begun: set[str] = set()
    for instruction in module.computations[name].instructions.values():
        if instruction.operation.removesuffix("-start") in COLLECTIVES:
            yield Collective(instruction, name.startswith(_FUSED) and instruction.operation == "all-reduce", times)
            continue  # it calls the computation of its sum
        trips = times * (module.trips(instruction, unknown_trips) if instruction.operation == "while" else 1)
        called = [c for c in instruction.called if c in module.computations]
        reached = [list(_executed(module, c, trips, unknown_trips)) for c in called]
        if instruction.operation == "conditional":
            reached = [max(reached, key=lambda branch: sum(c.sent_bytes for c in branch))]
        new = [c for inner in reached for c in inner if c.channel not in begun]
        yield from new
        if instruction.operation == "fusion":
            begun |= {c.channel for c in new} - {None}


def sent_bytes(instruction: Instruction) -> float:
    """Bytes that one device sends in one run of a collective."""
    kind = instruction.operation.removesuffix("-start")
    size = array_bytes(instruction.result)
    if kind == "collective-permute":
        return size / 2 if instruction.operation.endswith("-start") else size  # its result names the operand as well
    g = group_size(instruction.rest)
    if instruction.operation == "all-gather-start":
        size *= g / (g + 1)  # the same: operand, which is 1 / g of the whole, and result
    return {"all-reduce": 2.0, "reduce-scatter": float(g)}.get(kind, 1.0) * size * (g - 1) / g


def fused_bytes(all_reduce: Instruction) -> float:
    """Bytes that one device sends in an all-reduce of which it keeps a part."""
    return sent_bytes(all_reduce) / 2


def group_size(attributes: str) -> int:
    """Number of devices that take part in a collective together; XLA writes it in three ways."""
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return len(listed[1].split(","))
    if counted := re.search(r"replica_groups=\[\d+,(\d+)\]<=", attributes):
        return int(counted[1])
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(.*?\))? \{([^}]*)\}", attributes):
        sizes = dict(re.findall(r"('[\w.]+')=(\d+)", named[1]))
        return math.prod(int(sizes[axis.strip()]) for axis in named[2].split(","))
    raise ValueError(f"no replica groups in {attributes[:200]!r}")
