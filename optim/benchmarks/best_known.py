"""The best known objective and tightest proven bound of an instance, with their solvers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from optim.benchmarks.records import Record
from optim.core.solution import Sense
from optim.models.catalogue import problem_named, problem_names
from optim.models.reference import reference_instance, reference_solution, solved_reference_names

SHIPPED = "the shipped solution"

TO_BEST, TO_BOUND = "ratio to best known", "ratio to bound"
"""Columns: objective relative to the best known one and to the tightest bound; at most 1, also for minimisation."""

CERTIFIED = "certified ratio"
"""Column: `Solution.ratio`, one solution's own bound over its objective (maximisation), at least 1."""

Of = tuple[str, str, str]
"""Identity of an instance: problem, name and digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestKnown:
    """The best verified objective and bound of an instance; None if there is none.

    Parameters
    ----------
    objective, objective_by
        The best verified objective, and its solver.
    bound, bound_by
        The tightest verified bound, and its solver.
    is_maximised
        Whether the objective is maximised.
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
        """Return an objective relative to the best one; at most 1, also for minimisation."""
        return self._share(objective, self.objective)

    def to_bound(self, objective: float | None) -> float | None:
        """Return an objective relative to the tightest bound; 1 is optimal."""
        return self._share(objective, self.bound)

    def _share(self, value: float | None, best: float | None) -> float | None:
        """Return the ratio, None if a value is missing or negative."""
        if value is None or best is None:
            return None
        high, low = (best, value) if self.is_maximised else (value, best)
        if min(low, high) < 0:
            return None
        return low / high if high > 0 else 1.0


def instance_of(record: Record) -> Of:
    """Return the identity of a record's instance."""
    return record.problem, record.instance, record.instance_digest


def best_known(records: Iterable[Record]) -> Mapping[Of, BestKnown]:
    """Return the best known values of each instance, from verified records and shipped solutions."""
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
    """Return digest, objective and bound of a reference instance's shipped solution, None if there is none."""
    if name not in solved_reference_names():
        return None
    from optim.benchmarks.suite import Subject

    solution = reference_solution(name)
    return Subject(reference_instance(name)).digest, solution.objective, solution.bound
