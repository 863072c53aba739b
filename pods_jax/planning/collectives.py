"""Traffic between devices, read off the text of a compiled program: its collectives, and how often they run."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_FUSED = "all-reduce-scatter"
"""The name in TPU programs of an all-reduce of which each device keeps a part: it runs as a reduce-scatter."""
_BITS = {"pred": 8, "bf16": 16}  # the others end in their number of bits, or have it before an "e"

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = (.*?[\])}]) ([a-z][a-z0-9-]*)\((.*)$")
_SHAPE = re.compile(r"\b(pred|bf16|[a-z]+\d+(?:e\d+m\d+\w*)?)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations|\w+_computation)=(\{[^}]*\}|%?[\w.-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


class Instruction(NamedTuple):
    """One line of a program: the text of its result's type, its operation, and the rest of the line."""

    result: str
    operation: str
    rest: str


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
    computations, entry = parse(program_text)
    totals: dict[str, Traffic] = defaultdict(lambda: Traffic(0.0, 0.0))
    for instruction, times in _executed(computations, entry, 1.0, unknown_trips):
        kind = instruction.operation.removesuffix("-start").replace(_FUSED, "reduce-scatter")
        count, sent = totals[kind]
        totals[kind] = Traffic(count + times, sent + times * sent_bytes(instruction))
    return dict(totals)


def parse(program_text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The instructions of every computation, and the name of the one where the program starts."""
    computations: dict[str, list[Instruction]] = {}
    entry = name = ""
    for line in program_text.splitlines():
        if header := _COMPUTATION.match(line):
            name = header[2]
            computations[name] = []
            entry = name if header[1] else entry
        elif found := _INSTRUCTION.match(line):
            result, operation, rest = found.groups()
            fused = name.startswith(_FUSED) and operation == "all-reduce"
            computations[name].append(Instruction(result, _FUSED if fused else operation, rest))
    return computations, entry


def _executed(
    computations: dict[str, list[Instruction]], name: str, times: float, unknown_trips: int
) -> Iterator[tuple[Instruction, float]]:
    """Collectives that a computation reaches, with their counts; of branches only the one that sends the most."""
    for instruction in computations[name]:
        trips = times
        if instruction.operation == "while":
            trips = times * (_trip_count(computations, instruction.rest) or unknown_trips)
        if instruction.operation.removesuffix("-start") in (*COLLECTIVES, _FUSED):
            yield instruction, times
        reached = [
            list(_executed(computations, called, trips, unknown_trips))
            for called in _called(instruction)
            if called in computations
        ]
        if instruction.operation == "conditional":
            reached = [max(reached, key=_branch_bytes)]
        for inner in reached:
            yield from inner


def _called(instruction: Instruction) -> list[str]:
    """Names of the computations that an instruction calls."""
    return re.findall(r"[\w.-]+", " ".join(_CALLED.findall(instruction.rest)))


def _branch_bytes(branch: list[tuple[Instruction, float]]) -> float:
    return sum((times * sent_bytes(instruction) for instruction, times in branch), 0.0)


def _trip_count(computations: dict[str, list[Instruction]], attributes: str) -> int | None:
    """Iterations of a loop if its text tells them, else None.

    The compiler may have noted them, or the condition only counts up to a constant, as in `jax.lax.scan` and `map`,
    which count from 0 by 1.
    """
    if known := _TRIPS.search(attributes):
        return int(known[1])
    condition = computations[re.search(r"condition=%?([\w.-]+)", attributes)[1]]
    limits = [int(i.rest.partition(")")[0]) for i in condition if i.operation == "constant" and i.result[:3] == "s32"]
    counts = condition[-1].operation == "compare" and "direction=LT" in condition[-1].rest
    return limits[0] if counts and len(limits) == 1 else None


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


def array_bytes(shapes: str) -> float:
    """Bytes of all arrays named in the text of a type, such as "(f32[8,512]{1,0:T(8,128)}, bf16[4])"."""
    return sum(_entries(dims) * _bits(dtype) / 8 for dtype, dims in _SHAPE.findall(shapes))


def _entries(dims: str) -> int:
    """Product of dimensions such as "8,512"; 1 for a scalar, whose text is empty."""
    return math.prod(map(int, filter(None, dims.split(","))))


def _bits(dtype: str) -> int:
    return _BITS.get(dtype) or int(re.match(r"[a-z]+(\d+)", dtype)[1])


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
