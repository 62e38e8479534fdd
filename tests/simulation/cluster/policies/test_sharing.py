"""Policies that share a cluster among users: against a linear programme, and cases worked by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.waiting import CAUSES, waiting
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.policies.static import divide
from optim.simulation.cluster.wrappers import Wrapper
from tests.support.small_clusters import workload

FREE = EngineOptions(overhead_s=0)


def _starts(jobs, cluster, name, options=None, seed=0, **engine):
    run = simulate(jobs, cluster, make_policy(name, jobs, options), EngineOptions(overhead_s=0, **engine), seed)
    return (run.first_start_us // US).tolist(), run


def _many(asks, count):
    """One machine with many GPUs, and `count` tasks of each user, with demands in vCPUs and GB."""
    users = np.repeat(np.arange(len(asks)), count)
    return workload(
        [(0, 1, 100)] * len(users),
        group=users,
        groups=tuple(map(str, range(len(asks)))),
        cpu_milli=np.array([asks[user][0] * 1000 for user in users]),
        memory_mib=np.array([asks[user][1] * 1024 for user in users]),
    )


def test_shares_are_those_of_the_published_example():
    """9 vCPUs, 18 GB; tasks of 1 vCPU and 4 GB, of 3 vCPUs and 1 GB: three and two of them run (Ghodsi et al., figure 3)."""
    jobs = _many([(1, 4), (3, 1)], 6)
    cluster = Cluster(gpus=np.array([1000]), cpus=np.array([9.0]), memory_gb=np.array([18.0]))
    starts, _ = _starts(jobs, cluster, "drf")
    assert [np.sum(np.array(starts)[jobs.group == user] == 0) for user in (0, 1)] == [3, 2]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4))
def test_dominant_shares_are_those_of_the_linear_programme(asks):
    """Tasks are small against the machine: the least share is within a task of the programme's."""
    total = np.array([200.0, 200.0])
    jobs = _many(asks, 70)
    cluster = Cluster(gpus=np.array([5000]), cpus=total[:1], memory_gb=total[1:])
    starts, _ = _starts(jobs, cluster, "drf")
    count = np.array([np.sum(np.array(starts)[jobs.group == user] == 0) for user in range(len(asks))])
    part = np.array(asks) / total  # of a task, by resource
    dominant = part.max(axis=1)
    # max t with dominant_i x_i = t within all resources; the number of tasks bounds x
    found = linprog(
        np.append(np.zeros(len(asks)), -1.0),
        A_ub=np.hstack([part.T, np.zeros((2, 1))]),
        b_ub=np.ones(2),
        A_eq=np.hstack([np.diag(dominant), -np.ones((len(asks), 1))]),
        b_eq=np.zeros(len(asks)),
        bounds=[(0, 70)] * len(asks) + [(0, None)],
    )
    assert count @ part[:, 0] <= 1 + 1e-9
    assert (count * dominant).min() >= -found.fun - dominant.max() - 1e-9


