"""`optim bench`: every solver side by side, verified, with a table, a report and a comparison."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optim.benchmarks.best_known import TO_BEST, TO_BOUND, best_known, instance_of
from optim.benchmarks.summary import foresight_of
from optim.cli.border import listening
from optim.cli.commands import complete_instance, complete_solver, complete_suite, problems
from optim.cli.messages import ExitCode, info
from optim.cli.output import OutputFormat, print_json, print_line, print_rows, print_table, terminal_progress
from optim.cli.parameters import (
    INSTANCES,
    EngineChoice,
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
from optim.core.errors import InvalidOptionError
from optim.core.user_code import is_file_reference

if TYPE_CHECKING:
    from optim.benchmarks.best_known import BestKnown, Of
    from optim.benchmarks.compare import Difference
    from optim.benchmarks.records import Record
    from optim.benchmarks.suite import BenchRequest, BenchSpec, Skipped
    from optim.workloads.instances import InstanceRequest

SOLVING, RESULTS = "Solving", "Results"

PROFILES = "Job profiles (`optim profile` writes them), or 'published': generated jobs are of their kinds."

OPTIONS = "An option for all solvers that know it, or SOLVER.NAME=VALUE; repeat for several."

GOLDEN = (
    "A solver: paired differences with intervals. Or a results file, or the name of shipped golden results; "
    "exit code 4 on a regression, also of merged results."
)

Several = list[str] | None

SuitesArgument = Annotated[
    Several,
    typer.Argument(
        autocompletion=complete_suite, metavar="[SUITE]...", help="Suites or problems; default: all suites."
    ),
]


@dataclass(frozen=True, kw_only=True)
class SuiteChoice:
    """Which suites, of which size, on which instances."""

    suite: Annotated[
        Several,
        option(
            "--suite,--study",
            "A suite (study) of the problem; repeat or commas.",
            "NAME",
            autocompletion=complete_suite,
        ),
    ] = None
    size: Annotated[str, option("--size", "Size of the suite's own instances.", panel=INSTANCES)] = "small"
    instance: Annotated[
        Several,
        option(
            "--instance",
            "A file, or a reference instance's name; repeat or commas.",
            "NAME",
            INSTANCES,
            autocompletion=complete_instance,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SolveChoice:
    """Which solvers, and how they are run."""

    solver: Annotated[
        Several,
        option("--solver", "Repeat or commas. Default: the suite's.", "NAME", SOLVING, autocompletion=complete_solver),
    ] = None
    settings: Annotated[Several, option("--option", OPTIONS, "NAME=VALUE", SOLVING)] = None
    seed: Annotated[
        Several, option("--seed", "Same seed, same answer; repeat or commas. Default: 0.", "N", SOLVING)
    ] = None
    time_limit: Annotated[
        float | None, option("--time-limit", "Wall-clock limit of a solve in seconds.", "S", SOLVING)
    ] = None
    history: Annotated[
        Several,
        option("--history", "Earlier days, or a forecast, for online-learned; repeat or commas.", "FILE", SOLVING),
    ] = None
    histories: Annotated[
        int | None,
        option("--histories", "Earlier days of each instance: shipped, or else drawn.", "N", SOLVING, min=0, max=1_000),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ResultsChoice:
    """Where results go, and what they are compared with."""

    out: Annotated[Path, option("--out", "Folder of results and report.", "DIR", RESULTS)] = Path("results")
    results: Annotated[Path | None, option("--results", "JSON lines. Default: DIR/bench.jsonl.", "FILE", RESULTS)] = (
        None
    )
    report: Annotated[Path | None, option("--report", "HTML page. Default: DIR/bench.html.", "FILE", RESULTS)] = None
    no_report: Annotated[bool, option("--no-report", "Write no page.", panel=RESULTS)] = False
    rows: Annotated[bool, option("--rows", "Print every row, however many.", panel=RESULTS)] = False
    resume: Annotated[
        bool, option("--resume/--no-resume", "Take over what the same code has done already.", panel=RESULTS)
    ] = True
    merge: Annotated[
        Path | None,
        option(
            "--merge", "Run nothing: join this and the files named after it, print and compare them.", "FILE", RESULTS
        ),
    ] = None
    compare: Annotated[str | None, option("--compare", GOLDEN, "GOLDEN", RESULTS)] = None
    write_golden: Annotated[
        Path | None, option("--write-golden", "Store the results to compare with later.", "FILE", RESULTS)
    ] = None

    def check(self) -> None:
        """Refuse to be told where a page goes that isn't written."""
        if self.no_report and self.report is not None:
            raise InvalidOptionError("--no-report writes no page; leave it out, or --report")

    @property
    def results_path(self) -> Path:
        """Where records are kept."""
        return self.results if self.results is not None else self.out / "bench.jsonl"

    @property
    def report_path(self) -> Path | None:
        """Where the page goes, None for no page."""
        return None if self.no_report else self.report if self.report is not None else self.out / "bench.html"


