"""Solvers by name: one decorator registers, entry points add those of other packages."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.core.installed import load_plugins, note_registration
from optim.core.nearest import hint
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.solution import Solution
from optim.core.stopping import StoppingCriterion

ENTRY_POINT_GROUP = "optim.solvers"


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a solver can treat an instance; the reason where it can't. False by default."""

    is_supported: bool = False
    reason: str = "the solver does not say that it supports this instance"

    def __bool__(self) -> bool:
        return self.is_supported


SUPPORTED = Support(True, "")


class Solver(Protocol):
    """What a solver is: a name, what it supports, and a way to solve."""

    name: str
    problem: str
    summary: str
    options_type: type[Any]

    def supports(self, instance: Any) -> Support:
        """Tell whether the instance can be treated, and if not, why."""
        ...

    def solve(
        self,
        instance: Any,
        *,
        options: Any,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Solve the instance; outcomes are statuses, only wrong use raises."""
        ...


SolverT = TypeVar("SolverT", bound=type[Any])


def check_solver_type(kind: Any) -> None:
    """Raise InvalidOptionError where a solver's class lacks what it is told by."""
    if not isinstance(getattr(kind, "summary", None), str):
        raise InvalidOptionError(f"{kind.__name__} lacks summary; set it to a few words on what the solver does")
    if not isinstance(getattr(kind, "options_type", None), type):
        raise InvalidOptionError(f"{kind.__name__} lacks options_type; set it to the dataclass of the solver's options")


class SolverRegistry:
    """A table of solvers by (problem, name)."""

    def __init__(self) -> None:
        self._solvers: dict[tuple[str, str], Solver] = {}
        self._are_entry_points_loaded = False

    def register(self, name: str, *, problem: str) -> Callable[[SolverT], SolverT]:
        """Register a solver class under `name`; used as a decorator in the solver's own file.

        Raises
        ------
        NotAllowedError
            If the name is taken.
        InvalidOptionError
            If the class lacks its `summary` or `options_type`.
        """

        def decorate(solver_type: SolverT) -> SolverT:
            key = (problem, name)
            if key in self._solvers:
                raise NotAllowedError(f"solver {name!r} for {problem!r} is registered twice; choose another name")
            check_solver_type(solver_type)
            solver_type.name, solver_type.problem = name, problem
            self._solvers[key] = solver_type()
            note_registration()
            return solver_type

        return decorate

    def get(self, problem: str, name: str) -> Solver:
        """Return the solver `name` of `problem`.

        Raises
        ------
        InvalidOptionError
            If there is none; the message lists those that exist.
        """
        self._load_entry_points()
        try:
            return self._solvers[problem, name]
        except KeyError:
            known = [solver.name for solver in self.of_problem(problem)]
            raise InvalidOptionError(
                f"unknown solver {name!r} for {problem!r}; {hint(name, known)}known: {', '.join(known) or 'none'}"
            ) from None

    def of_problem(self, problem: str) -> tuple[Solver, ...]:
        """Return all solvers of a problem, sorted by name."""
        return tuple(solver for solver in self if solver.problem == problem)

    def __iter__(self) -> Iterator[Solver]:
        self._load_entry_points()
        yield from (self._solvers[key] for key in sorted(self._solvers))

    def _load_entry_points(self) -> None:
        """Import third-party solvers once; importing their module registers them."""
        if not self._are_entry_points_loaded:
            self._are_entry_points_loaded = True
            load_plugins(ENTRY_POINT_GROUP)


REGISTRY = SolverRegistry()
"""The table of this process. It holds code, not state: solving changes nothing in it."""

register = REGISTRY.register


def describe_options(solver: Solver) -> Mapping[str, Any]:
    """Return the defaults of a solver's options by name."""
    return options_as_dict(solver.options_type())
