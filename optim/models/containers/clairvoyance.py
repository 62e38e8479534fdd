"""A claimed lower bound on the total allocation of plans that know all demand, and its checker."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import ContainerSeries

TOL = 1e-9
"""Relative rounding error of sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClairvoyantClaim:
    """Claim about plans that allocate one amount of a resource per cycle, in the first cycle min(`first`, limit).

    Demand above a limit counts as the limit. Violations are kills or samples above the amount.

    Attributes
    ----------
    resource
        Name of the resource.
    cycle_samples
        Samples per cycle.
    first
        Amount for all containers in the first cycle.
    allowed
        Allowed violations. Without restarts: share of all samples that may exceed the amount. With restarts: mean of a
        share over units. For a rate, it is the share of samples after the first cycle that may exceed the amount; for
        an incompressible resource, the share of cycles after the first that may contain such a sample.
    share
        Share of demand that an amount must cover.
    checkpoint_s, startup_s
        A kill for an incompressible resource at time t costs (t mod `checkpoint_s`) + `startup_s` seconds at the larger of
        the amount and the demand at t. None: there are no kills and no restarts.
    price
        Price of violations, which proves the bound.
    bound
        Lower bound on the total allocation of every plan whose violations are at most `allowed`, or at most the smallest
        possible violations if these exceed `allowed`; in units of the resource times samples.
    total
        Total allocation of `plan`, including the cost of its kills.
    plan
        By segment of the series, the amount in each cycle.
    """

    resource: str
    cycle_samples: int
    first: float
    allowed: float
    share: float
    checkpoint_s: float | None
    startup_s: float
    price: float
    bound: float
    total: float
    plan: Mapping[int, tuple[float, ...]]


def check_clairvoyant(series: ContainerSeries, claim: ClairvoyantClaim, gap: float = 0.01) -> list[str]:
    """Return the errors of a claim; empty if its bound is proven and its plan attains it within the gap.

    Parameters
    ----------
    series
        Series on a grid.
    claim
        The claim.
    gap
        Largest relative distance of the plan's total from the bound.
    """
    column = series.names.index(claim.resource)
    weights = _weights(series, claim, is_level=series.resources[column].is_level)
    dual = total = violations = min_violations = 0.0
    wrong = []
    for segment, rows in enumerate(series.segments()):
        limit = np.inf if series.limit is None else float(series.limit[segment, column])
        limit = np.inf if np.isnan(limit) else limit
        demand = [min(x, limit) for x in series.values[rows, column].tolist()]
        plan = claim.plan.get(segment, ())
        if len(plan) != -(-len(demand) // claim.cycle_samples):
            return [f"the plan has a wrong number of cycles for segment {segment}"]
        for cycle, amount in enumerate(plan):
            begin = cycle * claim.cycle_samples
            demand_in_cycle = demand[begin : begin + claim.cycle_samples]
            allowed = (
                {0.0, *(min(claim.share * x, limit) for x in demand_in_cycle)} if cycle else {min(claim.first, limit)}
            )
            counted = 0.0 if cycle == 0 and claim.checkpoint_s is not None else weights[segment]
            costs = [_cost(series, claim, column, demand_in_cycle, begin, level, counted) for level in allowed]
            dual += min(cost + claim.price * violated for cost, violated in costs)
            min_violations += min(violated for _, violated in costs)
            cost, violated = _cost(series, claim, column, demand_in_cycle, begin, amount, counted)
            total, violations = total + cost, violations + violated
            if amount < 0 or amount > limit or (cycle == 0 and amount != min(claim.first, limit)):
                wrong.append(f"the plan allocates an invalid amount, {amount:g}, to segment {segment} in cycle {cycle}")
    budget = max(claim.allowed, min_violations)
    proven = dual - claim.price * budget
    if claim.price < 0 or claim.bound > proven + TOL * (abs(proven) + claim.price * budget):
        wrong.append(f"the price proves a bound of {proven:.12g}, not of {claim.bound:.12g}")
    if violations > budget + TOL:
        wrong.append(f"the plan's violations are {violations:.12g}, more than {budget:.12g}")
    if abs(total - claim.total) > TOL * abs(total):
        wrong.append(f"the plan totals {total:.12g}, not {claim.total:.12g}")
    if total > (1 + gap) * claim.bound:
        wrong.append(f"the plan's {total:.12g} lies more than {100 * gap:g} % above the bound of {claim.bound:.12g}")
    return wrong


def _weights(series: ContainerSeries, claim: ClairvoyantClaim, *, is_level: bool) -> list[float]:
    """Return the weight of one violation (a kill, or a sample above its amount) in each segment."""
    lengths = series.lengths.tolist()
    if claim.checkpoint_s is None:
        return [1.0 / sum(lengths)] * len(lengths)
    units = series.unit_index.tolist()
    later: dict[int, int] = dict.fromkeys(units, 0)
    for unit, length in zip(units, lengths, strict=True):
        samples = max(0, length - claim.cycle_samples)
        later[unit] += -(-samples // claim.cycle_samples) if is_level else samples
    num_counted = sum(1 for count in later.values() if count)
    return [1.0 / (later[unit] * num_counted) if later[unit] else 0.0 for unit in units]


def _cost(
    series: ContainerSeries,
    claim: ClairvoyantClaim,
    column: int,
    demand: list[float],
    begin: int,
    level: float,
    weight: float,
) -> tuple[float, float]:
    """Return the cost of allocating `level` in a cycle, and the weight of its violations."""
    above = [place for place, x in enumerate(demand) if claim.share * x > level]
    cost = level * len(demand)
    if claim.checkpoint_s is None or not series.resources[column].is_level:
        return cost, weight * len(above)
    if not above:
        return cost, 0.0
    interval_s = series.interval_s or 1.0
    lost_s = ((begin + above[0]) * interval_s) % claim.checkpoint_s + claim.startup_s
    return cost + lost_s / interval_s * max(level, demand[above[0]]), weight
