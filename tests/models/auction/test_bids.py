"""Bid tables and reports, one app at a time and many at once: which rows there are, and which are left out."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.bids import (
    NeedsTable,
    bid_table,
    max_gpus_by_locality,
    possible_sizes,
    smallest_subtree,
    with_allocation,
)
from optim.models.auction.data import COMPUTE_BOUND, NETWORK_BOUND, Horizon, Locality, Slowdown
from optim.models.auction.fairness import AppProfile, IdealTime, Needs, Trial, ideal_minutes, shared_minutes
from tests.support.auction.builders import auction

CLUSTER = auction([(0, [2, 2]), (0, [2, 2]), (1, [2, 2])]).cluster


def profile(**fields):
    """An app of one trial of 60 minutes that can use 8 GPUs, slower the wider they are spread."""
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
    assert max_gpus_by_locality(CLUSTER) == {
        Locality.SLOT: 2,
        Locality.MACHINE: 4,
        Locality.RACK: 8,
        Locality.CLUSTER: 12,
    }
    assert max_gpus_by_locality(auction([4, 4]).cluster) == {Locality.SLOT: 4, Locality.RACK: 8}


def test_every_number_up_to_the_demand_is_bid_for_in_the_localities_that_hold_it():
    table = rows()
    assert {k for k, _, _ in table.rows} == set(range(1, 9))
    limits = max_gpus_by_locality(CLUSTER)
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
    assert max(k for k, _, _ in rows(held_gpus=5, held_locality=Locality.CLUSTER).rows) == 3


def test_the_empty_row_takes_a_lease_longer_than_the_slowest_row_unless_it_is_known():
    table = rows()
    own = profile()
    slowest = max(
        shared_minutes(own, k, level, horizon=Horizon.HOLD, lease_min=20.0, cluster_gpus=12)
        for level, most in max_gpus_by_locality(CLUSTER).items()
        for k in range(1, min(8, most) + 1)
    )
    assert table.empty_rho == pytest.approx((20.0 + slowest) / table.ideal_min)
    known = rows(horizon=Horizon.LEASE)
    waited = shared_minutes(own, 0, 0, horizon=Horizon.LEASE, lease_min=20.0, cluster_gpus=12)
    assert known.empty_rho == pytest.approx(waited / known.ideal_min)
    assert math.isfinite(known.empty_rho)


def test_gangs_beyond_the_demand_less_what_is_held_are_not_bid_for():
    """3 of 8 GPUs are occupied: a third gang of 2 would help, but not with all of its GPUs."""
    table = rows(held_gpus=3, held_locality=Locality.CLUSTER, gang=2)
    assert {k for k, _, _ in table.rows} == {2, 4}


def test_a_bundle_counts_on_the_union_with_what_is_held_wherever_it_may_lie():
    """Two GPUs of a machine are occupied; two more on another machine make an app span one rack, or two."""
    known = {"active_apps": 1.0, "slowdown": Slowdown(slot=1.0, machine=1.0, rack=1.3, cluster=1.3)}
    trial = Trial(work_min=100.0, total_work_min=100.0, max_gpus=4)
    own = with_allocation(profile(trials=(trial,), **known), auction([2, 2, 2]).cluster, [(0, 2)])
    table = bid_table(own, auction([0, 2, 2]).cluster, lease_min=20.0)
    minutes = {k: rho * table.ideal_min for k, _, rho in table.rows}
    assert minutes == {1: pytest.approx(100 * 1.3 / 3), 2: pytest.approx(100 * 1.3 / 4)}
    assert table.empty_rho * table.ideal_min == pytest.approx(50.0)


def test_rows_that_name_machines_stay_beside_the_gpus_held():
    """The GPUs of the first slot of machine 0 are occupied, machine 1 is its neighbour, machine 2 is in another rack."""
    where = auction([(0, [2, 2]), (0, [2, 2]), (1, [2, 2])]).cluster
    own = with_allocation(profile(elapsed_min=5.0), where, [(0, 2)])
    offer = auction([(0, [0, 2]), (0, [2, 2]), (1, [2, 2])]).cluster
    table = bid_table(own, offer, lease_min=20.0)
    expected = {((0, 1),): 1.1, ((0, 2),): 1.1, ((0, 2), (1, 1)): 1.5, ((0, 2), (1, 2)): 1.5}
    found = dict(table.named)
    for machines, slowdown in expected.items():
        gpus = 2 + sum(k for _, k in machines)
        if machines in found:
            assert found[machines] * table.ideal_min == pytest.approx(5.0 + 60.0 * slowdown / gpus)
    assert set(found) >= {((0, 1),), ((0, 2),), ((0, 2), (1, 2))}
    assert all(rho < table.empty_rho for rho in found.values())
    assert not any(
        k <= sum(g for _, g in machines) and r <= rho for machines, rho in table.named for k, _, r in table.rows
    )


def test_rows_beside_the_gpus_held_are_as_good_as_any_placement_there():
    """Each named row's rho is at most that of the union of its machines' slots and the app's GPUs."""
    where = auction([(0, [2, 2]), (0, [4]), (1, [4])]).cluster
    for slot, place in ((0, [(0, 1)]), (2, [(2, 3)]), (3, [(1, 1), (3, 2)])):
        del slot
        own = with_allocation(profile(), where, place)
        free = where.slot_gpus.copy()
        for s, k in place:
            free[s] -= k
        offer = auction([(0, free[:2].tolist()), (0, [int(free[2])]), (1, [int(free[3])])]).cluster
        for machines, rho in bid_table(own, offer, lease_min=20.0).named:
            slots = [s for s in range(4) if where.slot_machine[s] in dict(machines)]
            level = smallest_subtree(where, [*(s for s, _ in place), *slots])
            gpus = own.held_gpus + sum(k for _, k in machines)
            slowdown = (1.0, 1.1, 1.5, 2.0)[level]
            assert rho == pytest.approx(60.0 * slowdown / min(8, gpus) / ideal_minutes(own, 12))


