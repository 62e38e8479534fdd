"""Compare records with golden ones row by row (values and gaps, not times), and merge results of several machines.

A row is identified by suite, instance, solver, seed and the suite's labels. It passes if it

- is verified, and has an objective and a bound if the golden row has them;
- is not worse in value by more than `VALUE_TOL`, relative. The value is the objective, or the bound of a
  row without objective. The value is not compared if a time limit ended either run, because it then
  depends on the machine;
- has the findings of the golden row, for a study;
- has no gap that exceeds the golden one by more than `GAP_GROWTH`, relative.

A row that does not pass is a regression. Better values are reported. A golden row of the selection that was not run is also a
regression, so that the removal of a solver is noticed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

from optim.benchmarks.records import Record, open_results, read_records, read_unsealed
from optim.core.errors import InvalidProblemError
from optim.core.files import write_bytes
from optim.core.solution import GAP_FLOOR, Sense, Termination
from optim.models.catalogue import problem_named

SUFFIX = ".jsonl"


def golden_names() -> tuple[str, ...]:
    """Return the names of the golden results that ship with the library, sorted."""
    folder = files("optim.benchmarks") / "golden"
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)))


def read_golden(name: str) -> list[Record]:
    """Read a results file, or the shipped golden results of that name if there is no such file.

    Raises
    ------
    InvalidProblemError
        If there is neither, or the file has no record.
    """
    path = Path(name)
    if not path.exists():
        bare = name.removesuffix(SUFFIX)
        if bare not in golden_names():
            known = ", ".join(golden_names()) or "none"
            raise InvalidProblemError(
                f"{name}: no such file, and no shipped golden results of that name; there are: {known}"
            )
        path = Path(str(files("optim.benchmarks") / "golden" / f"{bare}{SUFFIX}"))
    records = read_unsealed(path)
    if not records:
        raise InvalidProblemError(f"{name}: has no record to compare with; write golden results with --write-golden")
    return records


def write_golden(records: Iterable[Record], path: str | Path) -> None:
    """Write records, sorted and without fields that depend on machine or time."""
    rows = sorted((strip(record) for record in records), key=row_order)
    write_bytes(path, b"".join(record.to_json() + b"\n" for record in rows))


def strip(record: Record) -> Record:
    """Return a record without times, memory, measures, machine, versions, code and instance statistics."""
    return replace(
        record,
        seconds={},
        decision_ms=None,
        wall_s=None,
        processor_s=None,
        memory_mb=None,
        measures={},
        counts={},
        iterations=0,
        parameters={},
        versions={},
        machine={},
        code="",
        commit=None,
        finished="",
        message="",
    )


def row_order(record: Record) -> tuple[str, str, str, str, int]:
    """Return the sort key of rows in a golden file."""
    labels = ";".join(f"{name}={value}" for name, value in sorted(record.labels.items()))
    return (record.suite or "", record.instance, labels, record.solver, record.seed)


VALUE_TOL = 1e-6
"""Relative difference of values allowed for rounding and the tolerance of column generation."""

GAP_GROWTH = 0.2
"""Allowed relative growth of a gap, because bounds and heuristics vary this much."""

GAP_TOL = 1e-6
"""Allowed absolute growth of a gap, so that a golden gap of zero can be met."""

RowKey = tuple[str | None, str, str, int, tuple[tuple[str, str], ...]]


class Change(StrEnum):
    """Change of a row relative to its golden row."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Filter of golden rows by the current request; None selects all."""

    suites: tuple[str, ...]
    seeds: tuple[int, ...]
    solvers: tuple[str, ...] | None = None
    instances: tuple[str, ...] | None = None

    def __contains__(self, row: Record) -> bool:
        return (
            row.suite in self.suites
            and row.seed in self.seeds
            and (self.solvers is None or row.solver in self.solvers)
            and (self.instances is None or row.instance in self.instances)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A golden row with its change and the reason."""

    row: RowKey
    change: Change
    reason: str = ""

    @property
    def is_regression(self) -> bool:
        """Whether the row got worse or is missing."""
        return self.change in (Change.WORSE, Change.MISSING)

    def __str__(self) -> str:
        suite, instance, solver, seed, labels = self.row
        marks = "".join(f", {name} {value}" for name, value in labels)
        reason = f": {self.reason}" if self.reason else ""
        return f"{suite}: {instance}, {solver}, seed {seed}{marks}: {self.change.value}{reason}"


def compare(records: Iterable[Record], golden: Sequence[Record], selection: Selection) -> list[Difference]:
    """Compare records with golden ones.

    Parameters
    ----------
    records
        Current records.
    golden
        Golden records.
    selection
        Golden rows to compare; others are ignored.

    Raises
    ------
    InvalidProblemError
        If the golden results contain a row twice.
    """
    now = {row_key(record): record for record in records}
    seen: set[RowKey] = set()
    differences = []
    for then in golden:
        row = row_key(then)
        if row in seen:
            raise InvalidProblemError(
                f"golden results contain {Difference(row=row, change=Change.SAME)} twice; remove one"
            )
        seen.add(row)
        if then not in selection:
            continue
        if row not in now:
            differences.append(Difference(row=row, change=Change.MISSING, reason="it was not run"))
        else:
            change, reason = _judge(now[row], then)
            differences.append(Difference(row=row, change=change, reason=reason))
    return differences


def row_key(record: Record) -> RowKey:
    """Return the identity of a row for comparisons."""
    labels = tuple(sorted((name, str(value)) for name, value in record.labels.items()))
    return (record.suite, record.instance, record.solver, record.seed, labels)


def _judge(now: Record, then: Record) -> tuple[Change, str]:
    """Return the change of a row, and the reason."""
    if now.instance_digest != then.instance_digest:
        return (
            Change.WORSE,
            f"the instance differs (digest {now.instance_digest}, was {then.instance_digest})",
        )
    if then.verified and not now.verified:
        return Change.WORSE, now.error or f"not verified: {'; '.join(now.violations)}"
    for name in ("objective", "bound", "gap"):
        if getattr(now, name) is None and getattr(then, name) is not None:
            return Change.WORSE, f"no {name}, was {getattr(then, name):.9g}"
    if then.gap is not None and now.gap is not None and now.gap > then.gap * (1 + GAP_GROWTH) + GAP_TOL:
        return Change.WORSE, f"gap {now.gap:.6g}, was {then.gap:.6g}"
    if Termination.TIME_LIMIT in (now.termination, then.termination):
        return Change.SAME, "ended by the time limit: value not compared"
    for name, stored in then.findings.items():
        finding = now.findings.get(name)
        if not _is_same(finding, stored):
            return Change.WORSE, f"{name} {_shown(finding)}, was {_shown(stored)}: findings must be reproducible"
    return _judge_value(now, then)


def _judge_value(now: Record, then: Record) -> tuple[Change, str]:
    """Compare objectives, or bounds if there is no objective."""
    name = "objective" if then.objective is not None else "bound"
    value, stored = getattr(now, name), getattr(then, name)
    if stored is None or _is_same(value, stored):
        return Change.SAME, ""
    reason = f"{name} {_shown(value)}, was {_shown(stored)}"
    is_more_better = (problem_named(now.problem).sense is Sense.MAXIMISE) == (name == "objective")
    return (Change.BETTER if (value > stored) == is_more_better else Change.WORSE), reason


def _is_same(value: Any, stored: Any) -> bool:
    """Return whether two values are equal, numbers within the tolerance."""
    if isinstance(value, (int, float)) and isinstance(stored, (int, float)):
        return abs(value - stored) <= VALUE_TOL * max(abs(stored), abs(value), GAP_FLOOR)
    return bool(value == stored)


def _shown(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


MAX_SHOWN = 3
"""Maximum contradictions that an error lists; it counts the others."""

LAST_RANK = 2


def merge_results(sources: Sequence[Path], path: Path) -> list[Record]:
    """Merge the records of several results files into one, and return them.

    Of several records of the same work, a reproducible result is used, otherwise a result that the time limit ended,
    otherwise an error; of several equivalent ones, the earliest.

    Parameters
    ----------
    sources
        Results files.
    path
        The results file to write; its existing records are merged as well.

    Raises
    ------
    InvalidProblemError
        If reproducible records of the same work differ, or records were made by different code.
    """
    files = dict.fromkeys([*sources, *([path] if path.exists() else [])])
    entries = [(source, record) for source in files for record in read_records(source)]
    codes = {record.code for _, record in entries}
    if len(codes) > 1:
        holders = "; ".join(sorted({f"{source} {record.code}" for source, record in entries}))
        raise InvalidProblemError(f"results of different code cannot be merged ({holders}); run them with one version")
    chosen: dict[str, tuple[Path, Record]] = {}
    contradictions = []
    for source, record in sorted(entries, key=lambda entry: (_rank(entry[1]), entry[1].finished)):
        if record.key not in chosen:
            chosen[record.key] = source, record
            continue
        first, other = chosen[record.key]
        if _rank(record) == _rank(other) == 0 and strip(record) != strip(other):
            contradictions.append(_contradiction(first, other, source, record))
    if contradictions:
        more = len(contradictions) - MAX_SHOWN
        listed = "; ".join(contradictions[:MAX_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise InvalidProblemError(
            f"{len(contradictions)} records contradict one another: {listed}; find the faulty machine"
        )
    with open_results(path) as results:
        for _, record in chosen.values():
            if record.key not in results.records:
                results.append(record)
        return list(results.records.values())


def _rank(record: Record) -> int:
    """Return 0 for a reproducible result, 1 if the time limit ended it, 2 after an error."""
    if record.error is not None:
        return LAST_RANK
    return int(record.termination == Termination.TIME_LIMIT)


def _contradiction(first: Path, one: Record, second: Path, other: Record) -> str:
    """Describe the first difference between two records."""
    mine, theirs = strip(one), strip(other)
    field = next(name for name in mine.__slots__ if getattr(mine, name) != getattr(theirs, name))
    return (
        f"{one.solver} on {one.instance}, seed {one.seed}: {field} {getattr(mine, field)} in {first}, "
        f"{getattr(theirs, field)} in {second}"
    )
