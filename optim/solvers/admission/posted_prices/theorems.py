"""Two competitive ratios of the online algorithm with indivisible jobs, and their conditions.

Proved in docs/mathematics/admission.md, (A.28) and (A.29).

The paper's guarantee treats every job's demand as infinitesimal. With discrete jobs the price must reach U
before a row is full, and the ratio depends on eps, the largest share of a row that one job takes in a
slot. Let a_j be a schedule's use of row j, v its value, c_j the row's capacity, and f the share of the
capacity at which the price reaches U.

- Exponential price: ``A = max(1, max_j [(U_j / L_j)^(eps / f) - 1] / eps)``. Then ``optimum <= A objective +
  D_0``, and ``<= 2 A objective`` if D_0, the value of the empty cluster, is at most half the optimum.
- Zero-start price: ``A = max_j [(1 + U_j / lambda_j)^(eps / f) - 1] / eps``. Then ``optimum <= (A + max(1, A))
  objective`` if ``sum_j lambda_j a_j <= v`` for every schedule.

Both bounds follow from weak duality. A schedule of positive payoff uses no row whose price has reached U. So less than f c
of the row was taken, and the schedule's use a <= eps c <= (1 - f) c still fits: no schedule is rejected only for
lack of capacity. The payoffs at arrival with the final prices are therefore feasible for the dual. Each admission
adds at most A times its value to the dual, since prices are convex and a <= eps c.

The conditions are numbered C1 to C6:

1. every schedule uses at most eps c of a row, eps < 1;
2. U is at least the value of any schedule over its use of the row;
3. the price is the theorem's curve, which reaches U at (1 - eps) c;
4. each job's best schedule is found exactly, and admitted if and only if its payoff is positive;
5. the lower scale is small enough, as defined above;
6. the optimum is over the same schedules: caps and deadlines are fields of the instance.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.errors import InvalidOptionError
from optim.models.admission.data import MICRO
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.summary import max_share
from optim.solvers.admission.posted_prices.price_functions import (
    PROVEN,
    ExponentialPrice,
    JobValueStats,
    PriceFloorRule,
    PriceFunction,
    PriceRanges,
    RatioTheorem,
    SideRanges,
    ZeroStartPrice,
    job_value_stats,
    price_ranges,
    prices_of,
    theorem_of,
)

ROUNDING = 1e-12
"""Relative rounding error allowed when logarithms and shares are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One of the conditions C1 to C6: whether it holds, and the numbers that show it."""

    name: str
    holds: bool
    figures: str

    def __str__(self) -> str:
        return f"{self.name} {'holds' if self.holds else 'fails'}: {self.figures}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioClaim:
    """A competitive ratio and the conditions under which it holds.

    Parameters
    ----------
    theorem
        The theorem, named by its form of price.
    eps
        Largest share of a row that one job takes in a slot, as an exact fraction.
    spread
        Largest ln(U / lower scale) of a row.
    amplification
        A: each admission adds at most A times its value to the dual.
    ratio
        If all conditions hold, the packing LP's optimum is at most `ratio` times the objective.
    initial_dual
        D_0.
    conditions
        C1 to C6 on this instance.
    """

    theorem: RatioTheorem
    eps: Fraction
    spread: float
    amplification: float
    ratio: float
    initial_dual: float
    conditions: tuple[Condition, ...]

    @property
    def holds(self) -> bool:
        """Whether every condition holds."""
        return all(condition.holds for condition in self.conditions)

    @property
    def reason(self) -> str:
        """The numbers that give the ratio, with eps of C1 and the share of C3."""
        return f"by the {self.theorem} price with ln(U / lower scale) up to {self.spread:.12g}; C1 to C6 hold"

    @property
    def statement(self) -> str:
        """The claim in one sentence."""
        if self.holds:
            return f"competitive ratio {self.ratio:.6g} {self.reason}"
        failing = ", ".join(condition.name for condition in self.conditions if not condition.holds)
        return f"no competitive ratio is claimed: {failing} of the {self.theorem} price's conditions fail"


def ratio_claim(
    instance: AdmissionInstance,
    bounds: PriceRanges,
    function: PriceFunction,
    *,
    stats: JobValueStats | None = None,
) -> RatioClaim:
    """Compute the competitive ratio of a run with these prices and check its conditions.

    The run is assumed to find best schedules exactly and to admit jobs with a positive payoff.

    Raises
    ------
    InvalidOptionError
        If no theorem covers this form of price.
    """
    theorem = theorem_of(function)
    if theorem is None or not isinstance(function, ExponentialPrice | ZeroStartPrice):
        remedy = "state its theorem" if theorem is None else "derive it from ZeroStartPrice or ExponentialPrice"
        raise InvalidOptionError(
            f"no theorem gives a competitive ratio for {type(function).__name__}; claim none, or, if its prices follow one of "
            f"the two proven curves, {remedy}"
        )
    stats = job_value_stats(instance) if stats is None else stats
    is_zero_start = theorem is RatioTheorem.ZERO_START
    eps = max_share(instance)
    sides = (bounds.worker,) if instance.has_shared_servers else (bounds.worker, bounds.ps)
    spread = max(map(log_spread, sides), default=-math.inf)
    factor = amplification(spread, float(eps), function)
    initial = 0.0 if is_zero_start else _initial_dual(instance, bounds)
    if not is_zero_start:
        factor = max(1.0, factor)
    full = _rounded_down(function.full_at)
    off_curve = _off_curve(function, theorem, sides)
    conditions = (
        Condition(name="C1", holds=eps < 1, figures=f"eps = {eps}"),
        _upper_condition(instance, bounds, stats),
        Condition(
            name="C3",
            holds=full <= 1 - eps and not off_curve,
            figures=off_curve or f"U is reached at {function.full_at:.12g} of the capacity",
        ),
        Condition(name="C4", holds=True, figures="best schedules are exact, positive payoffs are admitted"),
        _scale_condition(instance, bounds, stats) if is_zero_start else _start_condition(initial, stats),
        Condition(name="C6", holds=True, figures="caps and deadlines belong to the instance"),
    )
    return RatioClaim(
        theorem=theorem,
        eps=eps,
        spread=spread,
        amplification=factor,
        ratio=factor + max(1.0, factor) if is_zero_start else 2 * factor,
        initial_dual=initial,
        conditions=conditions,
    )


OFF_CURVE = 1e-9
"""Allowed rounding difference from the curve, relative to the price plus the lower scale."""


def _off_curve(
    function: ExponentialPrice | ZeroStartPrice, theorem: RatioTheorem, sides: tuple[SideRanges, ...]
) -> str:
    """Return where a function's prices differ from the theorem's curve with its `full_at`; "" if nowhere on the grid."""
    if type(function) in PROVEN:
        return ""
    form = ZeroStartPrice if theorem is RatioTheorem.ZERO_START else ExponentialPrice
    # Some shares are random, so that a function cannot match the curve only at fixed grid points.
    grid = np.concatenate([np.linspace(0.0, 1.0, 129), np.random.default_rng(0).random(64), [function.full_at]])
    ends = np.concatenate([np.stack([side.log_lower.ravel(), side.log_upper.ravel()]) for side in sides], axis=1)
    lower, upper = np.unique(ends[:, np.isfinite(ends[0])], axis=1)[:, :, None]
    share = np.broadcast_to(grid, (len(lower), len(grid)))
    lower, upper = np.broadcast_to(lower, share.shape), np.broadcast_to(upper, share.shape)
    expected = form(full_at=function.full_at).price(share, lower, upper)
    actual = prices_of(function, share.copy(), lower.copy(), upper.copy())
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.where(actual == expected, 0.0, np.abs(actual - expected) / (expected + np.exp(lower)))
    if not off.size or off.max() <= OFF_CURVE:
        return ""
    at = np.unravel_index(int(off.argmax()), off.shape)
    return (
        f"{type(function).__name__} prices {actual[at]:.6g}, and the {theorem} curve {expected[at]:.6g}, where {share[at]:.6g} of the "
        "capacity is taken"
    )


def log_spread(side: SideRanges) -> float:
    """Return the largest ln(U / lower scale) of the rows, minus infinity if no job uses a row."""
    is_used = np.isfinite(side.log_lower)
    return float((side.log_upper[is_used] - side.log_lower[is_used]).max(initial=-np.inf))


def amplification(spread: float, eps: float, function: PriceFunction) -> float:
    """Return ``[exp(eps / f * x) - 1] / eps`` with x = spread, or ln(1 + exp(spread)) for prices that start at 0.

    For eps = 0 it is the limit, x / f. If the function has no `full_at`, f is 1.
    """
    if spread == -math.inf:
        return 0.0
    if theorem_of(function) is RatioTheorem.ZERO_START:
        spread = float(np.logaddexp(0.0, spread))
    widest = spread / getattr(function, "full_at", 1.0)
    if eps == 0:
        return widest
    with np.errstate(over="ignore"):
        return float(np.expm1(eps * widest) / eps)


def full_share(instance: AdmissionInstance, eps: float | None = None) -> float:
    """Return 1 - eps, the share of the capacity at which strict prices reach U.

    Raises
    ------
    InvalidOptionError
        If one job can use an entire server.
    """
    share = float(max_share(instance)) if eps is None else eps
    if share >= 1:
        raise InvalidOptionError(
            "strict prices need eps < 1 (eps: largest share of a server that one job can use), "
            f"but in instance {instance.name!r} it is {share:g}; "
            "cap it by max_share_per_server in the instance, or choose strict=false"
        )
    return 1.0 - share


def _rounded_down(share: float) -> Fraction:
    """Return a share minus its possible rounding error: 1 - eps as a float may exceed the exact value."""
    return Fraction(share) * (1 - Fraction(ROUNDING))


def _upper_condition(instance: AdmissionInstance, bounds: PriceRanges, stats: JobValueStats) -> Condition:
    """Return C2, which compares U with the largest density: a job's value divided by its smallest use of the row."""
    needed = price_ranges(instance, PriceFloorRule.SIMPLE_L, stats=stats)
    gaps = [
        side_ranges.log_upper[is_used] - least.log_upper[is_used]
        for side_ranges, least in ((bounds.worker, needed.worker), (bounds.ps, needed.ps))
        for is_used in (np.isfinite(least.log_lower),)
    ]
    min_gap = min((float(gap.min()) for gap in gaps if gap.size), default=0.0)
    return Condition(
        name="C2",
        holds=min_gap >= -1e3 * ROUNDING,
        figures=f"U is at least {np.exp(min_gap):.6g} times the largest density",
    )


