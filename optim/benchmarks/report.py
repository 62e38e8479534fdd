"""The report of a benchmark: one HTML page that needs nothing but itself."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from optim.benchmarks.best_known import TO_BEST, TO_BOUND, best_known, instance_of
from optim.benchmarks.foresight import foresight_of
from optim.benchmarks.page import figure_element, page, table
from optim.benchmarks.pictures.plots import standard_figures
from optim.benchmarks.record import PHASES, Record
from optim.benchmarks.registry import SUITES
from optim.benchmarks.spec import BenchSpec, Skipped
from optim.benchmarks.summary import Comparison, compare_solvers
from optim.core.errors import MissingDependencyError
from optim.core.files import write_bytes

NO_SUITE = "single solves"


def write_report(records: Sequence[Record], skipped: Sequence[Skipped], path: Path) -> None:
    """Write the page; it is whole or absent."""
    write_bytes(path, render(records, skipped).encode())


def render(records: Sequence[Record], skipped: Sequence[Skipped] = ()) -> str:
    """Return the page as HTML; without matplotlib it has no pictures, and says so."""
    suites = list(dict.fromkeys(record.suite or "" for record in records))
    by_suite = {suite: [record for record in records if (record.suite or "") == suite] for suite in suites}
    named = ", ".join(suite or NO_SUITE for suite in suites) if len(suites) < 4 else f"{len(suites)} suites"
    title = f"Benchmark of {named or 'nothing'}"
    body = [f"<h1>{escape(title)}</h1>", _headline(records), _navigation(by_suite), _filters(records)]
    for number, (suite, mine) in enumerate(by_suite.items()):
        left_out = [entry for entry in skipped if entry.suite == suite]
        body.append(_suite(number, suite, mine, left_out))
    return page("benchmark", [*body, _skipped(skipped), _provenance(records)])


def _headline(records: Sequence[Record]) -> str:
    verified = sum(record.verified for record in records)
    state = "good" if verified == len(records) else "bad"
    return f'<p class="headline {state}">{_counts(records)}</p>'


def _counts(records: Sequence[Record]) -> str:
    """Say how many records there are, and what became of them."""
    refused = sum(record.is_refused for record in records)
    failed = sum(record.error is not None for record in records)
    timed_out = sum(record.error is None and record.termination == "time_limit" for record in records)
    text = f"{len(records)} records, {sum(record.verified for record in records)} verified"
    text += f", {refused} refused by the checker" if refused else ""
    text += f", {failed} failed" if failed else ""
    return text + (f", {timed_out} ended by the time limit" if timed_out else "")


def _navigation(by_suite: dict[str, list[Record]]) -> str:
    """Return links to the suites; those in which something went wrong say so."""
    links = []
    for number, (suite, mine) in enumerate(by_suite.items()):
        bad = sum(not record.verified for record in mine)
        note = f' <span class="bad">{bad} bad</span>' if bad else f" <span>{len(mine)}</span>"
        links.append(f'<li><a href="#suite-{number}">{escape(suite or NO_SUITE)}{note}</a></li>')
    return f'<nav aria-label="Suites"><ul>{"".join(links)}</ul></nav>' if links else ""


def _filters(records: Sequence[Record]) -> str:
    """Return what narrows all tables of records down to a solver and to instances by a part of their names."""
    solvers = sorted({record.solver for record in records})
    options = "".join(f"<option>{escape(name)}</option>" for name in solvers)
    return (
        '<form id="filters" role="search" aria-label="Filter rows">'
        f'<label>Solver <select id="by-solver"><option value="">all</option>{options}</select></label>'
        '<label>Instance <input id="by-instance" type="search" placeholder="part of a name" autocomplete="off"></label>'
        '<button type="reset">Show all</button>'
        '<button type="button" id="unfold" aria-expanded="false">Open all records</button>'
        f'<output id="shown" aria-live="polite">{len(records)} of {len(records)} records</output></form>'
    )


def _suite(number: int, suite: str, records: Sequence[Record], skipped: Sequence[Skipped]) -> str:
    spec = {spec.name: spec for spec in SUITES}.get(suite)
    name = escape(suite or NO_SUITE)
    parts = [f'<section id="suite-{number}" aria-labelledby="name-{number}"><h2 id="name-{number}">{name}</h2>']
    if spec is not None:
        parts.append(f"<p>{escape(spec.summary[:1].upper() + spec.summary[1:])}.</p>")
    left_out = f", {len(skipped)} left out (see below)" if skipped else ""
    parts.append(f'<p class="note">{_counts(records)}{left_out}.</p>')
    parts.append(_by_solver(name, compare_solvers(records)))
    # One click away: closed, so that a page of many suites is short.
    parts.append(f"<details><summary>All {len(records)} records of {name}</summary>")
    parts.append(_all_records(f"Records of {name}", records, spec.columns if spec is not None else ()))
    parts += ["</details>", _pictures(spec, records), "</section>"]
    return "".join(parts)


def _pictures(spec: BenchSpec | None, records: Sequence[Record]) -> str:
    try:
        own = spec.figures(records) if spec is not None and spec.figures is not None else ()
        return "".join(figure_element(figure) for figure in (*own, *standard_figures(records)))
    except MissingDependencyError as error:
        return f'<p class="note">No pictures: {escape(str(error))}</p>'


def _by_solver(suite: str, found: Comparison) -> str:
    rows = [
        (
            *(one.solver, one.records, one.verified, one.optimal, one.refused, one.failed, one.timed_out),
            *(None if one.gap is None else 100 * one.gap, None if one.worst_gap is None else 100 * one.worst_gap),
            *(one.seconds, one.processor_s, one.memory_mb, one.most_memory_mb),
        )
        for one in found.solvers
    ]
    header = (
        *("solver", "records", "verified", "optimal", "refused", "failed", "timed out", "gap %, mean", "gap %, worst"),
        *("seconds, mean", "processor s, mean", "MiB a solve, median", "MiB a solve, most"),
    )
    note = (
        f'<p class="note">Means are over the cases (instance, seed) that all compared solvers solved: gaps over '
        f"{found.gap_cases} of {found.cases}, seconds over {found.seconds_cases}, processor seconds over "
        f"{found.processor_cases}; a solver without bounds is compared by no gap. They are shifted geometric means (gap: shift "
        "1 %; seconds of the whole solve: shift 1 s, compiling left out of those of the wall clock but not of the "
        "processor's); the worst gap is that of all its own verified answers.</p>"
    )
    marks = [{"solver": one.solver} for one in found.solvers]
    return table(header, rows, caption=f"Solvers of {suite}", marks=marks) + note


def _all_records(caption: str, records: Sequence[Record], columns: Sequence[str]) -> str:
    header = (
        "instance", *columns, "solver", "seed", "termination", "objective", "bound", "gap %", TO_BEST, TO_BOUND, "claimed bound", "ratio",
        "whole s", "processor s", *(f"{phase} s" for phase in PHASES), "decision ms", "p99 ms", "verified", "memory MiB", "remark",
    )  # fmt: skip
    rows, known = [], best_known(records)
    for record in records:
        best = known.get(instance_of(record)) if record.verified else None
        own = [record.figure(name) for name in columns]
        decision = record.decision_ms or {}
        rows.append(
            (
                *(record.instance, *own, record.solver, record.seed, record.termination),
                *(record.objective, record.bound, record.gap_percent),
                *(best and best.to_best(record.objective), best and best.to_bound(record.objective)),
                *(record.counts.get("claimed_bound"), record.ratio),
                *(record.wall_s, record.processor_s),
                *(record.seconds.get(phase, 0.0) for phase in PHASES),
                *(decision.get("median"), decision.get("p99"), record.verified, record.memory_mb),
                record.error or "; ".join(record.violations) or record.message or foresight_of(record) or None,
            )
        )
    told = [k for k in range(len(header)) if any(row[k] is not None for row in rows)]  # what no row has is no column
    marks = [{"solver": record.solver, "instance": record.instance} for record in records]
    return table([header[k] for k in told], [[row[k] for k in told] for row in rows], caption=caption, marks=marks)


def _skipped(skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return ""
    rows = [(entry.suite, entry.instance, entry.solver, entry.reason) for entry in skipped]
    header = ("suite", "instance", "solver", "reason")
    return f"<section><h2>Left out</h2>{table(header, rows, 'prose', caption='Left out')}</section>"


def _provenance(records: Sequence[Record]) -> str:
    """Tell where and with what the records were made, each combination once."""
    rows: dict[tuple[str, ...], int] = {}
    for record in records:
        machine = ", ".join(f"{name} {value}" for name, value in record.machine.items())
        versions = ", ".join(f"{name} {value}" for name, value in record.versions.items())
        where = (machine, versions, record.commit or record.code)
        rows[where] = rows.get(where, 0) + 1
    body = [(*where, number) for where, number in rows.items()]
    header = ("machine", "versions", "code", "records")
    return f"<section><h2>Machine and versions</h2>{table(header, body, 'prose', caption='Machine and versions')}</section>"
