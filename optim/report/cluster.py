"""Plots and the HTML report of runs on a cluster."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.files import write_bytes
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog, Run
from optim.models.cluster.metrics import HOUR_US, Metrics, rho_of_apps
from optim.models.cluster.per_job import GROUPS, outcomes_of, wait_rows
from optim.models.cluster.policy_names import marked
from optim.models.cluster.recorded import distance, distance_line, recorded_remark, recorded_row
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.waiting import CAUSES, held_gpus, last_times, waiting
from optim.models.cluster.workload import Workload
from optim.report.page import figure_element, page, table
from optim.report.plots import INK, PALETTE, Figure, FigureList, legend_beside, name_rows
from optim.simulation.cluster.philly_study import StudyTable, philly_study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 400
"""Maximum number of points of a curve."""

SMALL = (6.6, 2.35)
"""Width and height in inches of a picture on the first screen."""

MAX_OTHERS = 4
"""Maximum number of policies, besides the first, whose numbers are on the first screen."""

MAX_GANTT_JOBS, MAX_GANTT_GPUS, MAX_GANTTS = 80, 64, 3
"""Maximum numbers of jobs and of GPUs in a Gantt chart, and maximum number of policies with such a chart."""

CAUSE_NAMES = {"over_quota": "virtual cluster at its quota",
               "fragmented": "enough free GPUs, but fragmented", "full": "too few free GPUs",
               "order": "fits, but waits for the policy's order"}  # fmt: skip

Bar = tuple[int, int, int, int]
"""A bar of a Gantt chart: row (GPU), begin and end in microseconds, and job."""


FIRST = 4
"""Number of pictures on the first screen."""


def cluster_figures(record: RunRecord) -> list[Figure]:
    """Return the pictures of a record's runs, beginning with those of the first screen."""
    gallery = FigureList()
    if record.runs:
        _held(gallery, record)
        _queue(gallery, record)
        _gang_waits(gallery, record)
        _causes(gallery, record)
        _completion(gallery, record)
        _fairness(gallery, record)
        _ratio(gallery, record)
        if len(record.jobs) <= MAX_GANTT_JOBS and record.cluster.num_gpus <= MAX_GANTT_GPUS:
            for run in record.runs[:MAX_GANTTS]:
                _gantt(gallery, record, run)
    return gallery


def run_of(jobs: Workload, run: LoggedRun) -> Run:
    """Return a run with the fields that pictures need, reconstructed from the run's logged events; other fields are 0."""
    log, count = run.log, len(jobs)
    start = np.flatnonzero(log.kind == Event.START)
    first, end = np.full(count, -1), last_times(log, count)
    first[log.job[start][::-1]] = log.time_us[start][::-1]
    nothing = np.zeros(count, np.int64)
    return Run(
        policy=run.policy, log=log, first_start_us=first, end_us=end, executed_us=nothing, overhead_us=nothing,
        lost_us=nothing,
        is_done=log.is_done(count), rules=run.rules, allocated_gpu_us=0.0, overhead_gpu_us=0.0,
    )  # fmt: skip


def _cdf(panel: "Axes", values: FloatArray, label: str, colour: str) -> None:
    """Draw the cumulative distribution of values."""
    share = np.linspace(0.0, 1.0, min(MAX_POINTS, len(values) + 1))
    panel.plot(np.quantile(values, share), share, color=colour, linewidth=1.3, label=label, drawstyle="steps-post")


def _completion(gallery: FigureList, record: RunRecord) -> None:
    caption = "Share of jobs completed within a time after submission. Further left is better."
    with gallery.picture("completion", "Completion times", caption, 7.5, 3.6) as (panel,):
        for run, colour in zip(record.runs, _colours(record), strict=True):
            whole = run_of(record.jobs, run)
            hours = (whole.end_us - record.jobs.submit_us)[whole.is_done] / HOUR_US
            _cdf(panel, np.maximum(hours, 1e-4), run.policy, colour)
        panel.set(xscale="log", xlabel="completion time [h]", ylabel="share of jobs", ylim=(0, 1))
        legend_beside(panel)


