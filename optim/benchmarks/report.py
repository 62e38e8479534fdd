"""The report of a benchmark: one HTML page with plots and performance profiles."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optim.benchmarks.best_known import CERTIFIED, TO_BEST, TO_BOUND, best_known, instance_of
from optim.benchmarks.headline import headlines
from optim.benchmarks.records import PHASES, QUANTILES, Record
from optim.benchmarks.suite import SUITES, BenchSpec, Skipped
from optim.benchmarks.summary import (
    Comparison,
    case_of,
    certified_gap,
    common_figures,
    compare_solvers,
    foresight_of,
    performance_profile,
    shifted_geometric_mean,
    stopped_at_limits,
)
from optim.core.errors import MissingDependencyError
from optim.core.files import write_bytes
from optim.core.solution import Sense
from optim.models.catalogue import problem_named, problem_names
from optim.report.page import figure_element, page, table
from optim.report.plots import (
    INK,
    PALETTE,
    Figure,
    FigureList,
    legend_beside,
    name_rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Profile = Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]

Draw = Callable[["Axes", Profile, Mapping[str, str]], None]

MIN_PROFILE_SECONDS = 1e-3
"""Minimum time in profiles; ratios of shorter times are noise."""

_CAPTION = (
    "Objective: the height at x is the share of instances on which a solver is within a factor x of the best objective. An "
    "instance without a run of the solver counts as not solved."
)

_TIME = " Time: complete solve without compilation, on {count} with a solution from all {solvers} solvers."

_GAP = " Gap: proven gap, on {count} with a gap from all {solvers} solvers."


def draw_profiles(gallery: "FigureList", records: Sequence[Record], colours: Mapping[str, str]) -> None:
    """Draw for each solver the share of instances within a factor of the best objective and time, and within a gap."""
    verified = [record for record in records if record.verified]
    if len({record.solver for record in verified if _has_value(record)}) < 2:
        return
    by_objective = objective_profile(verified)
    caption = _CAPTION
    panels: list[tuple[Draw, Profile, str]] = [(draw_factors, by_objective, "factor of the best objective")]
    seconds, num_timed = common_figures(verified, _time_of)
    if num_timed:
        caption += _TIME.format(count=_instances(num_timed), solvers=len(seconds))
        panels.append((draw_factors, performance_profile(seconds), "factor of the shortest time"))
    gaps, num_bounded = common_figures(verified, certified_gap)
    if num_bounded:
        caption += _GAP.format(count=_instances(num_bounded), solvers=len(gaps))
        panels.append((_draw_gaps, gap_profile(gaps), "certified gap in per cent"))
    with gallery.picture("profile", "Performance profiles", caption, 11, 3.6, 1, len(panels)) as axes:
        for panel, (draw, profile, label) in zip(axes, panels, strict=True):
            draw(panel, profile, colours)
            panel.set(ylim=(0, 104))
            panel.set_xlabel(label, fontsize=9)
        axes[0].set_ylabel("per cent of instances")
        handles = {str(line.get_label()): line for panel in axes for line in panel.get_lines()}
        axes[0].figure.legend([*handles.values()], [*handles], loc="outside right upper")


def objective_profile(records: Sequence[Record]) -> Profile:
    """Return the profile of objectives over all cases of the records; at least one must have an objective.

    The cost of a maximised objective is its reciprocal. Cases without a positive objective are skipped.
    """
    costs: dict[str, dict[tuple[str, int, str], float]] = {}
    for record in records:
        if record.objective is not None and _has_value(record):
            is_cost = sense_of(record.problem) is Sense.MINIMISE
            cost = record.objective if is_cost else 1.0 / record.objective
            costs.setdefault(record.solver, {})[case_of(record)] = cost
    cases = sorted({case for mine in costs.values() for case in mine})
    return performance_profile({name: [costs[name].get(case) for case in cases] for name in sorted(costs)})


def gap_profile(gaps: Mapping[str, Sequence[float]]) -> Profile:
    """Return for each solver its gaps in per cent, ascending, and the shares of cases within them."""
    profile = {}
    for name, mine in gaps.items():
        reached, counts = np.unique(100.0 * np.asarray(mine, dtype=np.float64), return_counts=True)
        profile[name] = (reached, np.cumsum(counts) / len(mine))
    return profile


def _has_value(record: Record) -> bool:
    """Return whether a record's objective is positive, so that ratios are defined."""
    return record.objective is not None and record.objective > 0


