"""What the public functions of a room return while small problems are solved, told in few numbers and kept.

A record has a line a function: how often it returned, a sum of the whole numbers in what it returned, and of the
others the sum of sizes and a weighted sum. So it tells what a solver did on its way, and not only where it ended. It
holds no clock. Records are made by as many processes as there are `PROCESSORS`, whose libraries round otherwise: digits
that these don't share aren't compared, and a line whose whole numbers they don't share says nothing.

`python -m tests.support.golden` writes the records of all rooms anew, or of those named: for a change that is meant.
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
from functools import cache, lru_cache, wraps
from importlib import import_module
from inspect import isgeneratorfunction
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import current_thread, main_thread
from types import FunctionType
from typing import Any

import numpy as np
from scipy.sparse import issparse

import optim
from tests.conftest import QUICKLY_COMPILED

FOLDER = Path(__file__).parents[1] / "solvers" / "golden"
PACKAGE = Path(optim.__file__).parent
RENEWING = "OPTIM_GOLDEN_FOLDER"
"""Names the folder that receives records instead of their being compared."""

PROCESSORS = (
    {},
    {
        "MALLOC_PERTURB_": "181",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "XLA_FLAGS": f"--xla_cpu_max_isa=AVX {QUICKLY_COMPILED['XLA_FLAGS']}",
    },
)
"""The settings of each; the second also fills memory that nothing has been written to."""

LEAST_TOL, MOST_TOL = 1e-9, 1e-4
"""Largest difference of two sums, as a share of the sum of sizes; sums that differ more tell nothing."""

MARGIN = 30.0
"""Processors that weren't asked may differ by so many times more."""

MOST_DEPTH = 6
MOST_CALLS = 300
"""Later results of a function are counted and not looked at."""

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
        self.calls, self.whole, self.size, self.sum = 0, 0, 0.0, 0.0
        self._place = 0

    def add(self, value: Any, depth: int = 0) -> None:
        """Add all numbers in a value."""
        if depth > MOST_DEPTH or value is None:
            return
        if isinstance(value, np.ndarray):  # most are
            self._add_array(value)
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
        """Calls, sum of whole numbers, sum of sizes and weighted sum of others."""
        return [self.calls, self.whole, self.size, self.sum]


