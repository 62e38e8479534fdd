"""A box's relaxation as HiGHS solves it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optim.models.bidding.data import EvictionTerm
from optim.solvers.bidding.tree.box import Box, relax
from optim.solvers.bidding.tree.node_lp import solve_node
from tests.support.bidding.small_markets import hour_instance


def threads() -> set[str]:
    """Return the numbers of this process' threads, those of compiled libraries included."""
    return {path.name for path in Path("/proc/self/task").iterdir()}


def test_a_box_is_solved_on_the_thread_that_asks():
    """Solvers run as one process per core, and HiGHS keeps worker threads per calling thread: here a new thread calls it."""
    instance = hour_instance([0, 1], [0.1, 0.2], [1.0, 1.0], max_count=4)
    relaxation = relax(instance, Box.root(instance), 0.0)
    tangents = (np.zeros(len(relaxation.weight)),)

    def solved():
        before = threads()
        return solve_node(instance, relaxation, 0.15, tangents, 0.0), threads() - before

    with ThreadPoolExecutor(1) as pool:
        point, more = pool.submit(solved).result()
    assert point.counts == pytest.approx(
        [4, 0]
    )  # the value of work is above the first bid's cost and below the second's
    assert not more


@pytest.mark.parametrize(("market", "term"), [([0, 1], EvictionTerm.ANY_BID), ([0, 0], EvictionTerm.PER_MARKET)])
def test_who_must_lose_by_evictions_must_take_an_instance(market, term):
    evicted = [0.5, 0.25]
    instance = hour_instance(
        market, [0.1, 0.2], [1.0, 2.0], max_count=4, evicted=evicted, eviction_loss_h=0.2, term=term
    )
    box = replace(Box.root(instance), theta=(0.2, 5.0))
    point = solve_node(instance, relax(instance, box, 0.0), 0.01, (np.zeros(1),), 0.0)  # work has almost no value
    assert -np.log1p(-np.array(evicted)) @ point.counts >= 0.2 - 1e-9
