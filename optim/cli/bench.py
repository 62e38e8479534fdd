"""`optim bench`: every solver side by side, verified, with a table, a report and a comparison."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optim.cli.bench_options import PROFILES, ResultsChoice, SolveChoice, SuiteChoice, SuitesArgument
from optim.cli.bench_tables import (
    MAX_ROWS,
    print_bench_tables,
    print_best_known,
    print_paired,
    print_scoreboard,
    tell_differences,
)
from optim.cli.border import note
from optim.cli.engine import EngineChoice
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_json, print_rows
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
from optim.core.errors import InvalidOptionError

if TYPE_CHECKING:
    from optim.benchmarks.compare import Difference
    from optim.benchmarks.record import Record
    from optim.benchmarks.sources import InstanceRequest
    from optim.benchmarks.spec import BenchRequest, BenchSpec, Skipped

DEFAULT_PROBLEM = "admission"
"""Whose generator sizes are meant for where no suite is named."""
LEARNER = "online-learned"
"""The solver that learns from earlier days."""


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
    files.check()
    if files.merge is not None:
        asked = (suites, sizes, trace, profile, instance_option, solving, where, files.resume)
        _check_merged(asked == (SuiteChoice(), Sizes(), TraceChoice(), None, None, SolveChoice(), EngineChoice(), True))
        return _merge([files.merge, *(Path(word) for word in words or ())], files, output)
    from optim.benchmarks.best_known import best_known
    from optim.benchmarks.record import row_of
    from optim.benchmarks.results_file import read_records
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
    baseline = _baseline(files.compare, request.solvers)
    golden = _golden(files) if baseline is None else None
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
    records = plan.in_order(records)
    if output is OutputFormat.TABLE:
        known = best_known([*records, *read_records(path)])  # also what other solvers proved in earlier runs
        has_rows = files.rows or len(records) <= MAX_ROWS
        if has_rows:
            print_bench_tables(specs, records, plan.skipped, known)
        else:
            print_scoreboard(specs, records, plan.skipped)
        if baseline is not None:
            print_paired(specs, records, baseline, known)
            if not has_rows:
                print_best_known(records, known)
    if len(records) < len(plan.work):
        note(f"stopped: {len(records)} of {len(plan.work)} records are in {path}; the same command does the rest")
        return ExitCode.INTERRUPTED
    return _finish(records, plan.skipped, files, golden, plan.compare)


def _finish(
    records: "Sequence[Record]",
    skipped: "Sequence[Skipped]",
    files: ResultsChoice,
    golden: "Sequence[Record] | None",
    compare: "Callable[[Sequence[Record], Sequence[Record]], list[Difference]]",
    joined: str = "",
) -> ExitCode:
    """Write the report and golden results, and compare."""
    from optim.benchmarks.golden import write_golden as store_golden
    from optim.benchmarks.report import write_report

    report = files.report_path
    if report is not None:
        write_report(records, skipped, report)
    note(f"{len(records)} records{joined} in {files.results_path}" + (f", report in {report}" if report else ""))
    if files.write_golden is not None:
        store_golden(records, files.write_golden)
    differences = [] if golden is None else compare(records, golden)
    if golden is not None:
        tell_differences(differences)
    return _exit_code(records, differences)


def _baseline(compare: str | None, solvers: Sequence[str] | None) -> str | None:
    """Return the solver that the others are compared with: `--compare` may name one of those asked for."""
    return compare if compare is not None and solvers is not None and compare in solvers else None


def _golden(files: ResultsChoice) -> "Sequence[Record] | None":
    """Return what is compared with, if anything is."""
    from optim.benchmarks.golden import read_golden

    return None if files.compare is None else read_golden(files.compare)


def _check_merged(is_alone: bool) -> None:
    """Refuse to join results where something is asked for that only a run knows."""
    if not is_alone:
        raise InvalidOptionError(
            "--merge runs nothing; leave out suites, instances, solvers, seeds, --no-resume and where it runs, or --merge"
        )


def _merge(sources: Sequence[Path], files: ResultsChoice, output: OutputFormat) -> ExitCode:
    """Join results files of several machines, and treat them as one run's; all golden rows are asked for."""
    from optim.benchmarks.compare import Selection, compare
    from optim.benchmarks.merging import merge_results
    from optim.benchmarks.record import row_of
    from optim.benchmarks.registry import SUITES
    from optim.core.files import prepare_folder

    golden = _golden(files)
    for place in filter(None, (files.results_path, files.report_path, files.write_golden)):
        prepare_folder(place)
    records = merge_results(sources, files.results_path)
    if output is OutputFormat.TABLE:
        show = print_bench_tables if files.rows or len(records) <= MAX_ROWS else print_scoreboard
        show([spec for spec in SUITES if any(spec.name == record.suite for record in records)], records, ())
    else:
        print_rows([row_of(record) for record in records], output)
    everything = Selection(
        suites=tuple({row.suite for row in golden or () if row.suite is not None}),
        seeds=tuple({row.seed for row in golden or ()}),
    )
    joined = f" of {len(sources)} files"
    return _finish(records, (), files, golden, lambda now, then: compare(now, then, everything), joined)


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
    from optim.benchmarks.spec import SMALL, BenchRequest

    is_profiled = wanted.is_profile_only
    sources = None if is_profiled else wanted.sources()
    problem = None if sources is None else wanted.problem_name
    specs = choose_suites(tuple(words), split_list(suites.suite), instances_of=problem, is_profiled=is_profiled)
    is_own = sources is not None or wanted.profile is not None
    if is_own and suites.size != SMALL and any(spec.name == spec.problem for spec in specs):
        raise InvalidOptionError("--size is of the suites' own instances; leave it out, or the instances that you name")
    if solving.histories is not None:
        _check_histories(solving, specs)
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
    return {f"{LEARNER}.history": ",".join(names)} if names else {}


def _check_histories(solving: SolveChoice, specs: "Sequence[BenchSpec]") -> None:
    """Refuse a number of earlier days that nobody would learn from."""
    solvers = split_list(solving.solver)
    if all(spec.name != DEFAULT_PROBLEM for spec in specs):
        raise InvalidOptionError(f"--histories is of the suite {DEFAULT_PROBLEM!r}; add it, or leave --histories out")
    if solvers and LEARNER not in solvers:
        raise InvalidOptionError(f"--histories is for solver {LEARNER!r}, which isn't run; add --solver {LEARNER}")
    if solving.history is not None:
        raise InvalidOptionError("--history names the earlier days that --histories counts; leave one of them out")


def _exit_code(records: "Sequence[Record]", differences: "Sequence[Difference]") -> ExitCode:
    """Return the gravest of what happened."""
    if any(record.is_refused for record in records):
        return ExitCode.REFUSED
    if any(difference.is_regression for difference in differences):
        return ExitCode.REGRESSION
    if not records or not all(record.has_answer for record in records):
        return ExitCode.NOTHING
    return ExitCode.DONE