@cache
def _import_solvers() -> None:
    """Import all that may be looked at: what is imported later would keep what stands between."""
    for path in sorted((PACKAGE / "solvers").rglob("*.py")):
        import_module(".".join(("optim", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"))


@lru_cache(maxsize=1)
def _known_places(modules: Sequence[str]) -> list[tuple[Any, str]]:
    """Return modules and the names under which they know functions of solvers."""
    return [
        (sys.modules[name], key)
        for name in modules
        for key, one in vars(sys.modules[name]).items()
        if str(getattr(one, "__module__", "")).startswith("optim.solvers.")
    ]


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


class Recorder:
    """Stands between the functions of a room and their callers, and looks at what is returned.

    Parameters
    ----------
    room
        A folder below `optim`; folders within it are rooms of their own.
    """

    def __init__(self, room: str) -> None:
        self._package = "optim." + room.replace("/", ".")
        self.tallies: dict[str, Tally] = {}
        self._undo: list[Callable[[], None]] = []
        self._depth_of_warm_up = 0

    def __enter__(self) -> "Recorder":
        _import_solvers()
        between: dict[int, Any] = {}
        for name, module in list(sys.modules.items()):
            if name.startswith("optim.solvers.") and name.endswith(".warm_up"):
                between |= {
                    id(one): self._paused(one) for key, one in vars(module).items() if key.startswith("compile_")
                }
            elif name.rpartition(".")[0] == self._package:
                for one in vars(module).values():
                    is_own = getattr(one, "__module__", None) == name
                    if is_own and (isinstance(one, type) or not one.__name__.startswith("_")):
                        between |= self._around(name.rpartition(".")[2], one)
        own = [name for name in sys.modules if name.startswith(("optim.", "tests."))]
        for module, key in _known_places(tuple(own)):
            one = between.get(id(vars(module).get(key)))
            if one is not None:
                self._set(module, key, one)
        return self

    def __exit__(self, *_: object) -> None:
        for undo in reversed(self._undo):
            undo()

    def _set(self, owner: Any, key: str, new: Any) -> None:
        """Put something in another's place until the end."""
        old = vars(owner)[key]
        self._undo.append(lambda: setattr(owner, key, old))
        setattr(owner, key, new)

    def _around(self, module: str, one: Any) -> dict[int, Any]:
        """Return what takes a function's place; a class keeps its own, and its public methods are replaced."""
        if isinstance(one, FunctionType):
            return {id(one): self._told(f"{module}.{one.__name__}", one)}
        if isinstance(one, type):
            for key, held in list(vars(one).items()):
                name = f"{module}.{one.__name__}.{key}"
                if key.startswith("_"):
                    continue
                if isinstance(held, FunctionType):
                    self._set(one, key, self._told(name, held))
                elif isinstance(held, property) and held.fget is not None:
                    self._set(one, key, property(self._told(name, held.fget), held.fset, held.fdel, held.__doc__))
                elif isinstance(held, classmethod | staticmethod):
                    self._set(one, key, type(held)(self._told(name, held.__func__)))
        return {}

    def _told(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that also tells what it returns, or yields."""

        @wraps(function)
        def told(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            self._tell(name, result)
            return result

        @wraps(function)
        def yielding(*arguments: Any, **named: Any) -> Any:
            for result in function(*arguments, **named):
                self._tell(name, result)
                yield result

        return yielding if isgeneratorfunction(function) else told

    def _paused(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function during which nothing is told."""

        @wraps(function)
        def paused(*arguments: Any, **named: Any) -> Any:
            self._depth_of_warm_up += 1
            try:
                return function(*arguments, **named)
            finally:
                self._depth_of_warm_up -= 1

        return paused

    def _tell(self, name: str, result: Any) -> None:
        if self._depth_of_warm_up == 0 and current_thread() is main_thread():
            tally = self.tallies.setdefault(name, Tally())
            tally.calls += 1
            if tally.calls <= MOST_CALLS:
                tally.add(result)


def check(room: str, name: str, run: Callable[[], object]) -> None:
    """Compare what a room does in a run with its record; write that instead if records are renewed."""
    with Recorder(room) as recorder:
        result = run()
    answer = Tally()
    answer.add(result)
    found = {"": answer.row} | {function: tally.row for function, tally in recorder.tallies.items()}
    file = f"{room.removeprefix('solvers/').replace('/', '-')}.json"
    if os.environ.get(RENEWING):
        path = Path(os.environ[RENEWING]) / file
        kept = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(kept | {name: found}))
        return
    differing = list(differences(json.loads((FOLDER / file).read_text())[name], found))
    assert not differing, (
        f"{room} does something else than its record says: see why; `python -m tests.support.golden {room}` renews it\n"
        + "\n".join(differing)
    )


def differences(golden: Mapping[str, Sequence[float]], found: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield what differs, a line a function, those that returned first come first."""
    for function in [*found, *(set(golden) - set(found))]:
        one, other = golden.get(function), found.get(function)
        if one is None or other is None:
            yield f"{function}: {'not known' if one is None else 'never called'}"
        elif one and list(one[:2]) != list(other[:2]):
            yield f"{function}: {one[:2]} became {other[:2]}"
        elif len(one) > 2 and _deviation(one, other) > (one[4] if len(one) > 4 else LEAST_TOL):
            yield f"{function}: {one[2:]} became {other[2:]}"


def _deviation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how far two sums are apart, as a share of the sum of sizes."""
    return max(abs(one[k] - other[k]) for k in (2, 3)) / (max(one[2], other[2]) or 1.0)


def common(rows: Sequence[Sequence[float] | None]) -> list[float]:
    """Return what processors say in common of a function: nothing, whole numbers, or sums too and their tolerance."""
    told = [row for row in rows if row is not None]
    first = told[0]
    if len(told) < len(rows) or any(list(row[:2]) != list(first[:2]) for row in told):
        return []
    tol = MARGIN * max(_deviation(first, row) for row in told)
    if tol > MOST_TOL:
        return list(first[:2])
    digits = [float(f"{number:.12g}") for number in first[2:]]
    return [*first[:2], *digits, *([float(f"{tol:.0e}")] if tol > LEAST_TOL else [])]


def _written(records: Sequence[Mapping[str, Mapping[str, Any]]]) -> str:
    """Return a file's text, a line a function."""
    runs = []
    for name, rows in sorted(records[0].items()):
        lines = ",\n".join(
            f"  {json.dumps(function)}: {json.dumps(common([one[name].get(function) for one in records]))}"
            for function in rows
        )
        runs.append(f"{json.dumps(name)}: {{\n{lines}\n}}")
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
            command = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
            if subprocess.run(command, env=environment, check=False).returncode:
                return 1
        for path in sorted(Path(folder, "0").glob("*.json")):
            others = [Path(folder) / str(k) / path.name for k in range(len(PROCESSORS))]
            (FOLDER / path.name).write_text(_written([json.loads(other.read_text()) for other in others]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
