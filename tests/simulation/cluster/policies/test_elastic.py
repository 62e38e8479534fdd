"""Policies that choose widths, types or jobs to admit: by hand, by brute force, and against upper bounds."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optim.core.errors import UnsupportedProblemError
from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import measure
from optim.models.cluster.workload import PPM, US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.placing import marginal_widths
from optim.simulation.cluster.policies.gandiva_fair import trade, water_fill
from tests.support.small_clusters import workload

FREE = EngineOptions(overhead_s=0)


def _play(jobs, cluster, name, options=None, seed=0):
    run = simulate(jobs, cluster, make_policy(name, jobs, options), FREE, seed)
    assert not replay(jobs, cluster, run.log, run.rules)[1]
    return run


@given(st.lists(st.lists(st.floats(0, 9), min_size=1, max_size=4), min_size=1, max_size=3), st.integers(1, 6))
def test_gpus_go_where_they_are_worth_most(gains, num_gpus):
    """Against all widths, with decreasing value of each further GPU."""
    falling = [sorted(each, reverse=True) for each in gains]
    widths = marginal_widths(
        {job: len(each) for job, each in enumerate(falling)}, num_gpus, lambda job, width: falling[job][width]
    )
    best = max(
        sum(sum(each[:width]) for each, width in zip(falling, chosen, strict=True))
        for chosen in product(*(range(len(each) + 1) for each in falling))
        if sum(chosen) <= num_gpus
    )
    assert sum(sum(falling[job][:width]) for job, width in widths.items()) == pytest.approx(best)


def _curves(*speeds):
    steps = np.arange(41)
    return np.array([1 / (speed * steps + 1) + 0.1 for speed in speeds])


def test_gpus_go_to_the_job_that_learns():
    """The first job's loss has long been flat when the second begins: the second gets all GPUs but one."""
    jobs = workload([(0, 4, 4000), (3000, 4, 4000)], loss=_curves(50.0, 0.05))
    run = _play(jobs, Cluster.grid("1x4"), "slaq", {"epoch_s": 100})
    later = [len(places) for time, kind, job, places in run.log.rows() if kind == 0 and job == 1 and time > 3300 * US]
    assert max(later) >= 3
    with pytest.raises(UnsupportedProblemError, match="loss curves"):
        _play(workload([(0, 1, 1)]), Cluster.grid("1x1"), "slaq")


def test_the_job_that_is_nearly_done_is_finished_first():
    """Once curves are known, more GPUs go where remaining time falls most; both start with one."""
    jobs = workload([(0, 2, 2000), (0, 2, 2000)], loss=_curves(0.5, 0.5))
    run = _play(jobs, Cluster.grid("1x2"), "optimus", {"epoch_s": 100})
    assert [len(places) for _, kind, _, places in run.log.rows() if kind == 0][:2] == [1, 1]
    assert run.is_done.all()


TWO_TYPES = Cluster(gpus=np.array([1, 1]), kind=np.array([0, 1]), kinds=("a", "b"))


def _on_two(times, submit=None):
    """Return jobs of one GPU from their seconds on each of two types."""
    jobs = workload([(when, 1, 1) for when in submit or [0] * len(times)], gpu_type_slowdown_ppm=np.array(times) * PPM)
    return (_play(jobs, TWO_TYPES, "allox").end_us / US).tolist()


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4))
@example([(4, 2), (40, 40), (29, 87)])
def test_a_matching_is_the_least_mean_completion(times):
    """One GPU of each of two types, all jobs there at once: as good as the best of all orders."""
    best = min(
        _total(order, types, times)
        for order in permutations(range(len(times)))
        for types in product((0, 1), repeat=len(times))
    )
    assert sum(_on_two(times)) == pytest.approx(best)


def _total(order, types, times):
    ends, total = [0, 0], 0
    for job in order:
        ends[types[job]] += times[job][types[job]]
        total += ends[types[job]]
    return total


