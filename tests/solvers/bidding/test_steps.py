"""Steps of local search by hand: reachable footprints, feasibility, and improvements."""

import numpy as np
import pytest

from optim.core.driver import Monitor, run_iteration
from optim.models.bidding.cost_per_work import evaluate
from optim.solvers.bidding.steps import GreedySearch, LocalSearch, is_feasible, neighbours
from tests.support.bidding.small_markets import hour_instance, published_vector


def two_bids(**fields):
    return hour_instance([0, 0], [0.1, 0.2], [1.0, 3.0], max_count=[2, 3], fixed_usd=0.5, **fields)


def test_within_reach_are_additions_removals_and_moves():
    table = neighbours(two_bids(), np.array([1, 1])).tolist()
    added, removed = [[2, 1], [1, 2], [1, 3]], [[0, 1], [1, 0]]
    moved = [[0, 2], [0, 3], [2, 0]]
    for footprint in added + removed + moved:
        assert footprint in table
    assert all(0 <= a <= 2 and 0 <= b <= 3 for a, b in table)
    assert [1, 1] not in table


def test_footprints_fit_within_the_caps_with_one_bid_a_market_where_that_is_asked():
    table = np.array([[1, 0], [1, 1], [2, 1], [0, 3]])
    assert is_feasible(two_bids(cap=2), table).tolist() == [True, True, False, False]
    assert is_feasible(two_bids(one_bid_per_market=True), table).tolist() == [True, False, False, True]


def test_the_search_goes_to_the_best_and_stops_where_nothing_is_better():
    search = LocalSearch(two_bids(), np.zeros(2, dtype=np.int64), begun=4)
    assert search.standard[1] == np.inf
    counts = run_iteration(search, Monitor())
    assert counts.tolist() == [2, 3]
    assert search.steps > 4
    assert search.is_done()
    assert search.standard[1] == pytest.approx(evaluate(two_bids(), counts).ratio)
    assert search.standing().iterations == search.steps


def test_missing_work_counts_before_cost_per_work():
    instance = two_bids(min_work=6.0)
    search = LocalSearch(instance, np.zeros(2, dtype=np.int64))
    assert evaluate(instance, run_iteration(search, Monitor())).work >= 6.0


def test_greedy_tries_powers_of_two_and_all():
    instance = hour_instance([0], [0.1], [1.0], max_count=11, fixed_usd=1.0)
    assert GreedySearch(instance).reachable()[:, 0].tolist() == [1, 2, 4, 8, 11]


def test_an_exchange_finds_what_a_removal_alone_betters():
    instance = published_vector()
    assert run_iteration(LocalSearch(instance, np.array([6, 0, 0, 6])), Monitor()).tolist() == [6, 0, 0, 5]
