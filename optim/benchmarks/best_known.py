"""The best objective and the tightest proven bound that are known of an instance, and whose they are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from optim.benchmarks.records import Record
from optim.core.solution import Sense
from optim.models.catalogue import problem_named, problem_names
from optim.models.reference import reference_instance, reference_solution, solved_reference_names

SHIPPED = "the solution that ships"

TO_BEST, TO_BOUND = "ratio to best known", "ratio to bound"
"""Columns: an objective as a share of the best one that is known, and of the tightest bound; at most 1 in either sense."""

Of = tuple[str, str, str]
"""An instance: its problem, its name, and its digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestKnown:
    """What is known of an instance; None where nobody has a verified one.

    Parameters
    ----------
    objective, objective_by
        The best verified objective, and the solver that has it.
    bound, bound_by
        The tightest verified bound, and the solver that proved it.
    is_maximised
        Whether more is better.
    """

    objective: float | None
    objective_by: str
    bound: float | None
    bound_by: str
    is_maximised: bool

    def __str__(self) -> str:
        parts = []
        if self.objective is not None:
            parts.append(f"best known objective {self.objective:.6g} by {self.objective_by}")
        if self.bound is not None:
            parts.append(f"tightest bound {self.bound:.6g} by {self.bound_by}")
        return ", ".join(parts)

    def to_best(self, objective: float | None) -> float | None:
        """Return an objective as a share of the best one; at most 1 whether the problem maximises or minimises."""
        return self._share(objective, self.objective)

    def to_bound(self, objective: float | None) -> float | None:
        """Return an objective as a share of the tightest bound; 1 is optimal."""
        return self._share(objective, self.bound)

    def _share(self, value: float | None, best: float | None) -> float | None:
        """Return the share, None where a figure is missing or negative: a share of that says nothing."""
        if value is None or best is None:
            return None
        high, low = (best, value) if self.is_maximised else (value, best)
        if min(low, high) < 0:
            return None
        return low / high if high > 0 else 1.0


def instance_of(record: Record) -> Of:
    """Return which instance a record is of."""
    return record.problem, record.instance, record.instance_digest


def best_known(records: Iterable[Record]) -> Mapping[Of, BestKnown]:
    """Return what is known of each instance of records of solves, from all of them and from the solutions that ship."""
    claims: dict[Of, list[tuple[str, float | None, float | None]]] = {}
    for record in records:
        if record.verified and record.problem in problem_names():
            mine = claims.setdefault(instance_of(record), [])
            mine.append((record.solver, record.objective, record.bound))
    known = {}
    for instance, entries in claims.items():
        _, name, digest = instance
        shipped = _shipped(name)
        if shipped is not None and shipped[0] == digest:
            entries.append((SHIPPED, *shipped[1:]))
        is_maximised = problem_named(instance[0]).sense is Sense.MAXIMISE
        better, tighter = (max, min) if is_maximised else (min, max)
        values = [(value, solver) for solver, value, _ in entries if value is not None]
        bounds = [(bound, solver) for solver, _, bound in entries if bound is not None]
        objective, objective_by = better(values, key=lambda each: each[0], default=(None, ""))
        bound, bound_by = tighter(bounds, key=lambda each: each[0], default=(None, ""))
        known[instance] = BestKnown(
            objective=objective,
            objective_by=objective_by,
            bound=bound,
            bound_by=bound_by,
            is_maximised=is_maximised,
        )
    return known


@cache
def _shipped(name: str) -> tuple[str, float | None, float | None] | None:
    """Return digest, objective and bound of what ships for a reference instance of that name, None if nothing does."""
    if name not in solved_reference_names():
        return None
    from optim.benchmarks.suite import Subject

    solution = reference_solution(name)
    return Subject(reference_instance(name)).digest, solution.objective, solution.bound
