"""What a compiled program sends between devices: the collectives in its text, loops counted as often as they run."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_FUSED = "all-reduce-scatter"
"""How programs for TPUs name an all-reduce of which each device keeps a part: it is run as a reduce-scatter."""
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
    """One kind of collective: how often a device runs one, and how many bytes it sends in all of them."""

    count: float
    sent_bytes: float


def traffic(program_text: str, unknown_trips: int = 1) -> dict[str, Traffic]:
    """What one device sends while the program runs once, by kind of collective.

    Bytes are those of ring algorithms (Patarasuk and Yuan 2009, doi 10.1016/j.jpdc.2008.09.002): in a group of g
    devices, (g - 1) / g of the whole array for all-gather, reduce-scatter and all-to-all, twice that for all-reduce.

    Args:
      program_text: `compiled.as_text()`.
      unknown_trips: iterations of loops whose number the compiler does not know, such as decoding, which may end early.
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
    """Every collective that a computation reaches, and how often; of a conditional, the branch that sends the most."""
    for instruction in computations[name]:
        trips = times
        if instruction.operation == "while":
            trips = times * (_trip_count(computations, instruction.rest) or unknown_trips)
        if instruction.operation.removesuffix("-start") in (*KINDS, _FUSED):
            yield instruction, times
        called = [name for names in _CALLED.findall(instruction.rest) for name in re.findall(r"[\w.-]+", names)]
        reached = [list(_executed(computations, c, trips, unknown_trips)) for c in called if c in computations]
        if instruction.operation == "conditional":
            reached = [max(reached, key=lambda branch: sum(n * sent_bytes(i) for i, n in branch))]
        for inner in reached:
            yield from inner


def _trip_count(computations: dict[str, list[Instruction]], attributes: str) -> int | None:
    """Iterations of a loop: as the compiler wrote them down, or where all its condition does is count up to a constant.

    `jax.lax.scan` and `map` count from 0 by 1.
    """
    if known := _TRIPS.search(attributes):
        return int(known[1])
    condition = computations[re.search(r"condition=%?([\w.-]+)", attributes)[1]]
    limits = [int(i.rest.partition(")")[0]) for i in condition if i.operation == "constant" and i.result[:3] == "s32"]
    counts = condition[-1].operation == "compare" and "direction=LT" in condition[-1].rest
    return limits[0] if counts and len(limits) == 1 else None


def sent_bytes(instruction: Instruction) -> float:
    """What one device sends in one run of a collective."""
    kind, size = instruction.operation.removesuffix("-start"), array_bytes(instruction.result)
    if kind == "collective-permute":
        return size / 2 if instruction.operation.endswith("-start") else size  # its result names the operand as well
    g = group_size(instruction.rest)
    if instruction.operation == "all-gather-start":
        size *= g / (g + 1)  # the same: operand, which is 1 / g of the whole, and result
    return {"all-reduce": 2.0, "reduce-scatter": float(g)}.get(kind, 1.0) * size * (g - 1) / g


def array_bytes(shapes: str) -> float:
    """Bytes of all arrays named in the text of a type, such as "(f32[8,512]{1,0:T(8,128)}, bf16[4])"."""
    return sum(
        math.prod(map(int, filter(None, dims.split(",")))) * _bits(dtype) / 8 for dtype, dims in _SHAPE.findall(shapes)
    )


def _bits(dtype: str) -> int:
    return _BITS.get(dtype) or int(re.match(r"[a-z]+(\d+)", dtype)[1])


def group_size(attributes: str) -> int:
    """How many devices take part in a collective together, in any of the three ways that XLA writes it."""
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return len(listed[1].split(","))
    if counted := re.search(r"replica_groups=\[\d+,(\d+)\]<=", attributes):
        return int(counted[1])
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(.*?\))? \{([^}]*)\}", attributes):
        sizes = dict(re.findall(r"('[\w.]+')=(\d+)", named[1]))
        return math.prod(int(sizes[axis.strip()]) for axis in named[2].split(","))
    raise ValueError(f"no replica groups in {attributes[:200]!r}")
