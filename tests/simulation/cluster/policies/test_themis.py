"""Rounds of auctions among simulated apps: leases, payments, eligible bidders, and logs that can be replayed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError, UnsupportedProblemError
from optim.models.auction.bids import bid_table
from optim.models.auction.codec import MachineDocument, cluster_from_documents
from optim.models.auction.fairness import AppProfile, Needs, Trial, remaining_minutes, remaining_minutes_each
from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.engine import play_plans
from optim.simulation.cluster.policies.themis.apps import MINUTE_US
from optim.workloads.cluster.themis_apps import ThemisOptions, draw_apps
from tests.support.small_clusters import workload

FREE = EngineOptions(overhead_s=0)
NAMES = ("themis", "themis-greedy")


def minutes(rows, **fields):
    """Return jobs (submission, GPUs, minutes, app)."""
    jobs = workload([(60 * submit, gpus, 60 * duration) for submit, gpus, duration, _ in rows])
    return Workload(
        submit_us=jobs.submit_us,
        gpus=jobs.gpus,
        duration_us=jobs.duration_us,
        app=np.array([r[3] for r in rows]),
        **fields,
    )


def checked(jobs, cluster, name, options=None, seed=0, engine=FREE):
    """Simulate, and check the log."""
    run = simulate(jobs, cluster, make_policy(name, jobs, options), engine, seed)
    _, problems = replay(jobs, cluster, run.log, run.rules)
    assert not problems
    return run


def ends(run):
    return (run.end_us / MINUTE_US).round(6).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_an_app_alone_runs_on_what_it_can_use_without_a_break(name):
    jobs = minutes([(0, 2, 50, 0), (0, 1, 70, 0)])
    run = checked(jobs, Cluster.grid("2x2"), name, {"lease_min": 20})
    assert ends(run) == [50.0, 70.0]
    assert (run.log.kind == Event.PREEMPT).sum() == 0


def test_the_worst_off_takes_all_it_can_use_until_the_lease_ends():
    """App 1 arrives when app 0 has the GPU.

    At the next lease app 1, which waits, is worse off relative to its ideal time.
    """
    jobs = minutes([(0, 1, 60, 0), (5, 1, 10, 1)])
    run = checked(jobs, Cluster.grid("1x1"), "themis-greedy", {"lease_min": 20})
    assert ends(run) == [80.0, 30.0]  # between 20 and 40 minutes app 1 leases the GPU; its forfeited share is idle
    rows = [(time / MINUTE_US, kind, job) for time, kind, job, _ in run.log.rows()]
    assert rows == [(0, 0, 0), (20, 1, 0), (20, 0, 1), (30, 2, 1), (40, 0, 0), (80, 2, 0)]


def test_leases_of_their_own_offer_what_comes_free_at_once():
    jobs = minutes([(0, 1, 60, 0), (5, 1, 10, 1)])
    run = checked(jobs, Cluster.grid("1x1"), "themis-greedy", {"lease_min": 20, "aligned": False})
    assert ends(run) == [70.0, 30.0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("aligned", [False, True])
def test_an_app_that_had_ended_is_served_when_it_comes_back_to_an_idle_cluster(name, aligned):
    run = checked(
        minutes([(0, 1, 1, 0), (15, 1, 1, 0)]), Cluster.grid("1x2"), name, {"lease_min": 10, "aligned": aligned}
    )
    assert ends(run) == [1.0, 21.0 if aligned else 16.0]


@pytest.mark.parametrize("name", NAMES)
def test_an_app_puts_its_next_job_on_the_gpus_that_another_left(name):
    jobs = minutes([(0, 1, 5, 0), (0, 1, 7, 0), (0, 1, 6, 0)])
    run = checked(jobs, Cluster.grid("1x1"), name, {"lease_min": 20})
    assert ends(run) == [18.0, 7.0, 13.0]  # the longest first


def test_two_equal_apps_pay_for_each_other_and_the_leftover_goes_round():
    """Four GPUs, two apps that can use them all: two each, minus their payments, plus the leftover."""
    jobs = minutes([(0, 1, 100, app) for app in (0, 1) for _ in range(4)])
    run = checked(jobs, Cluster.grid("1x4"), "themis", {"fairness": 0})
    figures = run.figures
    assert figures["payments_left_open"] == 0
    assert figures["gpus_left_over"] > 0
    assert run.allocated_gpu_us == pytest.approx(800 * MINUTE_US)  # leftovers are assigned: no GPU is idle
    assert max(ends(run)) <= 240.0


def test_more_fairness_lets_fewer_apps_bid():
    jobs = draw_apps(ThemisOptions(apps=6, gap_min=1.0), 0)
    rows = [
        checked(jobs, Cluster.grid("4x8"), "themis", {"fairness": fairness, "lease_min": 720}).figures["payments"]
        for fairness in (0.0, 1.0)
    ]
    assert rows[0] > rows[1]


@pytest.mark.prove
@given(
    st.integers(0, 10**6), st.sampled_from(NAMES), st.booleans(), st.sampled_from(["floor", "lottery"]), st.booleans()
)
def test_every_log_is_replayed_and_every_job_done(seed, name, aligned, rule, has_types):
    rng = np.random.default_rng(seed)
    rows = sorted(
        (int(rng.integers(0, 30)), int(rng.choice([1, 2, 3])), int(rng.integers(1, 40)), app)
        for app in range(3)
        for _ in range(int(rng.integers(1, 4)))
    )
    first = rows[0][0]
    jobs = minutes([(submit - first, *rest) for submit, *rest in rows])
    cluster = Cluster(gpus=np.array([2, 2, 3]), rack=np.array([0, 0, 1]))
    if has_types:
        ppm = rng.integers(10**6, 4 * 10**6, (len(rows), 3)) * (rng.random((len(rows), 3)) < 0.8)
        ppm[~ppm[:, 2:].any(axis=1), 2] = 10**6
        jobs = replace(jobs, gpu_type_slowdown_ppm=ppm)
        cluster = replace(cluster, kind=np.array([0, 1, 2]), kinds=("a", "b", "c"))
    options = {"lease_min": 10, "aligned": aligned, **({"rule": rule} if name == "themis" else {})}
    run = checked(jobs, cluster, name, options, seed, EngineOptions(overhead_s=30))
    assert run.is_done.all()
    again = simulate(jobs, cluster, make_policy(name, jobs, options), EngineOptions(overhead_s=30), seed)
    assert again.log.rows() == run.log.rows()


def test_agents_bid_what_the_profile_of_their_trials_does():
    """An agent's profile by sums over arrays gives the same bids as a profile that lists the trials."""
    jobs = minutes([(0, 2, 50, 0), (0, 2, 80, 0), (0, 2, 30, 0)])
    seen = []
    policy = make_policy("themis", jobs, {"fairness": 0})
    divide = policy.divide
    policy.divide = lambda offer, agents: seen.append((offer, agents)) or divide(offer, agents)
    play_plans(jobs, Cluster.grid("2x4"), policy, FREE, 0)
    offer, (agent,) = seen[0]
    trials = tuple(Trial(work_min=2.0 * m, total_work_min=2.0 * m, max_gpus=2) for m in (50, 80, 30))
    listed = AppProfile(elapsed_min=0.0, active_apps=1.0, trials=trials, gang=2)
    where = cluster_from_documents([MachineDocument(rack=0, slots=[4], count=2)])
    assert offer.num_gpus == where.num_gpus
    assert bid_table(agent.profile, offer, lease_min=20.0).rows == bid_table(listed, where, lease_min=20.0).rows


