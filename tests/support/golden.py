"""Results of small runs, summed up and compared with a record.

A record has one line per run: the sum of the integers in its result, and of the other numbers the sum of sizes and a
weighted sum. Of a solution only the status, the objective and the bound count: steps, duals and ties depend on how the
processor's libraries round. Records are made under each of `PROCESSORS`: digits that these don't share aren't compared,
and a run whose integers they don't share has an empty line.

`python -m tests.support.golden` writes the records of all folders again, or of those named: for a change that is meant.
"""

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import issparse

from optim.core.solution import Solution

FOLDER = Path(__file__).parents[1] / "solvers" / "golden"
RENEWING = "OPTIM_GOLDEN_FOLDER"
"""Names the folder that receives records instead of their being compared."""

PROCESSORS = (
    {},
    {
        "MALLOC_PERTURB_": "181",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX",
    },
    *({"OPENBLAS_CORETYPE": kernel} for kernel in ("Haswell", "Zen", "Prescott", "SkylakeX")),
)
"""The settings of each; the second also fills memory that nothing has been written to."""

LEAST_TOL, MOST_TOL = 1e-6, 1e-4
"""Largest difference of two sums, as a share of the sum of sizes; sums that differ more tell nothing."""

MARGIN = 30.0
"""Processors that weren't asked may differ by so many times more."""

MOST_DEPTH = 6

UNTOLD = {
    "seconds", "history", "decision_s", "decision_ms", "resolve_s", "resolve_ms", "resolve_max_ms", "prepare_s",
    "solve_s", "solver_s", "memory_mb", "instance", "tables", "rows", "versions",
}  # fmt: skip
"""Fields that depend on the clock, or that hold the problem itself."""

WHOLE_NUMBERS = (int, np.integer, np.bool_)

WORK_SPACE = ("Scratch", "Places", "Pricer")
"""Ends of the names of classes that hold what nothing has been written to yet."""

WHOLE = 2**31 - 1
COPRIME, CYCLE = 7919, 13


class Tally:
    """Numbers added up."""

    def __init__(self) -> None:
        self.whole, self.size, self.sum = 0, 0.0, 0.0
        self._place = 0

    def add(self, value: Any, depth: int = 0) -> None:
        """Add all numbers in a value."""
        if depth > MOST_DEPTH or value is None:
            return
        if isinstance(value, np.ndarray):  # most are
            self._add_array(value)
        elif isinstance(value, Solution):
            self.add([value.termination, value.objective, value.bound], depth + 1)
        elif isinstance(value, str):
            # Numbers in a text are told by what it was made from.
            self._add_whole(zlib.crc32(re.sub(r"[-+.\d]+(e[-+]?\d+)?", "", str(value)).encode()))
        elif isinstance(value, Enum):
            self.add(value.name, depth)
        elif isinstance(value, float):
            self._add_float(float(value))
        elif isinstance(value, WHOLE_NUMBERS):
            self._add_whole(int(value))
        elif isinstance(value, tuple | list | Mapping) or dataclasses.is_dataclass(value):
            for part in _parts(value):
                self.add(part, depth + 1)
        elif isinstance(value, Real):
            self._add_float(float(value))
        elif issparse(value):
            for part in (value.data, value.indices, value.indptr):
                self._add_array(np.asarray(part))

    def _add_array(self, value: np.ndarray) -> None:
        if value.dtype.kind == "f":
            self._add_floats(value.ravel())
        elif value.dtype.kind in "iub":
            flat = value.ravel().astype(np.int64) % WHOLE
            self._add_whole(int((flat * _weights(flat.size) % WHOLE).sum()) + value.size)

    def _add_whole(self, value: int) -> None:
        self._place += 1
        self.whole = (self.whole + value * (1 + self._place % COPRIME)) % WHOLE

    def _add_float(self, value: float) -> None:
        if math.isfinite(value):
            self.size += abs(value)
            self.sum += value * (1.0 + self._place % CYCLE / CYCLE)
        else:
            self._add_whole(1)
        self._place += 1

    def _add_floats(self, value: np.ndarray) -> None:
        is_finite = np.isfinite(value)
        finite = value.astype(np.float64)
        if not is_finite.all():
            finite[~is_finite] = 0.0
            self._add_whole(int((np.flatnonzero(~is_finite) + 1).sum()))
        start = self._place % CYCLE
        weight = _shares(start + len(finite))[start:]
        self._place += len(finite)
        self.size += float(np.abs(finite).sum())
        self.sum += float((finite * weight).sum())

    @property
    def row(self) -> list[float]:
        """Sum of integers, sum of sizes and weighted sum of the other numbers."""
        return [self.whole, self.size, self.sum]


