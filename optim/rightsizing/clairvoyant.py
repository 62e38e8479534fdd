"""The clairvoyant plan of least allocation, and a lower bound on the allocation of any policy.

A plan allocates one amount of each resource per cycle. The first cycle's amount is that of all policies, no amount
exceeds the limit, and the violations must not exceed the allowed number H. In cycle c the plan chooses a level y,
either 0 or the demand of one of the samples (levels in between only cost more). Level y costs a_c(y), restarts
included, and causes violations h_c(y):

    minimise sum_c a_c(y_c)   subject to   sum_c h_c(y_c) <= H.

For any price p >= 0, sum_c min_y (a_c(y) + p h_c(y)) - p H is a lower bound on the minimum by weak duality. The best price gives
the optimum of the linear relaxation. At that price the cheapest choices are feasible in all cycles but one, so that rounding
yields a plan close to the bound.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.policies import policy
from optim.models.containers.clairvoyance import ClairvoyantClaim
from optim.models.containers.series import ContainerSeries
from optim.rightsizing.engine import UNDER_SHARE, post_warmup_weight, restart_samples
from optim.rightsizing.tuning import Measure, Slo
from optim.rightsizing.world import World

NUM_HALVINGS = 100

SLACK = 1e-12
"""Tolerance for rounding in sums of shares."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clairvoyant:
    """A plan for C containers, K cycles and R resources, and a lower bound on every plan's total.

    Attributes
    ----------
    price
        Shape (R,): dual price of one unit of violations.
    bound
        Shape (R,): lower bound on any plan's total, in units of the resource times samples.
    allocation
        Shape (C, K, R): the plan's allocation.
    total
        Shape (C, R): cost of the plan, including the restarts that a shortage of the resource causes.
    """

    price: FloatArray
    bound: FloatArray
    allocation: FloatArray
    total: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Menu:
    """Possible levels of a resource in each cycle, shape (C, K, n + 1); the cost of an unavailable level is infinite."""

    level: FloatArray
    cost: FloatArray
    violations: FloatArray

    def best(self, price: float) -> np.ndarray:
        """Return the index of the cheapest level in each cycle, shape (C, K); of several, that of the fewest violations."""
        last = self.level.shape[2] - 1
        return np.asarray(last - np.argmin((self.cost + price * self.violations)[:, :, ::-1], axis=2))

    def at(self, values: FloatArray, choice: np.ndarray) -> FloatArray:
        """Return the entries of `values` at the chosen levels, shape (C, K)."""
        return np.asarray(np.take_along_axis(values, choice[:, :, None], axis=2)[:, :, 0])


@policy(
    "clairvoyant",
    world="containers",
    summary="Plan with the least allocation for the allowed violations, with all demand known, and its lower bound.",
    is_reference=True,
)
@policy(
    "oracle-zero-violation",
    world="containers",
    summary="As `clairvoyant`, without violations.",
    is_reference=True,
    is_harmless=True,
)
def clairvoyant(world: World, slo: Slo, *, is_harmless: bool = False) -> Clairvoyant:
    """Return the bound and the plan for the allowed violations or, if `is_harmless`, without avoidable violations."""
    allowed = slo.allowed(world) * (0.0 if is_harmless else 1.0)
    solved = [_solve(_menu(world, slo, column), budget) for column, budget in enumerate(_budgets(world, slo, allowed))]
    price, bound, allocation, total = (list(part) for part in zip(*solved, strict=True))
    return Clairvoyant(
        price=np.array(price),
        bound=np.array(bound),
        allocation=np.stack(allocation, axis=2),
        total=np.stack(total, axis=1),
    )


def claim_of(series: ContainerSeries, world: World, optimum: Clairvoyant, slo: Slo, column: int) -> ClairvoyantClaim:
    """Return a resource's bound as a claim that can be checked from the series alone.

    Parameters
    ----------
    series
        Series from which the world was made.
    world, optimum, slo
        The world, the bound and plan on it, and the requirement.
    column
        Index of the resource.
    """
    order = np.argsort(-series.lengths, kind="stable")
    cycles = (world.samples > 0).sum(axis=1)
    plan = {
        int(segment): tuple(optimum.allocation[place, : cycles[place], column].tolist())
        for place, segment in enumerate(order.tolist())
    }
    is_charged = slo.is_charged
    return ClairvoyantClaim(
        resource=series.names[column],
        cycle_samples=world.cycle_samples,
        first=float(world.first[column]),
        allowed=float(slo.allowed(world)[column]),
        share=1.0 if is_charged else UNDER_SHARE,
        checkpoint_s=slo.restarts.checkpoint_s if is_charged else None,
        startup_s=slo.restarts.startup_s,
        price=float(optimum.price[column]),
        bound=float(optimum.bound[column]),
        total=float(optimum.total[:, column].sum()),
        plan=plan,
    )


