"""Records of a benchmark, and results files with one record per line.

Each record is a single append that is synced to disk, so that a killed run loses at most one
record. Opening a file drops an incomplete last line if complete records precede it; a file without
complete records is an error and stays unchanged. Each line ends with the SHA-256 digest of its
content, which detects manual changes. A lock prevents two runs from writing to the same file.
"""

import dataclasses
import fcntl
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import numpy as np

from optim.core.documents import encode_line
from optim.core.errors import InvalidOptionError, InvalidProblemError, NotAllowedError
from optim.core.files import cant_be_read, check_folder, read_bytes, write_bytes
from optim.core.provenance import code_digest, commit, machine_facts
from optim.core.solution import Solution, Verification

RECORD_SCHEMA = "optim/record/1"

PHASES = ("build", "compile", "solve", "verify")
"""Phases with times in every record; solvers may add finer ones."""

SHOWN_VIOLATIONS = 5

QUANTILES = tuple(q / 20 for q in range(21))
"""Levels of the quantiles of decision times in records."""

MAX_SHOWN_GAP = 1e3
"""Relative gap above which tables show infinity, because the objective is near 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The outcome of one piece of work; a line of a results file is its JSON.

    Parameters
    ----------
    schema
        Name of this format.
    key
        Digest of the request; equal keys mean equal work.
    suite
        Name of the suite, None for a single solve.
    problem
        Name of the problem, or topic of the study.
    instance, instance_digest, parameters
        Name of the instance or of the study's subject, digest of its data, and its statistics.
    solver, options, seed, time_limit_s
        Solver with complete options (including defaults), seed and time limit.
    labels
        Further labels that the suite gives to the record, such as the name of a price function.
    termination, primal, dual, certificate
        Statuses of the solution and the kind of its certificate; None after an error.
    objective, bound, gap, ratio
        Value of the decision, proven bound, ``(bound - objective) / max(|objective|, 1e-9)``
        (mirrored when minimising), and bound over objective; None if missing.
    competitive_ratio
        Ratio of an online rule on every input that meets its theorem's conditions, None if none is claimed.
    findings, measures
        Results of a study, which has no objective and bound: reproducible values, and values that depend on the machine
        and its clock or cannot be compared.
    wall_s, processor_s, memory_mb
        Wall-clock seconds and processor seconds of all threads for the complete solve (including compilation), and the
        peak increase of the process's resident memory in MiB; all measured from outside.
    seconds
        Wall-clock seconds by phase as timed by the solver (build, compile, solve, and finer ones), and verify.
    verified, violations
        Whether the independent checker accepted every claim, and the first violations.
    load
        Statistics of the load that the decision puts on the instance; for a relaxation, as counted by the solver.
    decision_ms
        Milliseconds per decision of an online solver: count, median, p99, max and quantiles.
    iterations, counts
        Iterations of the solver's main loop, and its further counters.
    message, error
        Remark of the solver; message of the exception if it raised one.
    versions, machine, code, commit, finished
        Provenance of the record.
    """

    schema: str = RECORD_SCHEMA
    key: str = ""
    suite: str | None = None
    problem: str
    instance: str
    instance_digest: str = ""
    solver: str
    seed: int
    time_limit_s: float | None = None
    termination: str
    primal: str = "none"
    dual: str = "none"
    certificate: str | None = None
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    ratio: float | None = None
    competitive_ratio: float | None = None
    findings: dict[str, Any] = field(default_factory=dict)
    measures: dict[str, Any] = field(default_factory=dict)
    wall_s: float | None = None
    processor_s: float | None = None
    seconds: dict[str, float]
    verified: bool
    violations: list[str] = field(default_factory=list)
    load: dict[str, Any] | None = None
    decision_ms: dict[str, Any] | None = None
    iterations: int = 0
    counts: dict[str, float | None] = field(default_factory=dict)
    memory_mb: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    error: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    code: str = ""
    commit: str | None = None
    finished: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether the checker refused the solver's solution."""
        return self.error is None and not self.verified

    @property
    def has_answer(self) -> bool:
        """Whether there is a verified solution or bound, or verified results of a study."""
        is_valued = self.objective is not None or self.bound is not None
        return self.verified and (is_valued or bool(self.findings or self.measures))

    @property
    def gap_percent(self) -> float | None:
        """The gap in per cent for tables, infinite if the objective is near 0."""
        if self.gap is None:
            return None
        return 100.0 * self.gap if self.gap < MAX_SHOWN_GAP else float("inf")

    @property
    def run_s(self) -> float:
        """Seconds of the complete solve without compilation; without `wall_s`, the solver's phases build and solve."""
        if self.wall_s is None:
            return self.seconds.get("build", 0.0) + self.seconds.get("solve", 0.0)
        return max(0.0, self.wall_s - self.seconds.get("compile", 0.0))

    def figure(self, name: str) -> Any:
        """Return the value of a column: a label, a finding, a measure, or a statistic of the instance; None if missing."""
        for figures in (self.labels, self.findings, self.measures, self.parameters):
            if name in figures:
                return figures[name]
        return None

    def to_json(self) -> bytes:
        """Return the record as one line of JSON, without the line feed."""
        return encode_line(self)


