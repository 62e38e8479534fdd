"""`optim verify`: check a solution file against its instance, with code that no solver uses."""

from dataclasses import asdict
from typing import Annotated

import typer

from optim.cli.border import fail
from optim.cli.completion import complete_problem_or_instance
from optim.cli.exit_code import ExitCode
from optim.cli.output import OutputFormat, print_fields, print_json, print_table
from optim.cli.parameters import FormatOption, check_problem, split_problem


def verify(
    words: Annotated[
        list[str],
        typer.Argument(
            autocompletion=complete_problem_or_instance,
            metavar="[PROBLEM] INSTANCE SOLUTION | RUN.npz",
            help="The two files, or a logged run.",
        ),
    ],
    output: FormatOption = OutputFormat.TABLE,
) -> ExitCode:
    """Recompute every claim of a solution from the instance alone, or replay a logged run; exit code 3 if one doesn't hold."""
    if len(words) == 1 and words[0].endswith(".npz"):
        return _verify_runs(words[0], output)
    from optim.benchmarks.sources import find_instance
    from optim.models.catalogue import problem_of
    from optim.models.files import load_solution
    from optim.models.files import verify as check

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
    violations = verification.violations
    if output is OutputFormat.JSON:
        print_json({**fields, "violations": [asdict(violation) for violation in violations]})
    else:
        print_fields(fields)
        if violations:
            rows = [(violation.row, violation.amount, violation.message) for violation in violations]
            print_table(("row", "amount", "violation"), rows, is_wrapped=True)
    if violations:
        return fail(f"{solution_path}: {len(violations)} claims don't hold, first: {violations[0]}", ExitCode.REFUSED)
    return ExitCode.DONE


def _verify_runs(path: str, output: OutputFormat) -> ExitCode:
    """Replay each policy's log, recompute its figures and all bounds."""
    from optim.models.cluster.check import check_runs
    from optim.models.cluster.run_file import load_run

    refused: list[object] = []
    for name, found in check_runs(load_run(path)):
        fields = {"policy": name, "verified": found.is_ok, "jct_mean_h": found.objective, "proven": list(found.proven)}
        violations = found.violations
        refused.extend(violations[:1])
        if output is OutputFormat.JSON:
            print_json({**fields, "violations": [asdict(violation) for violation in violations]})
        else:
            print_fields(fields)
    if refused:
        return fail(f"{path}: {len(refused)} claims don't hold, first: {refused[0]}", ExitCode.REFUSED)
    return ExitCode.DONE
