"""`optim simulate spot`: training jobs on spot markets, policy by policy, from random starts."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optim.cli.border import note
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
    from optim.simulation.spot.backtest import StartRows
    from optim.simulation.spot.rows import Row, Summary

DEFAULT_POLICIES = (
    "on-demand",
    "standard",
    "standard-checkpoint",
    "standard-agile",
    "bidbrain-checkpoint",
    "proteus",
    "oracle-paid",
)
DEADLINE_DEFAULT = ("uniform-progress", "greedy-spot", "on-demand")
PRICES, DEADLINES = "Bidding era: price history", "Today: availability and a deadline"
SHOWN = ("cost_usd", "hours", "cost_per_work", "free_hours", "evictions", "ratio_to_on_demand", "ratio_to_oracle_paid")


def spot(
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
    availability: Annotated[
        Path | None,
        typer.Option("--availability", metavar="FILE", help="Availability by zone.", rich_help_panel=DEADLINES),
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="NAME", help="Zone of the trace.", rich_help_panel=DEADLINES)
    ] = None,
    deadline_hours: Annotated[
        float | None, typer.Option("--deadline-hours", metavar="H", help="Deadline.", rich_help_panel=DEADLINES)
    ] = None,
    changeover_hours: Annotated[
        float,
        typer.Option("--changeover-hours", metavar="H", help="Lost by a launch.", rich_help_panel=DEADLINES),
    ] = 0.1,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", metavar="NAME", help="Repeat for several; default: all.")
    ] = None,
    job_hours: Annotated[float, typer.Option("--job-hours", metavar="H", help="Size of the job.")] = 20.0,
    starts: Annotated[int, typer.Option("--starts", min=1, help="Number of random starts.")] = 200,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the job; repeat for several."),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="The answer is the same for any.")] = 2,
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Run policies from the same random starts: a row each, and a summary with confidence intervals."""
    names = split_list(policy)
    hint = "the rows so far are printed"
    with terminal_progress() as progress, listening(hint) as interruption:
        if availability is not None:
            if prices is not None or on_demand is not None or train_until is not None:
                raise InvalidOptionError("--availability goes with neither --prices, --on-demand nor --train-until")
            entries = _deadlines(
                availability,
                zone,
                names,
                job_hours,
                deadline_hours,
                changeover_hours,
                starts,
                seed,
                progress,
                interruption,
            )
        else:
            if zone is not None or deadline_hours is not None:
                raise InvalidOptionError("--zone and --deadline-hours go with --availability FILE")
            options = {"job_hours": job_hours, **split_options(option)}
            entries = _backtest(
                prices, on_demand, train_until, names, options, starts, seed, processes, progress, interruption
            )
        rows: list[Row] = []
        lost = 0
        for entry in entries:
            if entry.error is not None:
                lost += 1
                note(f"start {entry.index} is left out: {entry.error}")
            for row in entry.rows:
                rows.append(row)
                if output is OutputFormat.JSON:
                    print_json(row)
        was_stopped = interruption.is_requested
    _summaries(rows, output)
    if was_stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.NOTHING if lost else ExitCode.DONE


def _backtest(
    prices: Path | None,
    on_demand: Path | None,
    train_until: str | None,
    names: tuple[str, ...],
    given: dict[str, object],
    starts: int,
    seed: int,
    processes: int,
    progress: "Progress",
    stop: "Interruption",
) -> "Iterator[StartRows]":
    """Read or draw prices, split them, and run."""
    from optim.core.options import build_options
    from optim.simulation.spot.backtest import make_world, run_backtest
    from optim.simulation.spot.options import SpotOptions
    from optim.simulation.spot.policies import check_policies
    from optim.workloads.bidding.price_generator import PriceOptions

    chosen = names or DEFAULT_POLICIES
    check_policies(chosen)
    options = build_options(SpotOptions, given)
    history = read_or_draw(prices, on_demand, PriceOptions(), seed)
    world = make_world(history, split_time(train_until), options)
    note(
        f"{history.num_markets} markets, {len(history.gaps)} gaps in the prices; "
        f"policies know what happened before the test begins, and run on what came after"
    )
    return run_backtest(world, chosen, starts=starts, seed=seed, processes=processes, stop=stop, progress=progress)


def _deadlines(
    path: Path,
    zone: str | None,
    names: tuple[str, ...],
    job_hours: float,
    deadline_hours: float | None,
    changeover_hours: float,
    starts: int,
    seed: int,
    progress: "Progress",
    stop: "Interruption",
) -> "Iterator[StartRows]":
    """Read a trace, and run under a deadline."""
    from optim.simulation.spot.backtest import run_deadlines
    from optim.simulation.spot.deadline import DeadlineJob, check_deadline_policies
    from optim.workloads.bidding.availability_files import read_availability, zone_named

    chosen = names or DEADLINE_DEFAULT
    check_deadline_policies(chosen)
    if deadline_hours is None:
        raise InvalidOptionError("--availability needs --deadline-hours H")
    job = DeadlineJob(work_h=job_hours, deadline_h=deadline_hours, changeover_h=changeover_hours)
    traces = read_availability(path)
    if zone is None:
        raise InvalidOptionError(f"--availability needs --zone NAME; the file has: {', '.join(traces)}")
    trace = zone_named(traces, zone)
    return run_deadlines(trace, job, chosen, starts=starts, seed=seed, stop=stop, progress=progress)


def _summaries(rows: "list[Row]", output: OutputFormat) -> None:
    """Print a summary a policy."""
    from optim.simulation.spot.rows import summarise

    names = dict.fromkeys(row.policy for row in rows)
    summaries = [summarise(name, [row for row in rows if row.policy == name]) for name in names]
    if output is OutputFormat.JSON:
        for summary in summaries:
            print_json(summary)
        return
    header = ("policy", "starts", "done", *SHOWN)
    print_table(header, [_shown(summary) for summary in summaries], title="mean and 95 % interval")
    redrawn = max((summary.redrawn for summary in summaries), default=0)
    if redrawn:
        note(f"{redrawn} starts touched a gap of the prices and were drawn again")


def _shown(summary: "Summary") -> list[object]:
    cells: list[object] = [summary.policy, summary.starts, summary.done]
    for name in SHOWN:
        mean, high = summary.mean[name], summary.high[name]
        cells.append("" if mean is None or high is None else f"{mean:.4g} ± {high - mean:.2g}")
    return cells
