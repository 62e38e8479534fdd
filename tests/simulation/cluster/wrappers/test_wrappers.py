"""Wrappers around policies: each lesson by hand, and all of them around planning policies and index policies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import PPM, US
from optim.simulation.cluster.catalogue import make_policy, wrap
from optim.simulation.cluster.conformance import check_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from optim.simulation.cluster.policies.slaq import LossCurve, fit_loss
from tests.support.policies import WRAPPERS
from tests.support.small_clusters import workload


def _play(rows, cluster, wrapper, options=None, inner="fifo", overhead_s=0, spread=False, **more):
    jobs = workload(rows, **more)
    policy = wrap(wrapper, make_policy(inner, jobs, {"backfill": True} if inner == "fifo" else None), jobs, options)
    run = simulate(jobs, cluster, policy, EngineOptions(overhead_s=overhead_s, spread=spread))
    found, problems = replay(jobs, cluster, run.log, run.rules)
    assert not problems
    assert found.end_us == tuple(run.end_us.tolist())
    return run


@pytest.mark.parametrize("name", ["random", "srtf", "las", "tiresias"])
def test_a_key_that_is_played_by_planning_conforms(name):
    assert check_policy(lambda jobs: IndexPolicyAdapter(make_policy(name, jobs), jobs)) == ()


@given(st.data())
def test_without_preemption_planning_a_key_gives_the_compiled_log(data):
    rows = sorted(
        (data.draw(st.integers(0, 6)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))) for _ in range(8)
    )
    jobs, cluster = workload([(when - rows[0][0], *rest) for when, *rest in rows]), Cluster(gpus=np.array([2, 3]))
    for name, options in (("fifo", {}), ("fifo", {"backfill": True}), ("random", {})):
        policy = make_policy(name, jobs, options)
        runs = [simulate(jobs, cluster, each, seed=5) for each in (policy, IndexPolicyAdapter(policy, jobs))]
        assert runs[0].end_us.tolist() == runs[1].end_us.tolist()
        assert runs[0].first_start_us.tolist() == runs[1].first_start_us.tolist()


@pytest.mark.parametrize("name", ["srtf", "srsf", "tiresias", "las"])
def test_with_preemption_on_one_gpu_planning_a_key_gives_the_compiled_ends(name):
    rng = np.random.default_rng(0)
    jobs = workload(sorted((int(rng.integers(0, 50)), 1, int(rng.integers(1, 30))) for _ in range(20)))
    jobs = workload(
        [
            (int(s - jobs.submit_us[0]) // US, 1, int(d) // US)
            for s, d in zip(jobs.submit_us, jobs.duration_us, strict=True)
        ]
    )
    options = {"quantum_s": 3} if name == "las" else {"limits_gpu_s": "5:20"} if name == "tiresias" else {}
    policy, one = make_policy(name, jobs, options), Cluster.grid("1x1")
    runs = [
        simulate(jobs, one, each, EngineOptions(overhead_s=1)) for each in (policy, IndexPolicyAdapter(policy, jobs))
    ]
    assert runs[0].end_us.tolist() == runs[1].end_us.tolist()


@pytest.mark.parametrize("wrapper", sorted(set(WRAPPERS) - {"stop-at-gain"}))
@pytest.mark.parametrize("inner", ["srtf", "drf"])
def test_a_wrapped_policy_conforms(wrapper, inner):
    assert check_policy(lambda jobs: wrap(wrapper, make_policy(inner, jobs), jobs)) == ()


def test_wrappers_are_named_before_what_they_wrap():
    jobs = workload([(0, 1, 1)])
    options = {"fail-early.trial_s": 60}
    names = ["patience+srtf", "isolate+patience+drf", "fail-early+las"]
    assert [make_policy(name, jobs, options if "fail" in name else None).name for name in names] == names


def test_a_gang_waits_for_a_good_place_and_then_takes_any():
    """A GPU is free on each of two machines: with patience of 10 s a GPU the pair waits 20 s, and then spreads."""
    slow = np.array([[PPM, 2 * PPM, 2 * PPM]] * 3)
    rows = [(0, 3, 100), (0, 3, 100), (5, 2, 10)]
    run = _play(rows, Cluster.grid("2x4"), "patience", {"wait_s": 10}, slowdown_ppm=slow)
    assert (run.first_start_us / US).tolist() == [0, 0, 25]
    assert run.end_us[2] == 45 * US
    eager = _play(rows, Cluster.grid("2x4"), "patience", {"wait_s": 10}, spread=True, slowdown_ppm=slow)
    assert (eager.first_start_us / US).tolist() == [0, 0, 25]  # bad places of other jobs have a delay as well
    careless = {"wait_s": 10, "max_slowdown": 2}
    assert (
        _play(rows, Cluster.grid("2x4"), "patience", careless, spread=True, slowdown_ppm=slow).first_start_us / US
    ).tolist() == [0, 0, 5]


def test_small_jobs_and_wide_gangs_have_machines_of_their_own():
    rows = [(0, 1, 10), (0, 4, 10), (0, 1, 10), (0, 4, 10)]
    run = _play(rows, Cluster.grid("2x4"), "isolate", {"share": 0.5})
    machines = {job: {machine for machine, _ in places} for _, kind, job, places in run.log.rows() if kind == 0}
    assert machines == {0: {1}, 2: {1}, 1: {0}, 3: {0}}
    assert (run.first_start_us / US).tolist() == [0, 0, 0, 10]


def test_a_gang_that_its_part_cannot_hold_goes_anywhere():
    run = _play([(0, 8, 10), (0, 1, 5)], Cluster.grid("2x4"), "isolate", {"share": 0.5})
    assert (run.first_start_us / US).tolist() == [0, 10]


def test_a_job_that_fails_in_its_trial_never_gets_its_gang():
    """Trials of 10 s on the last machine: the first fails after 4 s there; the second did 10 / 4 s of its work, and continues."""
    rows = [(0, 4, 100), (0, 4, 20), (0, 1, 7)]
    run = _play(rows, Cluster.grid("3x4"), "fail-early", {"trial_s": 10}, fails_us=np.array([4 * US, -1, 3 * US]))
    assert run.figures == {"caught_early": 1}
    assert (run.end_us / US).tolist() == [4, 10 + 17.5, 7]
    assert run.is_done.tolist() == [False, True, True]
    assert run.allocated_gpu_us == (4 + 10 + 4 * 17.5 + 7) * US


def test_as_many_machines_hold_trials_as_their_share_says():
    """Half of four machines with one GPU: two gangs are tried at once, and then alternate on the other two."""
    run = _play([(0, 2, 20), (0, 2, 20)], Cluster.grid("4x1"), "fail-early", {"trial_s": 10, "share": 0.5}, spread=True)
    assert run.first_start_us.tolist() == [0, 0]
    assert sorted((run.end_us / US).tolist()) == [10 + 15, 10 + 15 + 15]  # each did 5 of its 20 s on one GPU


def test_a_job_whose_gain_is_small_is_stopped():
    curve = LossCurve(b0=50.0, b1=1.0, b2=0.5)
    steps = np.arange(101)
    losses = np.array([[curve.at(step) for step in steps], 2.0 - steps / 100])
    run = _play([(0, 1, 10_000), (0, 1, 10_000)], Cluster.grid("1x2"), "stop-at-gain", {"check_s": 100}, loss=losses)
    assert run.figures == {"stopped_early": 1}
    assert run.is_done.tolist() == [False, True]
    end = run.end_us[0] // (100 * US)  # looked at every step
    gain = 1 - curve.at(100) / curve.at(end)
    assert gain < 0.001 <= 1 - curve.at(100) / curve.at(end - 1)


@given(st.floats(0.01, 20), st.floats(0.1, 5), st.floats(0, 3), st.integers(4, 60))
def test_a_fitted_curve_goes_through_the_losses(b0, b1, b2, count):
    true = LossCurve(b0=b0, b1=b1, b2=b2)
    losses = np.array([true.at(step) for step in range(count)])
    found = fit_loss(losses)
    assert found is not None
    assert found.at(count - 1) == pytest.approx(losses[-1], rel=0.03)


def test_losses_that_do_not_fall_say_nothing():
    assert fit_loss(np.array([1.0, 0.9])) is None
    assert fit_loss(np.array([1.0, 1.1, 1.2])) is None


def test_what_a_wrapper_cannot_do_is_said():
    jobs = workload([(0, 1, 1)])
    with pytest.raises(InvalidOptionError, match="there are: fail-early"):
        wrap("nonsense", make_policy("fifo", jobs), jobs)
    for name in ("gandiva", "themis", "themis-greedy"):
        with pytest.raises(UnsupportedProblemError, match="chooses GPUs by its own rule, which isolate can't change"):
            simulate(jobs, Cluster.grid("1x1"), wrap("isolate", make_policy(name, jobs), jobs))
    with pytest.raises(UnsupportedProblemError, match="loss curves"):
        simulate(jobs, Cluster.grid("1x1"), wrap("stop-at-gain", make_policy("fifo", jobs), jobs))
