"""The one result type of every solver."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optim.core.certificate import Certificate
from optim.core.errors import NotAllowedError
from optim.core.status import PointStatus, Sense, Termination

GAP_FLOOR = 1e-9
"""Smallest denominator of a relative gap, so that an objective of zero has a finite one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a solve cost.

    Parameters
    ----------
    seconds
        Wall-clock seconds by phase: ``build``, ``compile``, ``solve``, ``verify`` and, where a
        solver has them, finer phases. Compile time is never mixed into ``solve``.
    iterations
        Iterations of the solver's main loop (rounds, nodes or moves: the solver's page tells).
    memory_mb
        Peak resident memory of the process in MiB when the solve ended.
    decision_ms
        For online solvers the milliseconds of each decision, in order of arrival.
    counts
        Further counters by name: columns, cuts, nodes, moves, rejected jobs, and so on.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    iterations: int = 0
    memory_mb: float | None = None
    decision_ms: tuple[float, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A decision, what it is worth, and what is proven about it.

    Parameters
    ----------
    problem, instance, solver
        Names of the problem, the instance and the solver.
    sense
        Whether the objective is maximised or minimised.
    termination, primal, dual
        Why the solver stopped, what the decision is, and what the bound's proof is.
    decision
        The problem's decision type, or None where there is none.
    objective
        Value of the decision; None without one. A relaxation's value is never an objective.
    bound
        Proven bound on every decision's value; None where nothing is proven.
    certificate
        What is proven, and by what.
    seed, options, versions
        What is needed to run it again.
    stated
        Further figures that a file states, by name (``gap``); they follow from the others, and `verify` compares them.
    """

    problem: str
    instance: str
    solver: str
    sense: Sense
    termination: Termination
    primal: PointStatus
    dual: PointStatus = PointStatus.NONE
    decision: Any = None
    objective: float | None = None
    bound: float | None = None
    certificate: Certificate | None = None
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    stats: Stats = field(default_factory=Stats)
    versions: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    stated: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def gap(self) -> float | None:
        """Relative gap between bound and objective, None without either.

        ``(bound - objective) / max(|objective|, 1e-9)`` when maximising, mirrored when minimising.
        """
        return relative_gap(self.objective, self.bound, self.sense)

    @property
    def ratio(self) -> float | None:
        """Certified ratio of bound to objective (at least the true one), None without either."""
        if self.objective is None or self.bound is None:
            return None
        best, worst = (self.bound, self.objective) if self.sense is Sense.MAXIMISE else (self.objective, self.bound)
        if best <= 0:
            return 1.0
        return best / worst if worst > 0 else None

    def raise_unless_optimal(self) -> "Solution":
        """Return self if optimality was proven, otherwise raise.

        Raises
        ------
        NotAllowedError
            If the termination is anything but ``optimal``.
        """
        if self.termination is not Termination.OPTIMAL:
            raise NotAllowedError(
                f"solver {self.solver!r} stopped with {self.termination.value!r} (gap {self.gap}); "
                "give it more time, or use the solution's gap and certificate instead of asking for optimality"
            )
        return self


def relative_gap(objective: float | None, bound: float | None, sense: Sense) -> float | None:
    """Return `(bound - objective) / max(|objective|, 1e-9)`, mirrored when minimising; None without either."""
    if objective is None or bound is None:
        return None
    difference = bound - objective if sense is Sense.MAXIMISE else objective - bound
    return difference / max(abs(objective), GAP_FLOOR)
