"""`optim bench`: every solver side by side, verified, with a table, a report and a comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from optim.cli.bench_options import (
    BenchSolverOptionsOption,
    CompareOption,
    InstanceOption,
    NoReportOption,
    OutFolderOption,
    ProcessesOption,
    ProfileOption,
    ReportOption,
    ResultsOption,
    ResumeOption,
    SeedsOption,
    SizeOption,
    SolversOption,
    SuiteOption,
    SuitesArgument,
    WriteGoldenOption,
)
from optim.cli.bench_tables import print_bench_tables, tell_differences
from optim.cli.border import note
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_json
from optim.cli.parameters import (
    AppsOption,
    FormatOption,
    GpusOption,
    InstanceOptionsOption,
    JobsOption,
    MachinesOption,
    PsServersOption,
    SlotMinutesOption,
    SlotsOption,
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

DEFAULT_PROBLEM = "admission"
"""Whose generator sizes are meant for where no suite is named."""


def bench(
    words: SuitesArgument = None,
    *,
    suite: SuiteOption = None,
    size: SizeOption = "small",
    instance: InstanceOption = None,
    jobs: JobsOption = None,
    slots: SlotsOption = None,
    worker_servers: WorkerServersOption = None,
    ps_servers: PsServersOption = None,
    apps: AppsOption = None,
    gpus: GpusOption = None,
    machines: MachinesOption = None,
    trace: TraceOption = None,
    trace_format: TraceFormatOption = None,
    slot_minutes: SlotMinutesOption = None,
    profile: ProfileOption = None,
    instance_option: InstanceOptionsOption = None,
    solver: SolversOption = None,
    option: BenchSolverOptionsOption = None,
    seed: SeedsOption = None,
    time_limit: TimeLimitOption = None,
    processes: ProcessesOption = 1,
    output: FormatOption = OutputFormat.TABLE,
    out: OutFolderOption = Path("results"),
    results: ResultsOption = None,
    report: ReportOption = None,
    no_report: NoReportOption = False,
    resume: ResumeOption = True,
    compare: CompareOption = None,
    write_golden: WriteGoldenOption = None,
) -> ExitCode:
    """Run suites: every solver on every instance, each answer verified."""
    from optim.benchmarks.golden import read_golden
    from optim.benchmarks.golden import write_golden as store_golden
    from optim.benchmarks.record import row_of
    from optim.benchmarks.registry import SUITES, choose_suites
    from optim.benchmarks.report import write_report
    from optim.benchmarks.runner import plan_work, run_work
    from optim.benchmarks.sources import InstanceRequest
    from optim.benchmarks.spec import BenchRequest
    from optim.core.files import prepare_folder

    named = (*split_list(suite), *(words or ()))
    wanted = InstanceRequest(
        names=split_list(instance),
        trace=trace,
        trace_format=trace_format,
        slot_minutes=slot_minutes,
        jobs=jobs,
        slots=slots,
        worker_servers=worker_servers,
        ps_servers=ps_servers,
        apps=apps,
        gpus=gpus,
        machines=machines,
        profile=profile,
        options=split_options(instance_option, "--instance-option"),
        problem=SUITES.get(named[0]).problem if named else DEFAULT_PROBLEM,
    )
    is_profiled = wanted.is_profile_only
    sources = None if is_profiled else wanted.sources()
    problem = None if sources is None else wanted.problem_name
    specs = choose_suites(tuple(words or ()), split_list(suite), instances_of=problem, is_profiled=is_profiled)
    request = BenchRequest(
        size=size,
        sources=sources,
        profile=profile,
        solvers=split_list(solver) or None,
        seeds=split_seeds(seed),
        time_limit_s=check_time_limit(time_limit),
        options=split_options(option),
    )
    golden = read_golden(compare) if compare is not None else None
    results_path = results if results is not None else out / "bench.jsonl"
    report_path = None if no_report else report if report is not None else out / "bench.html"
    records: list[Record] = []
    hint = f"what is finished stays in {results_path}, the same command goes on from there"
    with terminal_progress() as progress, listening(hint) as stop:
        plan = plan_work(specs, request)
        for path in (report_path, write_golden):
            if path is not None:
                prepare_folder(path)
        for record in run_work(
            plan.work, results_path, is_resumed=resume, num_processes=processes, stop=stop, progress=progress
        ):
            records.append(record)
            if output is OutputFormat.JSON:
                print_json(row_of(record))
    records.sort(key=plan.position)
    if output is OutputFormat.TABLE:
        print_bench_tables(specs, records, plan.skipped)
    if len(records) < len(plan.work):
        done = f"{len(records)} of {len(plan.work)}"
        note(f"stopped: {done} records are in {results_path}; the same command does the rest")
        return ExitCode.INTERRUPTED
    if report_path is not None:
        write_report(records, plan.skipped, report_path)
    note(f"{len(records)} records in {results_path}" + (f", report in {report_path}" if report_path else ""))
    if write_golden is not None:
        store_golden(records, write_golden)
    differences = plan.compare(records, golden) if golden is not None else []
    if golden is not None:
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
