"""What can be told of the points of a curve of cost against work: `points`, and `cost_0`, `work_0` and so on among the counters.

The footprints of the points aren't in the file. So it is held against the instance and the file's own bound and decision what
points of footprints can be: nothing else is proven of them.
"""

import math
import re
from collections.abc import Mapping
from itertools import pairwise

from optim.core.counters import COUNTER_TOL, CountRange, check_ranges
from optim.core.verification import Violation, violation
from optim.models.bidding.check.facts import Facts, useful_rate
from optim.models.bidding.instance import HourOutlook

POINT = re.compile(r"(?:cost|work)_\d+")

Point = tuple[float, float]
"""Cost and work."""


def check_curve(
    facts: Facts, stated: Mapping[str, float], bound: float | None, decided: Point | None
) -> list[Violation]:
    """Return what is wrong with the points of a curve.

    Parameters
    ----------
    facts
        The instance.
    stated
        The counters, each a number.
    bound
        What no footprint's cost per work is below, None where nothing is proven.
    decided
        The decision's point, None without one.
    """
    names = {name for name in stated if POINT.fullmatch(name)}
    if not names and not stated.get("points"):
        return []
    expected = [f"{kind}_{i}" for i in range(len(names) // 2) for kind in ("cost", "work")]
    if stated.get("points") != len(names) / 2 or names != set(expected):
        text = f"points must be the number of those listed, from cost_0 and work_0 on, got {stated.get('points')!r}"
        return [violation("counts", text, where="points")]
    most_cost, most_work = _most(facts)
    ranges = (CountRange(low=facts.instance.fixed_usd, high=most_cost), CountRange(high=most_work))
    wrong = check_ranges({name: stated[name] for name in expected}, {n: ranges[n[0] == "w"] for n in expected})
    if wrong:
        return wrong
    points = [(stated[f"cost_{i}"], stated[f"work_{i}"]) for i in range(len(names) // 2)]
    return [*_check_order(points), *_check_values(facts, points, bound, decided)]


def _check_order(points: list[Point]) -> list[Violation]:
    """Check that more work costs more."""
    for i, (one, other) in enumerate(pairwise(points)):
        for name, before, after in zip(("cost", "work"), one, other, strict=True):
            if after < before - COUNTER_TOL * max(1.0, abs(before)):
                text = f"{name}_{i + 1} must be at least {name}_{i}, {before!r}, got {after!r}"
                return [violation("counts", text, where=f"{name}_{i + 1}")]
    return []


def _check_values(facts: Facts, points: list[Point], bound: float | None, decided: Point | None) -> list[Violation]:
    """Check points against the bound, and that the decision is among them, or one that does as much for no more."""
    least = facts.instance.min_work * (1.0 - COUNTER_TOL)
    for i, (cost, work) in enumerate(points):
        if bound is not None and work >= least and cost < bound * work * (1.0 - COUNTER_TOL) - COUNTER_TOL:
            text = f"a cost of {cost!r} for {work!r} is less a unit than the bound {bound!r}"
            return [violation("counts", text, where=f"cost_{i}")]
    if decided is None:
        return []
    paid, done = decided[0] + COUNTER_TOL * max(1.0, decided[0]), decided[1] - COUNTER_TOL * max(1.0, decided[1])
    if any(cost <= paid and work >= done for cost, work in points):
        return []
    text = f"no point does the decision's work {decided[1]!r} for its cost {decided[0]!r}, or more for less"
    return [violation("counts", text, where="points")]


def _most(facts: Facts) -> Point:
    """Return what no footprint costs more than, and no footprint works more than: all instances, and nothing lost."""
    instance = facts.instance
    bids, outlook = instance.bids, instance.outlook
    cost = math.fsum([instance.fixed_usd, *(bids.max_count * facts.unit_cost).clip(0.0).tolist()])
    if isinstance(outlook, HourOutlook):
        rate = math.fsum([instance.fixed_rate, *(bids.max_count * bids.rate * outlook.usable_h.clip(0.0)).tolist()])
        return cost, useful_rate(instance.scalability, rate)
    rates = instance.fixed_rate + (bids.max_count * bids.rate) @ facts.alive
    useful = (useful_rate(instance.scalability, rate) for rate in rates.tolist())
    weighted = (weight * rate for weight, rate in zip(facts.cell_weight.tolist(), useful, strict=True))
    return cost, facts.cell_hours * math.fsum(weighted)
