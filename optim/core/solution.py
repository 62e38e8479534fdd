"""Results of every solver: solution, certificate, statuses, and the outcome of an independent check.

As in MathOptInterface, three statuses are separate: the *termination* is the reason why the
solve ended, the *primal* status describes the decision, and the *dual* status the
certificate of the bound.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from optim.core.errors import CertificateRefusedError, NotAllowedError
from optim.core.frames import Columns, frame_of

if TYPE_CHECKING:
    from pandas import DataFrame


class Termination(StrEnum):
    """Why a solve ended."""

    OPTIMAL = "optimal"
    """Objective and bound agree to the optimality tolerance, both verified."""
    COMPLETED = "completed"
    """A heuristic or online rule finished; it claims only its certificate."""
    INFEASIBLE = "infeasible"
    DUAL_INFEASIBLE = "dual_infeasible"
    TIME_LIMIT = "time_limit"
    ITERATION_LIMIT = "iteration_limit"
    NODE_LIMIT = "node_limit"
    GAP_LIMIT = "gap_limit"
    NUMERICAL_ERROR = "numerical_error"
    INTERRUPTED = "interrupted"


class PointStatus(StrEnum):
    """Status of a returned primal or dual point."""

    NONE = "none"
    FEASIBLE = "feasible"
    NEARLY_FEASIBLE = "nearly_feasible"
    INFEASIBLE = "infeasible"
    CERTIFICATE = "certificate"


class Sense(StrEnum):
    """Direction of the objective."""

    MAXIMISE = "maximise"
    MINIMISE = "minimise"


class CertificateKind(StrEnum):
    """Claims of certificates, from weakest to strongest."""

    FEASIBLE_ONLY = "feasible_only"
    """The decision is feasible; no bound is claimed."""
    BOUND = "bound"
    """No feasible decision is better than the bound (proven by a dual point of a relaxation)."""
    OPTIMALITY = "optimality"
    """The decision attains the bound to the optimality tolerance."""


COMPETITIVE_RATIO = re.compile(r"; competitive ratio (\d\S*|inf) ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A claim with its proof.

    Parameters
    ----------
    kind
        Kind of the claim.
    statement
        The claim in one sentence: empty, or a sentence that `verify` can check (`SENTENCES` of
        `optim.core.claims`, or of the problem). The checker refuses other sentences.
    proof
        Proof object of the problem (for instance a dual point), or None if the decision
        is the proof (``feasible_only``). A checker that shares no code with the solver recomputes
        the claim from the proof and the instance.
    conditions
        Conditions of a further claim, such as a competitive ratio.

    Examples
    --------
    >>> import optim
    >>> optim.reference_solution("tiny-0").certificate.kind.value
    'optimality'
    """

    kind: CertificateKind
    statement: str
    proof: Any = None
    conditions: tuple[str, ...] = ()

    @property
    def competitive_ratio(self) -> float | None:
        """The competitive ratio that the statement claims for every input that meets the conditions, None if none."""
        match = COMPETITIVE_RATIO.search(self.statement)
        return None if match is None else float(match[1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxation:
    """A fractional solution of a linear programme, and the prices of its rows.

    Parameters
    ----------
    objective
        Value of the fractional solution; every bound of the programme is at least this value.
    columns
        Table of the columns with positive weight, one array per field: labels, `value` and `weight`.
    rows
        Table of the rows, one array per field: labels, `capacity`, `use` by the fractional solution, and `price` per
        unit in the dual point that proves the bound.

    Examples
    --------
    >>> import optim
    >>> solution = optim.solve(optim.reference_instance("tiny-0"), "column-generation")
    >>> frame = solution.relaxation.columns_frame()
    >>> frame.columns.tolist()
    ['job', 'completion', 'value', 'weight', 'workers', 'ps']
    """

    objective: float
    columns: Columns = field(repr=False)
    rows: Columns = field(repr=False)

    def columns_frame(self) -> "DataFrame":
        """Return the columns as a pandas frame.

        Raises
        ------
        MissingDependencyError
            If pandas isn't installed.
        """
        return frame_of(self.columns)

    def rows_frame(self) -> "DataFrame":
        """Return the rows as a pandas frame.

        Raises
        ------
        MissingDependencyError
            If pandas isn't installed.
        """
        return frame_of(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A constraint (row) of the formal model, or a claim, that does not hold.

    Parameters
    ----------
    row
        Name of the row with its indices, as in the model: ``"(4) worker capacity [gpu, server 3, slot 7]"``.
    amount
        Amount of the violation in the unit of the row, as decimal text; exact where possible.
    message
        Description in one sentence.
    """

    row: str
    amount: str
    message: str

    def __str__(self) -> str:
        return f"{self.row}: {self.message}"


def violation(row: str, message: str, *, amount: str = "1", where: str = "") -> Violation:
    """Build a violation; `where` is a description of the row's indices."""
    return Violation(row=f"{row} [{where}]" if where else row, amount=amount, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Result of a checker, recomputed from the instance.

    Parameters
    ----------
    violations
        Every violated row and false claim; empty if all claims are true.
    objective
        Recomputed value of the decision, None without a decision.
    bound
        Recomputed bound, rounded outward, None without a proof.
    competitive_ratio
        Recomputed competitive ratio of an online rule, None if none is claimed and proven.
    proven
        The proven statements.

    Examples
    --------
    >>> import optim
    >>> instance = optim.reference_instance("tiny-0")
    >>> found = optim.verify(instance, optim.reference_solution("tiny-0"))
    >>> found.is_ok, len(found.violations)
    (True, 0)
    """

    violations: tuple[Violation, ...]
    objective: float | None = None
    bound: float | None = None
    competitive_ratio: float | None = None
    proven: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        """Whether all claims are true."""
        return not self.violations

    def raise_unless_ok(self) -> "Verification":
        """Return self if all claims are true, otherwise raise.

        Raises
        ------
        CertificateRefusedError
            If there are violations; the message lists the first three.
        """
        if self.violations:
            shown = "; ".join(str(violation) for violation in self.violations[:3])
            more = f" (and {len(self.violations) - 3} more)" if len(self.violations) > 3 else ""
            raise CertificateRefusedError(f"the solution does not prove its claims: {shown}{more}")
        return self


GAP_FLOOR = 1e-9
"""Minimum denominator of a relative gap, so that the gap at objective 0 is finite."""

SHOWN_FIELDS = ("solver", "termination", "objective", "bound", "gap")
"""Fields that a notebook shows next to the picture of a solution."""


@runtime_checkable
class ShownDecision(Protocol):
    """A decision with a table and a picture."""

    def columns(self, instance: Any = None) -> Columns:
        """Return the columns of the decision's table, with names instead of indices if the instance is given."""
        ...

    def picture(self) -> str:
        """Return an ``<svg>`` element."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Statistics of a solve.

    Parameters
    ----------
    seconds
        Wall-clock seconds by phase: ``build``, ``compile``, ``solve``, ``verify``, and
        finer phases of some solvers. ``solve`` excludes compilation.
    iterations
        Iterations of the solver's main loop: rounds, nodes or moves, depending on the solver.
    memory_mb
        Peak resident memory of the process in MiB when the solve ended.
    decision_ms
        Milliseconds per decision of an online solver, in order of arrival.
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
    """A decision, its value, and its certificate.

    Parameters
    ----------
    problem, instance, solver
        Names of the problem, the instance and the solver.
    sense
        Whether the objective is maximised or minimised.
    termination, primal, dual
        Reason why the solver stopped, and statuses of the decision and of the bound's proof.
    decision
        The decision, of the problem's type, or None.
    objective
        Value of the decision, or None. A relaxation's value is never an objective.
    bound
        Proven bound on every decision's value, or None.
    certificate
        The claim and its proof.
    seed, options, versions
        Data needed to repeat the solve.
    stated
        Derived values in a file, by name (``gap``); `verify` compares them with the other fields.
    relaxation
        The fractional solution of the linear programme that gives the bound, if the solver returns it
        (`column-generation`); files do not contain it.

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
        """Relative gap between bound and objective; None if one of them is missing.

        ``(bound - objective) / max(|objective|, 1e-9)`` when maximising, mirrored when minimising.
        """
        return relative_gap(self.objective, self.bound, self.sense)

    @property
    def ratio(self) -> float | None:
        """Ratio of bound to objective, or of objective to bound when minimising; None if one is missing.

        It is at least 1, and an upper bound on the same ratio with the optimum in place of the bound.
        """
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
            The solved instance; if given, jobs, apps and markets have names instead of indices.

        Returns
        -------
        pandas.DataFrame
            Admission: side, job, slot, server, count. Auction: app, slot, awarded, granted. Bidding: bid, count
            (given the instance, also market and delta_usd).

        Raises
        ------
        NotAllowedError
            If there is no decision, or its type has no table.
        MissingDependencyError
            If pandas is not installed.

        Examples
        --------
        >>> import optim
        >>> instance = optim.reference_instance("tiny-0")
        >>> frame = optim.solve(instance, "online").to_frame(instance)
        >>> frame.columns.tolist()
        ['side', 'job', 'slot', 'server', 'count']
        """
        if not isinstance(self.decision, ShownDecision):
            raise NotAllowedError(
                f"solver {self.solver!r} found no decision, so there is no table of it; see solution.termination"
            )
        return frame_of(self.decision.columns(instance))

    def _repr_html_(self) -> str:
        """Return the main fields and a picture of the decision, for notebooks."""
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
                "give it more time, or accept the solution's gap and certificate"
            )
        return self


def relative_gap(objective: float | None, bound: float | None, sense: Sense) -> float | None:
    """Return `(bound - objective) / max(|objective|, 1e-9)`, mirrored when minimising; None if one is missing."""
    if objective is None or bound is None:
        return None
    difference = bound - objective if sense is Sense.MAXIMISE else objective - bound
    return difference / max(abs(objective), GAP_FLOOR)


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
