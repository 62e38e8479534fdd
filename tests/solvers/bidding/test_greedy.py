"""Greedy additions: exact where costs and work add up, never better than the optimum elsewhere."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optim.models.files import verify
from optim.solvers.bidding.local_search.steps import GreedySearch
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import best_of_all, drawn, hour_instance, small_instances

REL_TOL = 1e-6
"""What is proven of the optimum, relative."""

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


def test_greedy_stops_where_only_an_exchange_helps():
    greedy, exchange = (solve(drawn(26), name) for name in ("greedy", "exchange"))
    assert greedy.bound <= exchange.objective < greedy.objective
