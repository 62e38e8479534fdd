"""Bounds against all schedules of tiny workloads, and against plans that policies make."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.cluster.check import min_makespan, min_mean_completion, min_slowdown
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import IntervalProof, LoadProof, PriceProof
from optim.models.cluster.workload import US, Workload
from optim.solvers.cluster.price_bound import best_ends
from tests.support.small_clusters import least_total_completion, small_worlds, workload

UNEVEN = st.lists(st.integers(1, 4), min_size=8, max_size=8)
"""Lengths of slots in seconds."""
PRICES = st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0]), min_size=1, max_size=8)


def _proof(prices, lengths):
    return PriceProof(end_us=US * np.cumsum(lengths)[: len(prices)], price=np.array(prices))


@given(small_worlds(), PRICES, UNEVEN)
def test_no_prices_prove_more_than_the_best_schedule_has(world, prices, lengths):
    rows, cluster = world
    proof = _proof(prices, lengths)
    least = min_mean_completion(workload(rows), cluster, proof)
    assert least <= least_total_completion(rows, cluster.num_gpus) / len(rows) + 1e-9


def _bill_by_seconds(row, by_second):
    """Return min over whole ends C of C - r + w x the d cheapest seconds, by sorting them."""
    release, width, duration = row
    price = [by_second[second] if second < len(by_second) else 0.0 for second in range(release, 200)]
    ends = range(duration, len(price) + 1)
    return min(end + width * sum(sorted(price[:end])[:duration]) for end in ends)


@given(
    st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(1, 9)),
    PRICES,
    UNEVEN,
    st.sampled_from([0, 2**50 - 2**30]),
)
def test_a_jobs_least_bill_is_that_of_its_cheapest_seconds(row, prices, lengths, later):
    """With prices that change at whole seconds the best end is a whole second; 35 years later it is the same to the last digits."""
    from optim.models.cluster.check.bounds import min_cost

    release, width, duration = row
    proof, count = _proof(prices, lengths), len(prices)
    expected = _bill_by_seconds(row, np.repeat(prices, lengths[:count]))
    end, price = (
        (proof.end_us, proof.price) if not later else (np.append(later, later + proof.end_us), np.append(9.0, prices))
    )
    one = (np.array([later + release * US]), np.array([duration * US]), np.array([float(width)]))
    assert min_cost(*one, end, price, 10**9)[0][0] == pytest.approx(expected, rel=1e-14)
    value, flow = np.empty(1), np.empty(1)
    edge = np.append(0, end)
    best_ends(*one, edge, np.searchsorted(edge, one[0], side="right") - 1, price, value, flow)
    assert value[0] == pytest.approx(expected, rel=1e-14)


def test_the_mean_of_far_apart_submissions_is_proven_to_the_microsecond():
    """A job of 3 microseconds, and one 35 years later: nothing waits, and nothing more than their run times is proven."""
    jobs = Workload(submit_us=np.array([0, 2**50 - 7]), gpus=np.array([1, 1]), duration_us=np.array([3, 3]))
    price = PriceProof(end_us=np.array([1, 2**50 - 6, 2**50]), price=np.array([0.0, 0.0, 1e-7]))
    assert min_mean_completion(jobs, Cluster.grid("1x1"), price) <= 3e-6
    free = PriceProof(end_us=np.zeros(0, np.int64), price=np.zeros(0))
    assert min_mean_completion(jobs, Cluster.grid("1x1"), free) == pytest.approx(3e-6, rel=1e-8)


@pytest.mark.parametrize(
    ("count", "gpus", "duration", "horizon"), [(100, 1, 36_000, 3_600_000), (1000, 7, 1, 1000 / 7)]
)
def test_falling_prices_prove_what_equal_jobs_need(count, gpus, duration, horizon):
    """p(t) = (H - t) / d proves (H + d) / 2: here in slots as long as a job, at the price of their middle."""
    jobs = workload([(0, 1, duration)] * count)
    begin = np.arange(0, horizon, duration)
    end = np.minimum(begin + duration, horizon)
    proof = PriceProof(end_us=np.rint(end * US).astype(np.int64), price=(horizon - (begin + end) / 2) / duration)
    proven = min_mean_completion(jobs, Cluster.grid(f"1x{gpus}"), proof)
    assert proven == pytest.approx((horizon + duration) / 2, rel=1e-3)


def test_an_interval_that_is_not_overloaded_proves_nothing():
    jobs = workload([(0, 1, 2), (0, 1, 2), (0, 1, 2)])
    one = Cluster.grid("1x1")
    assert min_slowdown(jobs, one, IntervalProof(slowdown=2.9, from_us=0, to_us=round(5.8 * US))) > 2.8
    assert min_slowdown(jobs, one, IntervalProof(slowdown=3.0, from_us=0, to_us=6 * US)) == 1
    assert min_slowdown(jobs, one, IntervalProof(slowdown=2.9, from_us=1, to_us=round(5.8 * US))) == 1
    assert min_slowdown(jobs, one, IntervalProof(slowdown=2.9, from_us=0, to_us=round(5.7 * US))) == 1


@pytest.mark.parametrize("begin", [0, 2**50 - 2])
def test_an_interval_holds_what_ends_with_it_to_the_microsecond(begin):
    """Two jobs of a microsecond on one GPU: one of them takes twice as long as alone, and none has to take more."""
    both = np.array([1, 1])
    jobs = Workload(submit_us=np.full(2, begin), gpus=both, duration_us=both)
    proven = {
        slowdown: min_slowdown(jobs, Cluster(gpus=both[:1]), IntervalProof(slowdown=slowdown, from_us=begin, to_us=end))
        for slowdown, end in ((1.0, begin + 1), (1.5, begin + 1), (2.0, begin + 1), (2.25, begin + 1))
    }
    assert proven == {1.0: pytest.approx(1.0), 1.5: 1.0, 2.0: 1.0, 2.25: 1.0}
    ten = Workload(submit_us=np.full(2, begin), gpus=both, duration_us=10 * both)
    exact = IntervalProof(slowdown=1.5, from_us=begin, to_us=begin + 15)
    assert min_slowdown(ten, Cluster(gpus=both[:1]), exact) == pytest.approx(1.5)
    assert min_slowdown(ten, Cluster(gpus=both[:1]), replace(exact, to_us=begin + 14)) == 1.0


def test_an_interval_that_ends_before_it_begins_proves_nothing():
    jobs = workload([(0, 1, 1), (2, 1, 1)])
    assert min_slowdown(jobs, Cluster.grid("1x1"), IntervalProof(slowdown=1.9, from_us=2 * US, to_us=US)) == 1


def test_the_makespan_counts_the_load_from_a_time_on_and_the_longest_job():
    jobs = workload([(0, 1, 1), (5, 2, 4), (5, 1, 4)])
    assert min_makespan(jobs, Cluster.grid("1x2"), LoadProof(from_us=5 * US)) == pytest.approx(11)
    assert min_makespan(jobs, Cluster.grid("1x2"), LoadProof(from_us=0)) == pytest.approx(9)


@pytest.mark.parametrize("prices", [[-1.0], [float("nan")], [float("inf")]])
def test_prices_that_are_none_are_refused(prices):
    with pytest.raises(InvalidProblemError, match="finite and at least 0"):
        PriceProof(end_us=np.array([US]), price=np.array(prices))


@pytest.mark.parametrize("slot_us", [-1, 0, US - 1, 2**51])
def test_an_equal_slot_of_prices_has_a_second_at_least(slot_us):
    with pytest.raises(InvalidProblemError, match="slot_us must lie in"):
        PriceProof.of_equal_slots(slot_us, np.zeros(1))


def test_equal_slots_dont_end_later_than_a_proof_may():
    with pytest.raises(InvalidProblemError, match="end after"):
        PriceProof.of_equal_slots(2**50, np.zeros(2**13))
    assert PriceProof.of_equal_slots(US, np.zeros(3)).end_us.tolist() == [US, 2 * US, 3 * US]


@pytest.mark.parametrize(
    ("end_us", "cause"),
    [([0, 1], "rise"), ([2, 2], "rise"), ([-1, 2], "rise"), ([1, 2**63 - 1], "rise"), ([1], "give one")],
)
def test_slots_of_prices_end_one_after_the_other(end_us, cause):
    with pytest.raises(InvalidProblemError, match=cause):
        PriceProof(end_us=np.array(end_us), price=np.zeros(2))


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
    proof = _proof(prices, [1] * 8)
    more = Cluster(gpus=cluster.gpus + 1)
    assert min_mean_completion(workload(rows), more, proof) <= min_mean_completion(workload(rows), cluster, proof)
