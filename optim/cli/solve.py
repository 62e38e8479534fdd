"""`optim solve`: solve one instance, verify the answer, print and store it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optim.cli.border import fail
from optim.cli.exit_code import ExitCode
from optim.cli.interruption import listening
from optim.cli.output import OutputFormat, print_fields, print_json
from optim.cli.parameters import (
    FormatOption,
    OutOption,
    SeedOption,
    SolverOptionsOption,
    TimeLimitOption,
    check_problem,
    check_time_limit,
    split_options,
    split_problem,
)
from optim.cli.progress import terminal_progress

if TYPE_CHECKING:
    from optim.benchmarks.record import Record


def solve(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[PROBLEM] INSTANCE", help="A file, or a reference instance's name."),
    ],
    *,
    solver: Annotated[str, typer.Option("--solver", metavar="NAME", help="One of `optim solvers`.")],
    seed: SeedOption = 0,
    time_limit: TimeLimitOption = None,
    option: SolverOptionsOption = None,
    options_file: Annotated[
        Path | None,
        typer.Option("--options-file", metavar="TOML", help="Solver options; --option goes before it."),
    ] = None,
    out: OutOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Solve an instance. What is printed and written is verified; exit code 3 if the checker refuses it."""
    from optim.benchmarks.sources import find_instance
    from optim.benchmarks.work import SolveWork, Subject
    from optim.core.files import check_folder
    from optim.core.options import read_options
    from optim.models.files import save_solution

    problem, (name,) = split_problem(words, ("INSTANCE",))
    subject = Subject(find_instance(name))
    check_problem(problem, subject.problem.name, name)
    if out is not None:
        check_folder(out)
    from_file: dict[str, Any] = read_options(options_file) if options_file is not None else {}
    work = SolveWork(
        suite=None,
        subject=subject,
        solver=solver,
        seed=seed,
        time_limit_s=check_time_limit(time_limit),
        options={**from_file, **split_options(option)},
    )
    hint = "the best solution so far is kept"
    with terminal_progress() as progress, listening(hint) as interruption:
        progress.start(f"{solver} on {subject.name}")
        solution, record = work.attempt(interruption, progress)
    if record.is_refused:
        return fail(f"the checker refused the answer of {solver!r}: {'; '.join(record.violations)}", ExitCode.REFUSED)
    if out is not None:
        save_solution(solution, subject.instance, out)
    if output is OutputFormat.JSON:
        print_json(record)
    else:
        print_fields(_shown(record))
    if interruption.is_requested:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if record.has_answer else ExitCode.NOTHING


def _shown(record: "Record") -> dict[str, Any]:
    """Return what people want to see first, leaving out what isn't there."""
    fields = {
        "instance": record.instance,
        "solver": record.solver,
        "seed": record.seed,
        "termination": record.termination,
        "objective": record.objective,
        "bound": record.bound,
        "gap": record.gap,
        "ratio": record.ratio,
        "verified": record.verified,
        "certificate": record.certificate,
        "wall_s": record.wall_s,
        "processor_s": record.processor_s,
        "seconds": record.seconds,
        "decision_ms": {name: (record.decision_ms or {}).get(name) for name in ("median", "p99")},
        "load": record.load or {},
        "iterations": record.iterations,
        "counts": record.counts,
        "memory_mb": record.memory_mb,
        "message": record.message or None,
    }
    return fields if record.decision_ms else {name: value for name, value in fields.items() if name != "decision_ms"}
