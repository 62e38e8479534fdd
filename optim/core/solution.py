"""The one result type of every solver."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from optim.core.certificate import Certificate
from optim.core.errors import NotAllowedError
from optim.core.frames import Columns, frame_of
from optim.core.relaxation import Relaxation
from optim.core.status import PointStatus, Sense, Termination

if TYPE_CHECKING:
    from pandas import DataFrame

GAP_FLOOR = 1e-9
"""Smallest denominator of a relative gap, so that an objective of zero has a finite one."""


SHOWN_FIELDS = ("solver", "termination", "objective", "bound", "gap")
"""What a notebook shows of a solution beside its picture."""


@runtime_checkable
class ShownDecision(Protocol):
    """A decision that can be told as a table and drawn."""

    def columns(self, instance: Any = None) -> Columns:
        """Return the columns of its table; with its instance, names in place of numbers."""
        ...

    def picture(self) -> str:
        """Return an ``<svg>`` element."""
        ...


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
    relaxation
        The fractional solution of the linear programme behind the bound, where the solver returns it (`column-generation`);
        files don't hold it.

    Examples
    --------
    >>> import optim
    >>> solution = optim.solve(optim.reference_instance("tiny-0"), "branch-and-price")
    >>> solution.termination.value, round(solution.objective, 3), solution.gap < 1e-6
    ('optimal', 63.885, True)
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
    relaxation: Relaxation | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.problem, self.instance, self.solver, self.seed, self.objective, self.bound))

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

    def to_frame(self, instance: Any = None) -> "DataFrame":
        """Return the decision as a pandas frame.

        Parameters
        ----------
        instance
            The instance that was solved: then jobs, apps and markets have their names in place of numbers.

        Returns
        -------
        pandas.DataFrame
            Admission: side, job, slot, server, count. Auction: app, slot, awarded, granted. Bidding: bid, count
            (with the instance market and delta_usd, too).

        Raises
        ------
        NotAllowedError
            If there is no decision, or its kind has no table.
        MissingDependencyError
            If pandas isn't installed.

        Examples
        --------
        >>> import optim
        >>> instance = optim.reference_instance("tiny-0")
        >>> frame = optim.solve(instance, "online").to_frame(instance)
        >>> frame.columns.tolist()
        ['side', 'job', 'slot', 'server', 'count']
        """
        if not isinstance(self.decision, ShownDecision):
            raise NotAllowedError(f"solver {self.solver!r} found no decision to make a frame of; see its termination")
        return frame_of(self.decision.columns(instance))

    def _repr_html_(self) -> str:
        """Return what notebooks show: the outcome, and the decision as a picture."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{escape(_shown(getattr(self, name)))}</td></tr>"
            for name in SHOWN_FIELDS
        )
        picture = self.decision.picture() if isinstance(self.decision, ShownDecision) else ""
        return f"<div><strong>{escape(self.instance)}</strong><table>{rows}</table>{picture}</div>"

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


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
