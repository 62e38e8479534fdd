"""Properties that the theorems require of a run of the strict online algorithm, as plain functions of an observation.

Conditions of both theorems, for rows j of capacity c, use a, price phi:

C1  a job takes at most eps c of a row; C2  U >= value / a; C3  the price is U from (1 - eps) c on;
C4  a job's schedule is its best response to the prices it meets, over all schedules; it is admitted iff
    its payoff is positive.

Theorem A (exponential price): OPT_LP <= D_0 + A ALG. Theorem B (zero start): OPT_LP <= (A + max(1, A)) ALG.
"""

from collections.abc import Callable, Mapping

import numpy as np

from optim.core.arrays import FloatArray
from tests.support.admission.online_observation import Observation

REL_TOL = 1e-9
"""Rounding of sums of a few hundred products, relative to their size."""


def _at_most(left: FloatArray | float, right: FloatArray | float, what: str) -> None:
    """Fail unless left <= right up to rounding."""
    slack = REL_TOL * np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))
    excess = np.asarray(left - np.asarray(right) - np.where(np.isfinite(slack), slack, 0.0))
    assert not (excess > 0).any(), f"{what}: {left} > {right}"


def check_capacity(seen: Observation) -> None:
    """P1: no row is used beyond its capacity, although the theorem's algorithm doesn't check capacities."""
    _at_most(seen.used_before[-1], seen.layout.capacity, "capacity")


def check_share(seen: Observation) -> None:
    """C1: no job takes more than eps of a row."""
    _at_most(seen.usage, seen.eps * np.broadcast_to(seen.layout.capacity, seen.usage.shape), "share of a row")


def check_payoff(seen: Observation) -> None:
    """A payoff is value less cost at the prices that were met; a job is admitted iff it is positive beyond rounding."""
    for k, decision in enumerate(seen.decisions):
        rounding = 0.0 if decision.schedule is None else 1e-12 * decision.schedule.value
        assert decision.is_accepted == (seen.payoff[k] > rounding), "admitted iff the payoff is positive"
        if decision.is_accepted:
            cost = float(seen.prices[k] @ seen.usage[k])
            _at_most(abs(seen.value[k] - cost - seen.payoff[k]), 0.0, "payoff = value - cost")


def check_best_response(seen: Observation) -> None:
    """C4: the payoff is the best over all schedules on empty servers, at the prices that were met."""
    for k, decision in enumerate(seen.decisions):
        best = seen.ground.best_payoff(decision.job, seen.prices[k])
        _at_most(abs(best - seen.payoff[k]), 0.0, f"best response of job {decision.job}")


def check_restriction_is_idle(seen: Observation) -> None:
    """P7: searching empty servers, instead of their residual capacity, changes no decision."""
    for decision, free in zip(seen.decisions, seen.unrestricted, strict=True):
        found = decision.schedule
        ours = max(0.0, found.payoff) if found is not None else 0.0
        _at_most(
            abs(ours - (0.0 if free is None else free.payoff)),
            0.0,
            f"payoff of job {decision.job}, unrestricted",
        )
        assert decision.is_accepted == (free is not None and free.payoff > 1e-12 * free.value), "the same decision"


def check_prices_follow_own_use(seen: Observation) -> None:
    """P11: a row's price never falls, is constant while the row isn't used, and rises when it is."""
    steps = np.diff(seen.prices, axis=0)
    assert (steps >= 0).all(), "a price fell"
    assert (steps[seen.usage == 0] == 0).all(), "the price of a row rose that wasn't used"
    met = seen.prices[:-1]
    full = np.broadcast_to(np.exp(seen.upper), met.shape)
    assert (steps[(seen.usage > 0) & (met < full * (1 - REL_TOL))] > 0).all(), "the price of a used row didn't rise"


def check_blocking(seen: Observation) -> None:
    """C2 and C3: from (1 - eps) c on, a unit of a row costs at least the maximum that any job would pay for it."""
    capacity = seen.layout.capacity
    full = (seen.used_before >= (1 - seen.eps) * capacity * (1 - REL_TOL)) & (capacity > 0)
    _at_most(np.where(full, seen.ground.density, 0.0), np.where(full, seen.prices, np.inf), "price of a full row")


def check_increments(seen: Observation) -> None:
    """P4: on every row c dphi <= A a (phi + lambda), for every job dD <= A dP; a rejection changes no price."""
    before, rise = seen.prices[:-1], np.diff(seen.prices, axis=0)
    dual = rise * seen.layout.capacity
    _at_most(dual, seen.growth * seen.usage * (before + seen.start_scale), "allocation-cost relation")
    for k, decision in enumerate(seen.decisions):
        if decision.is_accepted:
            _at_most(
                seen.payoff[k] + dual[k].sum(),
                seen.factor * seen.value[k],
                f"dD <= A dP of job {decision.job}",
            )
        else:
            assert not dual[k].any(), "a refused job changed a price"


def check_dual_feasible(seen: Observation) -> None:
    """P3: payoffs at arrival and final prices are a feasible point of the packing LP's dual."""
    for k, decision in enumerate(seen.decisions):
        best = seen.ground.best_payoff(decision.job, seen.prices[-1])
        _at_most(best, seen.payoff[k], f"mu of job {decision.job} at final prices")


def check_initial_dual(seen: Observation) -> None:
    """C5: the dual value of the empty cluster is at most half the optimum (Theorem A), or 0 (Theorem B)."""
    if seen.is_zero_start:
        assert seen.initial_dual == 0.0, f"the empty cluster is worth {seen.initial_dual}"
    else:
        _at_most(seen.initial_dual, seen.lp / 2, "D_0 <= OPT / 2")


def check_start_scale(seen: Observation) -> None:
    """Theorem B: with lambda as prices, no schedule costs more than its value."""
    if seen.is_zero_start and len(seen.ground.problem.value):
        by_class = seen.ground.by_class(seen.start_scale)
        _at_most(by_class @ seen.ground.problem.usage, seen.ground.problem.value, "sum of lambda a <= value")


def check_dual_bound(seen: Observation) -> None:
    """D_final is at least OPT_LP, and at most D_0 plus the theorem's factor times ALG."""
    _at_most(seen.lp, seen.final_dual * (1 + REL_TOL), "OPT_LP <= D_final")
    _at_most(seen.final_dual, seen.initial_dual + seen.factor * seen.objective, "D_final <= D_0 + factor ALG")


def check_ratio(seen: Observation) -> None:
    """P5: the end-to-end bound, OPT_LP <= 2 A ALG or (A + max(1, A)) ALG."""
    factor = seen.factor if seen.is_zero_start else 2 * seen.factor
    _at_most(seen.lp, factor * seen.objective * (1 + REL_TOL), "competitive ratio")


CHECKS: Mapping[str, Callable[[Observation], None]] = {
    check.__name__.removeprefix("check_"): check
    for check in (
        check_capacity,
        check_share,
        check_payoff,
        check_best_response,
        check_restriction_is_idle,
        check_prices_follow_own_use,
        check_blocking,
        check_increments,
        check_dual_feasible,
        check_initial_dual,
        check_start_scale,
        check_dual_bound,
        check_ratio,
    )
}
"""Every check, by name."""


def failing(seen: Observation) -> set[str]:
    """Return the names of the checks that fail."""
    failed = set()
    for name, check in CHECKS.items():
        try:
            check(seen)
        except AssertionError:
            failed.add(name)
    return failed
