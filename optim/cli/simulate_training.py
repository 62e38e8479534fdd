"""`optim simulate training`: a job trained by real processes that come and are evicted as a policy bids."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optim.cli.border import fail, note
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_json, print_table
from optim.cli.parameters import FormatOption, SeedOption, split_list, split_options
from optim.cli.price_source import read_or_draw, split_time
from optim.cli.progress import terminal_progress
from optim.core.errors import InvalidOptionError

if TYPE_CHECKING:
    from optim.core.progress import Progress
    from optim.core.stopping import Interruption
    from optim.simulation.live.lease_rows import TrainingRow, TrainingSummary
    from optim.simulation.live.lease_run import ReplayOptions
    from optim.simulation.live.timeline import Timeline

DEFAULT_POLICIES = ("proteus", "standard-checkpoint")
PICTURES = (".png", ".svg", ".pdf")
PRICES, REPLAY = "Prices", "Processes"


def training(
    *,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", metavar="FILE", help="CSV, or Amazon's JSON; else generated.", rich_help_panel=PRICES),
    ] = None,
    on_demand: Annotated[
        Path | None,
        typer.Option("--on-demand", metavar="FILE", help="On-demand prices by type.", rich_help_panel=PRICES),
    ] = None,
    train_until: Annotated[
        str | None,
        typer.Option("--train-until", metavar="DATE", help="Policies know prices before it.", rich_help_panel=PRICES),
    ] = None,
    types: Annotated[
        int, typer.Option("--types", metavar="N", help="Instance types of generated prices.", rich_help_panel=PRICES)
    ] = 1,
    spikes: Annotated[
        float,
        typer.Option("--spikes", metavar="N", help="A day, of a generated market's price.", rich_help_panel=PRICES),
    ] = 12.0,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="NAME", help="Repeat for several; default: proteus, standard-checkpoint."),
    ] = None,
    job_hours: Annotated[float, typer.Option("--job-hours", metavar="H", help="Size of the job.")] = 12.0,
    start: Annotated[
        int, typer.Option("--start", metavar="N", min=0, help="Which of the back-test's starts of this seed.")
    ] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the job; repeat for several."),
    ] = None,
    clocks: Annotated[
        int, typer.Option("--clocks", min=1, help="Clocks of training in the job.", rich_help_panel=REPLAY)
    ] = 120,
    hour_seconds: Annotated[
        float,
        typer.Option("--hour-seconds", metavar="S", help="What an hour lasts here, at least.", rich_help_panel=REPLAY),
    ] = 1.0,
    max_processes: Annotated[
        int, typer.Option("--max-processes", min=1, help="Most processes at once.", rich_help_panel=REPLAY)
    ] = 8,
    warning: Annotated[
        bool,
        typer.Option("--warning/--no-warning", help="Without: evicted processes are killed.", rich_help_panel=REPLAY),
    ] = True,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw it: .png, .svg or .pdf.")
    ] = None,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Train through a simulated start: loss, bill and free hours over time, for each policy.

    Each process stands for some of the machines that the policy holds; evictions end or kill it. Exit code 3 if a job's
    result isn't that of an undisturbed run, bit for bit.
    """
    from optim.core.options import build_options
    from optim.simulation.live.lease_run import ReplayOptions
    from optim.simulation.live.timeline import record_start
    from optim.simulation.spot.backtest import make_world
    from optim.simulation.spot.options import SpotOptions
    from optim.workloads.bidding.price_generator import PriceOptions

    _check_picture(picture)
    replay = ReplayOptions(
        clocks=clocks, hour_s=hour_seconds, max_processes=max_processes, is_warned=warning, seed=seed
    )
    job = build_options(SpotOptions, {"job_hours": job_hours, **split_options(option)})
    drawn = PriceOptions(num_types=types, spikes_per_day=spikes)
    world = make_world(read_or_draw(prices, on_demand, drawn, seed), split_time(train_until), job)
    timelines = record_start(world, split_list(policy) or DEFAULT_POLICIES, seed, start)
    with terminal_progress() as progress, listening("the processes end; what is done is told") as interruption:
        rows, summaries = _play(timelines, replay, interruption, progress, output)
    if output is OutputFormat.TABLE:
        _print(rows, summaries)
    if picture is not None and rows:
        _draw(rows, picture)
    if interruption.is_requested:
        return ExitCode.INTERRUPTED
    if any(summary.is_exact is False for summary in summaries):
        return fail("a job's result differs from that of an undisturbed run", ExitCode.REFUSED)
    return ExitCode.DONE if all(summary.is_done for summary in summaries) else ExitCode.NOTHING


def _check_picture(path: Path | None) -> None:
    """Refuse before the work what can't be written after it."""
    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise InvalidOptionError(f"--picture writes {', '.join(PICTURES)}, got {path.name}; name it so")
    if not path.absolute().parent.is_dir():
        raise InvalidOptionError(f"--picture {path}: there is no folder {path.parent}; make it first")


def _play(
    timelines: "Sequence[Timeline]",
    options: "ReplayOptions",
    interruption: "Interruption",
    progress: "Progress",
    output: OutputFormat,
) -> "tuple[list[TrainingRow], list[TrainingSummary]]":
    """Play one policy after the other, and print rows as they come."""
    from optim.simulation.live.lease_run import Replay
    from optim.simulation.live.process_scale import fit_scale

    scale = fit_scale(timelines, options.max_processes)
    note(
        f"one process stands for {scale} c3.xlarge's work, at most; clocks are the simulation's, seconds this machine's"
    )
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
        summaries.append(replay.summary())
        if output is OutputFormat.JSON:
            print_json(summaries[-1])
        if interruption.is_requested:
            break
    return rows, summaries


def _print(rows: "Sequence[TrainingRow]", summaries: "Sequence[TrainingSummary]") -> None:
    """Print what changed, and a line a policy."""
    from optim.simulation.live.lease_rows import CLOCK

    header = (
        "policy",
        "hours",
        "event",
        "machines",
        "processes",
        "clock",
        "loss",
        "bill $",
        "free hours",
        "lost clocks",
    )
    changes = [row for row in rows if row.event != CLOCK]
    print_table(
        header,
        [
            (
                row.policy,
                round(row.hours, 3),
                row.event,
                row.machines,
                row.processes,
                row.clock,
                row.loss,
                round(row.bill_usd, 2),
                round(row.free_hours, 1),
                row.lost_clocks,
            )
            for row in changes
        ],
        title="what changed, by the hours of the simulation",
    )
    totals = ("policy", "hours", "done", "bill $", "free hours", "evictions", "clocks", "lost clocks", "gradients",
              "processes", "last loss", "exact", "seconds")  # fmt: skip
    print_table(
        totals,
        [
            (
                summary.policy,
                round(summary.hours, 3),
                summary.is_done,
                round(summary.bill_usd, 2),
                round(summary.free_hours, 1),
                summary.evictions,
                summary.clocks,
                summary.lost_clocks,
                summary.gradients,
                summary.processes_started,
                summary.last_loss,
                summary.is_exact,
                round(summary.seconds, 1),
            )
            for summary in summaries
        ],
        title="the whole of it",
    )


def _draw(rows: "Sequence[TrainingRow]", path: Path) -> None:
    from optim.benchmarks.pictures.training import draw_replays

    draw_replays(rows, path)
    note(f"drawn to {path}")