def _fairness(gallery: FigureList, record: RunRecord) -> None:
    caption = (
        "Finish-time fairness rho, at most 1 if sharing benefits the app. The reference time with an equal share has two "
        "definitions: all GPUs for a share of the time (as in Themis), or a share of the GPUs at all times, up to the gang."
    )
    with gallery.picture("fairness", "Finish-time fairness", caption, 10, 3.6, 1, 2) as panels:
        for run, colour in zip(record.runs, _colours(record), strict=True):
            whole = run_of(record.jobs, run)
            for panel, rho in zip(panels, rho_of_apps(record.jobs, record.cluster, whole), strict=True):
                _cdf(panel, np.maximum(rho, 1e-4), run.policy, colour)
        for panel, name in zip(panels, ("shared in time", "shared in space"), strict=True):
            panel.axvline(1, color=INK, linewidth=0.7, linestyle=":")
            panel.set(xscale="log", xlabel=f"rho, {name}", ylabel="share of apps", ylim=(0, 1))
        legend_beside(panels[-1])


def _ratio(gallery: FigureList, record: RunRecord) -> None:
    least = record.bounds.get("jct_mean_h")
    if not least:
        return
    caption = "Mean completion time relative to a proven lower bound for schedules of rigid jobs (1 is the bound)."
    ratios = [run.metrics.jct_mean_h / least for run in record.runs]
    with gallery.picture("ratio", "Ratio to the lower bound", caption, 7.5, 0.8 + 0.32 * len(ratios)) as (panel,):
        rows = range(len(ratios))[::-1]  # `name_rows` labels rows from the top
        panel.barh(rows, ratios, color=_colours(record), height=0.6)
        for row, ratio in zip(rows, ratios, strict=True):
            panel.annotate(f" {ratio:.3g}", (ratio, row), va="center", fontsize=8)
        panel.axvline(1, color=INK, linewidth=0.7, linestyle=":")
        panel.set(xscale="log", xlabel="mean completion time / lower bound")
        name_rows(panel, [run.policy for run in record.runs])


def _begin(record: RunRecord) -> datetime | None:
    """Return the date of time 0, None if the trace has no dates."""
    said = record.settings.get("begin")
    try:
        return datetime.fromisoformat(said) if isinstance(said, str) else None
    except ValueError:
        return None


def _curves(
    panel: "Axes", record: RunRecord, curve: "Callable[[LoggedRun], tuple[FloatArray, FloatArray]]", label: str
) -> None:
    """Draw a step function of time for each run, averaged over equal intervals; the axis shows dates if they are known."""
    begin = _begin(record)
    for run, colour in zip(record.runs, _colours(record), strict=True):
        hours, values = _averages(*curve(run))
        times: Any = hours if begin is None else [begin + timedelta(hours=float(hour)) for hour in hours]
        panel.plot(times, values, color=colour, linewidth=1.1, label=run.policy)
    if begin is not None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(maxticks=7)
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    panel.set(ylabel=label, xlabel="time [h]" if begin is None else "date (UTC)")
    legend_beside(panel)


def _held(gallery: FigureList, record: RunRecord) -> None:
    caption = "Allocated GPUs, averaged over equal time intervals."
    with gallery.picture("held", "Allocated GPUs", caption, *SMALL) as (panel,):
        gpus = record.cluster.num_gpus
        _curves(
            panel,
            record,
            lambda run: (run.log.time_us / HOUR_US, 100.0 * held_gpus(record.cluster, run.log) / gpus),
            "allocated GPUs [%]",
        )
        panel.set(ylim=(0, 102))


def _queue(gallery: FigureList, record: RunRecord) -> None:
    caption = "Waiting jobs, averaged over equal time intervals."

    def waiting_jobs(run: LoggedRun) -> tuple[FloatArray, FloatArray]:
        times, changes = _queue_changes(record.jobs, run.log)
        return times / HOUR_US, np.cumsum(changes).astype(float)

    with gallery.picture("queue", "Waiting jobs", caption, *SMALL) as (panel,):
        _curves(panel, record, waiting_jobs, "waiting jobs")
        panel.set(ylim=(0, None))


