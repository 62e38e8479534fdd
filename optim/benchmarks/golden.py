"""Golden results: the part of records that must come out again, stored to compare with."""

from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from optim.benchmarks.record import Record
from optim.benchmarks.results_file import read_unsealed
from optim.core.errors import InvalidProblemError
from optim.core.files import write_bytes

SUFFIX = ".jsonl"


def golden_names() -> tuple[str, ...]:
    """Return the names of the golden results that ship with the library, sorted."""
    folder = files("optim.benchmarks") / "golden"
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)))


def read_golden(name: str) -> list[Record]:
    """Read a results file, or where there is no such file the shipped golden results of that name.

    Raises
    ------
    InvalidProblemError
        If there is neither, or the file holds no record.
    """
    path = Path(name)
    if not path.exists():
        bare = name.removesuffix(SUFFIX)
        if bare not in golden_names():
            known = ", ".join(golden_names()) or "none"
            raise InvalidProblemError(
                f"{name}: no such file, and no golden results of that name ship; there are: {known}"
            )
        path = Path(str(files("optim.benchmarks") / "golden" / f"{bare}{SUFFIX}"))
    records = read_unsealed(path)
    if not records:
        raise InvalidProblemError(f"{name}: holds no record to compare with; write it with --write-golden")
    return records


def write_golden(records: Iterable[Record], path: str | Path) -> None:
    """Write records without what differs from machine to machine and from day to day, sorted."""
    rows = sorted((strip(record) for record in records), key=row_order)
    write_bytes(path, b"".join(record.to_json() + b"\n" for record in rows))


def strip(record: Record) -> Record:
    """Return a record without seconds, memory, measures, machine, versions, code and instance figures."""
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
    """Return the order of rows in a golden file."""
    labels = ";".join(f"{name}={value}" for name, value in sorted(record.labels.items()))
    return (record.suite or "", record.instance, labels, record.solver, record.seed)
