"""The interface of bidding solvers: outcomes from footprints and proofs, and scales for small caps.

Scales are powers of two, so that unscaling a cap's price is exact.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Generic, Unpack

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray, power_of_two_scale
from optim.core.driver import AbstractSolver, Monitor, OptionsT, Outcome
from optim.core.solution import Sense, Termination
from optim.models.bidding.cost_per_work import CostWork, evaluate
from optim.models.bidding.data import CurveKind, HourOutlook, Scalability, survival_probability
from optim.models.bidding.decision import FootprintPlan, RatioProof
from optim.models.bidding.instance import LARGEST, BiddingInstance
from optim.solvers.bidding.survival import shortfall
from optim.solvers.bidding.tree.box import CAP_TOL
from optim.solvers.bidding.tree.search import ROUNDING, RatioTree, TreeLimits, TreeResult


def cap_units(instance: BiddingInstance) -> FloatArray:
    """Return the powers of two that scale limits below 1 to between 1 and 2, shape (caps,); 1 for other limits."""
    return np.array([power_of_two_scale(limit) for limit in instance.caps.limit.tolist()], dtype=np.float64)


def in_units(instance: BiddingInstance, units: FloatArray) -> BiddingInstance:
    """Return the instance with each cap in its unit; weights above `LARGEST` are set to it and stay infeasible."""
    caps = instance.caps
    weight = np.minimum(caps.weight / units[:, None], LARGEST)
    return replace(instance, caps=replace(caps, weight=weight, limit=caps.limit / units))


def unscale(outcome: Outcome, units: FloatArray) -> Outcome:
    """Return an outcome with the caps' prices in the original units."""
    proof = outcome.proof
    if not isinstance(proof, RatioProof):
        return outcome
    multipliers = tuple(replace(x, cap=x.cap / units) for x in proof.multipliers)
    return replace(outcome, proof=replace(proof, multipliers=multipliers))


OPTIMALITY_TOL = 1e-6
"""Largest relative gap that counts as optimal."""

HELD_TOL = 1e-9
"""Relative amount by which a footprint may exceed a cap or miss the least work; the bound covers such footprints."""

HALVINGS = 200

NEWTON_STEPS = 6

MARGIN = 1e-9
"""Relative step below the ratio at which the relaxation's value is 0, so that rounding can't make the value negative."""


def min_work_of(instance: BiddingInstance, ratio: float) -> float:
    """Return the least work of a footprint that could have a cost per work below `ratio`."""
    if ratio <= 0:
        return instance.min_work
    cost = instance.fixed_usd
    if instance.fixed_rate == 0:  # work needs at least one instance
        cost += float(instance.unit_cost[_works(instance)].min(initial=np.inf))
    return max(instance.min_work, cost / ratio * (1 - 1e-9) if np.isfinite(cost) else 0.0)


def min_rate_of(curve: Scalability, work: float) -> float:
    """Return a lower bound, rounded down, on the rate of every footprint with this much work."""
    if work <= 0:
        return 0.0
    if curve.kind is CurveKind.SATURATING and curve.serial * work < 1:
        return curve.base * work / (1 - curve.serial * work) * (1 - 1e-9)
    low, high = 0.0, 1.0
    while float(curve.value(np.array(high))) < work:
        low, high = high, 2 * high
        if high > 1e12:
            return low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(curve.value(np.array(middle))) < work else (low, middle)
    return low * (1 - 1e-9)


def bound_of(instance: BiddingInstance, ratio: float, result: TreeResult) -> float:
    """Return the lower bound on the cost per work that a tree proves."""
    least_work = min_work_of(instance, ratio)
    if result.bound >= 0:
        return ratio
    return max(0.0, ratio + result.bound / least_work * (1 + ROUNDING)) if least_work > 0 else 0.0


def make_tree(
    instance: BiddingInstance,
    ratio: float,
    start: IntArray | None,
    **limits: Unpack[TreeLimits],
) -> RatioTree:
    """Return a search at a ratio; by default, it excludes footprints whose cost per work can't be below the ratio."""
    least_work = 0.0 if limits.get("all_of_interest") else min_work_of(instance, ratio)
    limits = {"gap": ROUNDING * ratio * least_work, **limits}
    return RatioTree(instance, ratio, min_rate=min_rate_of(instance.scalability, least_work), start=start, **limits)


def is_answer(instance: BiddingInstance, counts: IntArray, value: CostWork) -> bool:
    """Return whether a footprint does enough work and satisfies the survival constraint."""
    does_enough = value.work > 0 and value.work >= instance.min_work * (1 - CAP_TOL)
    return does_enough and not shortfall(instance, counts[None])[0]


