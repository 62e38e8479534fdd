"""Bounds against all schedules of tiny workloads, and against plans that policies make."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from optim.core.errors import InvalidProblemError
from optim.models.cluster.check import check_runs, max_by_prices, min_makespan, min_mean_completion, min_slowdown
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import DivisibleSchedule, IntervalProof, LoadProof, PriceProof
from optim.models.cluster.run_file import RunRecord, load_run, save_run
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.comparison import bound
from optim.solvers.cluster.load_bounds import bound_makespan, bound_slowdown
from optim.solvers.cluster.price_bound import PriceBoundOptions, best_ends, bound_mean_completion
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
    """Return the least time from submission to an integral end plus GPUs times the prices of the cheapest seconds before it."""
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
    """With prices that change at integral seconds, the best end is integral; 35 years later it is equal to the last digits."""
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
    """A job of 3 microseconds, and one 35 years later: no job waits, and the bound is the sum of their run times."""
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
    """Two jobs of a microsecond on one GPU: one takes twice as long as alone, and a proof must not claim more."""
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
    with pytest.raises(InvalidProblemError, match="must be one per slot, finite"):
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
    [
        ([0, 1], "increase"),
        ([2, 2], "increase"),
        ([-1, 2], "increase"),
        ([1, 2**63 - 1], "increase"),
        ([1], "give one"),
    ],
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


@st.composite
def typed_worlds(draw, jobs=4):
    """Machines of two or three types, and a few jobs, each of which runs at full or half speed on some of them."""
    types = draw(st.integers(2, 3))
    gpus = np.array([draw(st.integers(1, 2)) for _ in range(types)])
    count = draw(st.integers(1, jobs))
    submit = sorted(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    factors = st.lists(st.sampled_from([0, 1, 1, 2]), min_size=types, max_size=types).filter(any)
    factor = np.array([draw(factors) for _ in range(count)])
    rows = []
    for when, row in zip(submit, factor, strict=True):
        rows.append((when - submit[0], draw(st.integers(1, int(gpus[row > 0].max()))), draw(st.integers(1, 3))))
    kinds = tuple(f"t{kind}" for kind in range(types))
    cluster = Cluster(gpus=gpus, kind=np.arange(types), kinds=kinds)
    return rows, factor, workload(rows, gpu_type_slowdown_ppm=factor * PPM), cluster


def _places(width, factor, gpus):
    """Return how a gang can be spread over types: GPUs of each, or none at all."""
    spread = product(
        *(range(min(width, there) + 1 if usable else 1) for there, usable in zip(gpus, factor, strict=True))
    )
    return [each for each in spread if sum(each) in (0, width)]


def _all_schedules(rows, factor, gpus):
    """Return the least mean completion, makespan and slowdown of all schedules, second by second; a spread gang is as slow as its slowest part."""
    best = [np.inf, np.inf, np.inf]
    states, now = {(tuple(2 * duration for _, _, duration in rows), 0, 0.0)}, 0  # left in halves of a second's work
    places = [_places(width, row, gpus) for (_, width, _), row in zip(rows, factor.tolist(), strict=True)]
    while states and now < 9:
        later = set()
        for left, total, slowest in states:
            active = [job for job, work in enumerate(left) if work and rows[job][0] <= now]
            for where in product(*(places[job] for job in active)):
                if any(sum(place[kind] for place in where) > there for kind, there in enumerate(gpus)):
                    continue
                work, cost, slow = list(left), total, slowest
                for job, place in zip(active, where, strict=True):
                    if any(place):
                        slowness = max(int(factor[job, kind]) for kind in np.flatnonzero(place))
                        work[job] = max(0, work[job] - 2 // slowness)
                    if not work[job]:
                        cost += now + 1 - rows[job][0]
                        slow = max(slow, (now + 1 - rows[job][0]) / rows[job][2])
                if any(work):
                    later.add((tuple(work), cost, slow))
                else:
                    best = [min(pair) for pair in zip(best, [cost / len(rows), now + 1, slow], strict=True)]
        states, now = later, now + 1
    return best


@settings(max_examples=15, deadline=None)
@given(typed_worlds(jobs=3))
def test_no_schedule_on_types_beats_a_bound(world):
    rows, factor, jobs, cluster = world
    mean, makespan, slowdown = _all_schedules(rows, factor, cluster.gpus.tolist())
    found = bound_mean_completion(jobs, cluster, PriceBoundOptions(slots=40, steps=20))
    proven = min_mean_completion(jobs, cluster, found.proof)
    assert proven == pytest.approx(found.least_s, rel=1e-6)
    assert proven <= mean + 1e-9
    assert proven <= max_by_prices(jobs, cluster, found.schedule)
    assert min_makespan(jobs, cluster, bound_makespan(jobs, cluster)) <= makespan
    assert min_slowdown(jobs, cluster, bound_slowdown(jobs, cluster)) <= slowdown + 1e-9


@settings(max_examples=15, deadline=None)
@given(typed_worlds(jobs=3), st.data())
def test_no_prices_of_types_prove_more_than_a_schedule_or_a_divisible_one_has(world, data):
    """At random prices, and random parts of jobs on random types."""
    rows, factor, jobs, cluster = world
    types = len(cluster.gpus)
    row = st.lists(st.sampled_from([0.0, 0.2, 0.7, 1.5]), min_size=4, max_size=4)
    price = np.array([data.draw(row) for _ in range(types)])
    proof = PriceProof(end_us=US * np.cumsum([1, 2, 1, 3]), price=price)
    least = min_mean_completion(jobs, cluster, proof)
    parts = [(job, kind) for job in range(len(rows)) for kind in np.flatnonzero(factor[job]).tolist()]
    job, kind = np.array(parts).T
    weight = np.array([data.draw(st.floats(0.1, 1)) for _ in parts])
    start = np.array([data.draw(st.integers(0, 5)) for _ in parts]) * data.draw(st.sampled_from([0, 1]))
    start = start if start.any() else np.zeros(0, np.int64)
    schedule = DivisibleSchedule(job=job, weight=weight, gpu_type=kind, start_us=start)
    assert least <= max_by_prices(jobs, cluster, schedule)
    assert least <= _all_schedules(rows, factor, cluster.gpus.tolist())[0] + 1e-9


def _best_prices(rows, factor, gpus, horizon):
    """Return the bound by the best prices of integral seconds: a programme that mixes sets of seconds, each bought on one type."""
    slots, columns, cost = len(gpus) * horizon, [], []
    for job, (release, width, duration) in enumerate(rows):
        kinds = np.flatnonzero(factor[job]).tolist()
        for when in combinations(range(release, horizon), duration):
            for where in product(kinds, repeat=duration):
                use = np.zeros(slots + len(rows))
                use[[kind * horizon + second for second, kind in zip(when, where, strict=True)]] = width
                use[slots + job] = 1
                columns.append(use)
                cost.append(when[-1] + 1 - release)
    table = np.array(columns).T
    supply = np.repeat(gpus, horizon)
    return linprog(cost, A_ub=table[:slots], b_ub=supply, A_eq=table[slots:], b_eq=np.ones(len(rows))).fun / len(rows)


@settings(max_examples=15, deadline=None)
@given(typed_worlds(jobs=3))
def test_nearly_the_best_prices_of_types_are_found(world):
    rows, factor, _, cluster = world
    factor = (factor > 0).astype(int)  # equally fast on all usable types
    jobs = workload(rows, gpu_type_slowdown_ppm=factor * PPM)
    horizon = min(8, max(release for release, _, _ in rows) + sum(duration for _, _, duration in rows))
    best = _best_prices(rows, factor, cluster.gpus, horizon)
    found = bound_mean_completion(jobs, cluster, PriceBoundOptions(slots=200))
    assert best <= found.dual_max_s * (1 + 1e-9)
    assert found.least_s >= 0.95 * best


def test_types_that_jobs_cannot_share_make_the_bound_better():
    """Ten jobs of 100 s share the one GPU of their type while nine others are idle: 550 s, 1,000 s, slowdown 10."""
    rows = [(0, 1, 100)] * 10
    cluster = Cluster(gpus=np.array([1, 9]), kind=np.arange(2), kinds=("a", "b"))
    typed, free = workload(rows, gpu_type_slowdown_ppm=np.array([[PPM, 0]] * 10)), workload(rows)
    for jobs, mean, makespan, slowdown in ((free, 100, 100, 1), (typed, 550, 1000, 10)):
        found = bound(jobs, cluster, 100)
        assert found["bounds"]["jct_mean_h"] * 3600 == pytest.approx(mean, rel=2e-3)
        assert found["price_bound_limit_h"] * 3600 == pytest.approx(mean, rel=2e-3)
        assert found["bounds"]["makespan_h"] * 3600 == pytest.approx(makespan)
        assert found["bounds"]["slowdown_max"] == pytest.approx(slowdown, rel=1e-3)


def test_slower_types_make_the_bound_better():
    """Two jobs of 100 s submitted together, a GPU at full and one at half speed: they end at 100 and 200 s at best."""
    cluster = Cluster(gpus=np.array([1, 1]), kind=np.arange(2), kinds=("fast", "slow"))
    jobs = workload([(0, 1, 100)] * 2, gpu_type_slowdown_ppm=np.array([[PPM, 2 * PPM]] * 2))
    found = bound_mean_completion(jobs, cluster)
    assert 100 < min_mean_completion(jobs, cluster, found.proof) <= 400 / 3
    only_slow = workload([(0, 1, 100)] * 2, gpu_type_slowdown_ppm=np.array([[0, 2 * PPM]] * 2))
    assert min_mean_completion(only_slow, cluster, bound_mean_completion(only_slow, cluster).proof) == pytest.approx(
        300, rel=2e-3
    )


def _record(jobs, cluster):
    return RunRecord(jobs=jobs, cluster=cluster, overhead_us=0, **bound(jobs, cluster, 20))


TWO = Cluster(gpus=np.array([1, 2]), kind=np.arange(2), kinds=("a", "b"))
KINDS = np.array([[PPM, 0], [PPM, PPM], [0, 2 * PPM], [PPM, PPM], [PPM, 0]])
JOBS = workload([(0, 1, 4), (0, 1, 3), (1, 2, 5), (2, 1, 6), (2, 1, 4)], gpu_type_slowdown_ppm=KINDS)


def test_prices_of_types_and_their_limit_are_kept_and_verified(tmp_path):
    record = _record(JOBS, TWO)
    save_run(record, tmp_path / "run.npz")
    read = load_run(tmp_path / "run.npz")
    assert read.prices == record.prices
    assert read.prices.price.shape[0] == 2
    assert read.divisible == record.divisible
    ((name, verdict),) = check_runs(read)
    assert name == "bounds"
    assert not verdict.violations
    assert sum("no price bound on jct_mean_h exceeds" in sentence for sentence in verdict.proven) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda record: {"price_bound_limit_h": record.price_bound_limit_h * (1 - 1e-6)}, "is proven"),
        (lambda record: {"divisible": None}, "has no proof"),
        (lambda record: {"divisible": _moved(record.divisible, gpu_type=1)}, "on which its job can't run"),
        (lambda record: {"divisible": _moved(record.divisible, gpu_type=2)}, "unknown job or type"),
        (lambda record: {"divisible": _moved(record.divisible, job=9)}, "unknown job or type"),
        (lambda record: {"divisible": _moved(record.divisible, job=1)}, "lacks a job"),
    ],
)
def test_a_limit_that_is_not_shown_is_a_violation(change, said):
    record = _record(JOBS, TWO)
    ((_, verdict),) = check_runs(replace(record, **change(record)))
    assert said in " ".join(str(each) for each in verdict.violations)


def _moved(schedule, **numbers):
    """Return a schedule whose parts of job 0 have other numbers."""
    changed = {name: np.where(schedule.job == 0, value, getattr(schedule, name)) for name, value in numbers.items()}
    return replace(schedule, **changed)


def test_prices_of_another_number_of_types_are_refused():
    three = PriceProof(end_us=np.array([US]), price=np.ones((3, 1)))
    with pytest.raises(InvalidProblemError, match="3 rows for 2 types"):
        min_mean_completion(JOBS, TWO, three)
    with pytest.raises(InvalidProblemError, match="3 rows for 2 types"):
        RunRecord(jobs=JOBS, cluster=TWO, overhead_us=0, prices=three)
    with pytest.raises(InvalidProblemError, match="single type"):
        PriceProof(end_us=np.array([US]), price=np.ones((1, 1)))


def test_a_divisible_schedule_is_played_as_by_hand():
    """Two GPUs; gangs of 2 (4 s) and 1 (2 s) from 0 s on, 1 (1 s) from 1 s on.

    By least remaining work, the second and half of the first run first; 1 s later the third has less work than the
    first as well; all by hand.
    """
    jobs, cluster = workload([(0, 2, 4), (0, 1, 2), (1, 1, 1)]), Cluster.grid("1x2")
    one = np.ones(3)
    by_work = DivisibleSchedule(
        job=np.arange(3), weight=one, gpu_type=np.zeros(3, np.int64), start_us=np.zeros(0, np.int64)
    )
    # 0-1 s: job 1 on one GPU, job 0 on the other (half speed, 3.5 left); 1-2 s: jobs 1 and 2; from 2 s on job 0: until 5.5 s
    assert max_by_prices(jobs, cluster, by_work) == pytest.approx((5.5 + 2 + 1) / 3)
    first = replace(by_work, start_us=np.array([0, 1, 2]))  # job 0 until 4 s, then 1 and 2 side by side
    assert max_by_prices(jobs, cluster, first) == pytest.approx((4 + 6 + 4) / 3)
    halves = DivisibleSchedule(
        job=np.array([0, 0, 1, 2]),
        weight=np.array([3.0, 1, 1, 1]),
        gpu_type=np.zeros(4, np.int64),
        start_us=np.arange(4),
    )
    # parts of 1.5 and 0.5 GPUs until 4 s
    assert max_by_prices(jobs, cluster, halves) == pytest.approx((4 + 6 + 4) / 3)


@pytest.mark.parametrize("wrong", [{"weight": np.array([0.0])}, {"weight": np.array([np.nan])}])
def test_weights_of_parts_are_positive(wrong):
    one = np.zeros(1, np.int64)
    with pytest.raises(InvalidProblemError, match="positive"):
        DivisibleSchedule(**{"job": one, "weight": np.ones(1), "gpu_type": one, "start_us": one} | wrong)
