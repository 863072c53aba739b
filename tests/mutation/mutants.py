"""Mutants of a Python file: copies with one small mistake each, which its tests should notice."""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATIONS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin",
    "any": "all", "all": "any", "floor": "ceil", "ceil": "floor", "mean": "sum", "ceil_div": "max",
}  # fmt: skip
SILENT = ("_log", "reporter", "print")
"""Receivers of calls that only tell something, and so are not left out."""


class Mutant(NamedTuple):
    """A mistake in a file: its line, and the text of the expression or statement before and after."""

    line: int
    before: str
    after: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a file, from its first line to its last."""
    tree = ast.parse(source)
    offsets = _line_offsets(source)
    for node in _code(tree):
        for changed in _mistakes(node):
            start = offsets[node.lineno - 1] + _characters(source, node.lineno, node.col_offset)
            end = offsets[node.end_lineno - 1] + _characters(source, node.end_lineno, node.end_col_offset)
            before = source[start:end]
            after = ast.unparse(ast.fix_missing_locations(changed))
            wrapped = after if isinstance(node, ast.stmt) else f"({after})"
            yield Mutant(node.lineno, " ".join(before.split()), after, source[:start] + wrapped + source[end:])


def _line_offsets(source: str) -> list[int]:
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets


def _characters(source: str, line: int, column: int) -> int:
    """A column in characters; Python's tree counts bytes."""
    return len(source.splitlines()[line - 1].encode()[:column].decode())


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that compute: without annotations, decorators, texts of errors, f-strings and imports."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "format_spec"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.JoinedStr | ast.Import):
                yield from _code(child)


def _mistakes(node: ast.AST) -> Iterator[ast.AST]:
    """The node with one mistake, for each mistake that it may have."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            yield _with(node, ops=[COMPARISONS[type(operator)]()])
        case ast.BinOp(op=operator) if type(operator) in OPERATIONS and not _is_text(node):
            yield _with(node, op=OPERATIONS[type(operator)]())
        case ast.BoolOp(op=operator):
            yield _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node.operand
        case ast.IfExp():
            yield _with(node, body=node.orelse, orelse=node.body)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Attribute(attr=name) if name in NAMES:
            yield _with(node, attr=NAMES[name])
        case ast.Name(id=name, ctx=ast.Load()) if name in NAMES:
            yield _with(node, id=NAMES[name])
        case ast.AugAssign() | ast.Expr(value=ast.Call()) if not _only_tells(node):
            yield ast.Pass()


def _with(node: ast.AST, **changes: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _is_text(node: ast.BinOp) -> bool:
    texts = (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict)
    return any(isinstance(x, texts) or isinstance(getattr(x, "value", None), str) for x in (node.left, node.right))


def _only_tells(node: ast.stmt) -> bool:
    called = ast.unparse(node.value.func) if isinstance(node, ast.Expr) else ""
    return called.split(".")[0] in SILENT
