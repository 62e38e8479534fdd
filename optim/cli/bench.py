"""`optim bench`: every solver side by side, verified, with a table, a report and a comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optim.cli.bench_tables import print_bench_tables, tell_differences
from optim.cli.border import note
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_json
from optim.cli.parameters import (
    FormatOption,
    JobsOption,
    PsServersOption,
    SlotMinutesOption,
    SlotsOption,
    SolverOptionsOption,
    TimeLimitOption,
    TraceFormatOption,
    TraceOption,
    WorkerServersOption,
    check_time_limit,
    split_list,
    split_options,
    split_seeds,
)
from optim.cli.progress import terminal_progress

if TYPE_CHECKING:
    from optim.benchmarks.compare import Difference
    from optim.benchmarks.record import Record

INSTANCES, SOLVING, RESULTS = "Instances", "Solving", "Results"


def bench(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUITE]...", help="Suites or problems; all suites if none is given."),
    ] = None,
    *,
    suite: Annotated[
        list[str] | None, typer.Option("--suite", metavar="NAME", help="A suite of the problem.")
    ] = None,
    size: Annotated[str, typer.Option("--size", help="Size of the suite's own instances.")] = "small",
    instance: Annotated[
        list[str] | None,
        typer.Option(
            "--instance", metavar="NAME", help="A file, or a reference name.", rich_help_panel=INSTANCES
        ),
    ] = None,
    jobs: JobsOption = None,
    slots: SlotsOption = None,
    worker_servers: WorkerServersOption = None,
    ps_servers: PsServersOption = None,
    trace: TraceOption = None,
    trace_format: TraceFormatOption = None,
    slot_minutes: SlotMinutesOption = None,
    seed: Annotated[
        list[str] | None,
        typer.Option("--seed", metavar="N", help="Same seed, same answer; repeat for several. Default: 0."),
    ] = None,
    solver: Annotated[
        list[str] | None,
        typer.Option("--solver", metavar="NAME", help="Repeat or use commas. Default: the suite's."),
    ] = None,
    time_limit: TimeLimitOption = None,
    option: SolverOptionsOption = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="How many solves run at once.")] = 1,
    output: FormatOption = OutputFormat.TABLE,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of results and report.")] = Path(
        "results"
    ),
    results: Annotated[
        Path | None, typer.Option("--results", metavar="FILE", help="JSON lines. Default: DIR/bench.jsonl.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="HTML page. Default: DIR/bench.html.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume/--no-resume", help="Take what the same code has done from the results file."),
    ] = True,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare", metavar="GOLDEN", help="A results file, or a shipped one's name; exit code 4."
        ),
    ] = None,
    write_golden: Annotated[
        Path | None,
        typer.Option("--write-golden", metavar="FILE", help="Store the results to compare with later."),
    ] = None,
) -> ExitCode:
    """Run suites: every solver on every instance, each answer verified."""
    from optim.benchmarks.compare import Selection
    from optim.benchmarks.compare import compare as compare_with
    from optim.benchmarks.golden import read_golden
    from optim.benchmarks.golden import write_golden as store_golden
    from optim.benchmarks.registry import choose_suites
    from optim.benchmarks.report import write_report
    from optim.benchmarks.runner import plan_work, run_work
    from optim.benchmarks.sources import InstanceRequest
    from optim.benchmarks.spec import BenchRequest
    from optim.core.files import prepare_folder

    sources = InstanceRequest(
        names=split_list(instance),
        trace=trace,
        trace_format=trace_format,
        slot_minutes=slot_minutes,
        jobs=jobs,
        slots=slots,
        worker_servers=worker_servers,
        ps_servers=ps_servers,
    ).sources()
    specs = choose_suites(tuple(words or ()), split_list(suite), takes_instances=sources is not None)
    request = BenchRequest(
        size=size,
        sources=sources,
        solvers=split_list(solver) or None,
        seeds=split_seeds(seed),
        time_limit_s=check_time_limit(time_limit),
        options=split_options(option),
    )
    golden = read_golden(compare) if compare is not None else None
    results = results if results is not None else out / "bench.jsonl"
    report = report if report is not None else out / "bench.html"
    records: list[Record] = []
    hint = f"what is finished stays in {results}, the same command goes on from there"
    with terminal_progress() as progress, listening(hint) as stop:
        plan = plan_work(specs, request)
        for path in (report, write_golden):
            if path is not None:
                prepare_folder(path)
        for record in run_work(
            plan.work, results, is_resumed=resume, num_processes=processes, stop=stop, progress=progress
        ):
            records.append(record)
            if output is OutputFormat.JSON:
                print_json(record)
    order = {piece.key: position for position, piece in enumerate(plan.work)}
    records.sort(key=lambda record: order[record.key])
    if output is OutputFormat.TABLE:
        print_bench_tables(specs, records, plan.skipped)
    if len(records) < len(plan.work):
        done = f"{len(records)} of {len(plan.work)}"
        note(f"stopped: {done} records are in {results}; the same command does the rest")
        return ExitCode.INTERRUPTED
    write_report(records, plan.skipped, report)
    note(f"{len(records)} records in {results}, report in {report}")
    if write_golden is not None:
        store_golden(records, write_golden)
    differences: list[Difference] = []
    if golden is not None:
        selection = Selection(
            suites=tuple(spec.name for spec in specs),
            seeds=request.seeds,
            solvers=request.solvers,
            instances=None if sources is None else tuple({piece.subject.name for piece in plan.work}),
        )
        differences = compare_with(records, golden, selection)
        tell_differences(differences)
    return _exit_code(records, differences)


def _exit_code(records: "Sequence[Record]", differences: "Sequence[Difference]") -> ExitCode:
    """Return the gravest of what happened."""
    if any(record.is_refused for record in records):
        return ExitCode.REFUSED
    if any(difference.is_regression for difference in differences):
        return ExitCode.REGRESSION
    if not records or not all(record.has_answer for record in records):
        return ExitCode.NOTHING
    return ExitCode.DONE
