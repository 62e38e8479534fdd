"""App schedulers by hand, and in simulated apps whose trials they kill."""

import numpy as np
import pytest

from optim.core.errors import UnsupportedProblemError
from optim.models.auction.tuning import expected_trial_work, rung_sizes
from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.policies.themis.placing import TUNERS, Curves, Halving, Hyperband

POINTS = 28
FREE = EngineOptions(overhead_s=0)


def falling(job):
    """Losses that fall the faster the smaller the job's number is; all begin at 10."""
    return 10.0 / (1.0 + np.arange(POINTS) / (1.0 + job))


def until(progress):
    """Return the losses that jobs have reported by their progress."""
    return lambda job: falling(job)[: int(progress[job] * (POINTS - 1)) + 1]


def test_halving_keeps_the_best_third_of_a_rung_once_all_have_come_through():
    tuner = Halving(range(9), 3, POINTS)
    assert rung_sizes(9, 3) == (9, 3, 1)
    early = dict.fromkeys(range(9), 1 / 9) | {4: 0.05}
    found = tuner.review(early, until(early))
    assert not found.killed
    assert found.paused == frozenset(set(range(9)) - {4})
    assert found.expected[4] == pytest.approx(expected_trial_work(9, 3, 1 / 9, 0) - 0.05)
    through = dict.fromkeys(range(9), 1 / 9)
    found = tuner.review(through, until(through))
    assert found.killed == frozenset(range(3, 9))
    assert found.paused == frozenset()
    second = dict.fromkeys(range(3), 1 / 3)
    found = tuner.review(second, until(second))
    assert found.killed == {1, 2}
    assert found.expected == {0: pytest.approx(2 / 3)}
    assert not tuner.review({0: 0.9}, until({0: 0.9})).paused  # the last rung waits for no other trial


def test_what_trials_are_expected_to_do_adds_up_to_successive_halving():
    found = Halving(range(9), 3, POINTS).review(dict.fromkeys(range(9), 0.0), until(dict.fromkeys(range(9), 0.0)))
    assert sum(found.expected.values()) == pytest.approx((9 + 3 * 2 + 1 * 6) / 9)


def test_hyperband_deals_all_trials_to_brackets_that_begin_later_and_later():
    trials = range(20)
    tuner = Hyperband(trials, 3, POINTS)
    begun = dict.fromkeys(trials, 0.0)
    found = tuner.review(begun, until(begun))
    assert set(found.expected) == set(trials)
    assert len({round(value, 9) for value in found.expected.values()}) > 1  # brackets differ
    done = dict.fromkeys(trials, 1.0)
    survivors = set(trials) - tuner.review(done, until(done)).killed
    assert 1 < len(survivors) < 20


def test_curves_kill_the_poor_and_expect_half_of_the_promising():
    progress = dict.fromkeys(range(3), 0.5)
    curves = {0: 1.0, 1: 1.15, 2: 3.0}
    found = Curves(POINTS).review(progress, lambda job: np.full(15, curves[job]))
    assert found.killed == {2}
    assert found.expected == {0: 0.5, 1: 0.25}
    young = Curves(POINTS).review(dict.fromkeys(range(3), 0.01), lambda job: np.full(1, curves[job]))
    assert not young.killed


def tuned_world():
    """Two apps of nine trials, a minute per step; the losses are in the order of the trials."""
    count = 18
    return Workload(
        submit_us=np.zeros(count, np.int64),
        gpus=np.ones(count, np.int64),
        duration_us=np.full(count, 27 * 60 * 1_000_000),
        app=np.repeat([0, 1], 9),
        loss=np.stack([falling(job % 9) for job in range(count)]),
    )


@pytest.mark.parametrize("name", ["themis", "themis-greedy"])
@pytest.mark.parametrize("tuner", sorted(TUNERS))
def test_simulated_apps_are_driven_by_their_tuners(name, tuner):
    jobs, cluster = tuned_world(), Cluster.grid("2x3")
    options = {"lease_min": 3, "tuner": tuner}
    run = simulate(jobs, cluster, make_policy(name, jobs, options), FREE)
    _, problems = replay(jobs, cluster, run.log, run.rules)
    assert not problems
    left = run.log.job[run.log.kind == Event.LEAVE]
    assert len(left) + run.is_done.sum() == len(jobs)
    for app in (0, 1):
        mine = np.flatnonzero(jobs.app == app)
        assert run.is_done[mine].any()
        assert run.is_done[mine[0]] or tuner == "curves"  # fits of few losses may mistake the best; rungs don't
    whole = simulate(jobs, cluster, make_policy(name, jobs, {"lease_min": 3}), FREE)
    assert run.allocated_gpu_us < whole.allocated_gpu_us
    assert run.end_us[run.is_done].max() < whole.end_us.max()
    if tuner == "halving":
        assert run.is_done.sum() == 2


def test_a_tuner_needs_losses():
    jobs = Workload(submit_us=np.array([0]), gpus=np.array([1]), duration_us=np.array([10**6]))
    with pytest.raises(UnsupportedProblemError, match="at least 4 losses"):
        simulate(jobs, Cluster.grid("1x1"), make_policy("themis", jobs, {"tuner": "halving"}), FREE)


@pytest.mark.parametrize("name", ["themis", "themis-greedy"])
def test_a_trial_that_waits_for_a_wider_one_leaves_it_the_gang_to_ask_for(name):
    """Trials of 3 and 4 GPUs: as soon as the first pauses, 4 are requested, not a multiple of 3."""
    points = np.linspace(0, 1, 13)
    jobs = Workload(
        submit_us=np.zeros(2),
        gpus=np.array([3, 4]),
        duration_us=np.array([60, 600]) * 60_000_000,
        app=np.zeros(2),
        loss=1 / (np.array([[9.0], [5.0]]) * points + 1),
    )
    options = {"tuner": "halving", "eta": 2, "lease_min": 10}
    run = simulate(jobs, Cluster.grid("1x4"), make_policy(name, jobs, options), FREE)
    assert run.log.is_over.sum() == 2
    assert run.is_done.sum() == 1
