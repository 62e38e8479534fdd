"""`optim simulate training`: train with real processes that start and are evicted as in a simulated spot market."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optim.cli.border import error_exit, listening
from optim.cli.commands import complete_policy
from optim.cli.inputs import PRICES, PriceChoice, load_or_generate_prices, split_time
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_json, print_rows, terminal_progress
from optim.cli.parameters import (
    MAX_PROCESSES,
    MAX_THINGS,
    FormatOption,
    SeedOption,
    check_out,
    grouped,
    option,
    split_list,
    split_options,
)
from optim.core.errors import InvalidOptionError
from optim.core.optional import check_installed

if TYPE_CHECKING:
    from optim.core.progress import Progress
    from optim.core.stopping import Interruption
    from optim.simulation.emulation.lease_run import ReplayOptions, TrainingRow, TrainingSummary
    from optim.simulation.emulation.timeline import Timeline

DEFAULT_POLICIES = ("proteus", "standard-checkpoint")
PICTURES = (".png", ".svg", ".pdf")
TYPES, SPIKES = 1, 12.0
REPLAY = "Processes"
CHANGE: Mapping[str, tuple[str, int | None]] = {
    "policy": ("policy", None), "hours": ("hours", 3), "event": ("event", None), "machines": ("machines", None),
    "processes": ("processes", None), "clock": ("clock", None), "loss": ("loss", None), "bill $": ("bill_usd", 2),
    "free hours": ("free_hours", 1), "lost clocks": ("lost_clocks", None),
}  # fmt: skip
"""Columns of the table of changes: heading, field and digits."""
WHOLE: Mapping[str, tuple[str, int | None]] = {
    "policy": ("policy", None), "hours": ("hours", 3), "done": ("is_done", None), "bill $": ("bill_usd", 2),
    "free hours": ("free_hours", 1), "evictions": ("evictions", None), "clocks": ("clocks", None),
    "lost clocks": ("lost_clocks", None), "gradients": ("gradients", None), "processes": ("processes_started", None),
    "last loss": ("last_loss", None), "exact": ("is_exact", None), "seconds": ("seconds", 1),
}  # fmt: skip
"""Columns of a policy's row: heading, field and digits."""


@dataclass(frozen=True, kw_only=True)
class ReplayChoice:
    """How simulated machines and hours become real processes and seconds."""

    clocks: Annotated[int, option("--clocks", "Training clocks of the job.", panel=REPLAY, min=1, max=MAX_THINGS)] = 120
    hour_seconds: Annotated[
        float, option("--hour-seconds", "Minimum real seconds per simulated hour.", "S", REPLAY)
    ] = 1.0
    max_processes: Annotated[
        int,
        option("--max-processes", "Maximum number of concurrent processes.", panel=REPLAY, min=1, max=MAX_PROCESSES),
    ] = 8
    warning: Annotated[
        bool, option("--warning/--no-warning", "Warn processes before eviction, or kill them.", panel=REPLAY)
    ] = True


