"""Boxes of footprints: their parts cover exactly the box."""

import math

import numpy as np
import pytest

from optim.models.bidding.data import Caps
from optim.models.bidding.decision import CHANGE, RATE, THETA
from optim.solvers.bidding.tree.box import Box
from tests.support.bidding.small_markets import hour_instance


def instance_of(**fields):
    return hour_instance([0, 1], [0.1, 0.2], [1.0, 2.0], max_count=[3, 2], **fields)


def test_the_root_holds_all_footprints_and_leaves_a_change_open_where_there_can_be_one():
    root = Box.root(instance_of(is_new=np.array([True, False])))
    assert (root.low.tolist(), root.high.tolist(), root.has_change) == ([0, 0], [3, 2], None)
    assert (root.theta, root.rate) == ((0.0, math.inf), (0.0, math.inf))
    assert Box.root(instance_of()).has_change is False


def test_a_split_by_a_bid_parts_at_most_from_more():
    instance = instance_of()
    low, high = Box.root(instance).split(instance, 0, 1)
    assert (low.low.tolist(), low.high.tolist()) == ([0, 0], [1, 2])
    assert (high.low.tolist(), high.high.tolist()) == ([2, 0], [3, 2])


def test_a_split_by_change_takes_new_bids_away_on_one_side():
    instance = instance_of(is_new=np.array([True, False]))
    low, high = Box.root(instance).split(instance, CHANGE, 0)
    assert (low.high.tolist(), low.has_change) == ([0, 2], False)
    assert (high.high.tolist(), high.has_change) == ([3, 2], True)


@pytest.mark.parametrize(("by", "name"), [(THETA, "theta"), (RATE, "rate")])
def test_a_split_by_a_sum_narrows_its_range_alone(by, name):
    instance = instance_of()
    low, high = Box.root(instance).split(instance, by, 0.5)
    assert (getattr(low, name), getattr(high, name)) == ((0.0, 0.5), (0.5, math.inf))
    other = "rate" if name == "theta" else "theta"
    assert getattr(low, other) == getattr(high, other) == (0.0, math.inf)
    assert low.high.tolist() == high.high.tolist() == [3, 2]
    again, _ = high.split(instance, by, 0.7)
    assert getattr(again, name) == (0.5, 0.7)


def test_a_box_of_one_footprint_is_single_and_one_over_a_cap_is_told():
    weight = np.array([[1.0, 1.0], [0.0, 2.0]])
    instance = hour_instance([0, 1], [0.1, 0.2], [1.0, 2.0], max_count=3)
    capped = Caps(names=("a", "b"), weight=weight, limit=np.array([4.0, 2.0]))
    object.__setattr__(instance, "caps", capped)
    for counts, is_over in (([3, 1], False), ([3, 2], True), ([0, 2], True), ([0, 1], False)):
        box = Box(low=np.array(counts), high=np.array(counts), has_change=False)
        assert box.is_single
        assert box.exceeds_a_cap(instance) is is_over
    assert not Box.root(instance).is_single