def root_bound(instance: BiddingInstance, counts: IntArray) -> tuple[float, RatioProof] | None:
    """Return a bound by the relaxation alone, and its proof; None if the footprint does no work.

    Newton's method finds the q at which the relaxation's least ``cost - q work``, which is concave in q, is 0.
    """
    value = evaluate(instance, counts)
    if value.work <= 0:
        return None
    ratio, best = value.ratio * (1 - MARGIN), None
    for _ in range(NEWTON_STEPS):
        tree = make_tree(instance, ratio, counts)
        tree.init()
        result = tree.finish(None)
        bound = bound_of(instance, ratio, result)
        if best is None or bound > best[0]:
            best = bound, result.proof(ratio)
        ratio = (ratio + result.bound / value.work) * (1 - MARGIN)
        if result.bound >= 0 or ratio <= 0:
            break
    return best


def relaxed_instance(instance: BiddingInstance) -> BiddingInstance:
    """Return an instance with caps and least work relaxed by `HELD_TOL`, the tolerance of footprints."""
    caps = instance.caps
    if not len(caps.limit) and instance.min_work == 0:
        return instance
    relaxed_caps = replace(caps, limit=caps.limit * (1.0 + HELD_TOL))
    return replace(instance, caps=relaxed_caps, min_work=instance.min_work * (1.0 - HELD_TOL))


def can_work(instance: BiddingInstance) -> bool:
    """Return whether any feasible instance, or the fixed resources, do any work, net of losses."""
    if instance.fixed_rate > 0:
        return True
    fits = (instance.caps.weight <= instance.caps.limit[:, None]).all(axis=0)
    one = np.zeros(instance.num_bids, dtype=np.int64)
    for j in np.flatnonzero(_works(instance) & fits):
        one[j] = 1
        if evaluate(instance, one).work > 0:
            return True
        one[j] = 0
    return False


def _works(instance: BiddingInstance) -> BoolArray:
    """Return which bids allow instances that do work before losses, shape (bids,)."""
    bids, outlook = instance.bids, instance.outlook
    useful = outlook.usable_h if isinstance(outlook, HourOutlook) else outlook.alive.sum(axis=(1, 2))
    return np.asarray((bids.max_count > 0) & (bids.rate > 0) & (useful > 0))


class AbstractBiddingSolver(AbstractSolver[BiddingInstance, OptionsT], Generic[OptionsT]):
    """A solver of the bidding problem: cost per work is minimised."""

    sense: ClassVar[Sense] = Sense.MINIMISE

    def _run(self, instance: BiddingInstance, options: OptionsT, monitor: Monitor, seed: int) -> Outcome:
        """Run the solver on the relaxed instance with small caps rescaled."""
        relaxed, units = relaxed_instance(instance), cap_units(instance)
        if (units == 1.0).all():
            return self.run(relaxed, options, monitor, seed)
        return unscale(self.run(in_units(relaxed, units), options, monitor, seed), units)


def outcome_of(
    instance: BiddingInstance,
    counts: IntArray,
    proven: tuple[float, RatioProof] | None,
    *,
    iterations: int,
    figures: Mapping[str, float],
    termination: Termination | None = None,
) -> Outcome:
    """Return a footprint and its proven bound as a solver's outcome; an infeasible footprint gives no decision."""
    value = evaluate(instance, counts)
    survival_figures = {} if instance.survival is None else {"kept": survival_probability(instance, counts)}
    figures = {
        "work": value.work,
        **survival_figures,
        **{name: figure for name, figure in figures.items() if math.isfinite(figure)},
    }
    if not is_answer(instance, counts, value):
        if can_work(instance):
            message = "no footprint with enough work was found"
            if instance.survival is not None:
                message = "no footprint that satisfies the survival constraint was found"
            return Outcome(iterations=iterations, counts=figures, termination=termination, message=message)
        hopeless = Termination.INFEASIBLE
        return Outcome(iterations=iterations, counts=figures, termination=hopeless, message="no bid does any work")
    bound, proof = (None, None) if proven is None else proven
    return Outcome(
        decision=FootprintPlan.of(counts),
        objective=value.ratio,
        bound=bound,
        proof=proof,
        statement="the footprint is feasible; no bound is claimed"
        if bound is None
        else f"no footprint has a cost per work below {bound:.9g}",
        tol=OPTIMALITY_TOL,
        termination=termination,
        iterations=iterations,
        counts=figures,
    )
