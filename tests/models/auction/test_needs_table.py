"""Bid tables and reports of many apps at once, against the ones of each profile."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.bids import NeedsTable, bid_table, smallest_subtree, with_allocation
from optim.models.auction.data import COMPUTE_BOUND, NETWORK_BOUND, Horizon, Slowdown
from optim.models.auction.fairness import AppProfile, IdealTime, Needs, ideal_minutes, shared_minutes
from tests.support.auction.builders import auction

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