def _time_of(record: Record) -> float | None:
    return None if record.error is not None or record.objective is None else max(record.run_s, MIN_PROFILE_SECONDS)


def sense_of(problem: str) -> Sense:
    """Return the sense of a problem's objective; MAXIMISE for the topic of a study."""
    return problem_named(problem).sense if problem in problem_names() else Sense.MAXIMISE


def _instances(count: int) -> str:
    return "one instance" if count == 1 else f"{count} instances"


def draw_factors(panel: "Axes", profile: Profile, colours: Mapping[str, str]) -> None:
    """Draw for each solver the share of cases within a factor of the least cost."""
    right = 1.05 * max(float(factors[-1]) for factors, _ in profile.values())
    for name, (factors, shares) in profile.items():
        _step(panel, np.append(factors, right), np.append(shares, shares[-1]), name, colours)
    panel.set(xscale="log", xlim=(1.0, right))
    if right < 10:  # wider axes show powers of ten
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("{x:g}")


def _draw_gaps(panel: "Axes", profile: Profile, colours: Mapping[str, str]) -> None:
    right = max(1.0, *(1.05 * float(gaps[-1]) for gaps, _ in profile.values()))
    for name, (gaps, shares) in profile.items():
        _step(panel, np.concatenate([[0.0], gaps, [right]]), np.concatenate([[0.0], shares, [1.0]]), name, colours)
    panel.set_xscale("symlog", linthresh=1.0)
    panel.set_xlim(0.0, right)


def _step(
    panel: "Axes", x: NDArray[np.float64], shares: NDArray[np.float64], name: str, colours: Mapping[str, str]
) -> None:
    panel.step(x, 100.0 * shares, where="post", color=colours[name], label=name, linewidth=1.8)


MAX_PANELS = 24
"""Maximum instances to draw; the table contains all."""

LONGEST_TITLE = 44
"""Maximum characters of a title above one of three panels."""

MIN_SECONDS = 1e-4
"""Left end of the axis of seconds; shorter times are noise."""

MIN_MS = 1e-4
"""Left end of the axis of milliseconds per decision."""

WIDEST_GAP = 1000.0
"""Right end of the axis of gaps in per cent; larger gaps carry no information."""

WHOLE = "complete solve"
"""Label of the seconds measured from outside."""


def standard_figures(records: Sequence[Record]) -> list[Figure]:
    """Return the pictures common to all suites, without those that have no data."""
    gallery = FigureList()
    for draw in (_values, _gaps, _profiles, _seconds, _decisions):
        draw(gallery, records)
    return gallery


def solvers_in(records: Iterable[Record]) -> list[str]:
    """Return the solvers of records, sorted."""
    return sorted({record.solver for record in records})


def colours_of(records: Iterable[Record]) -> dict[str, str]:
    """Return one colour per solver, equal in all pictures of a suite."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(solvers_in(records))}


def _cases(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by instance, seed and labels."""
    cases: dict[str, list[Record]] = {}
    several_seeds = len({record.seed for record in records}) > 1
    for record in records:
        marks = [f"seed {record.seed}"] if several_seeds else []
        marks += [f"{name} {value}" for name, value in sorted(record.labels.items())]
        cases.setdefault(", ".join([record.instance, *marks]), []).append(record)
    return cases


