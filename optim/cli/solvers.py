"""`optim solvers`: which solvers there are, and what their options are."""

from typing import Annotated

import typer

from optim.cli.completion import complete_problem
from optim.cli.output import OutputFormat, print_json, print_table, show
from optim.cli.parameters import FormatOption


def solvers(
    problem: Annotated[
        str | None,
        typer.Argument(autocompletion=complete_problem, metavar="[PROBLEM]", help="Only those of this problem."),
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """List the solvers of each problem with their options and defaults."""
    from optim.benchmarks.record import plain
    from optim.core.registry import describe_options
    from optim.models.catalogue import problem_named, problem_names
    from optim.solvers.solve import solvers_of

    names = problem_names() if problem is None else (problem_named(problem).name,)
    found = [solver for name in names for solver in solvers_of(name)]
    if output is OutputFormat.JSON:
        for solver in found:
            known = {"problem": solver.problem, "solver": solver.name, "summary": solver.summary}
            print_json({**known, "options": plain(describe_options(solver))})
        return
    rows = [
        (solver.problem, solver.name, solver.summary, ", ".join(_pairs(plain(describe_options(solver)))))
        for solver in found
    ]
    print_table(("problem", "solver", "what it does", "options"), rows, is_wrapped=True)


def _pairs(options: dict[str, object]) -> list[str]:
    return [f"{name}={show(value)}" for name, value in options.items()]