@grouped
def training(
    *,
    prices: PriceChoice,
    types: Annotated[int, option("--types", "Instance types of generated prices.", "N", PRICES)] = TYPES,
    spikes: Annotated[float, option("--spikes", "Price spikes per day in generated markets.", "N", PRICES)] = SPIKES,
    policy: Annotated[
        list[str] | None,
        option(
            "--policy",
            "Policies; repeatable; default: proteus, standard-checkpoint.",
            "NAME",
            autocompletion=complete_policy("spot"),
        ),
    ] = None,
    job_hours: Annotated[float, option("--job-hours", "Hours of the job without interruptions.", "H")] = 12.0,
    start: Annotated[int, option("--start", "Index of a start of simulate spot (same seed).", "N", min=0)] = 0,
    settings: Annotated[list[str] | None, option("--option", "An option of the job; repeatable.", "NAME=VALUE")] = None,
    choice: ReplayChoice,
    picture: Annotated[Path | None, option("--picture", "Plot to write (.png, .svg or .pdf).", "FILE")] = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Train during a simulated start, and print loss, bill and free hours over time for each policy.

    Each process represents several machines that the policy rents; an eviction stops or kills it.
    Exit code 3 if a job's result differs in any bit from that of an undisturbed run.
    """
    from optim.core.options import build_options
    from optim.simulation.emulation.lease_run import ReplayOptions
    from optim.simulation.emulation.timeline import record_start
    from optim.simulation.spot.backtest import make_world
    from optim.simulation.spot.policy import SpotOptions
    from optim.workloads.prices.price_generator import PriceOptions

    _check_picture(picture)
    replay = ReplayOptions(
        clocks=choice.clocks,
        hour_s=choice.hour_seconds,
        max_processes=choice.max_processes,
        is_warned=choice.warning,
        seed=seed,
    )
    job = build_options(SpotOptions, {"job_hours": job_hours, **split_options(settings)})
    if prices.prices is not None and (types, spikes) != (TYPES, SPIKES):
        raise InvalidOptionError("--types and --spikes require generated prices; omit them, or --prices")
    drawn = PriceOptions(num_types=types, spikes_per_day=spikes)
    history = load_or_generate_prices(prices, drawn, seed)
    world = make_world(history, split_time(prices.train_until), job, volatile=prices.volatile)
    timelines = record_start(world, split_list(policy) or DEFAULT_POLICIES, seed, start)
    with (
        terminal_progress() as progress,
        listening("the processes end, and finished rows will be printed") as interruption,
    ):
        rows, summaries = _play(timelines, replay, interruption, progress, output)
    if output is OutputFormat.TABLE:
        _print(rows, summaries)
    if picture is not None and rows:
        _draw(rows, picture)
    if interruption.is_requested:
        return ExitCode.INTERRUPTED
    if any(summary.is_exact is False for summary in summaries):
        return error_exit("a job's result differs from that of an undisturbed run", ExitCode.REFUSED)
    return ExitCode.DONE if all(summary.is_done for summary in summaries) else ExitCode.NOTHING


def _check_picture(path: Path | None) -> None:
    """Check before the training that the plot can be drawn and written."""
    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise InvalidOptionError(f"--picture must end in {', '.join(PICTURES)}, got {path.name}")
    check_out(path)
    check_installed("matplotlib", "--picture")


def _play(
    timelines: "Sequence[Timeline]",
    options: "ReplayOptions",
    interruption: "Interruption",
    progress: "Progress",
    output: OutputFormat,
) -> "tuple[list[TrainingRow], list[TrainingSummary]]":
    """Run one policy after the other, and print rows as they finish."""
    from optim.simulation.emulation.lease_run import Replay, fit_scale, with_lateness

    scale = fit_scale(timelines, options.max_processes)
    info(f"a process represents the work of at most {scale} c3.xlarge; clocks are simulated, seconds are real")
    rows: list[TrainingRow] = []
    summaries: list[TrainingSummary] = []
    for timeline in timelines:
        replay = Replay(timeline, scale, options, is_stopped=lambda: interruption.is_requested)
        progress.start(f"{timeline.policy}: clocks", options.clocks)
        with closing(replay.rows()) as coming:
            for row in coming:
                rows.append(row)
                progress.update(row.clock, {"hours": row.hours, "loss": row.loss, "bill": row.bill_usd})
                if output is OutputFormat.JSON:
                    print_json(row)
        progress.finish()
        summaries.append(with_lateness(replay.summary(), rows, options.hour_s))
        _print_lateness(summaries[-1], options.hour_s)
        if output is OutputFormat.JSON:
            print_json(summaries[-1])
        if interruption.is_requested:
            break
    return rows, summaries


def _print_lateness(summary: "TrainingSummary", hour_s: float) -> None:
    """Print the deviation of realised from simulated clocks, and its cost."""
    if summary.late_end is None:
        return
    info(
        f"{summary.policy}: time scale: an hour runs in {hour_s:g} s; clocks deviate from the simulation by {summary.late_median:.1%} of "
        f"the job's time (median), {summary.late_p90:.1%} (p90), the last by {summary.late_end:+.1%}; the realised time would cost "
        f"{summary.bill_if_late_usd:.2f} instead of {summary.bill_usd:.2f} USD"
    )


def _print(rows: "Sequence[TrainingRow]", summaries: "Sequence[TrainingSummary]") -> None:
    """Print the changes, and one row per policy."""
    from optim.simulation.emulation.lease_run import CLOCK

    table = OutputFormat.TABLE
    changes = [_shown(row, CHANGE) for row in rows if row.event != CLOCK]
    print_rows(changes, table, list(CHANGE), title="changes by simulated hour")
    print_rows([_shown(summary, WHOLE) for summary in summaries], table, list(WHOLE), title="totals")


def _shown(row: "TrainingRow | TrainingSummary", columns: Mapping[str, tuple[str, int | None]]) -> dict[str, object]:
    """Return the fields of a row by column heading, rounded to the column's digits."""
    values = {head: (getattr(row, name), digits) for head, (name, digits) in columns.items()}
    return {head: value if digits is None else round(value, digits) for head, (value, digits) in values.items()}


def _draw(rows: "Sequence[TrainingRow]", path: Path) -> None:
    from optim.report.training import draw_replays

    draw_replays(rows, path)
    info(f"plot written to {path}")
