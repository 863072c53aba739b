"""The text of a compiled program, read: its computations, what they call, and how often their loops run."""

import math
import re
from typing import NamedTuple

_BITS = {"pred": 8, "bf16": 16}  # the others end in their number of bits, or have it before an "e"
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.-]+) = (.*?[\])}]) ([a-z][a-z0-9-]*)\((.*)$")
_SHAPE = re.compile(r"\b(pred|bf16|[a-z]+\d+(?:e\d+m\d+\w*)?)\[([\d,]*)\](\{[^}]*\})?")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations|\w+_computation)=(\{[^}]*\}|%?[\w.-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_ON_CHIP = re.compile(r"S\([1-9]\d*\)")


class Instruction(NamedTuple):
    """One line of a program: its name, the text of its result's type, its operation, and the rest of the line."""

    name: str
    result: str
    operation: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """Names of the values that it takes."""
        return re.findall(r"%([\w.-]+)", _argument_text(self.rest))

    @property
    def called(self) -> list[str]:
        """Names of the computations that it calls."""
        return re.findall(r"[\w.-]+", " ".join(_CALLED.findall(self.rest)))


def _argument_text(rest: str) -> str:
    """The text up to the parenthesis that ends the operands; their types may have parentheses of their own."""
    depth = 1
    for i, character in enumerate(rest):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return rest[:i]
    return rest


class Computation(NamedTuple):
    """A sequence of instructions by name, in order; root: the name of the one whose result it gives."""

    instructions: dict[str, Instruction]
    root: str

    def parameter(self, number: int) -> str:
        """The name of the parameter with this number."""
        return next(
            i.name for i in self.instructions.values() if i.operation == "parameter" and i.rest.startswith(f"{number})")
        )

    def users(self, name: str) -> list[Instruction]:
        """The instructions that take this value."""
        return [i for i in self.instructions.values() if name in i.operands]


class Module(NamedTuple):
    """A program: its computations by name, and the name of the one where it starts."""

    computations: dict[str, Computation]
    entry: str

    def trips(self, loop: Instruction, unknown: int) -> int:
        """Iterations of a while loop; `unknown` for one that may end early.

        The compiler may have noted them, or the condition only counts up to a constant, as in `jax.lax.scan` and `map`,
        which count from 0 by 1.
        """
        if known := _TRIPS.search(loop.rest):
            return int(known[1])
        condition = self.computations[re.search(r"condition=%?([\w.-]+)", loop.rest)[1]]
        lines = condition.instructions.values()
        limits = [int(i.rest.partition(")")[0]) for i in lines if i.operation == "constant" and i.result[:3] == "s32"]
        last = condition.instructions[condition.root]
        counts = last.operation == "compare" and "direction=LT" in last.rest
        return limits[0] if counts and len(limits) == 1 else unknown


def parse(program_text: str) -> Module:
    """The module of `compiled.as_text()`."""
    computations: dict[str, Computation] = {}
    entry = name = ""
    for line in program_text.splitlines():
        if header := _COMPUTATION.match(line):
            name = header[2]
            computations[name] = Computation({}, "")
            entry = name if header[1] else entry
        elif found := _INSTRUCTION.match(line):
            root, *fields = found.groups()
            instruction = Instruction(*fields)
            computations[name].instructions[instruction.name] = instruction
            if root:
                computations[name] = computations[name]._replace(root=instruction.name)
    return Module(computations, entry)


# ---------------------------------------------------------------- types


def array_bytes(shapes: str) -> float:
    """Bytes of all arrays named in the text of a type, such as "(f32[8,512]{1,0:T(8,128)}, bf16[4])"."""
    return sum((_entries(dims) * _bits(dtype) / 8 for dtype, dims, _ in _SHAPE.findall(shapes)), 0.0)


def memory_bytes(shapes: str) -> float:
    """The same without arrays that a TPU keeps on the chip, whose layouts name a memory space: "{1,0:T(8,128)S(1)}"."""
    in_memory = [(dtype, dims) for dtype, dims, layout in _SHAPE.findall(shapes) if not _ON_CHIP.search(layout)]
    return sum((_entries(dims) * _bits(dtype) / 8 for dtype, dims in in_memory), 0.0)


def _entries(dims: str) -> int:
    """Product of dimensions such as "8,512"; 1 for a scalar, whose text is empty."""
    return math.prod(map(int, filter(None, dims.split(","))))


def _bits(dtype: str) -> int:
    return _BITS.get(dtype) or int(re.match(r"[a-z]+(\d+)", dtype)[1])
