"""A function fits on a screen or two, a module can be read in one sitting, and each has its tests where they are looked for."""

import ast
import re
from pathlib import Path

from tests.architecture.code_lines import code_lines, docstring_lines, statements
from tests.mutants.nearness import NEAR_IMPORTS, Nearness

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "optim"

MOST_FUNCTION_LINES = 60
MOST_MODULE_LINES = 350
LEAST_TESTED_LINES = 40
"""Code lines from which on a module has tests where they are looked for."""

TESTED_ELSEWHERE = Path(__file__).with_name("tested_elsewhere.txt")
"""Modules that are tested through others, each with the tests that cover it."""

PARAMETERS = "options of the command, one a line with its help: the body is short"
LONG_FUNCTIONS = {
    "optim/cli/simulate_spot.py::spot": PARAMETERS,
    "optim/solvers/bidding/zones/optimum.py::_plan": "one compiled walk along the values",
    "optim/solvers/bidding/zones/optimum.py::_values": "one compiled pass over all situations",
    "optim/cli/run.py::run": PARAMETERS,
    "optim/cli/simulate_containers.py::containers": PARAMETERS,
    "optim/solvers/admission/tree/node_pricing_loop.py::_best_by": "one compiled pass over a job's slots",
}
"""Functions that are longer, each with the reason."""

LONG_MODULES: dict[str, str] = {
    "optim/workloads/containers/prometheus.py": "one format: which series is whose, and how series are joined",
    "optim/solvers/admission/posted_prices/price_ranges.py": "bounds of all jobs and of those seen so far, of one form",
    "optim/models/admission/instance.py": "one instance: its fields, how it is built from tables, and what can never run",
    "optim/solvers/lp/highs_run.py": "all that is peculiar to HiGHS: making, running, stopping it, and what its ends mean",
}
"""Modules that are longer, each with the reason."""


START = re.compile(r"( *)(def|async def|class|@)")


def may_be_long(source: str) -> bool:
    """Tell whether a definition is far from the next that can't be within it; else a syntax tree isn't worth its time."""
    lines = source.splitlines()
    starts = [(n, len(found[1]), found[2]) for n, line in enumerate(lines) if (found := START.match(line))]
    opened: list[tuple[int, int]] = []
    for n, depth, what in [*starts, (len(lines), 0, "")]:
        while opened and opened[-1][1] >= depth:
            if n - opened.pop()[0] > MOST_FUNCTION_LINES:
                return True
        if what.endswith("def"):
            opened.append((n, depth))
    return False


def long_functions() -> dict[str, int]:
    """Return the functions that are too long, and their lines without the docstring."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        if not may_be_long(source):
            continue
        tree = ast.parse(source)
        told = docstring_lines(tree)
        for node in statements(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = len(set(range(node.lineno, node.end_lineno + 1)) - told)
                if lines > MOST_FUNCTION_LINES:
                    found[f"{path.relative_to(ROOT).as_posix()}::{node.name}"] = lines
    return found


def long_modules() -> dict[str, int]:
    """Return the modules that are too long, and all their lines."""
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    return {name: lines for name, lines in sorted(lengths.items()) if lines > MOST_MODULE_LINES}


def untested_modules() -> list[str]:
    """Return the modules, but small ones, that no test file of their own or of their folder gets at."""
    nearness = Nearness(ROOT)
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        folder = Path("tests", *Path(name).parts[1:-1])
        if path.name == "__init__.py" or (ROOT / folder / f"test_{path.name}").exists():
            continue
        reached = map(Path, nearness.distances(name, NEAR_IMPORTS))
        if any(one.name.startswith("test_") and one.parent in (folder, folder.parent) for one in reached):
            continue
        source = path.read_text()
        if source.count("\n") > LEAST_TESTED_LINES and code_lines(source) > LEAST_TESTED_LINES:
            names.append(name)
    return names


def test_functions_are_short_or_say_why():
    found = long_functions()
    assert {name: lines for name, lines in found.items() if name not in LONG_FUNCTIONS} == {}
    assert set(LONG_FUNCTIONS) <= set(found), "no longer long: take it off the list"


def test_modules_are_short_or_say_why():
    found = long_modules()
    assert {name: lines for name, lines in found.items() if name not in LONG_MODULES} == {}
    assert set(LONG_MODULES) <= set(found), "no longer long: take it off the list"


def test_modules_have_tests_in_their_folder_or_say_which_cover_them():
    listed = dict(line.split(": ") for line in TESTED_ELSEWHERE.read_text().splitlines() if not line.startswith("#"))
    found = untested_modules()
    missing = [name for name in found if name not in listed]
    assert missing == [], f"write tests/.../test_NAME.py, or say in {TESTED_ELSEWHERE.name} which tests cover it"
    assert [path for path in listed.values() if not (ROOT / path).exists()] == []
