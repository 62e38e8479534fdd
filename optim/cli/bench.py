"""`optim bench`: run solvers on suites, verify the solutions, print tables, write a report and compare results."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optim.benchmarks.best_known import CERTIFIED, TO_BEST, TO_BOUND, best_known, instance_of
from optim.benchmarks.summary import foresight_of, named_by_options
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

PROFILES = "Job profiles for generated jobs: a file of `optim profile`, or 'published'."

ONE_VALUE = "run once per value, each with its own --results FILE, then join the files with --merge"
"""Remedy for an option that is given twice."""

OPTIONS = "Option of all solvers that have it, or SOLVER.NAME=VALUE for one solver; repeatable."

GOLDEN = (
    "Compare with a solver (prints paired differences with intervals), a results file, or shipped golden results (by "
    "name); exit code 4 on a regression."
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
    """Suites, their size, and instances."""

    suite: Annotated[
        Several,
        option(
            "--suite,--study",
            "Suites of the problem, including studies; repeatable or comma-separated.",
            "NAME",
            autocompletion=complete_suite,
        ),
    ] = None
    size: Annotated[str, option("--size", "Size of the suites' built-in instances.", panel=INSTANCES)] = "small"
    instance: Annotated[
        Several,
        option(
            "--instance",
            "Files, or names of reference instances; repeatable or comma-separated.",
            "NAME",
            INSTANCES,
            autocompletion=complete_instance,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SolveChoice:
    """Solvers, their options, seeds and limits."""

    solver: Annotated[
        Several,
        option(
            "--solver",
            "Solvers; repeatable or comma-separated. Default: the suite's.",
            "NAME",
            SOLVING,
            autocompletion=complete_solver,
        ),
    ] = None
    settings: Annotated[Several, option("--option", OPTIONS, "NAME=VALUE", SOLVING)] = None
    seed: Annotated[
        Several, option("--seed", "Random seeds; repeatable or comma-separated. Default: 0.", "N", SOLVING)
    ] = None
    time_limit: Annotated[
        float | None, option("--time-limit", "Wall-clock limit per solve, in seconds.", "S", SOLVING)
    ] = None
    history: Annotated[
        Several,
        option(
            "--history",
            "Instances of earlier days, or a forecast, for online-learned; repeatable or comma-separated.",
            "FILE",
            SOLVING,
        ),
    ] = None
    histories: Annotated[
        int | None,
        option(
            "--histories",
            "Number of earlier days, per instance, from which online-learned learns: shipped days if there are any, else generated ones.",
            "N",
            SOLVING,
            min=0,
            max=1_000,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ResultsChoice:
    """Output files, and the results to compare with."""

    out: Annotated[Path, option("--out", "Folder for results and report.", "DIR", RESULTS)] = Path("results")
    results: Annotated[
        Path | None, option("--results", "Results as JSON lines. Default: DIR/bench.jsonl.", "FILE", RESULTS)
    ] = None
    report: Annotated[Path | None, option("--report", "HTML report. Default: DIR/bench.html.", "FILE", RESULTS)] = None
    no_report: Annotated[bool, option("--no-report", "Write no report.", panel=RESULTS)] = False
    rows: Annotated[bool, option("--rows", "Print every record, not a summary.", panel=RESULTS)] = False
    resume: Annotated[
        bool,
        option("--resume/--no-resume", "Reuse records in the results file that the same code wrote.", panel=RESULTS),
    ] = True
    merge: Annotated[
        Path | None,
        option("--merge", "Merge this and the following results files without running solvers.", "FILE", RESULTS),
    ] = None
    compare: Annotated[str | None, option("--compare", GOLDEN, "GOLDEN", RESULTS)] = None
    write_golden: Annotated[
        Path | None, option("--write-golden", "Store the results as golden results for --compare.", "FILE", RESULTS)
    ] = None

    def check(self) -> None:
        """Raise if both ``--no-report`` and ``--report`` are given."""
        if self.no_report and self.report is not None:
            raise InvalidOptionError("--no-report and --report exclude each other; give one")

    @property
    def results_path(self) -> Path:
        """Path of the results file."""
        return self.results if self.results is not None else self.out / "bench.jsonl"

    @property
    def report_path(self) -> Path | None:
        """Path of the report, None for no report."""
        return None if self.no_report else self.report if self.report is not None else self.out / "bench.html"


MIN_WANTED = ("p99 ms", "cpu s", CERTIFIED, "decision ms", "termination")
"""Columns omitted first on a narrow terminal; the results file and the report contain them."""

CLAIMED = "claimed bound"
"""Column of the bounds that solvers of other libraries claim, which are not checked; omitted if no record has one."""

OF_SOLVES = frozenset({"objective", "bound", "gap %", TO_BEST, TO_BOUND, CLAIMED, CERTIFIED, "decision ms", "p99 ms"})
"""Columns that a table omits if no record of the suite has an objective or a bound, as in a study."""

MARK = "*"
"""Suffix of a solver that uses future information; a line below the table describes the information."""

MAX_LISTED = 20
"""Maximum number of listed regressions, or of listed pairs of solver and instance with the same reason."""

MAX_ROWS = 30
"""Maximum number of records printed as rows without `--rows`; more records are summarised."""

MAX_PROBLEM_LINES = 10
"""Maximum number of failures and refusals listed below a scoreboard."""

MAX_SUITES = 12
"""Maximum number of suites listed one per row; a scoreboard of more suites has one row per problem."""


def print_scoreboard(specs: "Sequence[BenchSpec]", records: "Sequence[Record]", skipped: "Sequence[Skipped]") -> None:
    """Print one row per solver (single suite), per suite or per problem; then failures, and how to print all rows."""
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
            f"means over the cases that all solvers have: gap % over {found.gap_cases}, "
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
    left_out = f", and the {len(skipped)} skipped pairs of solver and instance" if skipped else ""
    print_line(f"The same command with --rows prints all {len(records)} rows{left_out}, without solving again.")


def _print_problems(specs: "Sequence[BenchSpec]", records: "Sequence[Record]") -> None:
    """Print the headlines, and one row per problem with its suites."""
    from optim.benchmarks.headline import headlines
    from optim.benchmarks.summary import stopped_at_limits

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
        shown = {(one.suite, name) for one in lines for name in (one.ours_by, one.baseline_by)}
        for suite in dict.fromkeys(one.suite for one in lines):
            mine = [record for record in records if record.suite == suite and (suite, record.solver) in shown]
            for text in stopped_at_limits(mine):
                print_line(f"{suite}: {text}")
    rows = []
    for problem in dict.fromkeys(spec.problem for spec in specs):
        names = [spec.name for spec in specs if spec.problem == problem]
        mine = [record for record in records if record.suite in names]
        spent = _short(sum(record.processor_s or 0.0 for record in mine))
        rows.append((problem, len(names), len(mine), sum(record.verified for record in mine), spent))
    print_table(("problem", "suites", "records", "verified", "total cpu s"), rows)
    print_line("For results per suite, see the report, or name a suite in the same command (optim info lists them).")


def _four(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def print_paired(
    specs: "Sequence[BenchSpec]", records: "Sequence[Record]", baseline: str, known: "Mapping[Of, BestKnown]"
) -> None:
    """Print per suite how each solver differs from the baseline on the cases that both solved.

    Differences are relative to the best known bound of each instance.
    """
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
    """Print per instance the best known value and bound that ratios refer to, and their sources."""
    for instance in dict.fromkeys(instance_of(record) for record in records if record.objective is not None):
        if instance in known:
            print_line(f"{instance[1]}: {known[instance]}")


def print_bench_tables(
    specs: "Sequence[BenchSpec]",
    records: "Sequence[Record]",
    skipped: "Sequence[Skipped]",
    known: "Mapping[Of, BestKnown] | None" = None,
) -> None:
    """Print one table per suite, then the skipped, refused and failed pairs with reasons."""
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
    """Return a solver's name, with `MARK` if one of its records used future information."""
    return solver + (MARK if any(record.solver == solver and foresight_of(record) for record in records) else "")


