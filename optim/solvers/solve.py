"""`solve`: one call from an instance to a solution with a certificate."""

from dataclasses import replace
from importlib import import_module
from typing import Any, Literal

from optim.core.driver import AbstractSolver, SolveInterrupted, stopping_at_ctrl_c
from optim.core.errors import InvalidOptionError, SolverError, UnsupportedProblemError, check_seed
from optim.core.options import build_options
from optim.core.progress import Progress, listener_of
from optim.core.provenance import package_versions
from optim.core.registry import REGISTRY, Solver, check_solver_type
from optim.core.solution import Solution
from optim.core.stopping import AnyOf, StoppingCriterion, TimeLimit
from optim.core.user_code import is_file_reference, load_class_from_file, where_user_code_failed
from optim.models.catalogue import problem_named, problem_of


def solver_names(problem: str) -> tuple[str, ...]:
    """Return the sorted names of a problem's solvers, including those of installed plug-ins.

    Raises
    ------
    InvalidProblemError
        If there is no such problem.

    Examples
    --------
    >>> import optim
    >>> "online" in optim.solver_names("admission")
    True
    """
    problem_named(problem)
    return tuple(solver.name for solver in solvers_of(problem))


def solver_named(problem: str, name: str) -> Solver:
    """Return a solver of a problem: a registered one by name, or a custom one by ``./mine.py:MySolver``.

    Raises
    ------
    InvalidOptionError
        If there is no solver with that name.
    """
    import_module(f"optim.solvers.{problem}")
    if is_file_reference(name):
        return _user_solver(problem, name)
    return REGISTRY.get(problem, name)


def _user_solver(problem: str, name: str) -> Solver:
    """Return a solver from a file, under the name that its class registers, otherwise under the requested name."""
    kind = load_class_from_file(name, AbstractSolver, f"a solver of {problem}")
    registered = [solver for solver in REGISTRY if type(solver) is kind]
    if registered and registered[0].problem != problem:
        raise InvalidOptionError(f"{name} is a solver of {registered[0].problem!r}, not of {problem!r}")
    if registered:
        return registered[0]
    try:
        check_solver_type(kind)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{name}: {error}") from None
    kind.name, kind.problem = name, problem
    solver: Solver = kind()
    return solver


def solvers_of(problem: str) -> tuple[Solver, ...]:
    """Return all solvers of a problem, sorted by name."""
    import_module(f"optim.solvers.{problem}")
    return REGISTRY.of_problem(problem)


def default_solver(problem: str, instance: Any) -> str:
    """Return the default solver of an instance: the first in alphabetical order that is a default for it."""
    solvers = solvers_of(problem)
    return next(one.name for one in solvers if isinstance(one, AbstractSolver) and one.is_default_for(instance))


def solve(
    instance: Any,
    solver: str | None = None,
    *,
    options: Any = None,
    time_limit_s: float | None = None,
    stop: StoppingCriterion | None = None,
    seed: int = 0,
    progress: Progress | bool | None = None,
    on_interrupt: Literal["raise", "return"] = "raise",
) -> Solution:
    """Solve an instance.

    Parameters
    ----------
    instance
        An instance of any problem.
    solver
        Name of a registered solver of that problem, or a custom class as ``./mine.py:MySolver``. Default: ``exact`` for
        auctions and small admission instances, ``search`` for other admission instances, ``dinkelbach`` for bidding.
    options
        The solver's options object, or a mapping of its fields.
    time_limit_s
        Wall-clock limit in seconds; compile time doesn't count.
    stop
        A stopping rule in addition to the time limit.
    seed
        Seed of the random numbers; equal seeds give equal solutions.
    progress
        True prints a line at each improvement of objective or bound; a custom object receives all events
        (`optim.core.progress.Progress`). Default: silent.
    on_interrupt
        Effect of Ctrl-C: ``"raise"`` ends the solve and raises `optim.SolveInterrupted` with the best `solution` so far;
        ``"return"`` returns that solution, with termination ``interrupted``. If the solve nevertheless ends regularly, the
        solution is complete and has its regular termination. A second Ctrl-C aborts immediately.

    Returns
    -------
    Solution
        Objective, bound, gap and certificate; statuses report outcomes other than success.

    Raises
    ------
    InvalidOptionError
        If solver or an option is unknown or out of range, or another argument has a wrong type.
    UnsupportedProblemError
        If the solver doesn't support this instance; the message gives the reason.
    SolveInterrupted
        After Ctrl-C, unless `on_interrupt` is ``"return"``.

    Examples
    --------
    >>> import optim
    >>> solution = optim.solve(optim.reference_instance("auction-tiny-0"), time_limit_s=60)
    >>> solution.termination.value
    'optimal'
    """
    problem = problem_of(instance)
    if solver is None:
        solver = default_solver(problem.name, instance)
    _check_arguments(problem.name, solver, stop, seed)
    chosen = solver_named(problem.name, solver)
    support = chosen.supports(instance)
    if not support:
        raise UnsupportedProblemError(
            f"solver {solver!r} does not support instance {instance.name!r}: {support.reason}"
        )
    if on_interrupt not in ("raise", "return"):
        raise InvalidOptionError(f"on_interrupt must be 'raise' or 'return', got {on_interrupt!r}")
    rules = ([stop] if stop is not None else []) + ([TimeLimit(time_limit_s)] if time_limit_s is not None else [])
    with stopping_at_ctrl_c() as interruption:
        try:
            solution = chosen.solve(
                instance,
                options=build_options(chosen.options_type, options),
                stop=AnyOf(interruption, *rules),
                seed=seed,
                progress=listener_of(progress),
            )
        except SystemExit as error:  # the calling process continues
            place = where_user_code_failed(error) or f"solver {solver!r}: SystemExit: {error}"
            raise SolverError(f"{place}; a solver must not end the process, let it raise another error") from error
    remark, counts = problem.remarks(instance)
    solution = replace(
        solution,
        versions=package_versions(),
        message="; ".join(filter(None, (solution.message, remark))),
        stats=replace(solution.stats, counts={**counts, **solution.stats.counts}),
    )
    if interruption.is_requested and on_interrupt == "raise":
        raise SolveInterrupted(solution)
    return solution


def _check_arguments(problem: str, solver: Any, stop: Any, seed: Any) -> None:
    """Raise InvalidOptionError unless the arguments of `solve` have their types."""
    if not isinstance(solver, str):
        raise InvalidOptionError(f"solver must be a name from optim.solver_names({problem!r}), got {solver!r}")
    if stop is not None and not callable(stop):
        raise InvalidOptionError(
            f"stop must be a stopping rule, such as optim.core.stopping.IterationLimit(5), got {stop!r}"
        )
    check_seed(seed)