MIN_WANTED = ("p99 ms", "cpu s", "ratio", "decision ms", "termination")
"""Columns that a narrow terminal lacks; records and report have them."""

CLAIMED = "claimed bound"
"""Of another library's solver, not checked: a table has the column where a row has the figure."""

OF_SOLVES = frozenset({"objective", "bound", "gap %", TO_BEST, TO_BOUND, CLAIMED, "ratio", "decision ms", "p99 ms"})
"""Columns that a study leaves empty: its table goes without."""

MARK = "*"
"""After a rule that is told something of the future: a line below the table says what."""

MAX_TOLD = 20
"""Regressions, or pairs of one reason, named one by one at most."""

MAX_ROWS = 30
"""Without `--rows`, more records than this become a scoreboard: the rows of fewer fit on a screen."""

MAX_PROBLEM_LINES = 10
"""Failures and refusals named below a scoreboard."""

MAX_SUITES = 12
"""A scoreboard of more suites has one row per problem."""


def print_scoreboard(specs: "Sequence[BenchSpec]", records: "Sequence[Record]", skipped: "Sequence[Skipped]") -> None:
    """Print one row per solver of a single suite, or one row per suite; then failures, and how to see all rows."""
    from optim.benchmarks.summary import compare_solvers

    by_suite = {
        spec: compare_solvers(mine)
        for spec in specs
        if (mine := [record for record in records if record.suite == spec.name])
    }
    if len(by_suite) == 1:
        ((spec, found),) = by_suite.items()
        mine = [record for record in records if record.suite == spec.name]
        print_table(
            ("solver", "records", "verified", "optimal", "gap %", "worst gap %", "seconds", "cpu s"),
            [
                (
                    *(
                        _named(one.solver, mine),
                        one.records,
                        one.verified,
                        one.optimal,
                        _percent(one.gap),
                        _percent(one.worst_gap),
                    ),
                    *(_short(one.seconds), _short(one.processor_s)),
                )
                for one in found.solvers
            ],
            title=f"{spec.name}: {spec.summary} ({found.cases} cases)",
        )
        print_line(
            f"means over the cases that all have: gap % over {found.gap_cases}, "
            f"seconds over {found.seconds_cases}, cpu s over {found.processor_cases}"
        )
        _print_marks(mine)
    elif len(by_suite) > MAX_SUITES:
        _print_problems(list(by_suite), records)
    else:
        rows = []
        for spec, found in by_suite.items():
            with_gap = [one for one in found.solvers if one.gap is not None]
            best = min(with_gap, key=lambda one: (one.gap, one.seconds or 0.0), default=None)
            mine = [record for record in records if record.suite == spec.name]
            rows.append(
                (
                    *(spec.name, found.cases, len(found.solvers), len(mine), sum(one.verified for one in mine)),
                    *(best and _named(best.solver, mine), best and _percent(best.gap), best and _short(best.seconds)),
                    _short(sum(one.processor_s or 0.0 for one in mine)),
                )
            )
        header = ("suite", "cases", "solvers", "records", "verified", "smallest gap", "gap %", "seconds", "total cpu s")
        print_table(header, rows)
    lines = _problem_lines([], records)
    for line in lines[:MAX_PROBLEM_LINES]:
        print_line(line)
    if len(lines) > MAX_PROBLEM_LINES:
        print_line(f"and {len(lines) - MAX_PROBLEM_LINES} more such lines")
    left_out = f", and the {len(skipped)} pairs of solver and instance that were left out" if skipped else ""
    print_line(f"The same command with --rows prints all {len(records)} rows{left_out}; nothing runs again.")


