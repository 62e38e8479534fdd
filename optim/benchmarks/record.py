"""One row of a benchmark: what was run, what came out, what was verified, what it cost."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from optim.core.documents import encode_line
from optim.core.provenance import code_digest, commit, machine_facts
from optim.core.solution import Solution
from optim.core.verification import Verification

RECORD_SCHEMA = "optim/record/1"
PHASES = ("build", "compile", "solve", "verify")
"""Phases that every record times; solvers may add finer ones."""

SHOWN_VIOLATIONS = 5
QUANTILES = tuple(q / 20 for q in range(21))
"""Quantiles of the decision times kept for the report."""


LARGEST_SHOWN_GAP = 1e3
"""Relative gaps beyond this tell nothing but that the objective is near 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The outcome of one piece of work; a line of a results file is its JSON.

    Parameters
    ----------
    schema
        Name of this format.
    key
        Digest of what was asked for: equal keys mean equal work.
    suite
        Name of the suite, None for a single solve.
    problem, instance, instance_digest, parameters
        Which problem or study's topic, which instance or other subject, a digest of it, and figures of it.
    solver, options, seed, time_limit_s
        How it was solved; options are complete, defaults included.
    labels
        The suite's own marks of the row (a figure's abscissa, a price function).
    termination, primal, dual, certificate
        Statuses of the solution and the kind of its certificate; None after an error.
    objective, bound, gap, ratio
        Value of the decision, proven bound, ``(bound - objective) / max(|objective|, 1e-9)``
        (mirrored when minimising), and bound over objective; None where there is none.
    findings, measures
        What a study found, which solves no instance and so has neither objective nor bound: what must come out again wherever
        it is run, and what depends on the machine and its clock or can't be compared.
    wall_s, processor_s, memory_mb
        Seconds of the wall clock and of all threads around the whole solve (compiling included), and the MiB by which it
        raised the process' resident memory at most: all measured from outside.
    seconds
        Wall-clock seconds by phase, as the solver counts them: build, compile, solve, and finer ones; and verify.
    verified, violations
        Whether the independent checker accepted every claim, and the first rows it refused.
    load
        How loaded the instance is under the decision, or under a relaxation as its solver counts it.
    decision_ms
        Milliseconds a decision of an online solver: count, median, p99, max and quantiles.
    iterations, counts
        Work done.
    message, error
        The solver's remark; the text of the exception if it raised one.
    versions, machine, code, commit, finished
        Where and with what the record was made.
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
        """Whether the solver gave an answer that the checker refused."""
        return self.error is None and not self.verified

    @property
    def has_answer(self) -> bool:
        """Whether there is a verified solution or bound, or what a study found."""
        is_valued = self.objective is not None or self.bound is not None
        return self.verified and (is_valued or bool(self.findings or self.measures))

    @property
    def gap_percent(self) -> float | None:
        """The gap as a table shows it, infinite where the objective is next to nothing."""
        if self.gap is None:
            return None
        return 100.0 * self.gap if self.gap < LARGEST_SHOWN_GAP else float("inf")

    @property
    def run_s(self) -> float:
        """Seconds of the whole solve, less those of compiling; as the solver counts them where nobody measured."""
        if self.wall_s is None:
            return self.seconds.get("build", 0.0) + self.seconds.get("solve", 0.0)
        return max(0.0, self.wall_s - self.seconds.get("compile", 0.0))

    def figure(self, name: str) -> Any:
        """Return what a column of this name shows: a label, what was found or measured, or a figure of the instance."""
        for figures in (self.labels, self.findings, self.measures, self.parameters):
            if name in figures:
                return figures[name]
        return None

    def to_json(self) -> bytes:
        """Return the record as one line of JSON, without the line feed."""
        return encode_line(self)


def row_of(record: Record) -> dict[str, Any]:
    """Return a record's fields for those who read rows by name: figures, findings and measures are at the top level, too.

    Where a field of the record has the same name, the field stays.
    """
    fields = {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}
    figures = {**record.parameters, **record.measures, **record.findings}
    return fields | {name: value for name, value in figures.items() if name not in fields}


def record_from_json(line: bytes) -> Record:
    """Build a record from a line of JSON; unknown fields are ignored, so that newer files can be read.

    Raises
    ------
    msgspec.MsgspecError
        If the line isn't a record.
    """
    record = msgspec.json.decode(line, type=Record)
    if record.schema != RECORD_SCHEMA:
        raise msgspec.ValidationError(f"schema must be {RECORD_SCHEMA!r}, got {record.schema!r}")
    return record


def provenance() -> dict[str, Any]:
    """Return the fields that say where a record was made, and when."""
    return {
        "machine": dict(machine_facts()),
        "code": code_digest(),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def outcome(solution: Solution, verification: Verification, verify_s: float) -> dict[str, Any]:
    """Return the fields of a record that come from a solution and from its check."""
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
    """Return count, median, 99th percentile, maximum and quantiles; None where nothing was decided online."""
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
    """Return a Python float, or None for what JSON can't say (NaN and infinities)."""
    return float(value) if value is not None and math.isfinite(value) else None


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping of plain JSON values: NumPy scalars, enumerations and fractions are converted."""
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
