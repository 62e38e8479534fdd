"""The frontier against trying all footprints, and against plain definitions."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from optim.models.bidding.cost_per_work import evaluate, evaluate_many
from optim.solvers.bidding.frontier import Frontier, FrontierOptions, FrontierPoint, trace_frontier
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import all_footprints, best_of_all, published_vector, small_instances


@given(instance=small_instances)
def test_no_footprint_lies_below_the_frontiers_bound(instance):
    if not np.isfinite(best_of_all(instance)):
        return
    table = all_footprints(instance)
    cost, work = evaluate_many(instance, table)
    best = table[int(np.where(work > 0, cost / np.where(work > 0, work, 1), np.inf).argmin())]
    frontier = trace_frontier(instance, best, FrontierOptions(max_points=3))
    for c, w in zip(cost.tolist(), work.tolist(), strict=True):
        assert c >= frontier.least_cost(w) - 1e-9
    for point in frontier.points:
        assert (point.cost, point.work) == pytest.approx(
            (evaluate(instance, point.counts).cost, evaluate(instance, point.counts).work)
        )


def test_the_curve_of_the_published_vector_touches_its_bound_at_every_corner():
    instance = published_vector()
    solution = solve(instance, "frontier")
    assert solution.objective == pytest.approx(0.2045896104, abs=1e-10)
    frontier = trace_frontier(instance, solution.decision.counts, FrontierOptions())
    cost, work = evaluate_many(instance, all_footprints(instance))
    for ratio in (0.05, 0.1, 0.2, 0.3, 0.5, 1.0):
        best = (cost - ratio * work).min()
        assert min(p.cost - ratio * p.work for p in frontier.points) == pytest.approx(best, abs=2e-4)


def test_a_curve_lists_each_corner_once_and_the_decision_among_them():
    """Points that do no more for no less are left out: neighbours' programmes find the same footprint, or one to their tolerance."""
    instance = published_vector()
    solution = solve(instance, "frontier", options={"point_tol": 0.5})
    counts = solution.stats.counts
    points = [(counts[f"cost_{i}"], counts[f"work_{i}"]) for i in range(int(counts["points"]))]
    value = evaluate(instance, solution.decision.counts)
    assert (value.cost, value.work) in points
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(points))


def test_corners_are_those_that_none_does_more_for_less():
    instance, nothing = published_vector(), np.zeros(4, dtype=np.int64)
    ends = [(1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 2.0), (2.5, 3.0)]
    points = tuple(FrontierPoint(ratio=0.1, counts=nothing, cost=c, work=w, bound=0.0) for c, w in ends)
    idle = evaluate(instance, nothing)
    assert Frontier(points=points).corners(nothing, instance) == [(idle.cost, idle.work), (1.0, 1.0), (2.5, 3.0)]