def test_jobs_of_several_gangs_are_leased_sums_of_them():
    jobs = minutes([(0, 3, 40, 0), (0, 5, 40, 0), (0, 4, 40, 1), (0, 4, 40, 1)])
    run = checked(jobs, Cluster.grid("1x8"), "themis", {"fairness": 0})
    assert run.is_done.all()


TYPES = Cluster(gpus=np.array([2, 2]), kind=np.array([0, 1]), kinds=("fast", "slow"))


def typed(rows, ppm):
    """Jobs with how much longer each takes on the second type, in parts per million; 0 if it can't run there."""
    return minutes(
        rows,
        gpu_type_slowdown_ppm=np.array([[1_000_000 if each != -1 else 0, abs(each) * (each != -1)] for each in ppm]),
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_app_leases_gpus_of_several_types_the_fastest_first(name):
    """Two of four jobs of 30 minutes run on each type: the slow ones take an hour."""
    jobs = typed([(0, 1, 30, 0)] * 4, [2_000_000] * 4)
    run = checked(jobs, TYPES, name, {"lease_min": 120})
    assert sorted(ends(run)) == [30.0, 30.0, 60.0, 60.0]


@pytest.mark.parametrize("name", NAMES)
def test_a_job_runs_on_types_that_it_can_run_on_only(name):
    jobs = typed([(0, 2, 30, 0), (0, 2, 30, 1), (0, 1, 30, 1)], [-1, 0, 0])
    jobs = replace(jobs, gpu_type_slowdown_ppm=np.array([[0, 1_000_000], [1_000_000, 0], [1_000_000, 0]]))
    run = checked(jobs, TYPES, name, {"lease_min": 20})
    assert run.is_done.all()
    for _, kind, job, places in run.log.rows():
        if kind == Event.START:
            assert {machine for machine, _ in places} == ({1} if job == 0 else {0})


def test_a_gang_is_never_split_over_types():
    jobs = typed([(0, 2, 30, 0), (0, 2, 30, 0), (0, 1, 30, 1)], [1_500_000] * 3)
    run = checked(jobs, TYPES, "themis", {"lease_min": 10})
    assert all(
        len({machine for machine, _ in places}) == 1 for _, kind, _, places in run.log.rows() if kind == Event.START
    )


def test_gpus_of_another_type_count_by_what_they_do():
    """Work of 120 minutes on the offered type: 2 GPUs of it, and 2 others as fast as one of it, need 40 minutes."""
    needs = Needs(work_min=120, longest_min=1, demand=8, total_work_min=120, total_longest_min=1, total_demand=8)
    profile = AppProfile(elapsed_min=0, active_apps=1, needs=needs, other_type_gpus=2, other_type_speed=1.0)
    assert remaining_minutes(profile, 2, 1.0) == pytest.approx(40)
    assert remaining_minutes(profile, 2, 2.0) == pytest.approx(60)
    assert remaining_minutes(profile, 0, 1.0) == pytest.approx(120)
    assert remaining_minutes(profile, 9, 1.0) == pytest.approx(120 / 7)
    each = remaining_minutes_each(profile, np.array([2.0, 9.0]), np.array([2.0, 1.0]))
    assert each.tolist() == pytest.approx([60, 120 / 7])


def test_refuses_what_it_can_not_lease():
    jobs = minutes([(0, 1, 5, 0)], cpu_milli=np.array([9000]))
    cluster = Cluster(gpus=np.array([1]), cpus=np.array([8]))
    with pytest.raises((UnsupportedProblemError, InvalidProblemError), match="vCPU"):
        simulate(jobs, cluster, make_policy("themis", jobs), FREE)
    for options, text in (({"fairness": 2}, "fairness"), ({"rule": "half"}, "rule"), ({"lease_min": 0}, "lease_min")):
        with pytest.raises(InvalidOptionError, match=text):
            make_policy("themis", jobs, options)
    assert US == 1_000_000
