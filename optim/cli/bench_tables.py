"""What `optim bench` prints for people: a scoreboard or one table per suite, what was left out, what got worse."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from optim.benchmarks.best_known import TO_BEST, TO_BOUND, best_known, instance_of
from optim.benchmarks.foresight import foresight_of
from optim.cli.border import note
from optim.cli.output import print_line, print_table

if TYPE_CHECKING:
    from optim.benchmarks.best_known import BestKnown, Of
    from optim.benchmarks.compare import Difference
    from optim.benchmarks.record import Record
    from optim.benchmarks.spec import BenchSpec, Skipped

LEAST_WANTED = ("p99 ms", "cpu s", "ratio", "decision ms", "termination")
"""Columns that a narrow terminal lacks; records and report have them."""

CLAIMED = "claimed bound"
"""Of another library's solver, not checked: a table has the column where a row has the figure."""

OF_SOLVES = frozenset({"objective", "bound", "gap %", TO_BEST, TO_BOUND, CLAIMED, "ratio", "decision ms", "p99 ms"})
"""Columns that a study leaves empty: its table goes without."""

MARK = "*"
"""After a rule that is told something of the future: a line below the table says what."""

MOST_TOLD = 20
"""Regressions, or pairs of one reason, named one by one at most."""

MAX_ROWS = 30
"""Without `--rows`, more records than this become a scoreboard: the rows of fewer fit on a screen."""

MAX_PROBLEM_LINES = 10
"""Failures and refusals named below a scoreboard."""


def print_scoreboard(specs: "Sequence[BenchSpec]", records: "Sequence[Record]", skipped: "Sequence[Skipped]") -> None:
    """Print one row per solver of a single suite, or one row per suite; then failures, and how to see all rows."""
    from optim.benchmarks.summary import compare_solvers

    by_suite = {
        spec: compare_solvers(mine)
        for spec in specs
        if (mine := [record for record in records if record.suite == spec.name])
    }
    if len(by_suite) == 1:
        ((spec, found),) = by_suite.items()
        mine = [record for record in records if record.suite == spec.name]
        print_table(
            ("solver", "records", "verified", "optimal", "gap %", "worst gap %", "seconds", "cpu s"),
            [
                (
                    *(
                        _named(one.solver, mine),
                        one.records,
                        one.verified,
                        one.optimal,
                        _percent(one.gap),
                        _percent(one.worst_gap),
                    ),
                    *(_short(one.seconds), _short(one.processor_s)),
                )
                for one in found.solvers
            ],
            title=f"{spec.name}: {spec.summary} ({found.cases} cases)",
        )
        print_line(
            f"means over the cases that all have: gap % over {found.gap_cases}, "
            f"seconds over {found.seconds_cases}, cpu s over {found.processor_cases}"
        )
        _print_marks(mine)
    else:
        rows = []
        for spec, found in by_suite.items():
            with_gap = [one for one in found.solvers if one.gap is not None]
            best = min(with_gap, key=lambda one: (one.gap, one.seconds or 0.0), default=None)
            mine = [record for record in records if record.suite == spec.name]
            rows.append(
                (
                    *(spec.name, found.cases, len(found.solvers), len(mine), sum(one.verified for one in mine)),
                    *(best and _named(best.solver, mine), best and _percent(best.gap), best and _short(best.seconds)),
                    _short(sum(one.processor_s or 0.0 for one in mine)),
                )
            )
        header = ("suite", "cases", "solvers", "records", "verified", "smallest gap", "gap %", "seconds", "total cpu s")
        print_table(header, rows)
    lines = _problem_lines([], records)
    for line in lines[:MAX_PROBLEM_LINES]:
        print_line(line)
    if len(lines) > MAX_PROBLEM_LINES:
        print_line(f"and {len(lines) - MAX_PROBLEM_LINES} more such lines")
    left_out = f", and the {len(skipped)} pairs of solver and instance that were left out" if skipped else ""
    print_line(f"The same command with --rows prints all {len(records)} rows{left_out}; nothing runs again.")


def print_paired(
    specs: "Sequence[BenchSpec]", records: "Sequence[Record]", baseline: str, known: "Mapping[Of, BestKnown]"
) -> None:
    """Print per suite how each solver differs from the baseline on the cases that both solved, by what is known of each instance."""
    from optim.benchmarks.summary import compare_with

    head = ("solver", "cases", "better", "equal", "worse", "% of bound", "difference", "95 % (Student's t)")
    for spec in specs:
        mine = [record for record in records if record.suite == spec.name]
        found = compare_with(mine, baseline, known)
        if not any(one.cases for one in found):
            continue
        rows = []
        for one in found:
            gain = one.difference
            around = None if gain is None else f"{100 * gain.low:+.3f} to {100 * gain.high:+.3f}"
            equal = one.cases - one.better - one.worse
            mean = None if gain is None else f"{100 * gain.mean:+.3f}"
            rows.append(
                (
                    _named(one.solver, mine),
                    one.cases,
                    one.better,
                    equal,
                    one.worse,
                    _percent(one.of_bound),
                    mean,
                    around,
                )
            )
        print_table(head, rows, title=f"{spec.name}: compared with {baseline}, in percentage points of the bound")


