"""Greedy additions: exact where costs and work add up, never better than the optimum elsewhere."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optim.core.driver import Monitor, run_iteration
from optim.core.solution import PointStatus, Termination
from optim.models.bidding.cost_per_work import evaluate
from optim.models.files import verify
from optim.models.reference import reference_instance
from optim.solvers.bidding.steps import GreedySearch, SteepestAdditions
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import (
    best_of_all,
    drawn,
    hour_instance,
    small_instances,
    varied,
    varied_instances,
)

ratio_cells = st.integers(1, 32).map(lambda k: k / 32)
additive = st.lists(
    st.tuples(ratio_cells, st.integers(1, 8).map(lambda k: k / 4), st.integers(0, 3)), min_size=1, max_size=5
)


@given(bids=additive, fixed=st.integers(1, 32).map(lambda k: k / 32))
@example(
    bids=[(0.296875, 1.0, 3), (0.125, 1.0, 1), (0.0625, 1.0, 1)], fixed=0.375
)  # the largest drop first ends at .2906
def test_where_all_adds_up_greedy_is_exact_and_holds_what_is_cheaper_than_the_optimum(bids, fixed):
    cost, work, most = zip(*bids, strict=True)
    if sum(most) == 0:
        return
    instance = hour_instance([0] * len(bids), cost, work, max_count=list(most), fixed_usd=fixed)
    greedy = solve(instance, "greedy")
    assert greedy.objective == pytest.approx(best_of_all(instance), rel=1e-12)
    for j, (c, w, m) in enumerate(bids):
        if c / w < greedy.objective * (1 - 1e-9):
            assert greedy.decision.counts[j] == m
        if c / w > greedy.objective * (1 + 1e-9):
            assert greedy.decision.counts[j] == 0


def test_greedy_takes_bids_in_increasing_cost_per_work():
    instance = hour_instance([0] * 3, [0.296875, 0.125, 0.0625], [1.0, 1.0, 1.0], max_count=[3, 1, 1], fixed_usd=0.375)
    search, taken = GreedySearch(instance), []
    while not search.is_done():
        taken.append(search.counts.tolist())
        search.step()
    assert taken == [[0, 0, 0], [0, 0, 1], [0, 1, 1]]


def test_all_instances_of_a_bid_are_taken_in_one_step():
    search = GreedySearch(hour_instance([0], [0.1], [1.0], max_count=5, fixed_usd=1.0))
    search.step()
    assert search.counts.tolist() == [5]


def test_greedy_reaches_the_least_work_before_it_looks_at_the_cost_of_the_whole():
    instance = hour_instance([0, 1], [0.1, 5.0], [1.0, 1.0], max_count=[1, 3], fixed_usd=0.1, min_work=2.5)
    assert solve(instance, "greedy").decision.counts.tolist() == [1, 2]


@given(instance=small_instances)
def test_heuristics_lie_between_the_optimum_and_their_own_claims(instance):
    best = best_of_all(instance)
    for name in ("greedy", "exchange"):
        solution = solve(instance, name)
        assert verify(instance, solution).is_ok
        if np.isfinite(best):
            assert solution.objective >= best * (1 - 1e-12)
            assert solution.bound <= best * (1 + 1e-12)


@given(instance=varied_instances)
def test_greedy_is_as_good_as_either_of_its_rules(instance):
    greedy = solve(instance, "greedy", options={"bound": False})
    for rule in (GreedySearch(instance), SteepestAdditions(instance)):
        run_iteration(rule, Monitor())
        if rule.lack == 0 and np.isfinite(rule.standard[1]):
            assert greedy.objective <= rule.standard[1] * (1 + 1e-12)


@pytest.mark.parametrize("name", ["spot-tiny-any", "spot-tiny-windows"])  # the one by drop, the other by ratio
def test_either_rule_may_be_the_better_one(name):
    instance = reference_instance(name)
    rules = GreedySearch(instance), SteepestAdditions(instance)
    values = [evaluate(instance, run_iteration(rule, Monitor())).ratio for rule in rules]
    assert values.index(min(values)) == ("windows" not in name)
    assert solve(instance, "greedy").objective == min(values) < 0.95 * max(values)


def test_a_limit_filled_with_what_is_cheap_and_small_does_not_keep_greedy_from_the_least_work():
    instance = hour_instance([0, 1], [0.005, 0.2], [0.1, 2.0], max_count=3, cap=3, fixed_usd=0.5, min_work=5.0)
    assert run_iteration(GreedySearch(instance), Monitor()).tolist() == [3, 0]
    assert solve(instance, "greedy").decision.counts.tolist() == [0, 3]


def test_where_no_move_helps_either_greedy_says_that_it_found_nothing():
    instance = varied(2968)
    assert np.isfinite(best_of_all(instance))
    solution = solve(instance, "greedy")
    assert solution.decision is None
    assert solution.primal is PointStatus.NONE
    assert solution.termination is Termination.COMPLETED
    assert solution.message == "no footprint with enough work was found"


def test_greedy_stops_where_only_an_exchange_helps():
    greedy, exchange = (solve(drawn(63), name) for name in ("greedy", "exchange"))
    assert greedy.bound <= exchange.objective < greedy.objective


@pytest.mark.parametrize("seed", [358, 609, 776, 1261, 1623, 3157, 4811])
def test_where_additions_end_below_the_least_work_moves_go_on(seed):
    instance = varied(seed)
    for search in (GreedySearch(instance), SteepestAdditions(instance)):
        run_iteration(search, Monitor())
        assert search.lack > 0
    solution = solve(instance, "greedy")
    assert solution.primal is PointStatus.FEASIBLE
    assert verify(instance, solution).is_ok