def _values(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw objectives as bars and bounds as ticks, in per cent of the best known value."""
    valued = [record for record in records if record.verified and (record.objective, record.bound) != (None, None)]
    cases = dict(list(_cases(valued).items())[:MAX_PANELS])
    if not cases:
        return
    colours, columns = colours_of(records), min(3, len(cases))
    rows, most = -(-len(cases) // columns), max(len(group) for group in cases.values())
    caption = (
        "Bars: the objective of each solver. Ticks: its proven bound, not drawn beyond 200 %. "
        "100 % is the best objective that any solver found on the instance."
    )
    with gallery.picture(
        "values", "Objective and bound", caption, 11, rows * (0.75 + 0.2 * most), rows, columns
    ) as panels:
        for panel, (title, group) in zip(panels, cases.items(), strict=False):
            better = min if sense_of(group[0].problem) is Sense.MINIMISE else max
            best = better([r.objective for r in group if r.objective is not None] or [r.bound or 0.0 for r in group])
            unit = 100.0 / best if best else 1.0
            for y, record in enumerate(reversed(group)):
                if record.objective is not None:
                    panel.barh(y, record.objective * unit, color=colours[record.solver], height=0.62)
                if record.bound is not None:
                    panel.plot(record.bound * unit, y, "|", color=INK, markersize=9, markeredgewidth=1.4)
            name_rows(panel, [record.solver for record in group])
            panel.set_title(shorten(title, LONGEST_TITLE, placeholder=" ..."), fontsize=9.5, loc="left")
            max_drawn = max(value or 0.0 for record in group for value in (record.objective, record.bound))
            panel.set_xlim(0, min(200.0, max(112.0, 1.04 * unit * max_drawn)))
            panel.grid(visible=False, axis="y")
        for panel in panels[len(cases) :]:
            panel.set_visible(False)
        panels[0].figure.supxlabel("per cent of the best objective found", fontsize=9)


def _gaps(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw the certified gaps of each solver, one dot per instance."""
    certified = [record for record in records if record.gap is not None and record.verified]
    if not certified:
        return
    names, colours = solvers_in(certified), colours_of(records)
    caption = (
        "One dot per instance; the tick is the median. Gap: (bound - objective) / |objective|, both verified. "
        f"Gaps above {WIDEST_GAP:g} % are drawn at the right end."
    )
    with gallery.picture("gaps", "Certified gap by solver", caption, 9, 0.8 + 0.32 * len(names)) as (panel,):
        for y, name in enumerate(reversed(names)):
            mine = [record.gap or 0.0 for record in certified if record.solver == name]
            gaps = np.clip(100.0 * np.array(mine), 0.0, WIDEST_GAP)
            panel.plot(gaps, np.full(len(gaps), y), "o", color=colours[name], alpha=0.75, markersize=6)
            panel.plot(np.median(gaps), y, "|", color=INK, markersize=15, markeredgewidth=1.8)
        name_rows(panel, names)
        panel.set_xscale("symlog", linthresh=1.0)
        panel.set_xlim(left=-0.1)
        panel.set_xlabel("certified gap in per cent (linear below 1 %, logarithmic above)")


def _profiles(gallery: FigureList, records: Sequence[Record]) -> None:
    draw_profiles(gallery, records, colours_of(records))


def _seconds(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw the shifted geometric mean of the complete solve and of each phase."""
    timed = [record for record in records if record.error is None]
    if not timed:
        return
    names = solvers_in(timed)
    caption = (
        "Complete solve: measured from outside, without compilation. Phases: as timed by the solver. "
        f"Means under {MIN_SECONDS:g} s are drawn at the left end."
    )
    with gallery.picture("seconds", "Seconds by phase", caption, 9, 0.9 + 0.32 * len(names)) as (panel,):
        for phase, colour, marker in zip((WHOLE, *PHASES), (INK, *PALETTE), "|^sod", strict=False):
            means = []
            for name in reversed(names):
                mine = [record for record in timed if record.solver == name]
                spent = [record.run_s if phase == WHOLE else record.seconds.get(phase, 0.0) for record in mine]
                means.append(max(shifted_geometric_mean(spent, shift=0.01), MIN_SECONDS))
            panel.plot(means, range(len(names)), marker, color=colour, label=phase, markersize=7, alpha=0.9)
        name_rows(panel, names)
        panel.set(xscale="log", xlabel="seconds, shifted geometric mean over instances (shift 0.01 s)")
        legend_beside(panel)


def _decisions(gallery: FigureList, records: Sequence[Record]) -> None:
    """Draw the distribution of decision times of online solvers, one curve per instance."""
    online = [(record.solver, record.decision_ms["quantiles"]) for record in records if record.decision_ms is not None]
    if not online:
        return
    colours = colours_of(records)
    with gallery.picture("decisions", "Decision times", "Online solvers only, one curve per instance.", 9, 3.4) as (
        panel,
    ):
        labelled: set[str] = set()
        for solver, quantiles in online:
            label = None if solver in labelled else solver
            labelled.add(solver)
            times = np.maximum(quantiles, MIN_MS)
            panel.plot(times, 100.0 * np.array(QUANTILES), color=colours[solver], label=label, alpha=0.7)
        panel.set(xscale="log", ylim=(0, 104), xlabel="milliseconds per decision", ylabel="per cent of decisions")
        legend_beside(panel)


WIDEST_OVERVIEW = 7.7
"""Width in inches of a picture that fills half the page, so that its text isn't scaled."""

NO_SUITE = "single solves"


def write_report(records: Sequence[Record], skipped: Sequence[Skipped], path: Path) -> None:
    """Write the report atomically."""
    write_bytes(path, render(records, skipped).encode())


def render(records: Sequence[Record], skipped: Sequence[Skipped] = ()) -> str:
    """Return the report as HTML; without matplotlib, a note replaces the pictures."""
    suites = list(dict.fromkeys(record.suite or "" for record in records))
    by_suite = {suite: [record for record in records if (record.suite or "") == suite] for suite in suites}
    named = ", ".join(suite or NO_SUITE for suite in suites) if len(suites) < 4 else f"{len(suites)} suites"
    title = f"Benchmark of {named or 'nothing'}"
    body = [f"<h1>{escape(title)}</h1>", _headline(records), _run_facts(records), _headline_table(records)]
    body += [_overview(records), _navigation(by_suite), _filters(records)]
    for number, (suite, mine) in enumerate(by_suite.items()):
        left_out = [entry for entry in skipped if entry.suite == suite]
        body.append(_suite(number, suite, mine, left_out))
    return page("benchmark", [*body, _skipped(skipped), _provenance(records)])


def _headline(records: Sequence[Record]) -> str:
    verified = sum(record.verified for record in records)
    state = "good" if verified == len(records) else "bad"
    return f'<p class="headline {state}">{_counts(records)}</p>'


def _run_facts(records: Sequence[Record]) -> str:
    """Return a line with version, commit, processor, date and processor time of the run."""
    if not records:
        return ""
    last = max(records, key=lambda record: record.finished)
    spent = sum(record.processor_s or 0.0 for record in records)
    commits = {record.commit or record.code for record in records}
    facts = (
        f"version {last.versions.get('mlcluster-optim', 'unknown')}",
        f"commit {(last.commit or last.code or 'unknown')[:12]}"
        + (f" and {len(commits) - 1} more" if len(commits) > 1 else ""),
        f"{last.machine.get('cpu', 'processor unknown')}, {last.machine.get('cpu_count', '?')} cores",
        last.finished[:10] or "date unknown",
        f"{spent:,.0f} s of processor time",
    )
    return f'<p class="note">{escape("; ".join(facts))}</p>'


def _headline_table(records: Sequence[Record]) -> str:
    """Return one row per headline: our solver, the baseline and the proven limit."""
    rows = [
        (
            one.suite,
            one.measure,
            one.cases,
            f"{one.ours:.4g} ({one.ours_by})",
            f"{one.baseline:.4g} ({one.baseline_by})",
            one.limit,
        )
        for one in headlines(records)
    ]
    header = ("problem", "measure, mean over cases", "cases", "ours", "baseline", "proven limit")
    return table(header, rows, "prose", caption="Headlines") if rows else ""


def _overview(records: Sequence[Record]) -> str:
    """Return small pictures for the first screen; none for a run of a single suite."""
    if len({record.suite for record in records}) < 2:
        return ""
    chosen = []
    try:
        for suite, draw in (("admission", _gaps), ("admission", _profiles), ("cluster", None)):
            mine = [record for record in records if record.suite == suite]
            figures, spec = FigureList(WIDEST_OVERVIEW), SUITES.find(suite)
            if draw is not None:
                draw(figures, mine)
            elif mine and spec is not None and spec.figures is not None:
                figures.extend(spec.figures(mine))
            chosen += [figure_element(replace(one, title=f"{suite}: {one.title}"), rank=2) for one in figures[:1]]
    except MissingDependencyError:
        return ""
    return f'<div class="overview">{"".join(chosen)}</div>' if chosen else ""


def _counts(records: Sequence[Record]) -> str:
    """Return the numbers of records: all, verified, refused, failed and ended by the time limit."""
    refused = sum(record.is_refused for record in records)
    failed = sum(record.error is not None for record in records)
    timed_out = sum(record.error is None and record.termination == "time_limit" for record in records)
    text = f"{len(records)} records, {sum(record.verified for record in records)} verified"
    text += f", {refused} refused by the checker" if refused else ""
    text += f", {failed} failed" if failed else ""
    return text + (f", {timed_out} ended by the time limit" if timed_out else "")


def _navigation(by_suite: dict[str, list[Record]]) -> str:
    """Return links to the suites, with the number of unverified records if there are any."""
    links = []
    for number, (suite, mine) in enumerate(by_suite.items()):
        bad = sum(not record.verified for record in mine)
        note = f' <span class="bad">{bad} bad</span>' if bad else f" <span>{len(mine)}</span>"
        links.append(f'<li><a href="#suite-{number}">{escape(suite or NO_SUITE)}{note}</a></li>')
    return f'<nav aria-label="Suites"><ul>{"".join(links)}</ul></nav>' if links else ""


def _filters(records: Sequence[Record]) -> str:
    """Return the form that filters all tables by solver and by part of the instance's name."""
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
    spec = SUITES.find(suite) if suite else None
    name = escape(suite or NO_SUITE)
    parts = [f'<section id="suite-{number}" aria-labelledby="name-{number}"><h2 id="name-{number}">{name}</h2>']
    if spec is not None:
        parts.append(f"<p>{escape(spec.summary[:1].upper() + spec.summary[1:])}.</p>")
    left_out = f", {len(skipped)} skipped (see below)" if skipped else ""
    parts.append(f'<p class="note">{_counts(records)}{left_out}.</p>')
    parts.extend(f'<p class="note">{escape(text)}.</p>' for text in stopped_at_limits(records))
    parts.append(_by_solver(name, compare_solvers(records)))
    # Closed by default, so that a page of many suites is short.
    parts.append(f"<details><summary>All {len(records)} records of {name}</summary>")
    parts.append(_all_records(f"Records of {name}", records, spec.columns if spec is not None else ()))
    parts += ["</details>", _pictures(spec, records), "</section>"]
    return "".join(parts)


def _pictures(spec: BenchSpec | None, records: Sequence[Record]) -> str:
    try:
        suite_figures = spec.figures(records) if spec is not None and spec.figures is not None else ()
        return "".join(figure_element(figure) for figure in (*suite_figures, *standard_figures(records)))
    except MissingDependencyError as error:
        return f'<p class="note">No pictures: {escape(str(error))}</p>'


def _by_solver(suite: str, comparison: Comparison) -> str:
    rows = [
        (
            *(one.solver, one.records, one.verified, one.optimal, one.refused, one.failed, one.timed_out),
            *(None if one.gap is None else 100 * one.gap, None if one.worst_gap is None else 100 * one.worst_gap),
            *(one.seconds, one.processor_s, one.memory_mb, one.max_memory_mb),
        )
        for one in comparison.solvers
    ]
    header = (
        *("solver", "records", "verified", "optimal", "refused", "failed", "timed out", "gap %, mean", "gap %, worst"),
        *("seconds, mean", "processor s, mean", "MiB per solve, median", "MiB per solve, max"),
    )
    note = (
        f'<p class="note">Means are shifted geometric means over the cases (instance, seed) that all compared solvers solved: '
        f"gaps over {comparison.gap_cases} of {comparison.cases}, seconds over {comparison.seconds_cases}, processor seconds "
        f"over {comparison.processor_cases}. A solver without bounds has no mean gap. The shift is 1 % for gaps and 1 s for "
        "seconds. Seconds exclude compilation, processor seconds include it. The worst gap is over all verified solutions of "
        "the solver.</p>"
    )
    marks = [{"solver": one.solver} for one in comparison.solvers]
    return table(header, rows, caption=f"Solvers of {suite}", marks=marks) + note


def _all_records(caption: str, records: Sequence[Record], columns: Sequence[str]) -> str:
    header = (
        "instance", *columns, "solver", "seed", "termination", "objective", "bound", "gap %", TO_BEST, TO_BOUND, "claimed bound", CERTIFIED,
        "wall s", "processor s", *(f"{phase} s" for phase in PHASES), "decision ms", "p99 ms", "verified", "memory MiB", "remark",
    )  # fmt: skip
    rows, known = [], best_known(records)
    for record in records:
        best = known.get(instance_of(record)) if record.verified else None
        extra_figures = [record.figure(name) for name in columns]
        decision = record.decision_ms or {}
        rows.append(
            (
                *(record.instance, *extra_figures, record.solver, record.seed, record.termination),
                *(record.objective, record.bound, record.gap_percent),
                *(best and best.to_best(record.objective), best and best.to_bound(record.objective)),
                *(record.counts.get("claimed_bound"), record.ratio),
                *(record.wall_s, record.processor_s),
                *(record.seconds.get(phase, 0.0) for phase in PHASES),
                *(decision.get("median"), decision.get("p99"), record.verified, record.memory_mb),
                record.error or "; ".join(record.violations) or record.message or foresight_of(record) or None,
            )
        )
    shown = [k for k in range(len(header)) if any(row[k] is not None for row in rows)]  # without empty columns
    marks = [{"solver": record.solver, "instance": record.instance} for record in records]
    return table([header[k] for k in shown], [[row[k] for k in shown] for row in rows], caption=caption, marks=marks)


def _skipped(skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return ""
    rows = [(entry.suite, entry.instance, entry.solver, entry.reason) for entry in skipped]
    header = ("suite", "instance", "solver", "reason")
    return f"<section><h2>Skipped</h2>{table(header, rows, 'prose', caption='Skipped')}</section>"


def _provenance(records: Sequence[Record]) -> str:
    """Return a table of the machines, versions and code of the records, one row per combination."""
    rows: dict[tuple[str, ...], int] = {}
    for record in records:
        machine = ", ".join(f"{name} {value}" for name, value in record.machine.items())
        versions = ", ".join(f"{name} {value}" for name, value in record.versions.items())
        where = (machine, versions, record.commit or record.code)
        rows[where] = rows.get(where, 0) + 1
    body = [(*where, number) for where, number in rows.items()]
    header = ("machine", "versions", "code", "records")
    return f"<section><h2>Machine and versions</h2>{table(header, body, 'prose', caption='Machine and versions')}</section>"