def print_best_known(records: "Sequence[Record]", known: "Mapping[Of, BestKnown]") -> None:
    """Print per instance what ratios are to, and whose it is."""
    for instance in dict.fromkeys(instance_of(record) for record in records if record.objective is not None):
        if instance in known:
            print_line(f"{instance[1]}: {known[instance]}")


def print_bench_tables(
    specs: "Sequence[BenchSpec]",
    records: "Sequence[Record]",
    skipped: "Sequence[Skipped]",
    known: "Mapping[Of, BestKnown] | None" = None,
) -> None:
    """Print a table a suite, then what was left out, refused or failed, and why."""
    known = best_known(records) if known is None else known
    for spec in specs:
        mine = [record for record in records if record.suite == spec.name]
        seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in mine}))
        if mine:
            header, rows = _filled(spec.columns, [_row(record, spec.columns, known) for record in mine])
            title = f"{spec.name}: {spec.summary} (seed {seeds})"
            print_table(header, rows, title=title, least_wanted=LEAST_WANTED)
            _print_marks(mine)
            print_best_known(mine, known)
    for line in _problem_lines(skipped, records):
        print_line(line)


def _named(solver: str, records: "Sequence[Record]") -> str:
    """Return a solver's name, marked if a record of it was told something of the future."""
    return solver + (MARK if any(record.solver == solver and foresight_of(record) for record in records) else "")


def _print_marks(records: "Sequence[Record]") -> None:
    """Say below a table what each marked rule is told of the future."""
    for text in sorted({f"{record.solver}{MARK}: {said}" for record in records if (said := foresight_of(record))}):
        print_line(text)


def _problem_lines(skipped: "Sequence[Skipped]", records: "Sequence[Record]") -> list[str]:
    """Return one line per reason for which pairs of solver and instance were left out, failed or were refused."""
    told = [("left out", entry.solver, entry.instance, entry.reason) for entry in skipped]
    for record in records:
        if record.error is not None:
            told.append(("failed", record.solver, record.instance, record.error))
        elif record.is_refused:
            told.append(("refused", record.solver, record.instance, "; ".join(record.violations)))
    lines = []
    for (what, reason), pairs in _by_reason(told).items():
        more = f" and {len(pairs) - MOST_TOLD} more" if len(pairs) > MOST_TOLD else ""
        lines.append(f"{what}: {', '.join(pairs[:MOST_TOLD])}{more}: {reason}")
    return lines


def _percent(share: float | None) -> float | None:
    return None if share is None else float(f"{round(100 * share, 9):.4g}")


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.3g}")


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
        *("instance", *columns, "solver", "termination", "objective", "bound", "gap %", TO_BEST, TO_BOUND),
        *(CLAIMED, "ratio"),
        *("seconds", "cpu s", "decision ms", "p99 ms", "verified"),
    )


def _filled(columns: Sequence[str], rows: list[tuple[object, ...]]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Leave out what no row of a study has; a table of solves keeps its columns but for the suite's own, claimed bounds and ratios."""
    header = _header(columns)
    is_empty = {name: all(row[k] is None for row in rows) for k, name in enumerate(header)}
    dropped = {name for name in (*columns, CLAIMED, TO_BEST, TO_BOUND) if is_empty[name]}
    if is_empty["objective"] and is_empty["bound"]:
        dropped |= OF_SOLVES
    kept = [k for k, name in enumerate(header) if name not in dropped]
    return tuple(header[k] for k in kept), [tuple(row[k] for k in kept) for row in rows]


def _row(record: "Record", columns: Sequence[str], known: "Mapping[Of, BestKnown]") -> tuple[object, ...]:
    """Return a record's row; seconds are those of the whole solve, the processor's with those of compiling."""
    decision = record.decision_ms or {}
    best = known.get(instance_of(record)) if record.verified else None
    return (
        record.instance,
        *(record.figure(name) for name in columns),
        _named(record.solver, [record]),
        "error" if record.error is not None else record.termination,
        record.objective,
        record.bound,
        record.gap_percent,
        None if best is None else _rounded(best.to_best(record.objective)),
        None if best is None else _rounded(best.to_bound(record.objective)),
        record.counts.get("claimed_bound"),
        None if record.ratio is None else round(record.ratio, 4),
        round(record.run_s, 3),
        None if record.processor_s is None else round(record.processor_s, 3),
        decision.get("median"),
        decision.get("p99"),
        record.verified,
    )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _by_reason(told: Sequence[tuple[str, str, str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return pairs of solver and instance by what happened to them and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for what, solver, instance, reason in told:
        reasons.setdefault((what, reason), []).append(f"{solver} on {instance}")
    return reasons
