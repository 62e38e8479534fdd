"""Equal servers merged into one place: costs don't change; `server_search` has tests of the search itself."""

import numpy as np
import pytest

from optim.solvers.admission.pricing.servers import MIN_GROUP, SharedArrays, group_places
from optim.solvers.admission.pricing.shared import Places, pair_scratch, pair_table

MOST = 4


def shared_of(fronts, costs):
    """Return servers as places, and work space."""
    width, number = MOST + 1, len(fronts)
    none, empty = np.zeros(0, dtype=np.int64), np.zeros(0)
    worker_cost, ps_cost = np.array(costs, dtype=np.float64).T.copy()
    places = Places(worker_cost, ps_cost, np.arange(number) * width, np.concatenate(fronts))
    lines = (np.zeros(width, dtype=np.int64) for _ in range(3))
    return SharedArrays(
        np.zeros((0, 0, 0)), empty, none, none, none, none, empty, empty, *lines, places, pair_scratch(MOST, MOST)
    )


def table_of(shared, number):
    """Return the least cost of 0, 1, ... workers with as many PSs, as far as they fit."""
    table = np.empty(MOST + 1)
    largest = pair_table(shared.places, number, MOST, np.arange(MOST + 1), np.inf, shared.pairs, table)
    return table[: largest + 1].tolist()


def drawn_front(rng):
    """Draw the maximum PSs together with 0, 1, ... workers: non-increasing, and none from some number of workers on."""
    front = -np.sort(-rng.integers(0, 3, MOST + 1))
    front[int(rng.integers(1, MOST + 2)) :] = -1
    return front


def test_folding_equal_servers_changes_no_cost():
    """Up to three runs of servers; neighbours differ in one number of PSs or are equal."""
    rng = np.random.default_rng(5)
    folded = 0
    for _ in range(300):
        front, fronts, costs = drawn_front(rng), [], []
        for _ in range(int(rng.integers(1, 4))):
            length = int(rng.integers(1, MIN_GROUP + 2))
            fronts += [front] * length
            costs += [(1.0, float(rng.integers(1, 3)))] * length
            front = front.copy()
            at = int(rng.integers(MOST + 1))
            front[at] = max(front[at] - 1, 0 if at == 0 else -1)
            front[1:] = np.where(np.minimum.accumulate(front[1:]) < 0, -1, np.minimum.accumulate(front[1:]))
            front = np.minimum.accumulate(front)
        shared = shared_of(fronts, costs)
        before = table_of(shared, len(fronts))
        number = group_places(len(fronts), MOST, MOST, shared)
        assert table_of(shared, number) == pytest.approx(before)
        folded += number < len(fronts)
    assert 100 < folded < 300


@pytest.mark.parametrize("at", range(MOST + 1))
def test_servers_that_differ_for_any_number_of_workers_are_two_places(at):
    """After a server without capacity for workers: runs of servers that hold two PSs or, with `at` workers or more, one."""
    narrow, one, other = np.full(MOST + 1, -1), np.full(MOST + 1, 2), np.full(MOST + 1, 2)
    narrow[0], other[at:] = 0, 1
    for first, second in ((one, other), (other, one)):
        shared = shared_of([narrow] + [first] * MIN_GROUP + [second] * MIN_GROUP, [(1.0, 1.0)] * (2 * MIN_GROUP + 1))
        assert group_places(2 * MIN_GROUP + 1, MOST, MOST, shared) == 3