def _gang_waits(gallery: FigureList, record: RunRecord) -> None:
    caption = "Mean wait by requested GPUs, rounded up to a power of two; the whisker ends at the maximum."
    size = np.ceil(np.log2(record.jobs.gpus)).astype(int)
    sizes = np.unique(size)
    width = 0.8 / len(record.runs)
    with gallery.picture("gangs", "Waits by gang", caption, *SMALL) as (panel,):
        for number, (run, colour) in enumerate(zip(record.runs, _colours(record), strict=True)):
            hours = outcomes_of(record.jobs, record.cluster, run).wait_us / HOUR_US
            mean = np.array([hours[size == each].mean() for each in sizes])
            longest = np.array([hours[size == each].max() for each in sizes])
            left = np.arange(len(sizes)) + (number - (len(record.runs) - 1) / 2) * width
            panel.bar(left, mean, width, yerr=[np.zeros(len(sizes)), longest - mean], color=colour, label=run.policy,
                      error_kw={"elinewidth": 0.7, "ecolor": INK, "alpha": 0.6})  # fmt: skip
        panel.set(
            ylabel="wait [h]",
            xlabel="GPUs",
            xticks=range(len(sizes)),
            xticklabels=[str(2**each) for each in sizes.tolist()],
        )
        panel.set_yscale("symlog", linthresh=0.1)
        legend_beside(panel)


def _queue_changes(jobs: Workload, log: EventLog) -> tuple[IntArray, IntArray]:
    """Return times, and the change in the number of waiting jobs at each time."""
    is_start, is_stop = log.kind == Event.START, log.is_lost
    began = np.zeros(len(jobs), np.int64)
    np.add.at(began, log.job[is_start], 1)
    gone = np.flatnonzero(log.is_over & (log.kind != Event.END))
    order = np.argsort(log.job, kind="stable")
    before = np.full(len(log), -1)
    before[order[1:]] = np.where(log.job[order][1:] == log.job[order][:-1], log.kind[order][:-1], -1)
    waited = gone[before[gone] != Event.START]
    times = np.concatenate([jobs.submit_us, log.time_us[is_start], log.time_us[is_stop], log.time_us[waited]])
    changes = np.concatenate(
        [np.ones(len(jobs)), -np.ones(is_start.sum()), np.ones(is_stop.sum()), -np.ones(len(waited))]
    )
    by_time = np.argsort(times, kind="stable")
    return times[by_time], changes[by_time].astype(np.int64)


