"""Prices that are looked for: never above a schedule, and close to the best where that is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.models.cluster.check import least_makespan, least_mean_completion, least_slowdown
from optim.models.cluster.workload import US
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import play
from optim.simulation.cluster.options import EngineOptions
from optim.solvers.cluster.cheapest_time import best_ends, use_of_slots
from optim.solvers.cluster.load_bounds import bound_makespan, bound_slowdown
from optim.solvers.cluster.price_bound import PriceBoundOptions, bound_mean_completion
from tests.support.small_clusters import small_worlds, workload


@given(small_worlds(jobs=6), st.sampled_from(["fifo", "srtf", "srsf", "las"]))
def test_no_policy_beats_a_bound(world, name):

    rows, cluster = world
    jobs = workload(rows)
    run = play(jobs, cluster, make_policy(name, jobs), EngineOptions(overhead_s=0))
    completion = (run.end_us - jobs.submit_us) / US
    stated, prices = bound_mean_completion(jobs, cluster, PriceBoundOptions(slot_s=2, steps=20))
    proven = least_mean_completion(jobs, cluster, prices)
    assert proven == pytest.approx(stated, rel=1e-6)
    assert proven <= completion.mean() + 1e-9
    assert least_makespan(jobs, cluster, bound_makespan(jobs, cluster)) <= run.end_us.max() / US
    slowdown = (completion * US / jobs.duration_us).max()
    assert least_slowdown(jobs, cluster, bound_slowdown(jobs, cluster)) <= slowdown + 1e-9


def test_without_steps_the_bound_is_the_mean_run_time():
    value, proof = bound_mean_completion(
        workload([(0, 1, 3), (0, 1, 5)]), Cluster.grid("1x1"), PriceBoundOptions(steps=0)
    )
    assert value == 4
    assert not proof.price.any()


def test_steps_close_in_on_the_best_schedule_of_equal_jobs():
    """Ten jobs of 100 s on one GPU: the best mean is 550 s, and prices of 10 s slots come within 2 %."""
    jobs = workload([(0, 1, 100)] * 10)
    value, _ = bound_mean_completion(jobs, Cluster.grid("1x1"), PriceBoundOptions(slot_s=10, steps=300))
    assert 0.98 * 550 <= value <= 550


@given(st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.0]), min_size=1, max_size=6), st.integers(0, 3), st.integers(1, 6))
def test_the_time_a_job_buys_costs_what_its_bill_says(prices, release, duration):
    price, slot = np.array(prices), 2.0
    arrays = [np.array([float(value)]) for value in (release, duration, 2)]
    value, end, use = np.empty(1), np.empty(1), np.zeros(len(prices))
    best_ends(*arrays, price, slot, value, end)
    use_of_slots(*arrays, end, price, slot, use)
    assert value[0] == pytest.approx(end[0] - release + use @ price)
    assert use.sum() <= 2 * duration + 1e-9


@pytest.mark.parametrize("wrong", [{"slot_s": 0.5}, {"steps": -1}, {"slot_s": float("nan")}])
def test_options_outside_their_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError, match="slot_s must lie"):
        PriceBoundOptions(**wrong)