def _start_condition(initial: float, stats: JobValueStats) -> Condition:
    """Return C5 of the exponential price; the optimum is at least the value of the best job alone."""
    most = float(stats.most.max(initial=0.0))
    return Condition(
        name="C5",
        holds=2 * initial <= most * (1 + ROUNDING),
        figures=f"D_0 = {initial:.6g}, optimum >= {most:.6g}",
    )


def _scale_condition(instance: AdmissionInstance, bounds: PriceRanges, stats: JobValueStats) -> Condition:
    """Return C5 of the zero-start price, ``sum_j lambda_j a_j <= v``, for at most W_i worker-slots and as many PS-slots."""
    worker = stats.max_worker @ _max_scale(bounds.worker)
    ps = stats.max_ps @ _max_scale(bounds.ps)
    share = float((stats.worker_slots * (worker + ps) / stats.least).max(initial=0.0))
    return Condition(
        name="C5",
        holds=share <= 1 + 1e3 * ROUNDING,
        figures=f"sum of lambda a is at most {share:.6g} of the value",
    )


def _max_scale(side: SideRanges) -> FloatArray:
    """Return the largest lambda of each resource."""
    return np.asarray(np.exp(side.log_lower.max(axis=(0, 1), initial=-np.inf)))


def _initial_dual(instance: AdmissionInstance, bounds: PriceRanges) -> float:
    """Return ``sum_j L_j c_j`` over all single servers' rows."""
    sides = [(instance.worker_servers, bounds.worker)]
    if not instance.has_shared_servers:
        sides.append((instance.ps_servers, bounds.ps))
    return float(
        sum(
            np.einsum("ctr,ctr,c->", np.exp(side.log_lower), servers.capacity / MICRO, servers.count)
            for servers, side in sides
        )
    )