def _print_problems(specs: "Sequence[BenchSpec]", records: "Sequence[Record]") -> None:
    """Print the headlines, and one row per problem with its suites."""
    from optim.benchmarks.headline import headlines

    lines = headlines(records)
    if lines:
        cells = [
            (
                *(one.suite, one.measure, one.cases, one.ours_by, _four(one.ours)),
                *(one.baseline_by, _four(one.baseline), _four(one.limit)),
            )
            for one in lines
        ]
        header = ("problem", "measure, mean over cases", "cases", "ours", "", "baseline", "", "limit")
        print_table(header, cells, title="headlines: our solver, a baseline, and the proven limit")
    rows = []
    for problem in dict.fromkeys(spec.problem for spec in specs):
        names = [spec.name for spec in specs if spec.problem == problem]
        mine = [record for record in records if record.suite in names]
        spent = _short(sum(record.processor_s or 0.0 for record in mine))
        rows.append((problem, len(names), len(mine), sum(record.verified for record in mine), spent))
    print_table(("problem", "suites", "records", "verified", "total cpu s"), rows)
    print_line("Per suite: the report, or the same command with a suite's name (optim info lists them).")


def _four(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def print_paired(
    specs: "Sequence[BenchSpec]", records: "Sequence[Record]", baseline: str, known: "Mapping[Of, BestKnown]"
) -> None:
    """Print per suite how each solver differs from the baseline on the cases that both solved, by what is known of each instance."""
    from optim.benchmarks.summary import compare_with

    head = ("solver", "cases", "better", "equal", "worse", "% of bound", "difference", "95 % (Student's t)")
    for spec in specs:
        mine = [record for record in records if record.suite == spec.name]
        found = compare_with(mine, baseline, known)
        if not any(one.cases for one in found):
            continue
        rows = []
        for one in found:
            gain = one.difference
            around = None if gain is None else f"{100 * gain.low:+.3f} to {100 * gain.high:+.3f}"
            equal = one.cases - one.better - one.worse
            mean = None if gain is None else f"{100 * gain.mean:+.3f}"
            rows.append(
                (
                    _named(one.solver, mine),
                    one.cases,
                    one.better,
                    equal,
                    one.worse,
                    _percent(one.of_bound),
                    mean,
                    around,
                )
            )
        print_table(head, rows, title=f"{spec.name}: compared with {baseline}, in percentage points of the bound")


def print_best_known(records: "Sequence[Record]", known: "Mapping[Of, BestKnown]") -> None:
    """Print per instance what ratios are to, and whose it is."""
    for instance in dict.fromkeys(instance_of(record) for record in records if record.objective is not None):
        if instance in known:
            print_line(f"{instance[1]}: {known[instance]}")


def print_bench_tables(
    specs: "Sequence[BenchSpec]",
    records: "Sequence[Record]",
    skipped: "Sequence[Skipped]",
    known: "Mapping[Of, BestKnown] | None" = None,
) -> None:
    """Print a table a suite, then what was left out, refused or failed, and why."""
    known = best_known(records) if known is None else known
    for spec in specs:
        mine = [record for record in records if record.suite == spec.name]
        seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in mine}))
        if mine:
            header, rows = _filled(spec.columns, [_row(record, spec.columns, known) for record in mine])
            title = f"{spec.name}: {spec.summary} (seed {seeds})"
            print_table(header, rows, title=title, min_wanted=MIN_WANTED)
            _print_marks(mine)
            print_best_known(mine, known)
    for line in _problem_lines(skipped, records):
        print_line(line)


