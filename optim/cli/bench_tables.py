"""What `optim bench` prints for people: a table a suite, what was left out, what got worse."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from optim.cli.border import note
from optim.cli.output import print_line, print_table

if TYPE_CHECKING:
    from optim.benchmarks.compare import Difference
    from optim.benchmarks.record import Record
    from optim.benchmarks.spec import BenchSpec, Skipped

LEAST_WANTED = ("p99 ms", "cpu s", "ratio", "decision ms", "termination")
"""Columns that a narrow terminal lacks; records and report have them."""

OF_SOLVES = frozenset({"objective", "bound", "gap %", "ratio", "decision ms", "p99 ms"})
"""Columns that a study leaves empty: its table goes without."""

MOST_TOLD = 20
"""Regressions, or pairs of one reason, named one by one at most."""


def print_bench_tables(specs: "Sequence[BenchSpec]", records: "Sequence[Record]", skipped: "Sequence[Skipped]") -> None:
    """Print a table a suite, then what was left out, refused or failed, and why."""
    for spec in specs:
        mine = [record for record in records if record.suite == spec.name]
        seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in mine}))
        if mine:
            header, rows = _filled(_header(spec.columns), [_row(record, spec.columns) for record in mine])
            title = f"{spec.name}: {spec.summary} (seed {seeds})"
            print_table(header, rows, title=title, least_wanted=LEAST_WANTED)
    told = [("left out", entry.solver, entry.instance, entry.reason) for entry in skipped]
    for record in records:
        if record.error is not None:
            told.append(("failed", record.solver, record.instance, record.error))
        elif record.is_refused:
            told.append(("refused", record.solver, record.instance, "; ".join(record.violations)))
    for (what, reason), pairs in _by_reason(told).items():
        more = f" and {len(pairs) - MOST_TOLD} more" if len(pairs) > MOST_TOLD else ""
        print_line(f"{what}: {', '.join(pairs[:MOST_TOLD])}{more}: {reason}")


def tell_differences(differences: "Sequence[Difference]") -> None:
    """Name on stderr what got worse, is missing, or got better, and count the rest."""
    told = [difference for difference in differences if difference.change != "same"]
    for difference in sorted(told, key=lambda difference: not difference.is_regression)[:MOST_TOLD]:
        note(str(difference))
    counts = Counter(difference.change.value for difference in differences)
    note("compared: " + (", ".join(f"{number} {change}" for change, number in sorted(counts.items())) or "no rows"))


def _header(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the heads of a suite's table."""
    return (
        *("instance", *columns, "solver", "termination", "objective", "bound", "gap %", "ratio"),
        *("seconds", "cpu s", "decision ms", "p99 ms", "verified"),
    )


def _filled(
    header: tuple[str, ...], rows: list[tuple[object, ...]]
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Leave out what no row of a study has; a table of solves keeps all its columns."""
    is_empty = {name: all(row[k] is None for row in rows) for k, name in enumerate(header)}
    if not (is_empty["objective"] and is_empty["bound"]):
        return header, rows
    kept = [k for k, name in enumerate(header) if name not in OF_SOLVES]
    return tuple(header[k] for k in kept), [tuple(row[k] for k in kept) for row in rows]


def _row(record: "Record", columns: Sequence[str]) -> tuple[object, ...]:
    """Return a record's row; seconds are those of the whole solve, the processor's with those of compiling."""
    decision = record.decision_ms or {}
    return (
        record.instance,
        *(record.figure(name) for name in columns),
        record.solver,
        "error" if record.error is not None else record.termination,
        record.objective,
        record.bound,
        record.gap_percent,
        None if record.ratio is None else round(record.ratio, 4),
        round(record.run_s, 3),
        None if record.processor_s is None else round(record.processor_s, 3),
        decision.get("median"),
        decision.get("p99"),
        record.verified,
    )


def _by_reason(told: Sequence[tuple[str, str, str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return pairs of solver and instance by what happened to them and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for what, solver, instance, reason in told:
        reasons.setdefault((what, reason), []).append(f"{solver} on {instance}")
    return reasons
