"""Bid tables: which rows there are, and which are left out."""

import math

import pytest

from optim.models.auction.bid_table import bid_table, most_gpus_by_locality
from optim.models.auction.fairness import AppProfile, Trial, ideal_minutes, shared_minutes
from optim.models.auction.instance import Horizon, Locality
from optim.models.auction.slowdown import Slowdown
from tests.support.auction.builders import auction

CLUSTER = auction([(0, [2, 2]), (0, [2, 2]), (1, [2, 2])]).cluster


def profile(**fields):
    """An app of one trial of 60 minutes that can use 8 GPUs, slower the wider it lies."""
    known = {
        "elapsed_min": 0.0,
        "active_apps": 2.0,
        "trials": (Trial(work_min=60.0, total_work_min=60.0, max_gpus=8),),
        "slowdown": Slowdown(slot=1.0, machine=1.1, rack=1.5, cluster=2.0),
    }
    return AppProfile(**known | fields)


def rows(**fields):
    options = {"lease_min": 20.0} | {
        name: fields.pop(name) for name in ("horizon", "sizes", "widest") if name in fields
    }
    return bid_table(profile(**fields), CLUSTER, **options)


def test_offers_by_locality_leave_out_what_is_the_same_as_the_next_better():
    assert most_gpus_by_locality(CLUSTER) == {
        Locality.SLOT: 2,
        Locality.MACHINE: 4,
        Locality.RACK: 8,
        Locality.CLUSTER: 12,
    }
    assert most_gpus_by_locality(auction([4, 4]).cluster) == {Locality.SLOT: 4, Locality.RACK: 8}


def test_every_number_up_to_the_demand_is_bid_for_in_the_localities_that_hold_it():
    table = rows()
    assert {k for k, _, _ in table.rows} == set(range(1, 9))
    limits = most_gpus_by_locality(CLUSTER)
    assert all(k <= limits[Locality(level)] for k, level, _ in table.rows)


def test_rho_is_the_time_over_the_ideal_time():
    own = profile()
    ideal = ideal_minutes(own, 12)
    table = rows()
    assert table.ideal_min == ideal
    for k, level, rho in table.rows:
        shared = shared_minutes(own, k, level, horizon=Horizon.HOLD, lease_min=20.0, cluster_gpus=12)
        assert rho == pytest.approx(shared / ideal)


def test_no_row_is_as_good_as_one_of_no_more_gpus_that_fits_wherever_it_does():
    table = rows()
    for k, level, rho in table.rows:
        assert rho < table.empty_rho
        assert not any(
            kk <= k and other >= level and r <= rho for kk, other, r in table.rows if (kk, other) != (k, level)
        )


def test_gangs_sizes_and_localities_limit_the_rows():
    assert {k for k, _, _ in rows(gang=3).rows} == {3, 6}
    assert {k for k, _, _ in rows(sizes=(2, 5)).rows} == {2, 5}
    assert max(level for _, level, _ in rows(widest=Locality.MACHINE).rows) == Locality.MACHINE
    assert max(k for k, _, _ in rows(widest=Locality.MACHINE).rows) == 4


def test_held_gpus_are_no_longer_asked_for():
    assert max(k for k, _, _ in rows(held_gpus=5).rows) == 3


def test_the_empty_row_takes_a_lease_longer_than_the_slowest_row_unless_it_is_known():
    table = rows()
    own = profile()
    slowest = max(
        shared_minutes(own, k, level, horizon=Horizon.HOLD, lease_min=20.0, cluster_gpus=12)
        for level, most in most_gpus_by_locality(CLUSTER).items()
        for k in range(1, min(8, most) + 1)
    )
    assert table.empty_rho == pytest.approx((20.0 + slowest) / table.ideal_min)
    known = rows(horizon=Horizon.LEASE)
    waited = shared_minutes(own, 0, 0, horizon=Horizon.LEASE, lease_min=20.0, cluster_gpus=12)
    assert known.empty_rho == pytest.approx(waited / known.ideal_min)
    assert math.isfinite(known.empty_rho)


def test_gangs_beyond_the_demand_less_what_is_held_are_not_bid_for():
    """Of 8 GPUs 3 are held: a third gang of 2 would help, but not with all of its GPUs."""
    table = rows(held_gpus=3, gang=2)
    assert {k for k, _, _ in table.rows} == {2, 4}
