"""`optim bench`: every solver side by side, verified, with a table, a report and a comparison."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optim.cli.bench_options import PROFILES, ResultsChoice, SolveChoice, SuiteChoice, SuitesArgument
from optim.cli.bench_tables import print_bench_tables, tell_differences
from optim.cli.border import note
from optim.cli.engine import EngineChoice
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_json
from optim.cli.parameters import (
    INSTANCES,
    FormatOption,
    InstanceOptionsOption,
    Sizes,
    TraceChoice,
    check_time_limit,
    grouped,
    option,
    split_list,
    split_options,
    split_seeds,
)
from optim.cli.progress import terminal_progress

if TYPE_CHECKING:
    from optim.benchmarks.compare import Difference
    from optim.benchmarks.record import Record
    from optim.benchmarks.runner import WorkList
    from optim.benchmarks.sources import InstanceRequest
    from optim.benchmarks.spec import BenchRequest, BenchSpec

DEFAULT_PROBLEM = "admission"
"""Whose generator sizes are meant for where no suite is named."""


@grouped
def bench(
    words: SuitesArgument = None,
    *,
    suites: SuiteChoice,
    sizes: Sizes,
    trace: TraceChoice,
    profile: Annotated[str | None, option("--profile", PROFILES, "FILE", INSTANCES)] = None,
    instance_option: InstanceOptionsOption = None,
    solving: SolveChoice,
    where: EngineChoice,
    output: FormatOption = OutputFormat.TABLE,
    files: ResultsChoice,
) -> ExitCode:
    """Run suites: every solver on every instance, each answer verified."""
    if files.merge is not None:
        return _merge([files.merge, *(Path(word) for word in words or ())], files)
    from optim.benchmarks.golden import read_golden
    from optim.benchmarks.record import row_of
    from optim.benchmarks.runner import plan_work, run_work
    from optim.benchmarks.sources import InstanceRequest
    from optim.core.files import prepare_folder

    wanted = InstanceRequest(
        names=split_list(suites.instance),
        **asdict(trace),
        **asdict(sizes),
        profile=profile,
        options=split_options(instance_option, "--instance-option"),
        problem=_problem_of(words or (), suites),
    )
    specs, request = _requested(wanted, words or (), suites, solving, files.out)
    golden = None if files.compare is None else read_golden(files.compare)
    path = files.results_path
    records: list[Record] = []
    hint = f"what is finished stays in {path}, the same command goes on from there"
    with terminal_progress() as progress, listening(hint) as stop:
        plan = plan_work(specs, request)
        if not words and not suites.suite and (request.sources is not None or request.profile is not None):
            note(f"only suites that take these instances are run: {', '.join(spec.name for spec in specs)}")
        for place in filter(None, (files.report_path, files.write_golden)):
            prepare_folder(place)
        with where.opened() as engine:
            for record in run_work(
                plan.work, path, is_resumed=files.resume, engine=engine, stop=stop, progress=progress
            ):
                records.append(record)
                if output is OutputFormat.JSON:
                    print_json(row_of(record))
    records.sort(key=plan.position)
    if output is OutputFormat.TABLE:
        print_bench_tables(specs, records, plan.skipped)
    if len(records) < len(plan.work):
        note(f"stopped: {len(records)} of {len(plan.work)} records are in {path}; the same command does the rest")
        return ExitCode.INTERRUPTED
    return _finish(plan, records, golden, files)


def _finish(
    plan: "WorkList", records: "Sequence[Record]", golden: "Sequence[Record] | None", files: ResultsChoice
) -> ExitCode:
    """Write the report and golden results, and compare."""
    from optim.benchmarks.golden import write_golden as store_golden
    from optim.benchmarks.report import write_report

    report = files.report_path
    if report is not None:
        write_report(records, plan.skipped, report)
    note(f"{len(records)} records in {files.results_path}" + (f", report in {report}" if report else ""))
    if files.write_golden is not None:
        store_golden(records, files.write_golden)
    differences = [] if golden is None else plan.compare(records, golden)
    if golden is not None:
        tell_differences(differences)
    return _exit_code(records, differences)


def _merge(sources: Sequence[Path], files: ResultsChoice) -> ExitCode:
    """Join results files of several machines, and write the report on all of them."""
    from optim.benchmarks.merging import merge_results
    from optim.benchmarks.report import write_report
    from optim.core.files import prepare_folder

    for place in (files.results_path, files.report_path):
        if place is not None:
            prepare_folder(place)
    records = merge_results(sources, files.results_path)
    if files.report_path is not None:
        write_report(records, (), files.report_path)
    note(f"{len(records)} records of {len(sources)} files in {files.results_path}")
    return _exit_code(records, ())


def _problem_of(words: Sequence[str], suites: SuiteChoice) -> str:
    """Return the problem whose generator the sizes are meant for."""
    from optim.benchmarks.registry import SUITES

    first = next(iter((*split_list(suites.suite), *words)), None)
    return DEFAULT_PROBLEM if first is None else SUITES.get(first).problem


def _requested(
    wanted: "InstanceRequest", words: Sequence[str], suites: SuiteChoice, solving: SolveChoice, folder: Path
) -> "tuple[tuple[BenchSpec, ...], BenchRequest]":
    """Return the suites that are meant, and what is asked of them."""
    from optim.benchmarks.registry import choose_suites
    from optim.benchmarks.spec import BenchRequest

    is_profiled = wanted.is_profile_only
    sources = None if is_profiled else wanted.sources()
    problem = None if sources is None else wanted.problem_name
    specs = choose_suites(tuple(words), split_list(suites.suite), instances_of=problem, is_profiled=is_profiled)
    request = BenchRequest(
        size=suites.size,
        sources=sources,
        profile=wanted.profile,
        solvers=split_list(solving.solver) or None,
        seeds=split_seeds(solving.seed),
        time_limit_s=check_time_limit(solving.time_limit),
        options=split_options(solving.settings) | _learned_from(solving),
        histories=solving.histories,
        folder=folder,
    )
    return specs, request


def _learned_from(solving: SolveChoice) -> dict[str, str]:
    """Return the option that hands earlier days to the solver that learns from them."""
    names = split_list(solving.history)
    return {"online-learned.history": ",".join(names)} if names else {}


def _exit_code(records: "Sequence[Record]", differences: "Sequence[Difference]") -> ExitCode:
    """Return the gravest of what happened."""
    if any(record.is_refused for record in records):
        return ExitCode.REFUSED
    if any(difference.is_regression for difference in differences):
        return ExitCode.REGRESSION
    if not records or not all(record.has_answer for record in records):
        return ExitCode.NOTHING
    return ExitCode.DONE