def test_a_type_that_is_busy_counts_as_busy():
    """The fast type is in use; a later job doesn't wait for it to save one of its 11 s."""
    assert _on_two([(10, 1000), (10, 11)], [0, 5]) == [10, 16]  # 5 s more on the fast one would be 20
    assert _on_two([(500, 1000), (10, 11)], [0, 5]) == [500, 16]


def test_users_trade_types_and_both_gain():
    """One is four times as fast on the fast type, one as fast on both: a fast GPU costs two slow ones."""
    held = trade(np.array([[4.0, 4.0], [4.0, 4.0]]), np.array([4.0, 1.0]))
    assert held == pytest.approx(np.array([[0.0, 6.0], [8.0, 2.0]]))
    before, after = 4 + 4 * np.array([4, 1]), held[:, 0] + held[:, 1] * np.array([4, 1])
    assert (after > before).all()


@given(st.lists(st.floats(0, 10), min_size=1, max_size=6), st.floats(0, 20))
def test_what_is_left_goes_in_equal_parts(wanted, total):
    got = water_fill(np.array(wanted), total)
    assert got.sum() == pytest.approx(min(total, sum(wanted)))
    unmet = got[got < np.array(wanted) - 1e-9]
    assert len(unmet) == 0 or unmet.min() >= got.max() - 1e-9


def test_users_get_equal_time_however_many_jobs_they_have():
    jobs = workload([(0, 1, 7200)] * 4, group=np.array([0, 0, 0, 1]), groups=("a", "b"))
    run = _play(jobs, Cluster.grid("1x2"), "gandiva-fair")
    assert run.end_us[3] == pytest.approx(7200 * US, abs=2 * 360 * US)  # the other user's three share the other GPU
    assert run.end_us[:3].min() > 1.5 * run.end_us[3]


@pytest.mark.parametrize("name", ["max-min", "finish-time-fairness"])
def test_equal_jobs_take_turns_by_rounds(name):
    jobs = workload([(0, 1, 3600)] * 2)
    run = _play(jobs, Cluster.grid("1x1"), name)
    assert sorted((run.end_us / US).tolist()) == [7200 - 360, 7200]


def test_a_job_is_refused_where_its_utility_does_not_pay_and_nothing_exceeds_the_bound():
    """Eighty jobs for one GPU: the price rises until only jobs of sufficient value are admitted."""
    rng = np.random.default_rng(3)
    rows = [(0, 1, int(1800 * rng.integers(1, 5))) for _ in range(80)]
    jobs, one = workload(rows), Cluster.grid("1x1")
    policy = make_policy("oasis", jobs)
    run = simulate(jobs, one, policy, FREE, seed=1)
    assert not replay(jobs, one, run.log, run.rules)[1]
    figures, metrics = run.figures, measure(jobs, one, run)
    assert 0 < figures["refused"] == metrics.left < 80
    assert metrics.unfinished == figures["late"] == 0
    assert figures["utility"] <= figures["utility_bound"]
    for name in ("fifo", "srtf", "las"):  # the same utilities under any other schedule
        other = simulate(jobs, one, make_policy(name, jobs), FREE)
        delays = (other.end_us - jobs.submit_us) / (900 * US)
        earned = sum(float(policy._value(job, np.array([delay]))[0]) for job, delay in enumerate(delays))
        assert earned <= figures["utility_bound"] * (1 + 1e-9)


def test_a_schedule_is_as_wide_as_it_pays_and_seeds_draw_utilities():
    jobs = workload([(0, 4, 3600)])
    run = _play(jobs, Cluster.grid("1x4"), "oasis")
    assert run.end_us.tolist() == [3600 * US]
    many = replace(workload([(0, 1, 900)] * 30))
    worth = [_play(many, Cluster.grid("1x4"), "oasis", seed=seed).figures["utility"] for seed in (0, 0, 1)]
    assert worth[0] == worth[1] != worth[2]