def _named(solver: str, records: "Sequence[Record]") -> str:
    """Return a solver's name, marked if a record of it was told something of the future."""
    return solver + (MARK if any(record.solver == solver and foresight_of(record) for record in records) else "")


def _print_marks(records: "Sequence[Record]") -> None:
    """Say below a table what each marked rule is told of the future."""
    for text in sorted({f"{record.solver}{MARK}: {said}" for record in records if (said := foresight_of(record))}):
        print_line(text)


def _problem_lines(skipped: "Sequence[Skipped]", records: "Sequence[Record]") -> list[str]:
    """Return one line per reason for which pairs of solver and instance were left out, failed or were refused."""
    told = [("left out", entry.solver, entry.instance, entry.reason) for entry in skipped]
    for record in records:
        if record.error is not None:
            told.append(("failed", record.solver, record.instance, record.error))
        elif record.is_refused:
            told.append(("refused", record.solver, record.instance, "; ".join(record.violations)))
    lines = []
    for (what, reason), pairs in _by_reason(told).items():
        more = f" and {len(pairs) - MAX_TOLD} more" if len(pairs) > MAX_TOLD else ""
        lines.append(f"{what}: {', '.join(pairs[:MAX_TOLD])}{more}: {reason}")
    return lines


def _percent(share: float | None) -> float | None:
    return None if share is None else float(f"{round(100 * share, 9):.4g}")


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.3g}")


def tell_differences(differences: "Sequence[Difference]") -> None:
    """Name on stderr what got worse, is missing, or got better, and count the rest."""
    told = [difference for difference in differences if difference.change != "same"]
    for difference in sorted(told, key=lambda difference: not difference.is_regression)[:MAX_TOLD]:
        info(str(difference))
    counts = Counter(difference.change.value for difference in differences)
    info("compared: " + (", ".join(f"{number} {change}" for change, number in sorted(counts.items())) or "no rows"))


