"""Mixtures of purchases against the totals that they must have."""

import numpy as np
import pytest

from optim.solvers.cluster.price_bound import Master


def test_two_equal_jobs_share_two_slots_by_halves():
    """One GPU, two slots of a second, two jobs of a second: both end once first and once second, which costs 3 in all."""
    master = Master(np.array([1.0, 1.0]), np.array([2.0]), 10.0)
    assert master.add(np.array([0]), np.array([0]), np.array([1.0]), np.array([1.0])) == 1
    assert master.solve()[0] == pytest.approx(2 + 10)  # a second too much
    assert master.add(np.array([0]), np.array([0]), np.array([1.0]), np.array([1.0])) == 0
    assert master.add(np.array([0]), np.array([1]), np.array([1.0]), np.array([2.0])) == 1
    total, price = master.solve()
    assert total == pytest.approx(3)
    assert price[0] - price[1] == pytest.approx(1)
    who, flow, slot, weight = master.mixture()
    assert who.tolist() == [0, 0]
    assert sorted(slot.tolist()) == [0, 1]
    assert sorted(zip(flow.tolist(), weight.round(9).tolist(), strict=True)) == [(1.0, 1.0), (2.0, 1.0)]


def test_what_each_kind_buys_stands_for_itself():
    """A class that buys no priced time still has a row."""
    master = Master(np.array([1.0]), np.array([1.0, 3.0]), 5.0)
    assert master.add(np.array([1]), np.array([0]), np.array([2.0]), np.array([7.0, 1.0])) == 2
    assert master.solve()[0] == pytest.approx(7 + 3 + 5 * 5)
    who, flow, slot, weight = master.mixture()
    assert (who.tolist(), flow.tolist(), weight.tolist()) == ([0, 1], [7.0, 1.0], [1.0, 3.0])
    assert slot.tolist() == [-1, 0]