def _menu(world: World, slo: Slo, column: int) -> _Menu:
    """Return the possible levels of a resource in each cycle; the first cycle has only one."""
    demand, count = world.by_cycle[..., column], world.samples
    is_paper = slo.measure is Measure.UNDER_TIME
    need = UNDER_SHARE * demand if is_paper else demand
    needed = np.where(world.is_sample, np.minimum(need, world.limit[:, None, None, column]), np.inf)
    level = np.concatenate([np.zeros_like(needed[:, :, :1]), np.sort(needed, axis=2)], axis=2)
    level[:, 0, 1:] = np.inf
    level[:, 0, 0] = np.minimum(world.first[column], world.limit[:, column])
    is_there = np.isfinite(level)
    level = np.where(is_there, level, 0.0)
    lacks = need[:, :, None, :] > level[..., None]
    cost = level * count[:, :, None]
    if world.is_level[column] and not is_paper:
        violations = lacks.any(axis=3) * 1.0
        first = lacks.argmax(axis=3)
        begins = (np.arange(world.num_cycles) * world.cycle_samples)[None, :, None]
        occupied = np.maximum(level, np.take_along_axis(demand, first, axis=2))
        cost = (
            cost
            + np.where(violations > 0, restart_samples(first + begins, world.interval_s, slo.restarts), 0.0) * occupied
        )
    else:
        violations = lacks.sum(axis=3) * 1.0
    return _Menu(
        level=level, cost=np.where(is_there, cost, np.inf), violations=violations * _weight(world, slo, column)
    )


def _weight(world: World, slo: Slo, column: int) -> FloatArray:
    """Return the amount by which a kill or a throttled sample adds to the violations, shape (C, K, 1)."""
    shape = (*world.samples.shape, 1)
    if slo.measure is Measure.UNDER_TIME:
        return np.full(shape, 1.0 / world.lengths.sum())
    post_warmup = post_warmup_weight(world)[:, column]
    weight = np.broadcast_to((post_warmup / _num_counted_units(world))[:, None, None], shape).copy()
    weight[:, 0] = 0.0
    return weight


def _num_counted_units(world: World) -> int:
    """Return the number of units that run longer than the first cycle."""
    return max(1, len(np.unique(world.group[world.lengths > world.cycle_samples])))


def _budgets(world: World, slo: Slo, allowed: FloatArray) -> list[float]:
    """Return each resource's budget of violations: the allowed or, if more, the unavoidable ones (first cycle, limits)."""
    budgets = []
    for column, share in enumerate(allowed.tolist()):
        menu = _menu(world, slo, column)
        min_harm = float(np.where(np.isfinite(menu.cost), menu.violations, np.inf).min(axis=2).sum())
        budgets.append(max(share, min_harm) + SLACK)
    return budgets


def _solve(menu: _Menu, budget: float) -> tuple[float, float, FloatArray, FloatArray]:
    """Return the dual price, the bound, the plan's levels, shape (C, K), and the containers' costs, shape (C,)."""

    def violations(price: float) -> float:
        return float(menu.at(menu.violations, menu.best(price)).sum())

    low, high = 0.0, 1.0
    while violations(high) > budget:
        low, high = high, 4.0 * high
    if violations(0.0) <= budget:
        high = 0.0
    for _ in range(NUM_HALVINGS if high > 0 else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if violations(middle) <= budget else (middle, high)
    choice, riskier = menu.best(high), menu.best(low)
    _spend(menu, choice, riskier, budget)
    bound = float((menu.cost + high * menu.violations).min(axis=2).sum() - high * budget)
    return high, bound, menu.at(menu.level, choice), menu.at(menu.cost, choice).sum(axis=1)


def _spend(menu: _Menu, choice: np.ndarray, riskier: np.ndarray, budget: float) -> None:
    """Switch cycles to the riskier of two equally good choices while the budget allows."""
    residual = budget - float(menu.at(menu.violations, choice).sum())
    gain = menu.at(menu.cost, choice) - menu.at(menu.cost, riskier)
    more = menu.at(menu.violations, riskier) - menu.at(menu.violations, choice)
    for place in np.argsort(-gain, axis=None, kind="stable").tolist():
        cell = np.unravel_index(place, choice.shape)
        if gain[cell] > 0 and more[cell] <= residual:
            choice[cell] = riskier[cell]
            residual -= float(more[cell])