def _header(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the heads of a suite's table."""
    return (
        *("instance", *columns, "solver", "termination", "objective", "bound", "gap %", TO_BEST, TO_BOUND),
        *(CLAIMED, "ratio"),
        *("seconds", "cpu s", "decision ms", "p99 ms", "verified"),
    )


def _filled(columns: Sequence[str], rows: list[tuple[object, ...]]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Leave out what no row of a study has; a table of solves keeps its columns but for the suite's own, claimed bounds and ratios."""
    header = _header(columns)
    is_empty = {name: all(row[k] is None for row in rows) for k, name in enumerate(header)}
    dropped = {name for name in (*columns, CLAIMED, TO_BEST, TO_BOUND) if is_empty[name]}
    if is_empty["objective"] and is_empty["bound"]:
        dropped |= OF_SOLVES
    kept = [k for k, name in enumerate(header) if name not in dropped]
    return tuple(header[k] for k in kept), [tuple(row[k] for k in kept) for row in rows]


def _row(record: "Record", columns: Sequence[str], known: "Mapping[Of, BestKnown]") -> tuple[object, ...]:
    """Return a record's row; seconds are those of the whole solve, the processor's with those of compiling."""
    decision = record.decision_ms or {}
    best = known.get(instance_of(record)) if record.verified else None
    return (
        record.instance,
        *(record.figure(name) for name in columns),
        _named(record.solver, [record]),
        "error" if record.error is not None else record.termination,
        record.objective,
        record.bound,
        record.gap_percent,
        None if best is None else _rounded(best.to_best(record.objective)),
        None if best is None else _rounded(best.to_bound(record.objective)),
        record.counts.get("claimed_bound"),
        None if record.ratio is None else round(record.ratio, 4),
        round(record.run_s, 3),
        None if record.processor_s is None else round(record.processor_s, 3),
        decision.get("median"),
        decision.get("p99"),
        record.verified,
    )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _by_reason(told: Sequence[tuple[str, str, str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return pairs of solver and instance by what happened to them and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for what, solver, instance, reason in told:
        reasons.setdefault((what, reason), []).append(f"{solver} on {instance}")
    return reasons


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
    from optim.benchmarks.records import read_records, row_of
    from optim.benchmarks.runner import plan_work, run_work
    from optim.core.files import prepare_folder
    from optim.workloads.instances import InstanceRequest

    wanted = InstanceRequest(
        names=split_list(suites.instance),
        **asdict(trace),
        **asdict(sizes),
        profile=profile,
        options=split_options(instance_option, "--instance-option"),
        problem=_problem_of(words or (), suites),
    )
    specs, request = _requested(wanted, words or (), suites, solving, files.out)
    baseline = _baseline(files.compare, specs, request.solvers or ())
    if baseline is not None and request.solvers is not None and baseline not in request.solvers:
        info(f"{baseline} is run, too: --compare names it")
        request = replace(request, solvers=(*request.solvers, baseline))
    golden = _golden(files) if baseline is None else None
    path = files.results_path
    records: list[Record] = []
    hint = f"what is finished stays in {path}, the same command goes on from there"
    with terminal_progress() as progress, listening(hint) as stop:
        plan = plan_work(specs, request)
        if not words and not suites.suite and (request.sources is not None or request.profile is not None):
            info(f"only suites that take these instances are run: {', '.join(spec.name for spec in specs)}")
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
        info(f"stopped: {len(records)} of {len(plan.work)} records are in {path}; the same command does the rest")
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
    from optim.benchmarks.compare import write_golden as store_golden
    from optim.benchmarks.report import write_report

    report = files.report_path
    if report is not None:
        write_report(records, skipped, report)
    info(f"{len(records)} records{joined} in {files.results_path}" + (f", report in {report}" if report else ""))
    if files.write_golden is not None:
        store_golden(records, files.write_golden)
    differences = [] if golden is None else compare(records, golden)
    if golden is not None:
        tell_differences(differences)
    return _exit_code(records, differences)


def _baseline(compare: str | None, specs: "Sequence[BenchSpec]", solvers: Sequence[str]) -> str | None:
    """Return the solver that the others are compared with: one by its name, or a class of a user's file; None for a file of results."""
    from optim.solvers.solve import solver_names

    if compare is None or compare in solvers or Path(compare).exists():
        return compare if compare in solvers else None
    known = {name for spec in specs if spec.problem in problems() for name in solver_names(spec.problem)}
    return compare if compare in known or is_file_reference(compare) else None


def _golden(files: ResultsChoice) -> "Sequence[Record] | None":
    """Return what is compared with, if anything is."""
    from optim.benchmarks.compare import read_golden

    return None if files.compare is None else read_golden(files.compare)


def _check_merged(is_alone: bool) -> None:
    """Refuse to join results where something is asked for that only a run knows."""
    if not is_alone:
        raise InvalidOptionError(
            "--merge runs nothing; leave out suites, instances, solvers, seeds, --no-resume and where it runs, or --merge"
        )


def _merge(sources: Sequence[Path], files: ResultsChoice, output: OutputFormat) -> ExitCode:
    """Join results files of several machines, and treat them as one run's; all golden rows are asked for."""
    from optim.benchmarks.compare import Selection, compare, merge_results
    from optim.benchmarks.records import row_of
    from optim.benchmarks.suite import SUITES
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
    from optim.benchmarks.suite import SUITES

    first = next(iter((*split_list(suites.suite), *words)), None)
    return DEFAULT_PROBLEM if first is None else SUITES.get(first).problem


def _requested(
    wanted: "InstanceRequest", words: Sequence[str], suites: SuiteChoice, solving: SolveChoice, folder: Path
) -> "tuple[tuple[BenchSpec, ...], BenchRequest]":
    """Return the suites that are meant, and what is asked of them."""
    from optim.benchmarks.suite import SMALL, BenchRequest, choose_suites

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
