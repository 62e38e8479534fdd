"""`optim solve`: solve one instance, verify the solution, print and store it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optim.cli.border import error_exit, listening
from optim.cli.commands import complete_problem_or_instance, complete_solver
from optim.cli.messages import ExitCode
from optim.cli.output import OutputFormat, print_fields, print_json, terminal_progress
from optim.cli.parameters import (
    FormatOption,
    OutOption,
    SeedOption,
    TimeLimitOption,
    check_out,
    check_problem,
    check_time_limit,
    option,
    split_options,
    split_problem,
)

if TYPE_CHECKING:
    from optim.benchmarks.records import Record


def solve(
    words: Annotated[
        list[str],
        typer.Argument(
            autocompletion=complete_problem_or_instance,
            metavar="[PROBLEM] INSTANCE",
            help="An instance file, or the name of a reference instance.",
        ),
    ],
    *,
    solver: Annotated[
        str | None,
        option(
            "--solver",
            "Solver (`optim solvers` lists them). Default: exact for auctions and small admission instances, search for larger "
            "ones, dinkelbach for bidding.",
            "NAME",
            autocompletion=complete_solver,
        ),
    ] = None,
    seed: SeedOption = 0,
    time_limit: TimeLimitOption = None,
    settings: Annotated[list[str] | None, option("--option", "A solver option; repeatable.", "NAME=VALUE")] = None,
    options_file: Annotated[
        Path | None, option("--options-file", "File of solver options; --option overrides it.", "TOML")
    ] = None,
    details: Annotated[bool, option("--details", "Also print phases, loads, counts and memory.")] = False,
    out: OutOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Solve an instance, verify the solution, and print it; exit code 3 if the checker refuses it."""
    from optim.benchmarks.suite import SolveWork, Subject
    from optim.core.options import read_options
    from optim.models.files import save_solution
    from optim.solvers.solve import default_solver
    from optim.workloads.instances import find_instance

    problem, (name,) = split_problem(words, ("INSTANCE",))
    subject = Subject(find_instance(name))
    check_problem(problem, subject.problem.name, name)
    check_out(out)
    if solver is None:
        solver = default_solver(subject.problem.name, subject.instance)
    from_file: dict[str, Any] = read_options(options_file) if options_file is not None else {}
    work = SolveWork(
        suite=None,
        subject=subject,
        solver=solver,
        seed=seed,
        time_limit_s=check_time_limit(time_limit),
        options={**from_file, **split_options(settings)},
    )
    hint = "the best solution so far will be returned"
    with terminal_progress() as progress, listening(hint) as interruption:
        limit = "" if time_limit is None else f", at most {time_limit:g} s"
        progress.start(f"{solver} on {subject.name}{limit}")
        solution, record = work.attempt(interruption, progress)
    if record.is_refused:
        return error_exit(
            f"the checker refused the solution of {solver!r}: {'; '.join(record.violations)}", ExitCode.REFUSED
        )
    if out is not None:
        save_solution(solution, subject.instance, out)
    if output is OutputFormat.JSON:
        print_json(record)
    else:
        print_fields(_details(record) if details else _summary(record))
    if interruption.is_requested:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if record.has_answer else ExitCode.NOTHING


LABELS = {"ratio": "certified_ratio"}
"""Names in tables of those fields of a record that have a different name there."""


def _summary(record: "Record") -> dict[str, Any]:
    """Return the main fields of the result, without empty ones."""
    names = (
        *("instance", "solver", "seed", "termination", "objective", "bound", "gap", "ratio", "competitive_ratio"),
        *("verified", "certificate", "wall_s", "processor_s", "message"),
    )
    fields = {LABELS.get(name, name): getattr(record, name) for name in names}
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _details(record: "Record") -> dict[str, Any]:
    """Return all fields for `--details`; decision times only if the solver recorded them."""
    names = (
        *(
            "instance",
            "solver",
            "seed",
            "termination",
            "objective",
            "bound",
            "gap",
            "claimed_bound",
            "ratio",
            "competitive_ratio",
            "verified",
        ),
        *(
            "certificate",
            "wall_s",
            "processor_s",
            "seconds",
            "decision_ms",
            "load",
            "iterations",
            "counts",
            "memory_mb",
        ),
        "message",
    )
    counts = dict(record.counts)
    changed = {
        "claimed_bound": counts.pop("claimed_bound", None),
        "load": record.load or {},
        "counts": counts,
        "message": record.message or None,
    }
    fields = {LABELS.get(name, name): changed[name] if name in changed else getattr(record, name) for name in names}
    decision = record.decision_ms
    if not decision:
        del fields["decision_ms"]
        return fields
    return fields | {"decision_ms": {name: decision.get(name) for name in ("median", "p99")}}
