"""`optim containers`: recommend requests and limits of containers, and report idle GPUs."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optim.cli.border import listening
from optim.cli.inputs import SERIES, JobChoice, SeriesChoice, load_or_generate_jobs, load_or_generate_series
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_document, print_json, print_rows, print_table, terminal_progress
from optim.cli.parameters import FORMATS, FormatOption, SeedOption, grouped, option, split_list, split_options
from optim.core.errors import InvalidOptionError
from optim.core.files import prepare_folder, write_bytes

if TYPE_CHECKING:
    from optim.models.containers.gpu_use import IdleOptions, JobUse, UseRow
    from optim.models.containers.series import ContainerSeries
    from optim.simulation.cluster.reclaim import Queue

app = typer.Typer(
    name="containers", help="Recommend container requests and limits, and report idle GPUs.", no_args_is_help=True
)
BLOCK = 100
"""Number of containers processed at a time."""
REQUIRED = frozenset({"kills", "throttled"})
"""Requirements that recommendations support."""


class Form(StrEnum):
    """Format of recommendations."""

    JSON = "json"
    YAML = "yaml"


@app.callback()
def containers() -> None:
    """Recommend container requests and limits, and report idle GPUs."""


@app.command("recommend")
@grouped
def recommend(
    *,
    files: SeriesChoice,
    form: Annotated[Form, option("--format", "json (one object), or yaml (patches for kubectl).")] = Form.JSON,
    out: Annotated[Path | None, option("--out", "Write here instead of stdout.", "FILE")] = None,
    require: Annotated[
        list[str] | None,
        option("--require", "Allowed share of cycles (kills) or samples (throttled); repeatable.", "NAME=VALUE"),
    ] = None,
    cycle_minutes: Annotated[float, option("--cycle-minutes", "Validity of a recommendation in minutes.", "M")] = 60.0,
    interval_s: Annotated[
        float, option("--interval,--interval-s", "Sampling interval in seconds.", "S", SERIES)
    ] = 15.0,
    max_gap_s: Annotated[
        float,
        option("--max-gap,--max-gap-s", "Longest gap in seconds that is filled with the last sample.", "S", SERIES),
    ] = 60.0,
    seed: SeedOption = 0,
) -> ExitCode:
    """Recommend requests and limits for the next cycle of each container, from the usage of similar containers."""
    from optim.core.options import build_options
    from optim.rightsizing.recommendation import Recommender, RecommendOptions, as_json, as_yaml, recommend_blocks
    from optim.rightsizing.tuning import Slo

    required = split_options(require, "--require")
    wanted = build_options(Slo, required)
    for name in required:
        if name not in REQUIRED:
            raise InvalidOptionError(
                f"recommendations are tuned only to kills and throttled, not {name}; omit --require {name}"
            )
    options = RecommendOptions(
        cycle_s=60.0 * cycle_minutes,
        interval_s=interval_s,
        max_gap_s=max_gap_s,
        requirement=wanted,
    )
    if out is not None:
        prepare_folder(out)
    series = load_or_generate_series(files, files.generate, seed, interval_s=interval_s)
    recommender = Recommender(series, options, seed)
    info(recommender.promise())
    found = list(recommend_blocks(recommender, _blocks(series)))
    for warning in recommender.warnings(found):
        info(f"warning: {warning}")
    text = (as_json if form is Form.JSON else as_yaml)(found, recommender)
    if out is None:
        print_document(text, is_json=form is Form.JSON)
    else:
        write_bytes(out, text.encode())
        info(f"recommendations for {len(found)} containers written to {out}")
    return ExitCode.DONE


def _blocks(series: "ContainerSeries") -> Iterator["ContainerSeries"]:
    """Yield the series of `BLOCK` containers at a time."""
    import numpy as np

    number = series.container_index
    for begin in range(0, int(number[-1]) + 1, BLOCK):
        yield series.select(np.flatnonzero((number >= begin) & (number < begin + BLOCK)))


QUEUE = "Queue"
"""Help panel of the queue in which reclaiming is simulated."""


@dataclass(frozen=True, kw_only=True)
class QueueChoice:
    """The queue of jobs that reclaimed GPUs would serve."""

    gpus: Annotated[
        str | None,
        option("--gpus", "Cluster in which the jobs queue: machines x GPUs, or a topology file.", "60x8", QUEUE),
    ] = None
    trace: Annotated[
        Path | None,
        option(
            "--trace",
            "Trace of all submitted jobs, with the job names of the series; default: jobs of the series.",
            "FILE",
            QUEUE,
        ),
    ] = None
    trace_format: Annotated[str | None, option("--trace-format", FORMATS, "NAME", QUEUE)] = None
    policy: Annotated[
        str | None, option("--policy", "Scheduling policy; default: fifo with backfill.", "NAME", QUEUE)
    ] = None
    settings: Annotated[
        list[str] | None,
        option("--option", "Option of simulator, policy or trace, as in simulate cluster.", "NAME=VALUE", QUEUE),
    ] = None

    def load(self, uses: "list[JobUse]", seed: int) -> "Queue | None":
        """Return the queue, None without ``--gpus``.

        Raises
        ------
        InvalidOptionError
            If other options of the queue are given without ``--gpus``.
        """
        from optim.cli.inputs import take
        from optim.simulation.cluster.comparison import split_settings
        from optim.simulation.cluster.reclaim import Queue, jobs_of_uses, matched
        from optim.workloads.cluster.topology import read_cluster

        if self.gpus is None:
            for flag, value in (("--trace", self.trace), ("--policy", self.policy), ("--option", self.settings)):
                if value:
                    raise InvalidOptionError(f"{flag} requires --gpus, the cluster that jobs queue for; add it")
            return None
        world = read_cluster(self.gpus)
        given = split_options(self.settings)
        own = take(given, "trace.")
        name = self.policy or "fifo"
        options, requests = split_settings(
            given if self.policy else split_options(["fifo.backfill=true"]) | given, [name]
        )
        if self.trace is None:
            if self.trace_format is not None or own:
                raise InvalidOptionError("--trace-format and --option trace.NAME require --trace FILE; add it")
            jobs = jobs_of_uses(uses)
            info(
                "the queue contains only jobs of the series, submitted when they first held a GPU; --trace FILE gives all jobs"
            )
        else:
            choice = JobChoice(trace=self.trace, trace_format=self.trace_format)
            jobs = load_or_generate_jobs(choice, world, {}, {"trace": own, "generate": {}}, seed)
            found = len(matched(jobs, uses))
            info(
                f"{found} of the {len(jobs)} jobs in the trace have the name of a job in the series ({len(uses)} jobs)"
            )
            if not found:
                raise InvalidOptionError(
                    "--trace: no job has the name of a job in the series; use names of pods, or of hpc_job"
                )
        jobs.check_fits(world)
        return Queue(jobs=jobs, cluster=world, request=requests[0], options=options, seed=seed)


@app.command("idle")
@grouped
def idle(
    *,
    input_: Annotated[
        Path,
        option("--input", "Prometheus response for DCGM_FI_DEV_GPU_UTIL (.json), or a CSV file.", "FILE", SERIES),
    ],
    below: Annotated[
        list[str] | None,
        option(
            "--below", "Utilisation in % below which a GPU is idle; reclaiming uses the first value (default 5).", "P,P"
        ),
    ] = None,
    after: Annotated[
        list[str] | None, option("--after", "Idle minutes before reclaiming (default 30,60,240).", "M,M")
    ] = None,
    by: Annotated[
        list[str] | None, option("--by", "Group by user, namespace or job (default: all known).", "NAME")
    ] = None,
    top: Annotated[int, option("--top", "Maximum rows per table; JSON contains all.", min=1, max=100_000)] = 10,
    max_gap_s: Annotated[
        float | None,
        option(
            "--max-gap,--max-gap-s",
            "Longest time in seconds for which a sample counts (default: 300, or 2 steps if longer).",
            "S",
            SERIES,
        ),
    ] = None,
    queue: QueueChoice,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Report allocated and idle GPU-hours by user, namespace and job, and the GPU-hours that reclaiming would free."""
    from optim.models.containers.gpu_use import IdleOptions, job_uses, total_row, use_rows
    from optim.simulation.cluster.reclaim import reclaim_rows
    from optim.workloads.containers.gpu_series import read_gpu_use

    given = {"below": _numbers(below, "--below"), "after_min": _numbers(after, "--after"), "max_gap_s": max_gap_s}
    options = IdleOptions(**{name: value for name, value in given.items() if value not in ((), None)})  # type: ignore[arg-type]
    with terminal_progress() as progress, listening("finished rows will be printed") as interruption:
        uses, remarks = read_gpu_use(input_, options, progress)
        for remark in remarks:
            info(remark)
        jobs = job_uses(uses)
        columns = split_list(by) or [
            name for name in ("user", "namespace", "job") if any(getattr(who, name) for who, _ in uses)
        ]
        tables = {name: use_rows(uses, name) for name in columns}
        rows = reclaim_rows(jobs, options.after_min, queue.load(jobs, seed), interruption, progress)
    held = [(who, use) for who, use in uses if not who.is_free]
    free_h = sum(use.held_s for who, use in uses if who.is_free) / 3600
    total = total_row(held, "all") if held else None
    if output is OutputFormat.JSON:
        print_json({"total": total, "free_gpu_h": free_h, "below": options.below, "remarks": remarks})
        for name, group in tables.items():
            for row in group:
                print_json({"by": name} | asdict(row))
        print_rows(rows, output)
    else:
        for name, group in tables.items():
            _print_use(
                name,
                group[:top],
                options,
                f"{len(group)} by {name}, the {top} with most idle GPU-hours" if len(group) > top else "",
            )
        _print_use("all", [total] if total else [], options, f"unallocated: {free_h:.1f} GPU-hours")
        shown = [name for name in RECLAIM if rows and getattr(rows[0], name) is not None]
        title = f"reclaiming a job's GPUs after all were below {options.below[0]:g} % for after_min minutes"
        print_rows(rows, output, shown, title=title)
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE


RECLAIM = (
    *("after_min", "freed_gpu_h", "jobs_reclaimed", "returns", "wait_held_h", "wait_mean_h"),
    *("wait_others_held_h", "wait_others_h"),
)
"""Columns of the table on reclaiming."""


def _print_use(name: str, rows: "list[UseRow]", options: "IdleOptions", title: str) -> None:
    """Print allocated and idle GPU-hours."""
    header = (
        name,
        "gpus",
        "held_h",
        *(f"idle_h <{below:g}%" for below in options.below),
        "idle %",
        "mean %",
        "longest_idle_h",
    )
    body = [
        (
            row.name or "(unknown)",
            row.gpus,
            row.held_h,
            *row.idle_h,
            100 * row.idle_share,
            row.utilisation,
            row.longest_idle_h,
        )
        for row in rows
    ]
    print_table(header, body, title=title or None)


def _numbers(texts: list[str] | None, flag: str) -> tuple[float, ...]:
    """Parse an option that takes several numbers."""
    values = []
    for text in split_list(texts):
        try:
            values.append(float(text))
        except ValueError:
            raise InvalidOptionError(f"{flag} must be numbers, got {text[:40]!r}") from None
    return tuple(values)