def test_sizes_are_the_sums_of_some_gangs_even_where_a_gang_exceeds_the_limit():
    gangs = [2, 3, 3, 7]
    for most in range(-1, 16):
        sums = {sum(some) for count in range(1, 5) for some in combinations(gangs, count)}
        assert possible_sizes(gangs, most) == sorted(k for k in sums if k <= most)


SLOWDOWNS = (Slowdown(), NETWORK_BOUND, COMPUTE_BOUND, Slowdown(rack=2.83, cluster=1.77))


def _profile(rng, ideal):
    gang = int(rng.choice([1, 2, 3]))
    demand = gang * int(rng.integers(1, 8)) + int(rng.integers(gang))  # the last GPUs may be too few for a gang
    work = float(rng.uniform(1, 500))
    needs = Needs(
        work_min=work,
        longest_min=float(rng.uniform(0.1, work)),
        demand=demand,
        total_work_min=work * float(rng.uniform(1, 3)),
        total_longest_min=float(rng.uniform(1, 100)),
        total_demand=demand + gang * int(rng.integers(0, 3)),
    )
    return AppProfile(
        elapsed_min=float(rng.choice([0.0, 3.0, 400.0])),
        active_apps=float(rng.uniform(1, 20)),
        needs=needs,
        slowdown=SLOWDOWNS[rng.integers(len(SLOWDOWNS))],
        gang=gang,
        ideal=ideal,
    )


def _table(profiles):
    def column(name):
        return np.array([getattr(each, name) for each in profiles])

    needs = [each.needs for each in profiles]
    return NeedsTable(
        **{name: column(name) for name in ("elapsed_min", "active_apps", "work_min", "demand", "gang")},
        longest_min=np.array([each.longest_min for each in needs]),
        total_work_min=np.array([each.total_work_min for each in needs]),
        total_longest_min=np.array([each.total_longest_min for each in needs]),
        total_demand=np.array([each.total_demand for each in needs]),
        slowdown=np.array([[each.slowdown.within(level) for level in range(4)] for each in profiles]),
        ideal=profiles[0].ideal,
    )


@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(1, 5), min_size=1, max_size=2)), min_size=1, max_size=6),
    st.sampled_from(list(IdealTime)),
    st.integers(0, 10**9),
)
def test_tables_are_those_of_each_app_to_the_bit(machines, ideal, seed):
    rng = np.random.default_rng(seed)
    racks = sorted({rack for rack, _ in machines})
    machines = sorted((racks.index(rack), slots) for rack, slots in machines)
    whole = auction(machines).cluster
    free, held = whole.slot_gpus.copy(), []
    for _ in range(3):
        slots = np.flatnonzero(free)
        taken = rng.choice(slots, min(len(slots), int(rng.integers(0, 3))), replace=False) if len(slots) else []
        held.append([(int(s), int(rng.integers(1, free[s] + 1))) for s in taken])
        for s, count in held[-1]:
            free[s] -= count
    shape = np.split(free, np.searchsorted(whole.slot_machine, np.arange(1, whole.num_machines)))
    offer = auction([(rack, part.tolist()) for (rack, _), part in zip(machines, shape, strict=True)]).cluster
    profiles = [_profile(rng, ideal) for _ in held]
    holders = [
        with_allocation(each, whole, places) if places else each for each, places in zip(profiles, held, strict=True)
    ]
    table = _table(profiles)
    count = np.array([each.held_gpus for each in holders])
    level = np.array([int(smallest_subtree(whole, [s for s, _ in places])) for places in held])
    who = np.array([2, 0, 1])
    found = table.bid_tables(who, offer, lease_min=20.0, held=count, held_level=level, profile_of=lambda i: holders[i])
    for i, mine in zip(who.tolist(), found, strict=True):
        single = bid_table(holders[i], offer, lease_min=20.0)
        assert (mine.empty_rho, mine.ideal_min) == (single.empty_rho, single.ideal_min)
        assert mine.rows == single.rows
        assert mine.named == single.named


@pytest.mark.parametrize("ideal", list(IdealTime))
def test_rho_is_that_of_each_app(ideal):
    profiles = [_profile(np.random.default_rng(seed), ideal) for seed in range(40)]
    gpus, level = np.arange(1, 41) % 9 + 1, np.arange(40) % 4
    found = _table(profiles).rho(gpus, level, 12)
    for each, count, where, rho in zip(profiles, gpus.tolist(), level.tolist(), found.tolist(), strict=True):
        held = shared_minutes(each, count, where, horizon=Horizon.HOLD, lease_min=1.0, cluster_gpus=12)
        assert rho == held / ideal_minutes(each, 12)
