"""Bounds against all schedules of tiny workloads, and against plans that policies make."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.cluster.check import least_makespan, least_mean_completion, least_slowdown
from optim.models.cluster.proof import IntervalProof, LoadProof, PriceProof
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster
from optim.solvers.cluster.cheapest_time import best_ends
from tests.support.small_clusters import least_total_completion, small_worlds, workload

PRICES = st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0]), min_size=1, max_size=8)


@given(small_worlds(), PRICES, st.integers(1, 3))
def test_no_prices_prove_more_than_the_best_schedule_has(world, prices, slot):
    rows, cluster = world
    proof = PriceProof(slot_us=slot * US, price=np.array(prices))
    least = least_mean_completion(workload(rows), cluster, proof)
    assert least <= least_total_completion(rows, cluster.num_gpus) / len(rows) + 1e-9


def _bill_by_seconds(row, prices, slot):
    """Return min over whole ends C of C - r + w x the d cheapest seconds, by sorting them."""
    release, width, duration = row
    price = [prices[second // slot] if second // slot < len(prices) else 0.0 for second in range(release, 200)]
    ends = range(duration, len(price) + 1)
    return min(end + width * sum(sorted(price[:end])[:duration]) for end in ends)


@given(st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(1, 9)), PRICES, st.integers(1, 3))
def test_a_jobs_least_bill_is_that_of_its_cheapest_seconds(row, prices, slot):
    """With prices that change at whole seconds the best end is a whole second."""
    from optim.models.cluster.check.dearest_time import least_bills

    release, width, duration = (np.array([float(value)]) for value in row)
    price = np.append(np.array(prices), 0.0)
    expected = _bill_by_seconds(row, prices, slot)
    assert least_bills(release, duration, width, price, float(slot), 10**9)[0][0] == pytest.approx(expected, abs=1e-9)
    value, end = np.empty(1), np.empty(1)
    best_ends(release, duration, width, np.array(prices), float(slot), value, end)
    assert value[0] == pytest.approx(expected, abs=1e-9)


def test_an_interval_that_is_not_overloaded_proves_nothing():
    jobs = workload([(0, 1, 2), (0, 1, 2), (0, 1, 2)])
    one = Cluster.grid("1x1")
    assert least_slowdown(jobs, one, IntervalProof(slowdown=2.9, from_us=0, to_us=round(5.8 * US))) > 2.8
    assert least_slowdown(jobs, one, IntervalProof(slowdown=3.0, from_us=0, to_us=6 * US)) == 1
    assert least_slowdown(jobs, one, IntervalProof(slowdown=2.9, from_us=1, to_us=round(5.8 * US))) == 1
    assert least_slowdown(jobs, one, IntervalProof(slowdown=2.9, from_us=0, to_us=round(5.7 * US))) == 1


@pytest.mark.parametrize("begin", [0, 2**50 - 2])
def test_an_interval_holds_what_ends_with_it_to_the_microsecond(begin):
    """Two jobs of a microsecond on one GPU: one of them takes twice as long as alone, and none has to take more."""
    both = np.array([1, 1])
    jobs = Workload(submit_us=np.full(2, begin), gpus=both, duration_us=both)
    proven = {
        slowdown: least_slowdown(
            jobs, Cluster(gpus=both[:1]), IntervalProof(slowdown=slowdown, from_us=begin, to_us=end)
        )
        for slowdown, end in ((1.0, begin + 1), (1.5, begin + 1), (2.0, begin + 1), (2.25, begin + 1))
    }
    assert proven == {1.0: pytest.approx(1.0), 1.5: 1.0, 2.0: 1.0, 2.25: 1.0}
    ten = Workload(submit_us=np.full(2, begin), gpus=both, duration_us=10 * both)
    exact = IntervalProof(slowdown=1.5, from_us=begin, to_us=begin + 15)
    assert least_slowdown(ten, Cluster(gpus=both[:1]), exact) == pytest.approx(1.5)
    assert least_slowdown(ten, Cluster(gpus=both[:1]), replace(exact, to_us=begin + 14)) == 1.0


def test_an_interval_that_ends_before_it_begins_proves_nothing():
    jobs = workload([(0, 1, 1), (2, 1, 1)])
    assert least_slowdown(jobs, Cluster.grid("1x1"), IntervalProof(slowdown=1.9, from_us=2 * US, to_us=US)) == 1


def test_the_makespan_counts_the_load_from_a_time_on_and_the_longest_job():
    jobs = workload([(0, 1, 1), (5, 2, 4), (5, 1, 4)])
    assert least_makespan(jobs, Cluster.grid("1x2"), LoadProof(from_us=5 * US)) == pytest.approx(11)
    assert least_makespan(jobs, Cluster.grid("1x2"), LoadProof(from_us=0)) == pytest.approx(9)


@pytest.mark.parametrize("prices", [[-1.0], [float("nan")], [float("inf")]])
def test_prices_that_are_none_are_refused(prices):
    with pytest.raises(InvalidProblemError, match="finite and at least 0"):
        PriceProof(slot_us=US, price=np.array(prices))


@pytest.mark.parametrize("slot_us", [-1, 0, US - 1, 2**51])
def test_a_slot_of_prices_has_a_second_at_least(slot_us):
    with pytest.raises(InvalidProblemError, match="slot_us must lie in"):
        PriceProof(slot_us=slot_us, price=np.zeros(1))


@pytest.mark.parametrize(
    ("proof", "change"),
    [
        (LoadProof, {"from_us": -1}),
        (LoadProof, {"from_us": 10**400}),
        (IntervalProof, {"slowdown": 0.5}),
        (IntervalProof, {"slowdown": float("nan")}),
        (IntervalProof, {"slowdown": float("inf")}),
        (IntervalProof, {"from_us": -1}),
        (IntervalProof, {"to_us": -1}),
        (IntervalProof, {"to_us": 10**400}),
    ],
)
def test_a_proof_of_no_time_or_slowdown_is_refused(proof, change):
    plain = {"from_us": 0} if proof is LoadProof else {"slowdown": 1.0, "from_us": 0, "to_us": 0}
    proof(**plain)
    with pytest.raises(InvalidProblemError, match=f"{next(iter(change))} must lie in"):
        proof(**{**plain, **change})


@given(small_worlds(), PRICES)
def test_more_gpus_never_raise_a_bound_at_the_same_prices(world, prices):
    rows, cluster = world
    proof = PriceProof(slot_us=US, price=np.array(prices))
    more = Cluster(gpus=cluster.gpus + 1)
    assert least_mean_completion(workload(rows), more, proof) <= least_mean_completion(workload(rows), cluster, proof)