def test_idle_quota_is_lent_and_taken_back_from_the_newest_jobs():
    """Quotas 4 and 4; the first cluster uses all 8 GPUs when the second requests its 4: the last four starts are stopped."""
    rows = [(second, 1, 100) for second in range(8)] + [(10, 4, 5)]
    jobs = workload(rows, group=np.array([0] * 8 + [1]), groups=("a", "b"))
    starts, run = _starts(jobs, Cluster.grid("1x8"), "yarn-cs", {"quotas": "4:4"})
    assert starts == [*range(8), 10]
    stopped = [job for time, kind, job, _ in run.log.rows() if kind == 1]
    assert sorted(stopped) == [4, 5, 6, 7]
    assert (run.end_us // US).tolist() == [100, 101, 102, 103, 109, 110, 111, 112, 15]


@pytest.mark.parametrize(
    ("above", "quota", "start"),
    [(0.9, "4:4", 10), (1, "4:4", 100), (0.9, "5:3", 100)],
    ids=["takes back", "never", "not above its quota"],
)
def test_a_virtual_cluster_takes_back_within_its_quota_only(above, quota, start):
    rows = [(0, 4, 100), (1, 4, 99), (10, 4, 5)]
    jobs = workload(rows, group=np.array([0, 0, 1]), groups=("a", "b"))
    starts, _ = _starts(jobs, Cluster.grid("1x8"), "yarn-cs", {"quotas": quota, "preempts_above": above})
    assert starts[2] == start


@pytest.mark.parametrize(("racks", "start"), [([0, 0], 540), ([0, 1], 1080)], ids=["a rack", "racks"])
def test_locality_is_relaxed_after_its_tries(racks, start):
    """A GPU is free on each of two machines; a gang of two takes them after three tries of 180 s per level of locality."""
    jobs = workload([(0, 3, 5000), (0, 3, 5000), (0, 2, 10)])
    cluster = Cluster(gpus=np.array([4, 4]), rack=np.array(racks))
    starts, run = _starts(jobs, cluster, "yarn-cs", {"preempts_above": 1})
    assert starts == [0, 0, start]
    shares = waiting(jobs, cluster, run.log, run.end_us, run.rules).shares()
    assert shares.tolist() == [float(cause == "fragmented") for cause in CAUSES]


@pytest.mark.parametrize("is_taken_back", [False, True], ids=["free", "taken back"])
def test_a_job_that_no_host_has_room_for_holds_up_none_of_its_width(is_taken_back):
    """Two GPUs are free, or above a quota; the first job in line requests more vCPUs than the hosts have free."""
    rows = [(0, 1, 100), (0, 1, 100), (0, 2, 100 if is_taken_back else 1), (10, 2, 5), (10, 2, 5)]
    jobs = workload(
        rows, group=np.array([0, 1, 1, 0, 0]), groups=("a", "b"), cpu_milli=np.array([4000, 0, 0, 7000, 1000])
    )
    cluster = Cluster(gpus=np.array([4]), cpus=np.array([16.0]), memory_gb=np.array([256.0]))
    starts, run = _starts(jobs, cluster, "yarn-cs", {"quotas": "4:1"})
    assert starts[3:] == [100, 10]
    assert [job for _, kind, job, _ in run.log.rows() if kind == 1] == ([2] if is_taken_back else [])


class OneJobWaits(Wrapper):
    """A wrapper that allows job 3 no machine until all other jobs have ended."""

    def plan(self, view):
        view.prepare.append(
            lambda room: room.restrict_machines(lambda job: np.array([len(view.jobs) == 1 or job != 3]))
        )
        return self.inner.plan(view)


@pytest.mark.parametrize("is_taken_back", [False, True], ids=["free", "taken back"])
def test_a_job_that_a_wrapper_confines_holds_up_none_of_its_width(is_taken_back):
    """The wrapper restricts job 3, but not job 4, which has the same width."""
    rows = [(0, 2, 100), (0, 1, 100), (0, 1, 100 if is_taken_back else 1), (10, 1, 5), (10, 1, 7)]
    jobs = workload(rows, group=np.array([0, 1, 1, 0, 0]), groups=("a", "b"))
    policy = OneJobWaits(make_policy("yarn-cs", jobs, {"quotas": "4:1"}))
    run = simulate(jobs, Cluster.grid("1x4"), policy, FREE)
    assert (run.first_start_us // US)[4] == 10
    assert run.first_start_us[3] == run.end_us[[0, 1, 2, 4]].max()


def test_quotas_come_from_the_traces_gpu_hours():
    jobs = workload([(0, 2, 100), (0, 1, 200)], group=np.array([0, 1]), groups=("a", "b"))
    policy = make_policy("yarn-cs", jobs)
    policy.begin(Cluster.grid("1x8"), 0)
    assert policy.quota.tolist() == [4, 4]


@pytest.mark.parametrize("quota", ["1", "1:2:3", "x:1", "-1:2", "0:0", "nan:1"])
def test_quotas_that_are_none_are_refused(quota):
    with pytest.raises(InvalidOptionError, match="quotas"):
        make_policy("yarn-cs", workload([(0, 1, 1)] * 2, group=np.array([0, 1]), groups=("a", "b")), {"quotas": quota})


def test_partitions_lend_nothing_and_are_as_large_as_gpu_hours_say():
    jobs = workload([(0, 2, 10)] * 3 + [(0, 1, 10)], group=np.array([0, 0, 0, 1]), groups=("a", "b"))
    cluster = Cluster.grid("4x2")
    assert divide(jobs, cluster).tolist() == [0, 1, 0, 0]
    starts, run = _starts(jobs, cluster, "static")
    assert starts == [0, 0, 0, 0]
    assert {machine for _, kind, job, places in run.log.rows() for machine, _ in places if job == 3} == {1}
    with pytest.raises(UnsupportedProblemError, match="virtual cluster 'b' has a gang of 1"):
        _starts(jobs, Cluster.grid("1x8"), "static")


def test_a_virtual_cluster_without_jobs_needs_no_machine():
    jobs = workload([(0, 2, 10)], groups=("a", "b"))
    assert _starts(jobs, Cluster.grid("1x2"), "static")[0] == [0]


def test_machines_of_a_partition_hold_a_wide_gang_together():
    """Gangs of 3 on machines of one GPU: a virtual cluster that has 3 of them does, and one that is left 2 does not."""
    jobs = workload([(0, 3, 10), (0, 3, 10)], group=np.array([0, 1]), groups=("a", "b"))
    starts, _ = _starts(jobs, Cluster.grid("6x1"), "static", spread=True)
    assert starts == [0, 0]
    with pytest.raises(UnsupportedProblemError, match="'b' has a gang of 3 GPUs, but its machines hold 2"):
        _starts(jobs, Cluster.grid("5x1"), "static", spread=True)


@pytest.mark.parametrize(("backfill", "starts"), [(False, [0, 10, 15]), (True, [0, 10, 0])])
def test_a_partition_is_first_come_first_served(backfill, starts):
    jobs = workload([(0, 1, 10), (0, 2, 5), (0, 1, 3)])
    assert _starts(jobs, Cluster.grid("1x2"), "static", {"backfill": backfill})[0] == starts


def test_what_is_important_takes_from_what_is_less_but_not_from_its_equals():
    """Production (2) stops the batch job (1) that started last; a gang of two waits until production is over."""
    rows = [(0, 1, 50), (1, 1, 50), (2, 1, 20), (3, 2, 5), (4, 1, 5)]
    jobs = workload(rows, priority=np.array([1, 1, 2, 2, 2]))
    starts, run = _starts(jobs, Cluster.grid("1x2"), "borg")
    assert starts == [0, 1, 2, 22, 4]
    assert [(time // US, job) for time, kind, job, _ in run.log.rows() if kind == 1] == [(2, 1), (4, 0), (22, 0)]
    assert run.figures == {"preempted": 3}


def test_bands_are_drawn_from_the_seed():
    jobs = workload([(0, 1, 1)] * 200)
    policy = make_policy("borg", jobs, {"shares": "1:1:2"})
    drawn = []
    for seed in (0, 0, 1):
        policy.begin(Cluster.grid("1x1"), seed)
        drawn.append(policy.priority.tolist())
    assert drawn[0] == drawn[1] != drawn[2]
    assert np.bincount(drawn[0]) == pytest.approx([50, 50, 100], abs=25)


@pytest.mark.parametrize("shares", ["1:2", "x:1:1", "-1:1:1", "0:0:0", "inf:1:1"])
def test_bands_with_chances_that_are_none_are_refused(shares):
    with pytest.raises(InvalidOptionError, match="three numbers"):
        make_policy("borg", workload([(0, 1, 1)]), {"shares": shares})


def test_the_job_that_aligns_best_comes_first_and_short_ones_by_their_weight():
    """One machine for one of two jobs: the one with larger demand aligns better, the shorter one has less work."""
    jobs = workload([(0, 1, 20), (0, 1, 10)], cpu_milli=np.array([8000, 5000]))
    one = Cluster(gpus=np.array([2]), cpus=np.array([8.0]), memory_gb=np.array([64.0]))
    assert _starts(jobs, one, "tetris", {"remaining": 0})[0] == [0, 20]
    assert _starts(jobs, one, "tetris", {"remaining": 10})[0] == [10, 0]


def test_users_far_below_their_share_come_first():
    """User 1 has no GPU: with fairness its long job precedes the short one of the user that has a GPU."""
    rows = [(0, 1, 100), (1, 1, 10), (1, 1, 50), (1, 1, 60)]
    jobs = workload([(0, 1, 100), (0, 1, 5), *rows[1:]], group=np.array([0, 0, 0, 1, 1]), groups=("a", "b"))
    for fairness, starts in ((0, [5, 15]), (0.6, [100, 5])):
        assert [
            _starts(jobs, Cluster.grid("1x2"), "tetris", {"fairness": fairness})[0][job] for job in (2, 3)
        ] == starts


def test_the_share_of_users_who_may_come_next_is_rounded_up_from_what_it_is():
    """Of ten users 30 % are three, although 1 - 0.7 is a little more than 0.3 in doubles."""
    jobs = workload([(0, 1, 5)] * 10, group=np.arange(10), groups=tuple("abcdefghij"))
    policy = make_policy("tetris", jobs, {"fairness": 0.7})
    view = SimpleNamespace(group=jobs.group, num_users=1, num_groups=10)
    assert policy._max_below(view, np.arange(10), {0: (0,)}).tolist() == [1, 2, 3]


def test_locality_is_relaxed_after_so_many_tries():
    jobs = workload([(0, 2, 5)])
    policy = make_policy("yarn-cs", jobs, {"attempts": 3, "retry_s": 10})
    policy.since = np.zeros(1, np.int64)
    for now, then in ((0, 30), (29, 30), (30, 60)):
        view = SimpleNamespace(gpus=jobs.gpus, now_us=now * US)
        assert policy._next_try(np.array([0]), view, SimpleNamespace(num_free=4)) == then * US
    assert policy._next_try(np.array([0]), view, SimpleNamespace(num_free=1)) is None


def test_machines_of_virtual_clusters_are_read_from_a_file(tmp_path):
    """Two machines of four for `a`; `b` and `c` share the rest by GPU-hours, one to three; `d` has no jobs here."""
    path = tmp_path / "quotas.csv"
    path.write_text("vc,node num\na,2\nd,9\n")
    jobs = workload([(0, 1, 10), (0, 1, 10), (0, 1, 30)], group=np.arange(3), groups=("a", "b", "c"))
    cluster = Cluster.grid("4x4")
    policy = make_policy("yarn-cs", jobs, {"quota_file": str(path)})
    policy.begin(cluster, 0)
    assert policy.quota.tolist() == pytest.approx([8, 2, 6])
    path.write_text("vc,node num\na,6\nb,2\n")
    policy.begin(cluster, 0)
    assert policy.quota.tolist() == pytest.approx([12, 4, 0], abs=1e-6)  # more than available: reduced for all equally
    path.write_text("vc,node num\nx,6\n")
    with pytest.raises(InvalidOptionError, match="none of the virtual clusters"):
        policy.begin(cluster, 0)
    with pytest.raises(InvalidOptionError, match="must be a file, and quotas must be empty"):
        make_policy("yarn-cs", jobs, {"quota_file": str(path), "quotas": "1:2:3"})


def test_users_are_those_that_the_table_names():
    """One GPU; user b's only job was submitted last, in the virtual cluster of a's jobs: with the least share it is next."""
    rows = [(0, 1, 10), (1, 1, 10), (1, 1, 10), (2, 1, 10)]
    jobs = workload(
        rows, user=np.array([0, 0, 0, 1]), users=("a", "b"), group=np.array([0, 1, 1, 1]), groups=("x", "y")
    )
    starts, _ = _starts(jobs, Cluster.grid("2x1"), "drf")
    assert starts == [0, 1, 11, 10]


def test_users_take_turns_from_one_pass_to_the_next():
    """One GPU; a's jobs were all submitted before b's, but they alternate; a later user c gets no extra turns."""
    rows = [(0, 1, 10)] * 8 + [(35, 1, 10)] * 2
    group = np.array([0] * 4 + [1] * 4 + [2] * 2)
    jobs = workload(rows, group=group, groups=("a", "b", "c"), priority=np.full(10, 1))
    starts, _ = _starts(jobs, Cluster.grid("1x1"), "borg")
    assert [group[job] for job in np.argsort(starts)] == [0, 1, 0, 1, 0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("share", ["time", "gpu-time"])
def test_tickets_are_for_time_or_for_gpu_time(share):
    """Four GPUs; one user has jobs of one GPU, the other of four: both get equal job time, or equal GPU-time."""
    jobs = workload([(0, 1, 9000)] * 8 + [(0, 4, 9000)] * 2, group=np.array([0] * 8 + [1] * 2), groups=("a", "b"))
    policy = make_policy("gandiva-fair", jobs, {"share": share})
    problem = SimpleNamespace(
        throughput=np.ones((10, 1)),
        width=jobs.gpus,
        gpus=np.array([4]),
        isolated=np.ones(10),
        isolated_end_s=np.ones(10),
    )
    policy.user = jobs.group
    x = policy.shares(problem)[:, 0]
    time = [float(x[jobs.group == user].sum()) for user in (0, 1)]
    gpu_time = [float((x * jobs.gpus)[jobs.group == user].sum()) for user in (0, 1)]
    assert time == pytest.approx([0.8, 0.8] if share == "time" else [2.0, 0.5])
    assert gpu_time == pytest.approx([0.8, 3.2] if share == "time" else [2.0, 2.0])
