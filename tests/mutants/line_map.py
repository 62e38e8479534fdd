"""Which test files run which lines of the package: a test that never runs a line can't notice a fault in it.

The map is what `python -m tests.mutants.trace` writes. It speaks for a module and a test file as they were then: of what
has changed since, and of loops that are compiled, which nothing can watch line by line, it says nothing.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutants.nearness import imports_of

MAP = Path(".mutants") / "coverage.json"
COMPILING = ("compiled", "inner", "njit")
"""Decorators of loops that run as machine code."""
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def digest(*paths: Path) -> str:
    """Return a digest of files."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def written(lines: Iterable[int]) -> str:
    """Return numbers as ranges: "3-5 8"."""
    runs: list[list[int]] = []
    for line in sorted(lines):
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    return " ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def read(text: str) -> set[int]:
    """Return the numbers that ranges hold."""
    ends = [[int(end) for end in run.split("-")] for run in text.split()]
    return {line for run in ends for line in range(run[0], run[-1] + 1)}


def sources_of(root: Path, test: str) -> list[Path]:
    """Return a test file, the test modules it imports, however indirectly, and fixtures above it.

    The settings of the whole run are left out: they say how tests are run, not what.
    """
    found = [root / test]
    for one in found:
        named = [root.joinpath(*name.split(".")) for name in imports_of(one.read_text()) if name.startswith("tests.")]
        found += [path for name in named if (path := name.with_suffix(".py")).exists() and path not in found]
    above = [folder / "conftest.py" for folder in (root / test).parents if folder.is_relative_to(root / "tests")][:-1]
    return sorted({*found, *filter(Path.exists, above)})


def statement_lines(tree: ast.AST, line: int) -> set[int]:
    """Return the lines of the innermost statement that holds a line, without those of statements within it.

    A statement over several lines has run if any of them was seen to: not each piece of it is an event of its own.
    """
    held = [node for node in ast.walk(tree) if isinstance(node, STATEMENTS) and line in _span(node)]
    if not held:
        return {line}
    inmost = min(held, key=lambda node: len(_span(node)))
    within = {
        one for node in ast.walk(inmost) if isinstance(node, STATEMENTS) and node is not inmost for one in _span(node)
    }
    return {line, *(set(_span(inmost)) - within)}


def _span(node: ast.AST) -> range:
    if isinstance(node, ast.match_case):
        return range(node.pattern.lineno, (node.body[-1].end_lineno or 0) + 1)
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    return range(first, (node.end_lineno or node.lineno) + 1)


def compiled_lines(tree: ast.AST) -> set[int]:
    """Return the lines of loops that Numba compiles."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any(_name(one) in COMPILING for one in node.decorator_list)
        for line in _span(node)
    }


def _name(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


@dataclass(frozen=True)
class Traced:
    """What one test file runs.

    Attributes
    ----------
    digest
        Of its sources.
    seconds
        Processor seconds it takes while lines are watched, its children's with them.
    is_whole
        Whether all it runs was seen: it passes, and starts no other Python.
    lines
        Lines by module.
    """

    digest: str
    seconds: float
    is_whole: bool
    lines: dict[str, set[int]]


@dataclass(frozen=True)
class LineMap:
    """The lines that test files run.

    Attributes
    ----------
    modules
        Digest of each module of the package.
    imported
        Lines that importing a module runs: of these, all that import it may notice a fault.
    tests
        What each test file runs.
    """

    modules: dict[str, str] = field(default_factory=dict)
    imported: dict[str, set[int]] = field(default_factory=dict)
    tests: dict[str, Traced] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, root: Path) -> "LineMap":
        """Read a map; of test files that have changed since it says nothing."""
        if not path.exists():
            return cls()
        held = json.loads(path.read_text())
        tests = {
            name: Traced(one["digest"], one["seconds"], one["is_whole"], line_sets(one["lines"]))
            for name, one in held["tests"].items()
            if (root / name).exists() and one["digest"] == digest(*sources_of(root, name))
        }
        return cls(held["modules"], line_sets(held["imported"]), tests)

    def write(self, path: Path) -> None:
        """Write a map as JSON."""
        tests = {
            name: {
                "digest": one.digest,
                "seconds": round(one.seconds, 2),
                "is_whole": one.is_whole,
                "lines": texts(one.lines),
            }
            for name, one in sorted(self.tests.items())
        }
        held = {"modules": self.modules, "imported": texts(self.imported), "tests": tests}
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(held))

    def noticing(self, root: Path, path: str, line: int) -> "Noticing":
        """Return what tells the test files that may run a line from those that never do."""
        tree = ast.parse((root / path).read_bytes())
        lines = statement_lines(tree, line)
        is_known = (
            self.modules.get(path) == digest(root / path)
            and not lines & (compiled_lines(tree) | self.imported.get(path, set()))
            and any(lines & one.lines.get(path, set()) for one in self.tests.values())
        )
        return Noticing(self, path, lines if is_known else set())


@dataclass(frozen=True)
class Noticing:
    """Picks test files that may notice a fault; all, of a line that the map knows nothing of."""

    line_map: LineMap
    path: str
    lines: set[int]

    def pick(self, tests: list[str]) -> list[str]:
        """Return the test files of a list that may run the line, those that cost least first; else the list."""
        if not self.lines:
            return tests
        held = self.line_map.tests
        return sorted(
            (name for name in tests if name not in held or not held[name].is_whole or self._is_run_by(held[name])),
            key=lambda name: held[name].seconds if name in held else 0.0,
        )

    def _is_run_by(self, test: Traced) -> bool:
        return bool(self.lines & test.lines.get(self.path, set()))


def line_sets(held: dict[str, str]) -> dict[str, set[int]]:
    """Return the numbers that each of several ranges holds."""
    return {name: read(text) for name, text in held.items()}


def texts(held: dict[str, set[int]]) -> dict[str, str]:
    """Return several sets of numbers as ranges."""
    return {name: written(lines) for name, lines in held.items()}


def modules_of(root: Path) -> Iterator[Path]:
    """Yield the package's modules."""
    yield from sorted((root / "optim").rglob("*.py"))