@cache
def _weights(number: int) -> np.ndarray:
    """Return what whole numbers of an array count by."""
    return 1 + np.arange(number) % COPRIME


@cache
def _shares(number: int) -> np.ndarray:
    """Return what others count by."""
    return 1.0 + np.arange(number) % CYCLE / CYCLE


def _parts(value: Any) -> Iterator[Any]:
    """Yield what a value is made of; objects that hide what they hold have no parts."""
    if type(value).__name__.endswith(WORK_SPACE) or type(value).__name__ == "Space":
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, one.name) for one in dataclasses.fields(value) if one.name not in UNTOLD)
    elif isinstance(value, Mapping):
        for key, held in value.items():
            if key not in UNTOLD:
                yield key
                yield held
    elif isinstance(value, tuple | list):
        yield from value


def check(room: str, name: str, run: Callable[[], object]) -> None:
    """Compare what a room does in a run with its record; write that instead if records are renewed."""
    answer = Tally()
    answer.add(run())
    found = answer.row
    file = f"{room.removeprefix('solvers/').replace('/', '-')}.json"
    if os.environ.get(RENEWING):
        path = Path(os.environ[RENEWING]) / file
        kept = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(kept | {name: found}))
        return
    recorded = json.loads((FOLDER / file).read_text())[name]
    assert agrees(recorded, found), (
        f"{room}, run {name}: {recorded} became {found}: see why; `python -m tests.support.golden {room}` renews it"
    )


def agrees(recorded: Sequence[float], found: Sequence[float]) -> bool:
    """Return whether a result is as recorded, as far as processors share it."""
    if recorded and recorded[0] != found[0]:
        return False
    tol = recorded[3] if len(recorded) > 3 else LEAST_TOL
    return len(recorded) <= 1 or _deviation(recorded, found) <= tol


def _deviation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how far two sums are apart, as a share of the sum of sizes."""
    return max(abs(one[k] - other[k]) for k in (1, 2)) / (max(one[1], other[1]) or 1.0)


def common(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return what processors share of a result: nothing, its integers, or the sums and their tolerance too."""
    first = rows[0]
    if any(row[0] != first[0] for row in rows):
        return []
    tol = MARGIN * max(_deviation(first, row) for row in rows)
    if tol > MOST_TOL:
        return [first[0]]
    digits = [float(f"{number:.12g}") for number in first[1:]]
    return [first[0], *digits, *([float(f"{tol:.0e}")] if tol > LEAST_TOL else [])]


def _written(records: Sequence[Mapping[str, Sequence[float]]]) -> str:
    """Return a file's text, a line a run."""
    runs = [f"{json.dumps(name)}: {json.dumps(common([one[name] for one in records]))}" for name in sorted(records[0])]
    return "{\n" + ",\n".join(runs) + "\n}\n"


def main(rooms: Sequence[str]) -> int:
    """Write the records of some rooms anew."""
    tests = [f"tests/{room}/test_golden.py" for room in rooms]
    if not rooms:
        tests = sorted(str(path.relative_to(FOLDER.parents[2])) for path in FOLDER.parent.rglob("test_golden.py"))
    with TemporaryDirectory() as folder:
        for k, processor in enumerate(PROCESSORS):
            (Path(folder) / str(k)).mkdir()
            environment = os.environ | processor | {RENEWING: f"{folder}/{k}"}
            command = [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-m",
                "prove or not prove",
                *tests,
            ]
            if subprocess.run(command, env=environment, check=False).returncode:
                return 1
        for path in sorted(Path(folder, "0").glob("*.json")):
            others = [Path(folder) / str(k) / path.name for k in range(len(PROCESSORS))]
            (FOLDER / path.name).write_text(_written([json.loads(other.read_text()) for other in others]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
