"""Where open boxes are split, and how their counts are rounded: by hand."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.bidding.data import EvictionTerm
from optim.models.bidding.decision import RATE, THETA
from optim.solvers.bidding.tree.box import Box, relax
from optim.solvers.bidding.tree.lagrangian import CellMultipliers
from optim.solvers.bidding.tree.node_lp import LpPoint
from optim.solvers.bidding.tree.search import OpenBox, choose_bid, choose_sum, rounded
from tests.support.bidding.small_markets import hour_instance


def opened(counts, *, sums=(0.0, 0.0, 0.0), charge=(0.0, 0.0), **fields):
    """Return an instance of two bids and its root, at which a programme found these counts."""
    instance = hour_instance([0, 1], [0.1, 0.2], [1.0, 2.0], max_count=4, fixed_usd=0.3, **fields)
    box = Box.root(instance)
    relaxation = relax(instance, box, 0.0)
    point = LpPoint(
        counts=np.array(counts), multipliers=CellMultipliers.none(instance, relaxation), rates=np.zeros(1), sums=sums
    )
    return instance, OpenBox(
        box=box, node=0, multipliers=0, bound=0.0, relaxation=relaxation, point=point, charge=np.array(charge)
    )


LOSSES = {"evicted": [0.5, 0.25], "eviction_loss_h": 0.2, "term": EvictionTerm.ANY_BID}


def test_counts_are_rounded_down_to_the_next_and_up_and_cut_to_the_caps():
    instance, entry = opened([1.4, 2.6])
    assert rounded(instance, entry.relaxation, entry.point).tolist() == [[1, 2], [1, 3], [2, 3]]
    instance, entry = opened([1.4, 2.6], cap=4)
    assert rounded(instance, entry.relaxation, entry.point).tolist() == [[1, 2], [1, 3], [1, 3]]


def test_a_broken_count_is_split_at_its_floor():
    _, entry = opened([4.0, 1.3])
    assert choose_bid(1.0, entry) == (1, 1)


def test_a_bid_partly_taken_is_split_by_whether_it_is_taken():
    _, entry = opened([4.0, 2.0])
    assert choose_bid(1.0, entry) == (1, 0)


def test_with_losses_for_everybody_the_bid_that_saves_most_by_being_taken_partly_comes_first():
    _, entry = opened([1.5, 2.0], charge=(0.1, 0.4), **LOSSES)
    assert choose_bid(1.0, entry) == (1, 0)  # 0.4 x half of it is at stake, of a gap of 1
    assert choose_bid(99.0, entry) == (0, 1)


def test_whole_counts_split_the_widest_range():
    _, entry = opened([4.0, 4.0])
    assert choose_bid(1.0, entry) == (0, 3)


def test_a_sum_is_split_where_the_planes_overlook_much():
    theta = float(-np.log(0.5))
    instance, entry = opened([2.0, 2.0], sums=(theta, 6.0, 0.2 * 0.5 * 6.0), **LOSSES)
    assert choose_sum(instance, 1.0, 1.0, entry) is None  # the loss has the expected value
    chord = 0.2 * (1 - 0.375) / -np.log(0.375) * theta
    instance, entry = opened([2.0, 2.0], sums=(theta, 6.0, chord * 6.0), **LOSSES)
    assert choose_sum(instance, 1.0, 1e-3, entry) == (THETA, pytest.approx(theta))
    instance, entry = opened([2.0, 2.0], sums=(theta, 6.0, 0.0), **LOSSES)
    assert choose_sum(instance, 1.0, 1e-3, entry) == (RATE, pytest.approx(6.0))
    assert choose_sum(instance, 1.0, 1e3, entry) is None
    instance, entry = opened([2.0, 2.0])
    assert choose_sum(instance, 1.0, 1e-3, entry) is None


def test_a_split_keeps_a_tenth_away_from_the_ends():
    instance, entry = opened([2.0, 2.0], sums=(0.9, 11.9, 0.0), **LOSSES)
    assert choose_sum(instance, 1.0, 1e-3, entry) == (RATE, pytest.approx(10.8))


def test_at_the_least_theta_the_chord_overlooks_nothing():
    instance, entry = opened([2.0, 2.0], **LOSSES)
    box = replace(entry.box, theta=(0.3, 5.0))
    point = replace(entry.point, sums=(0.3, 6.0, 0.0))
    entry = replace(entry, box=box, relaxation=relax(instance, box, 0.0), point=point)
    assert choose_sum(instance, 1.0, 1e-3, entry) == (RATE, pytest.approx(6.0))