def _print_marks(records: "Sequence[Record]") -> None:
    """Print the future information that each marked solver uses, and which solvers a limit stopped."""
    from optim.benchmarks.summary import stopped_at_limits

    for text in sorted({f"{record.solver}{MARK}: {said}" for record in records if (said := foresight_of(record))}):
        print_line(text)
    for text in stopped_at_limits(records):
        print_line(text)


def _problem_lines(skipped: "Sequence[Skipped]", records: "Sequence[Record]") -> list[str]:
    """Return one line per reason why pairs of solver and instance were skipped, failed or were refused."""
    events = [("skipped", entry.solver, entry.instance, entry.reason) for entry in skipped]
    for record in records:
        if record.error is not None:
            events.append(("failed", record.solver, record.instance, record.error))
        elif record.is_refused:
            events.append(("refused", record.solver, record.instance, "; ".join(record.violations)))
    lines = []
    for (what, reason), pairs in _by_reason(events).items():
        more = f" and {len(pairs) - MAX_LISTED} more" if len(pairs) > MAX_LISTED else ""
        lines.append(f"{what}: {', '.join(pairs[:MAX_LISTED])}{more}: {reason}")
    return lines


def _percent(share: float | None) -> float | None:
    return None if share is None else float(f"{round(100 * share, 9):.4g}")


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.3g}")


