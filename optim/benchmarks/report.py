"""The report of a benchmark: one HTML page that needs nothing but itself."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TypeGuard

from optim.benchmarks.pictures.plots import standard_figures
from optim.benchmarks.record import PHASES, Record
from optim.benchmarks.registry import SUITES
from optim.benchmarks.spec import Figure, Skipped
from optim.benchmarks.statistics import shifted_geometric_mean
from optim.core.files import write_bytes
from optim.core.status import Termination

GAP_SHIFT = 0.01
"""Shift of the geometric mean of gaps: gaps far below one per cent count alike."""

SECONDS_SHIFT = 1.0
"""Shift of the geometric mean of seconds: differences far below a second count alike."""


def write_report(records: Sequence[Record], skipped: Sequence[Skipped], path: Path) -> None:
    """Write the page; it is whole or absent."""
    write_bytes(path, render(records, skipped).encode())


def render(records: Sequence[Record], skipped: Sequence[Skipped] = ()) -> str:
    """Return the page as HTML."""
    suites = list(dict.fromkeys(record.suite or "" for record in records))
    body = [f"<h1>Benchmark of {escape(', '.join(suites) or 'nothing')}</h1>", _headline(records)]
    for suite in suites:
        body += _suite(suite, [record for record in records if (record.suite or "") == suite])
    return page("benchmark", [*body, _skipped(skipped), _provenance(records)])


def page(title: str, body: Iterable[str]) -> str:
    """Return a page of HTML that needs nothing but itself."""
    style, script = (
        (files("optim.benchmarks") / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>optim: {title}</title><style>{style}</style></head>\n"
        f"<body>{''.join(body)}<script>{script}</script></body></html>\n"
    )


def figure_element(figure: Figure) -> str:
    """Return a picture with its title and caption."""
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>"
    return f"<figure><h3>{escape(figure.title)}</h3>{figure.svg}{caption}</figure>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "sortable") -> str:
    """Return a table; numbers are set to the right and sorted by value, texts are escaped.

    A `kind` of ``sortable`` can be sorted by a click on a column's head, ``prose`` lets texts wrap.
    """
    filled = [list(row) for row in rows]
    head = "".join(
        f"<th{' class=number' if any(_is_number(row[column]) for row in filled) else ''}>{escape(name)}</th>"
        for column, name in enumerate(header)
    )
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in filled)
    whole = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{whole}</table></div>'


def _cell(value: object) -> str:
    if value is None:
        return '<td class="none">&ndash;</td>'
    if isinstance(value, bool):
        return '<td class="yes">yes</td>' if value else '<td class="no">no</td>'
    if _is_number(value):
        return f'<td class="number" data-value="{value!r}">{value:.5g}</td>'
    return f"<td>{escape(str(value))}</td>"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _headline(records: Sequence[Record]) -> str:
    refused = sum(record.is_refused for record in records)
    failed = sum(record.error is not None for record in records)
    verified = sum(record.verified for record in records)
    state = "good" if verified == len(records) else "bad"
    text = f"{len(records)} records, {verified} verified"
    text += f", {refused} refused by the checker" if refused else ""
    text += f", {failed} failed" if failed else ""
    return f'<p class="headline {state}">{text}</p>'


def _suite(suite: str, records: Sequence[Record]) -> list[str]:
    specs = {spec.name: spec for spec in SUITES}
    spec = specs.get(suite)
    parts = [f"<h2>{escape(suite or 'single solves')}</h2>"]
    if spec is not None:
        parts.append(f"<p>{escape(spec.summary[:1].upper() + spec.summary[1:])}.</p>")
    parts.append(_by_solver(records))
    own = spec.figures(records) if spec is not None and spec.figures is not None else ()
    parts += [figure_element(figure) for figure in (*own, *standard_figures(records))]
    parts += ["<h3>All records</h3>", _all_records(records, spec.columns if spec is not None else ())]
    return parts


def _by_solver(records: Sequence[Record]) -> str:
    rows = []
    for name in sorted({record.solver for record in records}):
        mine = [record for record in records if record.solver == name]
        gaps = [max(record.gap, 0.0) for record in mine if record.gap is not None and record.verified]
        seconds = [record.run_s for record in mine if record.error is None]
        spent = [record.processor_s for record in mine if record.processor_s is not None]
        rows.append(
            (
                name,
                len(mine),
                sum(record.verified for record in mine),
                sum(record.termination == Termination.OPTIMAL and record.verified for record in mine),
                100 * shifted_geometric_mean(gaps, GAP_SHIFT) if gaps else None,
                100 * max(gaps) if gaps else None,
                shifted_geometric_mean(seconds, SECONDS_SHIFT) if seconds else None,
                shifted_geometric_mean(spent, SECONDS_SHIFT) if spent else None,
                max((record.memory_mb for record in mine if record.memory_mb is not None), default=None),
            )
        )
    header = (
        "solver",
        "records",
        "verified",
        "optimal",
        "gap %, mean",
        "gap %, worst",
        "seconds, mean",
        "processor seconds, mean",
        "memory MiB",
    )
    note = (
        '<p class="note">Means are shifted geometric means (gap: shift 1 %; seconds of the whole solve: shift 1 s, '
        "compiling left out of those of the wall clock but not of the processor's); gaps are those with a verified "
        "objective and bound; memory is that of the solve that took most.</p>"
    )
    return table(header, rows) + note


def _all_records(records: Sequence[Record], columns: Sequence[str]) -> str:
    header = (
        "instance", *columns, "solver", "seed", "termination", "objective", "bound", "gap %", "ratio",
        "whole s", "processor s", *(f"{phase} s" for phase in PHASES), "decision ms", "p99 ms", "verified", "memory MiB", "remark",
    )  # fmt: skip
    rows = []
    for record in records:
        own = [record.figure(name) for name in columns]
        decision = record.decision_ms or {}
        rows.append(
            (
                *(record.instance, *own, record.solver, record.seed, record.termination),
                *(record.objective, record.bound, record.gap_percent, record.ratio),
                *(record.wall_s, record.processor_s),
                *(record.seconds.get(phase, 0.0) for phase in PHASES),
                *(decision.get("median"), decision.get("p99"), record.verified, record.memory_mb),
                record.error or "; ".join(record.violations) or record.message,
            )
        )
    return table(header, rows)


def _skipped(skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return ""
    rows = [(entry.suite, entry.instance, entry.solver, entry.reason) for entry in skipped]
    return "<h2>Left out</h2>" + table(("suite", "instance", "solver", "reason"), rows, "prose")


def _provenance(records: Sequence[Record]) -> str:
    """Tell where and with what the records were made, each combination once."""
    rows: dict[tuple[str, ...], int] = {}
    for record in records:
        machine = ", ".join(f"{name} {value}" for name, value in record.machine.items())
        versions = ", ".join(f"{name} {value}" for name, value in record.versions.items())
        where = (machine, versions, record.commit or record.code)
        rows[where] = rows.get(where, 0) + 1
    body = [(*where, number) for where, number in rows.items()]
    return "<h2>Machine and versions</h2>" + table(("machine", "versions", "code", "records"), body, "prose")
