"""`optim verify`: check a solution file against its instance, with code independent of the solvers."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from optim.cli.border import error_exit
from optim.cli.commands import complete_problem_or_instance
from optim.cli.messages import ExitCode
from optim.cli.output import OutputFormat, print_fields, print_json, print_table
from optim.cli.parameters import FormatOption, check_problem, split_problem
from optim.core.errors import InvalidOptionError, InvalidProblemError

if TYPE_CHECKING:
    from optim.core.solution import Violation


def verify(
    words: Annotated[
        list[str],
        typer.Argument(
            autocompletion=complete_problem_or_instance,
            metavar="[PROBLEM] INSTANCE SOLUTION | RUN",
            help="Instance and solution files, or a run that `optim simulate cluster --log` wrote.",
        ),
    ],
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Recompute every claim of a solution from the instance, or replay a logged run; exit code 3 if a claim is false."""
    if len(words) == 1:
        return _verify_runs(_run_named(words[0]), output)
    from optim.models.catalogue import problem_of
    from optim.models.files import load_solution
    from optim.models.files import verify as check
    from optim.workloads.instances import find_instance

    problem, (instance_name, solution_path) = split_problem(words, ("INSTANCE", "SOLUTION"))
    instance = find_instance(instance_name)
    check_problem(problem, problem_of(instance).name, instance_name)
    solution = load_solution(solution_path, instance)
    verification = check(instance, solution)
    fields = {
        "instance": instance.name,
        "solver": solution.solver,
        "verified": verification.is_ok,
        "objective": verification.objective,
        "bound": verification.bound,
        "proven": list(verification.proven),
    }
    if verification.competitive_ratio is not None:
        fields["competitive_ratio"] = verification.competitive_ratio
    _print(fields, verification.violations, output)
    return _exit_code(solution_path, verification.violations)


def _run_named(word: str) -> str:
    """Return the path of a logged run; its name need not end in ``.npz``.

    Raises
    ------
    InvalidOptionError
        If the single argument is not a file, for example an instance without its solution.
    """
    if not word.endswith(".npz") and not os.path.exists(word):
        raise InvalidOptionError(
            f"expected [PROBLEM] INSTANCE SOLUTION, or a run that 'optim simulate cluster --log' wrote; {word} is not a file"
        )
    return word


def _verify_runs(path: str, output: OutputFormat) -> ExitCode:
    """Replay each policy's log, and recompute its metrics and all bounds."""
    from optim.models.cluster.check import check_runs
    from optim.models.cluster.run_file import load_run

    try:
        record = load_run(path)
    except InvalidProblemError as error:
        if path.endswith(".npz"):
            raise
        raise InvalidProblemError(f"{error}; to verify a solution, give INSTANCE SOLUTION") from error
    found = check_runs(record)
    violations = [violation for _, one in found for violation in one.violations]
    if output is OutputFormat.JSON:
        for name, one in found:
            fields = {"policy": name, "verified": one.is_ok, "jct_mean_h": one.objective, "proven": list(one.proven)}
            _print(fields, one.violations, output)
    else:
        print_table(("policy", "verified", "jct_mean_h"), [(name, one.is_ok, one.objective) for name, one in found])
        _print({"proven": [claim for _, one in found for claim in one.proven]}, violations, output)
    return _exit_code(path, violations)


def _print(fields: dict[str, object], violations: "Sequence[Violation]", output: OutputFormat) -> None:
    """Print the fields, then one row per violation."""
    if output is OutputFormat.JSON:
        print_json({**fields, "violations": [asdict(violation) for violation in violations]})
        return
    print_fields(fields)
    if violations:
        rows = [(violation.row, violation.amount, violation.message) for violation in violations]
        print_table(("row", "amount", "violation"), rows, is_wrapped=True)


def _exit_code(path: str, violations: "Sequence[Violation]") -> ExitCode:
    """Return DONE, or print the first violation and return REFUSED."""
    if violations:
        return error_exit(f"{path}: {len(violations)} violations, first: {violations[0]}", ExitCode.REFUSED)
    return ExitCode.DONE
