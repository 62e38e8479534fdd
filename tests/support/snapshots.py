"""Snapshots of public answers in plain text: the output for small inputs, short enough to read in a `git diff`.

A file of `tests/snapshots` has sections that begin with `# name`, one per test. `make snapshots`, or `SNAPSHOTS=renew
pytest tests/snapshots`, renews them. Numbers have 6 significant digits and are compared to 5, because further digits
depend on the processor.
"""

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from optim.core.errors import OptimError

FOLDER = Path(__file__).parents[1] / "snapshots"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
REL_TOL, ABS_TOL = 1e-5, 1e-9


def line(*cells: Any, width: int = 26) -> str:
    """Return a line of a snapshot: the first cell padded, numbers to 6 digits, a missing value as a dash."""
    first, *others = map(shown, cells)
    return "  ".join([first.ljust(width), *others]).rstrip()


def shown(value: Any) -> str:
    """Return a value as snapshots show it."""
    if value is None:
        return "-"
    if isinstance(value, float) or hasattr(value, "dtype"):
        return f"{float(value) + 0.0:.6g}"
    if isinstance(value, dict):
        return ",".join(f"{name}={shown(one)}" for name, one in value.items()) or "default"
    if isinstance(value, list | tuple):
        return ",".join(map(shown, value))
    return " ".join(str(value).split())


def answer(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of a call, or the package's error in one line."""
    try:
        return call(*arguments, **options)
    except OptimError as error:
        return f"{type(error).__name__}: {error}"


def assert_snapshot(name: str, section: str, lines: Iterable[str]) -> None:
    """Compare lines with a section of the snapshot `name`; write the section if the environment requests it.

    Raises
    ------
    AssertionError
        With the difference, as `git diff` would show it.
    """
    path, found = FOLDER / f"{name}.txt", list(lines)
    sections = _sections(path)
    if os.environ.get("SNAPSHOTS") == "renew":
        if "PYTEST_XDIST_WORKER" in os.environ:
            raise RuntimeError("several processes would overwrite one another; renew snapshots without --numprocesses")
        sections[section] = found
        text = "\n".join("\n".join([f"# {name}", *sections[name], ""]) for name in sorted(sections))
        path.write_text(text)
        return
    known = sections.get(section, [])
    if len(known) == len(found) and all(map(_agree, known, found)):
        return
    changes = difflib.unified_diff(known, found, "snapshot", "now", n=0, lineterm="")
    raise AssertionError("\n".join([f"{path.name}, {section}; if meant, `make snapshots` renews it", *changes]))


def _sections(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if path.exists():
        for text in path.read_text().split("# ")[1:]:
            name, *lines = text.splitlines()
            found[name] = [each for each in lines if each]
    return found


def _agree(one: str, other: str) -> bool:
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=REL_TOL, abs_tol=ABS_TOL) for a, b in pairs)
