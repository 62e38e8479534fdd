"""One-line faults as people make them, planted in a module's syntax tree: what a test suite has to notice."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult,
}  # fmt: skip
OPPOSITES = {
    "min": "max", "minimum": "maximum", "argmin": "argmax", "any": "all", "floor": "ceil", "sum": "prod",
    "cumsum": "cumprod", "amin": "amax", "isfinite": "isnan", "append": "remove", "zeros": "ones",
}  # fmt: skip
OPPOSITES |= {right: left for left, right in OPPOSITES.items() if right not in OPPOSITES}
SMALLEST_FACTOR = 1e-3
"""Floats below are tolerances: doubling them is no fault."""
DROPPABLE = (ast.Add, ast.Sub, ast.Mult)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, order=True)
class Fault:
    """A module with one place changed.

    Attributes
    ----------
    path
        The module, relative to the repository.
    line
        Number of the first line that changes, from 1.
    column
        Where in it, in bytes.
    kind
        What sort of fault.
    old, new
        The text that is there and the one that replaces it, one line each where the source has one.
    start, end
        Offsets of the old text in the encoded module.
    """

    path: str
    line: int
    column: int
    kind: str
    old: str
    new: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """What tells it from the others, wherever the line has moved to."""
        return f"{self.path}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"

    def planted(self, source: bytes) -> bytes:
        """Return the module with the fault in it."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def faults_of(path: str, source: bytes) -> list[Fault]:
    """Return every fault that can be planted in a module, in the order of its text.

    Only what functions do is touched: constants of a module, defaults and annotations are choices that benchmarks judge,
    and the texts of errors say what tests needn't.
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = {}
    for node, kind, change in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        old = source[start:end].decode()
        is_atom = isinstance(node, ast.stmt | ast.Constant | ast.Call | ast.Slice)
        text = change if is_atom else f"({change})"
        found[start, end, text] = Fault(path, node.lineno, node.col_offset, kind, old, text, start, end)
    return sorted(found.values())


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield (node, kind, text that replaces it) for every node that a function runs."""
    outer = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    seen: set[int] = set()
    for function in outer:
        for statement in function.body:
            for node in _walk(statement):
                if id(node) not in seen:
                    seen.add(id(node))
                    for kind, new in _of_node(node):
                        yield node, kind, new if isinstance(new, str) else ast.unparse(new)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below, but texts, annotations, what is raised or asserted, and functions within (which come themselves)."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":  # asserts that lengths agree
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _of_node(node: ast.AST) -> Iterator[tuple[str, ast.AST | str]]:
    """Yield the faults of one node: kind and replacement."""
    match node:
        case ast.Compare(left, ops, comparators):
            for index, operator in enumerate(ops):
                changed = [*ops[:index], COMPARISONS[type(operator)](), *ops[index + 1 :]]
                yield "comparison", ast.Compare(left, changed, comparators)
        case ast.BinOp(left, operator, right) if not _is_text(left) and not _is_text(right):
            if type(operator) in OPERATORS:
                yield "operator", ast.BinOp(left, OPERATORS[type(operator)](), right)
            if isinstance(operator, DROPPABLE):
                yield "dropped term", left
        case ast.BoolOp(operator, values):
            yield "operator", ast.BoolOp(ast.And() if isinstance(operator, ast.Or) else ast.Or(), values)
            yield "dropped term", values[0] if len(values) == 2 else ast.BoolOp(operator, values[:-1])
        case ast.UnaryOp(ast.Not(), operand):
            yield "dropped not", operand
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield "operator", operand
        case ast.Constant(value) if isinstance(value, bool):
            yield "constant", repr(not value)
        case ast.Constant(value) if isinstance(value, int):
            yield "constant", repr(value + 1)
        case ast.Constant(value) if isinstance(value, float) and not 0.0 < abs(value) < SMALLEST_FACTOR:
            yield "constant", repr(2 * value or 1.0)
        case ast.Call(function, arguments, keywords):
            yield from _of_call(function, arguments, keywords)
        case ast.Slice(lower, upper, step):
            for bound in filter(None, (lower, upper)):
                if not isinstance(bound, ast.Constant):
                    moved = ast.BinOp(bound, ast.Add(), ast.Constant(1))
                    yield "off by one", ast.Slice(*(moved if x is bound else x for x in (lower, upper, step)))
        case ast.AugAssign(target, operator, value):
            if type(operator) in OPERATORS:
                yield "operator", ast.AugAssign(target, OPERATORS[type(operator)](), value)
            yield "dropped statement", "pass"
        case ast.Assign(targets) if any(isinstance(one, ast.Attribute | ast.Subscript) for one in targets):
            yield "dropped statement", "pass"
        case ast.Expr(ast.Call()):
            yield "dropped statement", "pass"
        case ast.Continue():
            yield "dropped statement", "pass"
        case ast.Break():
            yield "dropped statement", "continue"


def _of_call(
    function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]
) -> Iterator[tuple[str, ast.AST]]:
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    if name == "range" and arguments:
        last = min(len(arguments), 2) - 1
        moved = ast.BinOp(arguments[last], ast.Sub(), ast.Constant(1))
        yield "off by one", ast.Call(function, [*arguments[:last], moved, *arguments[last + 1 :]], keywords)
    elif len(arguments) >= 2 and not any(isinstance(x, ast.Starred) for x in arguments[:2]):
        first, second, *rest = arguments
        if ast.dump(first) != ast.dump(second) and name not in {"min", "max", "minimum", "maximum", "gcd"}:
            yield "swapped arguments", ast.Call(function, [second, first, *rest], keywords)
    if name in OPPOSITES:
        other = OPPOSITES[name]
        changed = ast.Name(other) if isinstance(function, ast.Name) else ast.Attribute(function.value, other)
        yield "operator", ast.Call(changed, arguments, keywords)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def every_fault(root: Path, room: str = "") -> dict[str, list[Fault]]:
    """Return the faults of every module under a room of the package, by path."""
    found = {}
    for path in sorted((root / "optim" / room).rglob("*.py")):
        name = path.relative_to(root).as_posix()
        found[name] = faults_of(name, path.read_bytes())
    return found
