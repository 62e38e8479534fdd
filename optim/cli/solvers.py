"""`optim solvers`: which solvers there are, and what their options are."""

from typing import Annotated

import typer

from optim.cli.completion import complete_problem, complete_solver
from optim.cli.output import OutputFormat, print_json, print_rows, print_table, show
from optim.cli.parameters import FormatOption


def solvers(
    problem: Annotated[
        str | None,
        typer.Argument(autocompletion=complete_problem, metavar="[PROBLEM]", help="Only those of this problem."),
    ] = None,
    solver: Annotated[
        str | None,
        typer.Argument(autocompletion=complete_solver, metavar="[SOLVER]", help="Explain the options of this one."),
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """List the solvers of each problem with their options and defaults, or explain the options of one solver."""
    from optim.benchmarks.record import plain
    from optim.core.options import option_meanings
    from optim.core.registry import describe_options
    from optim.models.catalogue import problem_named, problem_names
    from optim.solvers.solve import solver_named, solvers_of

    if problem is not None and solver is not None:
        named = solver_named(problem_named(problem).name, solver)
        meanings = option_meanings(named.options_type)
        entries = [
            {"option": name, "default": value, "meaning": meanings.get(name, "")}
            for name, value in plain(describe_options(named)).items()
        ]
        print_rows(entries, output, title=f"{named.name} ({named.problem}): {named.summary}", is_wrapped=True)
        return
    names = problem_names() if problem is None else (problem_named(problem).name,)
    found = [each for name in names for each in solvers_of(name)]
    if output is OutputFormat.JSON:
        for one in found:
            known = {"problem": one.problem, "solver": one.name, "summary": one.summary}
            print_json({**known, "options": plain(describe_options(one))})
        return
    rows = [(one.problem, one.name, one.summary, ", ".join(_pairs(plain(describe_options(one))))) for one in found]
    print_table(("problem", "solver", "what it does", "options"), rows, is_wrapped=True)


def _pairs(options: dict[str, object]) -> list[str]:
    return [f"{name}={show(value)}" for name, value in options.items()]
