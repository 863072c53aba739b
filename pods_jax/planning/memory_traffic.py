"""Traffic between a device and its memory, read off the text of a compiled program."""

from pods_jax.planning.collectives import COLLECTIVES
from pods_jax.planning.hlo import Computation, Instruction, Module, array_bytes, memory_bytes, parse

_FREE = frozenset((
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "opt-barrier", "copy-done", "slice-done", "async-done", "async-update", *(f"{c}-done" for c in COLLECTIVES),
))  # fmt: skip
_STARTS = frozenset(("copy-start", *(f"{c}-start" for c in COLLECTIVES)))
"""Their results name their operands as well."""
_SLICES = ("dynamic-slice", "slice", "gather")
_SLICE_STARTS = ("slice-start", "dynamic-slice-start")
"""Likewise: their results are ((operands), slice, context)."""
_SAME = ("bitcast", "reshape", "get-tuple-element", "optimization-barrier")
_CALLS = ("while", "conditional", "call", "async-start")


def moved_bytes(program_text: str, unknown_trips: int = 1) -> float:
    """Bytes that one device reads from and writes to its memory in one run of the program.

    An instruction reads its operands and writes its result, except that slices read what they take, and updates in
    place write what is new, inside of fusions too, as in XLA's own analysis of costs (which counts the body of a loop
    once). What a TPU keeps on the chip is not counted; a sort is one pass; of branches the dearest counts. A kernel's
    operands count once, as a whole, whatever it reads of them.

    Args:
      program_text: `compiled.as_text()`.
      unknown_trips: iterations assumed of loops that may end early, such as decoding.
    """
    module = parse(program_text)
    return _computation_bytes(module, module.entry, unknown_trips)


def _computation_bytes(module: Module, name: str, unknown_trips: int) -> float:
    computation = module.computations[name]
    return sum((_bytes_of(module, computation, i, unknown_trips) for i in computation.instructions.values()), 0.0)


def _bytes_of(module: Module, computation: Computation, instruction: Instruction, unknown_trips: int) -> float:
    operation = instruction.operation
    if operation in _FREE or 'custom_call_target="AllocateBuffer"' in instruction.rest:
        return 0.0
    if operation in _CALLS:
        inner = [_computation_bytes(module, c, unknown_trips) for c in instruction.called if c in module.computations]
        if operation == "conditional":
            return max(inner)
        return sum(inner) * (module.trips(instruction, unknown_trips) if operation == "while" else 1)
    if operation in _STARTS:
        return memory_bytes(instruction.result)
    if operation in _SLICE_STARTS:
        named = "".join(computation.instructions[name].result for name in instruction.operands)
        result = instruction.result
        return array_bytes(result) - array_bytes(named) + memory_bytes(result) - memory_bytes(named)
    if operation == "fusion":
        return _fusion_bytes(module, computation, instruction)
    if operation in _SLICES:
        return array_bytes(instruction.result) + memory_bytes(instruction.result)
    if operation == "dynamic-update-slice":
        return 2 * _operand_bytes(computation, instruction, [1])
    if operation == "scatter":
        return 3 * _operand_bytes(computation, instruction, [2])  # the updates; and what is there, read and written
    return memory_bytes(instruction.result) + _operand_bytes(computation, instruction)


def _operand_bytes(computation: Computation, instruction: Instruction, which: list[int] | None = None) -> float:
    operands = instruction.operands
    chosen = operands if which is None else [operands[i] for i in which]
    return sum((memory_bytes(computation.instructions[name].result) for name in chosen), 0.0)


# ---------------------------------------------------------------- fusions


def _fusion_bytes(module: Module, computation: Computation, fusion: Instruction) -> float:
    inner = module.computations[fusion.called[0]]
    total = min(_written(module, inner, inner.root), memory_bytes(fusion.result))
    for number, operand in enumerate(fusion.operands):
        whole = memory_bytes(computation.instructions[operand].result)
        total += min(whole, _read(module, inner, inner.parameter(number))) if whole else 0.0
    return total


def _read(module: Module, computation: Computation, name: str) -> float:
    """Bytes that a fused computation reads of a value."""
    whole = array_bytes(computation.instructions[name].result)
    return min(whole, sum((_read_by(module, computation, user, name) for user in computation.users(name)), 0.0))


def _read_by(module: Module, computation: Computation, user: Instruction, name: str) -> float:
    is_first = user.operands[0] == name
    if user.operation in _SLICES and is_first:
        return array_bytes(user.result)
    if user.operation == "tuple" or (user.operation == "dynamic-update-slice" and is_first):
        return 0.0
    if user.operation in _SAME:
        return _read(module, computation, user.name)
    if user.operation == "fusion":
        inner = module.computations[user.called[0]]
        parameters = [inner.parameter(i) for i, operand in enumerate(user.operands) if operand == name]
        passed_on = any(_source(inner, inner.root) == parameter for parameter in parameters)
        beyond = _read(module, computation, user.name) if passed_on else 0.0
        return sum((_read(module, inner, parameter) for parameter in parameters), beyond)
    return array_bytes(computation.instructions[name].result)


def _source(computation: Computation, name: str) -> str:
    """The value that a chain of new shapes and names starts from."""
    while (instruction := computation.instructions[name]).operation in _SAME:
        name = instruction.operands[0]
    return name


def _written(module: Module, computation: Computation, name: str) -> float:
    """Bytes that a fused computation writes of a value that it gives."""
    instruction = computation.instructions[name]
    operation = instruction.operation
    if operation == "parameter":
        return 0.0
    if operation == "dynamic-update-slice":
        return array_bytes(computation.instructions[instruction.operands[1]].result)
    if operation == "tuple":
        return sum((_written(module, computation, operand) for operand in instruction.operands), 0.0)
    if operation in _SAME:
        return _written(module, computation, instruction.operands[0])
    if operation == "fusion":
        inner = module.computations[instruction.called[0]]
        return _written(module, inner, inner.root)
    return array_bytes(instruction.result)
