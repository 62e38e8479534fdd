"""Patterns of machines against trying all sets of bundles, and machines that have too many of them."""

import math
import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.files import verify
from optim.solvers.auction import bundle_type_lp
from optim.solvers.auction.bundle_type_lp import BundleTypeLP, patterns
from optim.solvers.auction.packing import Packer
from optim.solvers.auction.tables import Tables
from optim.solvers.solve import solve
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import optimum
from tests.support.auction.strategies import auctions, named_auctions

TOL = 1e-9
"""Sums of a few logarithms."""


def fits_slots(bundles, slots):
    """Return whether bundles fit into slots, each into a single slot, by trying all assignments."""
    if not bundles:
        return True
    return any(
        slot >= bundles[0] and fits_slots(bundles[1:], [*slots[:s], slot - bundles[0], *slots[s + 1 :]])
        for s, slot in enumerate(slots)
    )


def all_patterns(slots, slot_sizes, machine_sizes):
    """Return the maximal sets of bundles, by trying all numbers of each size."""
    total = sum(slots)
    fitting = set()
    for counts in product(*[range(total // size + 1) for size in (*slot_sizes, *machine_sizes)]):
        bundles = [size for size, count in zip(slot_sizes, counts, strict=False) for _ in range(count)]
        taken = sum(size * count for size, count in zip((*slot_sizes, *machine_sizes), counts, strict=True))
        if taken <= total and fits_slots(bundles, list(slots)):
            fitting.add(counts)
    length = len(slot_sizes) + len(machine_sizes)
    return {
        counts
        for counts in fitting
        if not any((*counts[:k], counts[k] + 1, *counts[k + 1 :]) in fitting for k in range(length))
    }


sizes = st.sets(st.integers(1, 5), max_size=3).map(sorted).map(tuple)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), sizes, sizes, st.booleans())
def test_patterns_are_the_maximal_sets_of_bundles(slots, slot_sizes, machine_sizes, is_named):
    """Single GPUs of a named machine come last."""
    machine_sizes = (*machine_sizes, 1) if is_named else machine_sizes
    found = patterns(slots, slot_sizes, machine_sizes)
    assert set(found) == all_patterns(slots, slot_sizes, machine_sizes)
    assert list(found) == sorted(set(found), reverse=True)


def every(size):
    return tuple(range(1, size + 1))


def in_all_sizes(most, value):
    """Return bids on one machine whose value grows with the square root of their GPUs."""
    return [(size, "machine", 1.0 + value * math.sqrt(size / most)) for size in every(most)]


@pytest.mark.parametrize(
    ("machine", "number"),
    [
        (((32,), (), every(32)), 8_349),  # partitions of 32
        (((16, 16), (), every(16)), 7_665),  # into parts of 16 at most
        (((4, 4, 4, 4), every(4), every(16)), 3_935),
        (((40,), (), every(40)), None),  # 37,338
        (((1_000,), (), every(1_000)), None),
        (((10**6,), (), (1, 2, 3)), None),
        (((1_000,), (), tuple(range(500, 1_001))), 501),  # one alone, or two of 500
        (((20_000,), (), tuple(range(10_001, 20_001))), None),  # as many of as many kinds
        (((16,) * 8, every(16), ()), None),
        (((1_000, 1_000), (1,), ()), None),
    ],
)
def test_patterns_are_given_up_at_once_where_they_are_too_many(machine, number):
    begun = time.process_time()
    found = patterns(*machine)
    assert (None if found is None else len(found)) == number
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("most", [0, 4])
@given(instance=st.one_of(auctions(), named_auctions()))
def test_where_patterns_are_too_many_bounds_hold_and_what_is_exact_stays_so(most, instance):
    best = optimum(instance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle_type_lp, "MOST_PATTERNS", most)
        assert BundleTypeLP(Tables.build(instance)).solve({}).value >= best - 1e-7
        exact, greedy = (solve(instance, solver) for solver in ("exact", "greedy"))
    assert exact.objective == pytest.approx(best, abs=TOL)
    for solution in (exact, greedy):
        verification = verify(instance, solution)
        assert verification.is_ok, verification.violations
        assert solution.bound >= best - TOL


@pytest.mark.parametrize("gpus", [16, 24, 32, 64, 128, pytest.param(1_000, marks=pytest.mark.prove)])
@pytest.mark.parametrize("solver", ["greedy", "exact"])
def test_an_island_bid_for_in_all_sizes_is_solved_at_once(solver, gpus):
    """There are more than a million patterns of 64 GPUs.

    Only numbers of GPUs are counted, which is exact if all sizes are requested.
    """
    solve(auction([4], in_all_sizes(4, 3.0)), solver)  # compiled
    instance = auction([gpus], in_all_sizes(gpus, 10.0), in_all_sizes(gpus, 8.0))
    begun = time.process_time()
    solution = solve(instance, solver, time_limit_s=0.2)
    assert time.process_time() - begun < (1.0 if gpus <= 128 else 5.0)
    assert verify(instance, solution).is_ok
    assert solution.termination == "optimal"


def test_machines_of_which_the_gpus_count_are_placed_and_proven():
    """By their GPUs three bundles of 40 fit on two machines of 64."""
    instance = auction([64, 64], *[[(40, "machine", 4.0), *in_all_sizes(30, 2.0)]] * 3)
    assert patterns((64,), (), (*every(30), 40)) is None
    solution = solve(instance, "exact")
    assert verify(instance, solution).is_ok
    assert solution.termination == "optimal"
    assert solution.decision.awarded_gpus(3).tolist().count(40) == 2
    assert Packer(instance).place(solution.decision.row) is not None
