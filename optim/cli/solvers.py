"""`optim solvers`: list solvers, policies and their options."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from optim.cli.commands import complete_problem, complete_solver
from optim.cli.output import OutputFormat, print_json, print_line, print_rows, print_table, show_default
from optim.cli.parameters import FormatOption

CLUSTER, ENGINE = "cluster", "engine"
"""The simulation that has wrappers, and the name that lists its simulator's options (`optim solvers cluster engine`)."""

WORLDS = (CLUSTER, "spot", "zones", "containers")
"""Simulations whose policies `optim solvers` lists."""

SIMULATED = {"zones": "spot, several zones"}
"""Command-line names of worlds where they differ from the world's name."""


def solvers(
    problem: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete_problem,
            metavar="[PROBLEM]",
            help="A problem, or a simulation whose policies to list: cluster, spot, zones, containers. Default: all problems.",
        ),
    ] = None,
    solver: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete_solver, metavar="[SOLVER]", help="The solver or policy whose options to explain."
        ),
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """List the solvers of each problem with their options and defaults, or explain the options of one solver."""
    from optim.benchmarks.records import plain
    from optim.core.options import option_meanings
    from optim.core.registry import describe_options
    from optim.models.catalogue import problem_named, problem_names
    from optim.solvers.solve import solver_named, solvers_of

    if problem is not None and solver is None and problem not in (*problem_names(), *WORLDS):
        problem, solver = _named_alone(problem)
    if problem in WORLDS:
        _list_policies(problem, solver, output)
        return
    if problem is not None and solver is not None:
        named = solver_named(problem_named(problem).name, solver)
        title = f"{named.name} ({named.problem}): {named.summary}"
        _print_options(dict(plain(describe_options(named))), option_meanings(named.options_type), output, title)
        return
    names = problem_names() if problem is None else (problem_named(problem).name,)
    found = [each for name in names for each in solvers_of(name)]
    if output is OutputFormat.JSON:
        for one in found:
            known = {"problem": one.problem, "solver": one.name, "summary": one.summary}
            print_json({**known, "options": plain(describe_options(one))})
        return
    rows = [(one.problem, one.name, one.summary, ", ".join(_pairs(plain(describe_options(one))))) for one in found]
    print_table(("problem", "solver", "summary", "options"), rows, is_wrapped=True)


def _named_alone(name: str) -> tuple[str, str | None]:
    """Return the problem or simulation of a solver or policy, and its name; return any other name unchanged, with None.

    Raises
    ------
    InvalidOptionError
        If several problems or simulations have a solver or policy of that name.
    """
    from optim.core.errors import InvalidOptionError
    from optim.core.policies import shipped_names
    from optim.models.catalogue import problem_names
    from optim.solvers.solve import solvers_of

    owners = [problem for problem in problem_names() if any(one.name == name for one in solvers_of(problem))]
    owners += [world for world in WORLDS if name in shipped_names(world)]
    if len(owners) > 1:
        ways = " or ".join(f"'optim solvers {owner} {name}'" for owner in owners)
        raise InvalidOptionError(f"{name!r} is a solver or policy of {' and '.join(owners)}; use {ways}")
    return (owners[0], name) if owners else (name, None)


def _list_policies(world: str, name: str | None, output: OutputFormat) -> None:
    """List the policies of a simulation with options and defaults, or explain the options of one policy or of the cluster engine."""
    from optim.benchmarks.records import plain
    from optim.core.errors import unknown_name
    from optim.core.options import option_meanings, options_as_dict
    from optim.core.policies import policies_of
    from optim.simulation.cluster.catalogue import options_of
    from optim.simulation.cluster.options import EngineOptions

    kinds: dict[str, tuple[str, type[Any]]] = {
        each: (f"{'sees the future: ' if entry.is_reference else ''}{entry.summary}", entry.options_type)
        for each, entry in policies_of(world).items()
    }
    if world == CLUSTER:
        kinds |= {
            each: (f"wrapper: {entry.summary}", entry.options_type) for each, entry in policies_of("wrappers").items()
        }
        kinds[ENGINE] = ("options of the simulator", EngineOptions)

    def defaults(kind: type[Any]) -> dict[str, object]:
        return dict(plain(options_as_dict(kind())))

    if name is not None:
        if world != CLUSTER and name not in kinds:
            raise unknown_name(f"policy of {SIMULATED.get(world, world)}", name, list(kinds))
        kind = kinds[name][1] if name in kinds else options_of(name)
        options = defaults(kind)
        if not options and output is OutputFormat.TABLE:
            print_line(f"{name} has no options")
            return
        _print_options(options, option_meanings(kind), output, f"{name} (simulate {SIMULATED.get(world, world)})")
        return
    if output is OutputFormat.JSON:
        for each, (what, options_type) in kinds.items():
            print_json({"problem": world, "policy": each, "description": what, "options": defaults(options_type)})
        return
    rows = [(each, what, ", ".join(_pairs(defaults(options_type)))) for each, (what, options_type) in kinds.items()]
    print_table(("policy", "description", "options"), rows, is_wrapped=True)


def _print_options(
    options: Mapping[str, object], meanings: Mapping[str, str], output: OutputFormat, title: str
) -> None:
    """Print one row per option: its default (in a table, in the syntax of `--option`) and its meaning."""
    entries = [
        {
            "option": name,
            "default": value if output is OutputFormat.JSON else show_default(value),
            "meaning": meanings.get(name, ""),
        }
        for name, value in options.items()
    ]
    print_rows(entries, output, title=title, is_wrapped=True)


def _pairs(options: dict[str, object]) -> list[str]:
    return [f"{name}={show_default(value)}" for name, value in options.items()]