def _averages(times: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the averages of a step function over equal time intervals."""
    edges = np.linspace(0.0, float(times[-1]) or 1.0, MAX_POINTS + 1)
    marks, steps = np.concatenate([[0.0], times]), np.concatenate([[0.0], values])
    area = np.concatenate([[0.0], np.cumsum(steps[:-1] * np.diff(marks))])
    at = np.searchsorted(marks, edges, side="right") - 1
    total = area[at] + steps[at] * (edges - marks[at])
    return (edges[1:] + edges[:-1]) / 2, np.diff(total) / np.diff(edges)


def _causes(gallery: FigureList, record: RunRecord) -> None:
    runs = record.runs
    caption = "Waiting time by cause (the first that applies), as defined in the Philly study."
    if any(run.rules.knows_quotas for run in runs):
        caption += " Quotas are those of the policy: from its option, or in proportion to GPU-hours."
    shares = []
    for run in runs:
        spells = waiting(record.jobs, record.cluster, run.log, last_times(run.log, len(record.jobs)), run.rules)
        shares.append(100 * spells.shares())
    with gallery.picture("waiting", "Causes of waiting", caption, *SMALL) as (panel,):
        left = np.zeros(len(runs))
        for cause, colour in zip(range(len(CAUSES)), PALETTE, strict=False):
            part = np.array([share[cause] for share in shares])
            panel.barh(
                range(len(runs))[::-1], part, left=left, color=colour, height=0.6, label=CAUSE_NAMES[CAUSES[cause]]
            )
            left += part
        panel.set(xlabel="share of waiting time [%]", xlim=(0, 100))
        name_rows(panel, [run.policy for run in runs])
        legend_beside(panel)


def gantt_bars(cluster: Cluster, log: EventLog) -> list[Bar]:
    """Return the bars of a Gantt chart; if the log has no GPU numbers, each job uses the free GPUs with the lowest numbers."""
    first = np.concatenate([[0], np.cumsum(cluster.gpus)]).tolist()
    free = [set(range(first[machine], first[machine + 1])) for machine in range(cluster.num_machines)]
    held: dict[int, tuple[int, list[int]]] = {}
    bars: list[Bar] = []
    bounds = log.first.tolist()
    for event, (time, kind, job) in enumerate(
        zip(log.time_us.tolist(), log.kind.tolist(), log.job.tolist(), strict=True)
    ):
        if kind == Event.START:
            taken: list[int] = []
            for place in range(bounds[event], bounds[event + 1]):
                machine, slot = int(log.machine[place]), int(log.slot[place])
                chosen = [first[machine] + slot] if slot >= 0 else sorted(free[machine])[: int(log.gpus[place])]
                free[machine].difference_update(chosen)
                taken.extend(chosen)
            held[job] = time, taken
        elif job in held:
            begin, taken = held.pop(job)
            bars.extend((gpu, begin, time, job) for gpu in taken)
            for gpu in taken:
                free[int(np.searchsorted(first, gpu, side="right")) - 1].add(gpu)
    last = int(log.time_us[-1])
    bars.extend((gpu, begin, last, job) for job, (begin, taken) in held.items() for gpu in taken)
    return bars


def _gantt(gallery: FigureList, record: RunRecord, run: LoggedRun) -> None:
    caption = "One row per GPU, one colour per job with its name; lines separate machines."
    cluster, height = record.cluster, 1.0 + 0.16 * record.cluster.num_gpus
    with gallery.picture(f"gantt-{run.policy}", f"GPU allocations: {run.policy}", caption, 10, height) as (panel,):
        named: set[int] = set()
        for gpu, begin, end, job in sorted(gantt_bars(cluster, run.log)):
            panel.barh(gpu, (end - begin) / HOUR_US, left=begin / HOUR_US, height=0.86, color=PALETTE[job % len(PALETTE)],
                       edgecolor="none")  # fmt: skip
            if job not in named:
                named.add(job)
                panel.annotate(record.jobs.ids[job][:10], (begin / HOUR_US, gpu), va="center", fontsize=6, clip_on=True)
        for edge in np.cumsum(cluster.gpus)[:-1].tolist():
            panel.axhline(edge - 0.5, color=INK, linewidth=0.5)
        panel.set(xlabel="time [h]", ylabel="GPU", ylim=(cluster.num_gpus - 0.5, -0.5))
        panel.grid(visible=False)


def _colours(record: RunRecord) -> Sequence[str]:
    return [PALETTE[number % len(PALETTE)] for number in range(len(record.runs))]


def write_cluster_report(record: RunRecord, path: Path, *, has_study: bool = False) -> None:
    """Write the report of a record's runs to a file, atomically."""
    write_bytes(path, render_cluster(record, has_study=has_study).encode())


def render_cluster(record: RunRecord, *, has_study: bool = False) -> str:
    """Return the report as HTML: five key numbers, four pictures, skipped jobs, options, then all metrics and tables.

    Parameters
    ----------
    has_study
        Whether to include the tables of the Philly study for each run.
    """
    jobs, world = record.jobs, record.cluster
    said = (
        f"{len(jobs)} jobs, {jobs.gpu_hours:,.0f} GPU-hours, on {world.num_gpus} GPUs of {world.num_machines} machines"
    )
    if (begin := _begin(record)) is not None:
        last = begin + timedelta(microseconds=int(jobs.submit_us[-1]))
        said += f", submitted {begin:%Y-%m-%d} to {last:%Y-%m-%d}"
    body = ["<h1>Policies on a cluster</h1>", f'<p class="headline">{escape(said)}</p>']
    if jobs.missing:
        body.append(f'<p class="headline">Warning: {escape(jobs.missing)}</p>')
    if jobs.recorded.any() and record.runs:
        body.append(f"<p>{escape(distance_line(distance(jobs, record.runs[0])))}</p>")
        if remark := recorded_remark(jobs, world, record.bounds.get("jct_mean_h", 0.0)):
            body.append(f'<p class="headline">Warning: {escape(remark)}</p>')
    figures = cluster_figures(record)
    waits = [outcomes_of(jobs, world, run).wait_us for run in record.runs]
    if record.runs:
        body.append(_numbers(record, waits))
    if figures:
        body.append(f'<div class="four">{"".join(figure_element(figure) for figure in figures[:FIRST])}</div>')
    body.append("<h2>Input</h2>")
    texts = [text for text in (jobs.left_out, *jobs.notes) if text] or ["All rows of the trace are included."]
    body.extend(f"<p>{escape(text)}</p>" for text in texts)
    options = ", ".join(f"{name}={value}" for name, value in record.settings.items() if name != "keys")
    if options:
        body.append(f"<p>Options: {escape(options)}</p>")
    body.append("<h2>All metrics</h2>")
    body.append(_figures(record))
    body.extend(figure_element(figure) for figure in figures[FIRST:])
    for run, wait_us in zip(record.runs, waits, strict=True):
        body.extend(_waits(jobs, marked(run.policy, run.metrics.preemptions), wait_us))
    is_drawn = record.settings.get("failures") == "study"
    for run in record.runs if has_study else ():
        body.append(f"<h2>The Philly study under {escape(run.policy)}</h2>")
        body.extend(_study(philly_study(jobs, world, run, is_drawn=is_drawn)))
    return page("cluster", body)


def _numbers(record: RunRecord, waits: Sequence[FloatArray]) -> str:
    """Return five key numbers of the first policy, each above the values of up to `MAX_OTHERS` other policies."""
    least = record.bounds.get("jct_mean_h")
    metrics = [run.metrics for run in record.runs]
    rows = {
        "mean wait": [f"{each.wait_mean_h:.3g} h" for each in metrics],
        "longest wait": [f"{wait_us.max() / HOUR_US:.3g} h" for wait_us in waits],
        "mean completion": [f"{each.jct_mean_h:.3g} h" for each in metrics],
        "allocated GPUs": [f"{each.utilisation:.0%}" for each in metrics],
        "completion / lower bound": [f"{each.jct_mean_h / least:.3g}" if least else "-" for each in metrics],
    }
    tiles = []
    for name, values in rows.items():
        others = "".join(
            f"<br>{escape(marked(run.policy, run.metrics.preemptions))} {value}"
            for run, value in zip(record.runs[1 : 1 + MAX_OTHERS], values[1:], strict=False)
        )
        first = escape(marked(record.runs[0].policy, metrics[0].preemptions))
        tiles.append(f"<div><b>{values[0]}</b><span>{name}, {first}{others}</span></div>")
    return f'<div class="numbers">{"".join(tiles)}</div>'


def _waits(jobs: Workload, policy: str, wait_us: FloatArray) -> list[str]:
    """Return tables of the waiting times by user, account, partition and gang size."""
    parts = []
    for by in GROUPS:
        rows = wait_rows(jobs, wait_us, by)
        if rows:
            title = f"Waits by {by} under {policy}, hours"
            parts.append(f"<h3>{escape(title)}</h3>")
            parts.append(table(tuple(rows[0]), [list(row.values()) for row in rows], caption=title))
    return parts


def _figures(record: RunRecord) -> str:
    """Return a table with the bounds, the recorded schedule if known, and one row per policy."""
    names = [field.name for field in fields(Metrics)]
    least: list[object] = ["lower bound", *(record.bounds.get(name) for name in names)]
    rows = [[marked(run.policy, run.metrics.preemptions), *asdict(run.metrics).values()] for run in record.runs]
    if (recorded := recorded_row(record.jobs)) is not None:
        rows.insert(0, [recorded["policy"], *(recorded.get(name) for name in names)])
    caption = (
        "* stops running jobs, which requires checkpoints"
        if any(run.metrics.preemptions for run in record.runs)
        else ""
    )
    return table(("policy", *names), [least, *rows], caption=caption)


def _study(tables: Sequence[StudyTable]) -> list[str]:
    parts = []
    for each in tables:
        parts.append(f"<h3>{escape(each.title)}</h3>")
        if each.rows:
            parts.append(table(each.header, each.rows))
        if each.note:
            parts.append(f"<p>{escape(each.note)}</p>")
    return parts