def row_of(record: Record) -> dict[str, Any]:
    """Return a record's fields as a mapping, with statistics, findings and measures also at the top level.

    If names collide, the field of the record takes precedence.
    """
    fields = {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}
    figures = {**record.parameters, **record.measures, **record.findings}
    return fields | {name: value for name, value in figures.items() if name not in fields}


def record_from_json(line: bytes) -> Record:
    """Build a record from a line of JSON; ignore unknown fields, so that newer files can be read.

    Raises
    ------
    msgspec.MsgspecError
        If the line is not a record.
    """
    record = msgspec.json.decode(line, type=Record)
    if record.schema != RECORD_SCHEMA:
        raise msgspec.ValidationError(f"schema must be {RECORD_SCHEMA!r}, got {record.schema!r}")
    return record


def provenance() -> dict[str, Any]:
    """Return the fields on the provenance of a record."""
    return {
        "machine": dict(machine_facts()),
        "code": code_digest(),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def outcome(solution: Solution, verification: Verification, verify_s: float) -> dict[str, Any]:
    """Return the fields of a record that come from a solution and its verification."""
    stats = solution.stats
    return {
        "termination": solution.termination.value,
        "primal": solution.primal.value,
        "dual": solution.dual.value,
        "certificate": None if solution.certificate is None else solution.certificate.kind.value,
        "objective": finite(solution.objective),
        "bound": finite(solution.bound),
        "gap": finite(solution.gap),
        "ratio": finite(solution.ratio),
        "competitive_ratio": None if solution.certificate is None else finite(solution.certificate.competitive_ratio),
        "seconds": {**dict.fromkeys(PHASES, 0.0), **stats.seconds, "verify": verify_s},
        "verified": verification.is_ok,
        "violations": [str(violation) for violation in verification.violations[:SHOWN_VIOLATIONS]],
        "decision_ms": summarise_decisions(stats.decision_ms),
        "iterations": int(stats.iterations),
        "counts": plain(stats.counts),
        "message": solution.message,
        "versions": dict(solution.versions),
    }


def summarise_decisions(milliseconds: Sequence[float]) -> dict[str, Any] | None:
    """Return count, median, 99th percentile, maximum and quantiles; None without decision times."""
    if len(milliseconds) == 0:
        return None
    times = np.asarray(milliseconds, dtype=np.float64)
    return {
        "count": len(times),
        "median": float(np.median(times)),
        "p99": float(np.quantile(times, 0.99)),
        "max": float(times.max()),
        "quantiles": [float(value) for value in np.quantile(times, QUANTILES)],
    }


def finite(value: float | None) -> float | None:
    """Return a Python float, or None for NaN and infinities, which JSON lacks."""
    return float(value) if value is not None and math.isfinite(value) else None


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert NumPy scalars, enumerations and fractions in a mapping to plain JSON values."""
    return {str(name): _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [_plain_value(entry) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value)})
    return msgspec.to_builtins(value, enc_hook=str)


SEAL_BEGINS, SEAL_ENDS = b',"sha256":"', b'"}'

SEAL_BYTES = len(SEAL_BEGINS) + 64 + len(SEAL_ENDS)

LINE_BEGINS = b'{"'
"""Beginning of every line, also of an incomplete one."""

RECORD_NAME = "benchmark record"


class Keyed(Protocol):
    """An entry of a results file."""

    @property
    def key(self) -> str:
        """Digest of the request."""
        ...

    def to_json(self) -> bytes:
        """Return one line of JSON, without the line feed."""
        ...


RecordT = TypeVar("RecordT", bound=Keyed)


class ResultsFile(Generic[RecordT]):
    """An open, locked results file.

    Attributes
    ----------
    path
        Path of the file.
    records
        Records of the file by key.
    """

    def __init__(self, path: Path, descriptor: int, records: dict[str, RecordT]) -> None:
        self.path = path
        self.records = records
        self._descriptor = descriptor

    def append(self, record: RecordT) -> None:
        """Append a record as one line, and sync it to disk.

        Raises
        ------
        OSError
            If the disk is full; the file is restored.
        """
        line = seal(record.to_json()) + b"\n"
        before = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):  # a full disk writes only a part
                written += os.write(self._descriptor, line[written:])
            os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, before)
            raise
        self.records[record.key] = record


def open_results(
    path: Path, is_wanted: Callable[[Record], bool] = lambda record: True
) -> AbstractContextManager[ResultsFile[Record]]:
    """Open a file of benchmark records (`open_lines`)."""
    return open_lines(path, record_from_json, is_wanted)


@contextmanager
def open_lines(
    path: Path,
    read: Callable[[bytes], RecordT],
    is_wanted: Callable[[RecordT], bool] = lambda record: True,
    *,
    name: str = RECORD_NAME,
) -> Iterator[ResultsFile[RecordT]]:
    """Open a results file for appending; create it and its folder if necessary.

    Parameters
    ----------
    path
        The file.
    read
        Parser of a line.
    is_wanted
        Records for which this is false are removed from the file, because they will be computed again.
    name
        Name of a record, for error messages.

    Raises
    ------
    NotAllowedError
        If another run has locked the file.
    InvalidProblemError
        If a complete line is not a record or was changed, or the file has content but no record.
    InvalidOptionError
        If the file cannot be written.
    """
    if path.exists() and not path.is_file():
        raise InvalidOptionError(f"results file {path} is not a regular file; choose another with --results")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_folder(path)
        descriptor = _open_locked(path)
    except OSError as error:
        cause = error.strerror or error
        raise InvalidOptionError(
            f"results file {path} cannot be written: {cause}; choose another folder with --out"
        ) from error
    try:
        lines, whole_size = _parse(path, _packed_bytes(path), read, name=name)
        os.ftruncate(descriptor, whole_size)
        wanted = {record.key: (line, record) for line, record in lines if is_wanted(record)}
        if len(wanted) < len(lines):
            write_bytes(path, b"".join(line + b"\n" for line, _ in wanted.values()))
            os.close(descriptor)
            descriptor = _open_locked(path)
        yield ResultsFile(path, descriptor, {key: record for key, (_, record) in wanted.items()})
    finally:
        os.close(descriptor)


def read_records(path: Path) -> list[Record]:
    """Read the records of a results file, without an incomplete last line.

    Raises
    ------
    InvalidProblemError
        If the file cannot be read, or a complete line is not a record or was changed.
    """
    return [record for _, record in _parse(path, read_bytes(path), record_from_json)[0]]


def read_unsealed(path: Path) -> list[Record]:
    """Read records without checking digests, for golden results.

    Raises
    ------
    InvalidProblemError
        If the file cannot be read, or a complete line is not a record.
    """
    return [record for _, record in _parse(path, read_bytes(path), record_from_json, is_sealed=False)[0]]


def seal(line: bytes) -> bytes:
    """Append the digest of a line of JSON as its last field."""
    return line[:-1] + SEAL_BEGINS + hashlib.sha256(line).hexdigest().encode() + SEAL_ENDS


def _check_sealed(line: bytes) -> None:
    """Raise if a line does not match its digest."""
    if seal(line[:-SEAL_BYTES] + b"}") != line:
        raise msgspec.ValidationError("it was changed after the measurement, or written by an older release")


def _open_locked(path: Path) -> int:
    """Open and lock the file; retry if it was replaced between the two steps."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise NotAllowedError(
                f"results file {path} is in use by another run; wait for it, or choose another with --results"
            ) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _packed_bytes(path: Path) -> bytes:
    """Return the raw bytes of a file, without decompression, because its size is used for truncation."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise cant_be_read(path, error) from error


def _parse(
    path: Path, data: bytes, read: Callable[[bytes], RecordT], *, is_sealed: bool = True, name: str = RECORD_NAME
) -> tuple[list[tuple[bytes, RecordT]], int]:
    """Return lines with their records, and the size of all complete lines in bytes."""
    whole_size = data.rfind(b"\n") + 1
    records = []
    for number, line in enumerate(data[:whole_size].split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            records.append((line, read(line)))
            if is_sealed:
                _check_sealed(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidProblemError(
                f"{path}: line {number} is not a {name} ({error}); choose another results file, or move this one"
            ) from error
    rest = data[whole_size:]
    if rest and not (records and rest.startswith(LINE_BEGINS[: len(rest)])):
        raise InvalidProblemError(
            f"{path}: the last line is not a {name}, nor the beginning of one; "
            "choose another results file, or move this one"
        )
    return records, whole_size