def print_differences(differences: "Sequence[Difference]") -> None:
    """Print regressions, missing rows and improvements to stderr, and count the rest."""
    events = [difference for difference in differences if difference.change != "same"]
    for difference in sorted(events, key=lambda difference: not difference.is_regression)[:MAX_LISTED]:
        info(str(difference))
    counts = Counter(difference.change.value for difference in differences)
    info("compared: " + (", ".join(f"{number} {change}" for change, number in sorted(counts.items())) or "no rows"))


def _header(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the column names of a suite's table."""
    return (
        *("instance", *columns, "solver", "termination", "objective", "bound", "gap %", TO_BEST, TO_BOUND),
        *(CLAIMED, CERTIFIED),
        *("seconds", "cpu s", "decision ms", "p99 ms", "verified"),
    )


def _filled(columns: Sequence[str], rows: list[tuple[object, ...]]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Drop empty columns: the suite's, claimed bounds and ratios, and `OF_SOLVES` if there is no objective or bound."""
    header = _header(columns)
    is_empty = {name: all(row[k] is None for row in rows) for k, name in enumerate(header)}
    dropped = {name for name in (*columns, CLAIMED, TO_BEST, TO_BOUND) if is_empty[name]}
    if is_empty["objective"] and is_empty["bound"]:
        dropped |= OF_SOLVES
    kept = [k for k, name in enumerate(header) if name not in dropped]
    return tuple(header[k] for k in kept), [tuple(row[k] for k in kept) for row in rows]


def _row(record: "Record", columns: Sequence[str], known: "Mapping[Of, BestKnown]") -> tuple[object, ...]:
    """Return a record's row; seconds cover the complete solve, CPU seconds also compilation."""
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


def _by_reason(events: Sequence[tuple[str, str, str, str]]) -> dict[tuple[str, str], list[str]]:
    """Group pairs of solver and instance by event and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for what, solver, instance, reason in events:
        reasons.setdefault((what, reason), []).append(f"{solver} on {instance}")
    return reasons


DEFAULT_PROBLEM = "admission"
"""Problem whose generator uses the sizes (`--jobs`, ...) if no suite is named."""

LEARNER = "online-learned"
"""The solver that learns from instances of earlier days."""


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
    """Run benchmark suites: every solver on every instance, with verified solutions."""
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
        info(f"also running {baseline}, the baseline of --compare")
        request = replace(request, solvers=(*request.solvers, baseline))
    golden = _golden(files) if baseline is None else None
    path = files.results_path
    records: list[Record] = []
    hint = f"finished records stay in {path}, and the same command resumes"
    with terminal_progress() as progress, listening(hint) as stop:
        plan = plan_work(specs, request)
        if not words and not suites.suite and (request.sources is not None or request.profile is not None):
            info(f"running only the suites that accept these instances: {', '.join(spec.name for spec in specs)}")
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
        known = best_known([*records, *read_records(path)])  # includes results of other solvers from earlier runs
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
        info(f"stopped: {len(records)} of {len(plan.work)} records are in {path}; the same command resumes")
        return ExitCode.INTERRUPTED
    return _finish(records, plan.skipped, files, golden, plan.compare)


def _finish(
    records: "Sequence[Record]",
    skipped: "Sequence[Skipped]",
    files: ResultsChoice,
    golden: "Sequence[Record] | None",
    compare: "Callable[[Sequence[Record], Sequence[Record]], list[Difference]]",
    joined: str = "",
    shown: "Sequence[Record] | None" = None,
) -> ExitCode:
    """Write the report (on the records `shown`, if given) and golden results, and compare the records with `golden`."""
    from optim.benchmarks.compare import write_golden as store_golden
    from optim.benchmarks.report import write_report

    report = files.report_path
    if report is not None:
        write_report(records if shown is None else shown, skipped, report)
    what = "record" if len(records) == 1 else "records"
    info(f"{len(records)} {what}{joined} in {files.results_path}" + (f", report in {report}" if report else ""))
    if files.write_golden is not None:
        store_golden(records, files.write_golden)
    differences = [] if golden is None else compare(records, golden)
    if golden is not None:
        print_differences(differences)
    return _exit_code(records, differences)


def _baseline(compare: str | None, specs: "Sequence[BenchSpec]", solvers: Sequence[str]) -> str | None:
    """Return the solver that `compare` names (also MODULE.py:CLASS), or None if it names a results file."""
    from optim.solvers.solve import solver_names

    if compare is None or compare in solvers or Path(compare).exists():
        return compare if compare in solvers else None
    known = {name for spec in specs if spec.problem in problems() for name in solver_names(spec.problem)}
    return compare if compare in known or is_file_reference(compare) else None


def _golden(files: ResultsChoice) -> "Sequence[Record] | None":
    """Return the golden results to compare with, if any."""
    from optim.benchmarks.compare import read_golden

    return None if files.compare is None else read_golden(files.compare)


def _check_merged(is_alone: bool) -> None:
    """Raise if ``--merge`` is combined with options of a run."""
    if not is_alone:
        raise InvalidOptionError(
            "--merge runs no solvers; omit suites, instances, solvers, seeds, --no-resume and execution options, or --merge"
        )


def _merge(sources: Sequence[Path], files: ResultsChoice, output: OutputFormat) -> ExitCode:
    """Merge results files of several machines, and report as after a run; a golden row that no file has is a regression."""
    from optim.benchmarks.best_known import best_known
    from optim.benchmarks.compare import Selection, compare, merge_results
    from optim.benchmarks.records import row_of
    from optim.benchmarks.suite import SUITES
    from optim.core.files import prepare_folder

    for place in filter(None, (files.results_path, files.report_path, files.write_golden)):
        prepare_folder(place)
    records = merge_results(sources, files.results_path)
    shown = named_by_options(records)
    baseline = files.compare if files.compare in {record.solver for record in shown} else None
    golden = _golden(files) if baseline is None else None
    if output is OutputFormat.TABLE:
        specs = [spec for name in sorted({record.suite or "" for record in records}) if (spec := SUITES.find(name))]
        show = print_bench_tables if files.rows or len(records) <= MAX_ROWS else print_scoreboard
        show(specs, shown, ())
        if baseline is not None:
            print_paired(specs, shown, baseline, best_known(records))
    else:
        print_rows([row_of(record) for record in records], output)
    everything = Selection(
        suites=tuple({row.suite for row in golden or () if row.suite is not None}),
        seeds=tuple({row.seed for row in golden or ()}),
    )
    joined = f" of {len(sources)} files"
    return _finish(records, (), files, golden, lambda now, then: compare(now, then, everything), joined, shown)


def _problem_of(words: Sequence[str], suites: SuiteChoice) -> str:
    """Return the problem of the first named suite, whose generator uses the sizes."""
    from optim.benchmarks.suite import SUITES

    first = next(iter((*split_list(suites.suite), *words)), None)
    return DEFAULT_PROBLEM if first is None else SUITES.get(first).problem


def _requested(
    wanted: "InstanceRequest", words: Sequence[str], suites: SuiteChoice, solving: SolveChoice, folder: Path
) -> "tuple[tuple[BenchSpec, ...], BenchRequest]":
    """Return the chosen suites, and the request to run."""
    from optim.benchmarks.suite import SMALL, BenchRequest, choose_suites

    is_profiled = wanted.is_profile_only
    sources = None if is_profiled else wanted.sources()
    problem = None if sources is None else wanted.problem_name
    specs = choose_suites(tuple(words), split_list(suites.suite), instances_of=problem, is_profiled=is_profiled)
    is_own = sources is not None or wanted.profile is not None
    if is_own and suites.size != SMALL and any(spec.name == spec.problem for spec in specs):
        raise InvalidOptionError(
            "--size applies only to built-in instances; omit --size, or the instances that you name"
        )
    if solving.histories is not None:
        _check_histories(solving, specs)
    request = BenchRequest(
        size=suites.size,
        sources=sources,
        profile=wanted.profile,
        solvers=split_list(solving.solver) or None,
        seeds=split_seeds(solving.seed),
        time_limit_s=check_time_limit(solving.time_limit),
        options=split_options(solving.settings, once=ONE_VALUE) | _learned_from(solving),
        histories=solving.histories,
        folder=folder,
    )
    return specs, request


def _learned_from(solving: SolveChoice) -> dict[str, str]:
    """Return the solver option that passes the instances of ``--history`` to `LEARNER`."""
    names = split_list(solving.history)
    return {f"{LEARNER}.history": ",".join(names)} if names else {}


def _check_histories(solving: SolveChoice, specs: "Sequence[BenchSpec]") -> None:
    """Raise if ``--histories`` has no effect on this run."""
    solvers = split_list(solving.solver)
    if all(spec.name != DEFAULT_PROBLEM for spec in specs):
        raise InvalidOptionError(
            f"--histories applies only to the suite {DEFAULT_PROBLEM!r}; add this suite, or omit --histories"
        )
    if solvers and LEARNER not in solvers:
        raise InvalidOptionError(f"--histories applies only to the solver {LEARNER!r}; add --solver {LEARNER}")
    if solving.history is not None:
        raise InvalidOptionError("--history and --histories exclude each other; give one")


def _exit_code(records: "Sequence[Record]", differences: "Sequence[Difference]") -> ExitCode:
    """Return the exit code of the most severe event."""
    if any(record.is_refused for record in records):
        return ExitCode.REFUSED
    if any(difference.is_regression for difference in differences):
        return ExitCode.REGRESSION
    if not records or not all(record.has_answer for record in records):
        return ExitCode.NOTHING
    return ExitCode.DONE
