"""Quotas that lend, run by run: worked examples, a check of every instant by linear programming, and shares."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError, UnsupportedProblemError
from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.quota_tree import LocalQueue, Queueing, QueueRules, Reclaim, ShareRule, WithinQueue
from optim.models.cluster.workload import PPM, US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.policies.hierarchical_quota import HierarchicalQuota, HierarchicalQuotaOptions
from optim.workloads.cluster.queue_files import write_kueue
from tests.support.quota_trees import fits_below, is_admitted, most_by_programme, quota_tree, trees
from tests.support.small_clusters import workload

FREE = EngineOptions(overhead_s=0)
ANY = QueueRules(reclaim=Reclaim.ANY)


class OfTree(HierarchicalQuota):
    """The policy with a given tree instead of a file."""

    def __init__(self, tree, jobs, **options):
        super().__init__(HierarchicalQuotaOptions(), jobs)
        self.mine = tree

    def tree_for(self, cluster):
        return self.mine


def jobs_of(*rows, **more):
    """Return jobs from rows (submission, GPUs, duration, queue[, priority])."""
    groups = tuple(sorted({row[3] for row in rows}))
    priority = np.array([row[4] if len(row) > 4 else 0 for row in rows])
    group = np.array([groups.index(row[3]) for row in rows])
    return workload([row[:3] for row in rows], group=group, groups=groups, priority=priority, **more)


def ends(tree, jobs, grid="1x2", **more):
    cluster = grid if isinstance(grid, Cluster) else Cluster.grid(grid)
    run = simulate(jobs, cluster, OfTree(tree, jobs, **more), FREE)
    assert not replay(jobs, cluster, run.log, run.rules)[1]
    return (run.end_us / US).tolist(), run


def pair(a, b, rules=ANY, **more):
    """Return queues a and b in one cohort, each with (quota, borrowing limit, lending limit)."""
    return quota_tree(("c", "", 0, None, None), ("a", "c", *a), ("b", "c", *b), rules=rules, **more)


def test_a_queue_borrows_what_is_idle_and_gives_it_back():
    """Quotas 1 and 1: a's two jobs run at once until b's comes at 10 s; the younger continues at 30 s, when b's is over."""
    jobs = jobs_of((0, 1, 100, "a"), (0, 1, 100, "a"), (10, 1, 20, "b"))
    found, run = ends(pair((1, None, None), (1, None, None)), jobs)
    assert found == [100, 120, 30]
    assert run.figures == {"reclaimed": 1, "preempted_in_queue": 0}
    assert run.rules.quotas == (1.0, 1.0)


def test_nothing_is_taken_back_where_the_rules_say_never():
    jobs = jobs_of((0, 1, 100, "a"), (0, 1, 100, "a"), (10, 1, 20, "b"))
    found, _ = ends(pair((1, None, None), (1, None, None), rules=QueueRules()), jobs)
    assert found == [100, 100, 120]


@pytest.mark.parametrize(
    ("a", "b", "third"),
    [((1, 0, None), (1, None, None), 200), ((1, None, None), (1, None, 0), 200), ((1, 1, None), (1, None, 1), 100)],
)
def test_limits_of_borrowing_and_of_lending_bind(a, b, third):
    jobs = jobs_of((0, 1, 100, "a"), (0, 1, 100, "a"))
    found, _ = ends(pair(a, b), replace(jobs, groups=("a", "b")))  # b has no jobs
    assert found == [100, third]


def test_a_job_of_lower_priority_gives_its_gpu_back_first():
    """Three borrowed GPUs, of priorities 2, 1 and 1, the last one younger: it goes, then the other of 1."""
    tree = pair((1, None, None), (3, None, None))
    jobs = jobs_of(
        *((0, 1, 100, "a", 2), (1, 1, 100, "a", 1), (2, 1, 100, "a", 1), (3, 1, 100, "a", 2)),
        *((10, 1, 500, "b"), (20, 1, 500, "b")),
    )
    _, run = ends(tree, jobs, "1x4")
    stops = [(time // US, job) for time, kind, job, _ in run.log.rows() if kind == Event.PREEMPT]
    assert stops == [(10, 2), (20, 1)]


def test_only_lower_priorities_are_stopped_where_the_rule_says_so():
    tree = pair((1, None, None), (1, None, None), rules=QueueRules(reclaim=Reclaim.LOWER_PRIORITY))
    for priority, end in ((5, 120), (6, 30)):
        jobs = jobs_of((0, 1, 100, "a", 5), (0, 1, 100, "a", 5), (10, 1, 20, "b", priority))
        assert ends(tree, jobs)[0][2] == end


@pytest.mark.parametrize(
    ("within", "urgent", "newer"),
    [
        (WithinQueue.NEVER, 120, 140),
        (WithinQueue.LOWER_PRIORITY, 30, 140),
        (WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY, 30, 140),
    ],
)
def test_a_job_stops_others_of_its_own_queue_by_the_rule_within(within, urgent, newer):
    tree = quota_tree(("c", "", 0, None, None), ("a", "c", 1, 0, None), rules=QueueRules(within=within))
    jobs = jobs_of((0, 1, 100, "a", 1), (10, 1, 20, "a", 2), (11, 1, 20, "a", 1))
    found, _ = ends(tree, jobs, "1x1")
    assert found[1:] == [urgent, newer]


def test_who_waits_longer_stops_a_newer_job_of_equal_priority():
    """The wide job is first; the narrow one runs while a third holds a GPU, and gives way when that one ends."""
    rules = QueueRules(within=WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY)
    tree = quota_tree(("c", "", 0, None, None), ("a", "c", 2, 0, None), rules=rules)
    jobs = jobs_of((0, 1, 20, "a", 9), (1, 2, 10, "a"), (2, 1, 50, "a"))
    assert ends(tree, jobs)[0] == [20, 30, 62]


def test_a_job_is_not_stopped_before_its_minimum_run_time():
    tree = pair((1, None, None), (1, None, None), reclaim_after_us=np.array([-1, 60 * US, -1]))
    jobs = jobs_of((0, 1, 100, "a"), (0, 1, 100, "a"), (10, 1, 20, "b"))
    found, run = ends(tree, jobs)
    assert found == [100, 120, 80]
    assert [time // US for time, kind, *_ in run.log.rows() if kind == Event.PREEMPT] == [60]


@pytest.mark.parametrize(("is_by_ancestor", "at"), [(True, 40), (False, 70)])
def test_the_minimum_run_time_is_that_below_the_first_common_ancestor_or_of_the_queue(is_by_ancestor, at):
    """KAI's page on minimum run times: queue a of cohort A (40 s) sets 70 s itself; b is not in A."""
    tree = quota_tree(
        *(("c", "", 0, None, None), ("A", "c", 0, None, None), ("a", "A", 1, None, None), ("b", "c", 1, None, None)),
        rules=ANY,
        reclaim_after_us=np.array([-1, 40 * US, 70 * US, -1]),
        is_by_ancestor=is_by_ancestor,
    )
    jobs = jobs_of((0, 1, 100, "a"), (0, 1, 100, "a"), (10, 1, 20, "b"))
    _, run = ends(tree, jobs)
    assert [time // US for time, kind, *_ in run.log.rows() if kind == Event.PREEMPT] == [at]


def test_a_strict_queue_waits_for_its_first_job():
    for queueing, end in ((Queueing.STRICT_FIFO, 115), (Queueing.BEST_EFFORT_FIFO, 7)):
        tree = quota_tree(("c", "", 0, None, None), ("a", "c", 2, 0, None), rules=QueueRules(queueing=queueing))
        jobs = jobs_of((0, 1, 100, "a"), (1, 2, 10, "a"), (2, 1, 5, "a"))
        assert ends(tree, jobs)[0] == [100, 110, end]


def test_what_borrows_least_for_its_weight_comes_next_where_shares_are_fair():
    """Six GPUs that no queue is promised, weights 2 and 1: four and two of them."""
    tree = pair((0, None, None), (0, None, None), shares=tuple(ShareRule), weight=np.array([1, 2, 1]))
    tree = replace(tree, nominal=np.array([[6000], [0], [0]]))
    jobs = jobs_of(*[(0, 1, 100, "b")] * 6, *[(0, 1, 100, "a")] * 6)
    _, run = ends(tree, jobs, "1x6")
    started = [
        jobs.groups[jobs.group[job]] for time, kind, job, _ in run.log.rows() if kind == Event.START and not time
    ]
    assert sorted(started) == ["a"] * 4 + ["b"] * 2


@pytest.mark.parametrize("shares", [(), (ShareRule.FINAL_SHARE,), tuple(ShareRule)])
def test_fair_sharing_takes_back_until_shares_are_equal(shares):
    """a borrowed both GPUs; b's first job gets one at once, and its second one follows the first; without shares both wait."""
    tree = replace(pair((0, None, None), (0, None, None), shares=shares), nominal=np.array([[2000], [0], [0]]))
    jobs = jobs_of(*[(0, 1, 80, "a")] * 2, *[(10, 1, 20, "b")] * 2)
    found, run = ends(tree, jobs)
    assert found[2:] == ([30, 50] if shares else [100, 100])
    assert run.figures["reclaimed"] == bool(shares)


def test_shares_that_would_only_change_sides_stop_nobody():
    """A gang of two borrows both GPUs: stopping it for one GPU leaves it less than that one; the rule of initial shares allows it."""
    jobs = jobs_of((0, 2, 80, "a"), (10, 1, 20, "b"))
    for shares, end in (((ShareRule.FINAL_SHARE,), 100), ((ShareRule.INITIAL_SHARE,), 30)):
        tree = replace(pair((0, None, None), (0, None, None), shares=shares), nominal=np.array([[2000], [0], [0]]))
        assert ends(tree, jobs)[0][1] == end


def test_a_queue_of_higher_priority_takes_what_others_borrowed():
    """KAI's order of jobs over quota: first by the queue's priority."""
    for priority, end in ((100, 100), (200, 30)):
        tree = pair(
            (0, None, None), (0, None, None), shares=(ShareRule.FINAL_SHARE,), priority=np.array([0, 100, priority])
        )
        tree = replace(tree, nominal=np.array([[1000], [0], [0]]))
        assert ends(tree, jobs_of((0, 1, 80, "a"), (10, 1, 20, "b")), "1x1")[0][1] == end


def test_queues_that_used_less_of_late_borrow_first_with_a_half_life():
    """a used two GPUs for 100 s, b none.

    At 100 s one GPU is free for a borrowed job of either queue, and b's job, submitted later, comes first.
    """
    for half_life_h, expected in ((0.0, [120, 140]), (1.0, [140, 120])):
        tree = replace(
            pair((0, None, None), (0, None, None), half_life_h=half_life_h), nominal=np.array([[1000], [0], [0]])
        )
        jobs = jobs_of((0, 1, 100, "a"), (10, 1, 20, "a"), (11, 1, 20, "b"))
        assert ends(tree, jobs, "1x1")[0][1:] == expected


def test_users_of_a_queue_go_by_their_usage_and_the_weight_of_their_local_queue():
    """Kueue's admission fair sharing: u has used a GPU for 100 s, v for 60 s; at weight 2 u's counts 50 s."""
    for weight, expected in ((1.0, [220, 210]), (2.0, [210, 220])):
        names = {"x/u": LocalQueue(queue="a", weight=weight), "x/v": LocalQueue(queue="a")}
        tree = quota_tree(
            *(("c", "", 0, None, None), ("a", "c", 1, 0, None)),
            rules=QueueRules(by_usage=True),
            half_life_h=1000.0,
            local_queues=names,
        )
        jobs = jobs_of((0, 1, 120, "x/u"), (0, 1, 80, "x/v"), (1, 1, 10, "x/u"), (2, 1, 10, "x/v"))
        assert ends(tree, jobs, "1x1")[0][2:] == expected


def test_a_gang_takes_the_first_flavor_in_which_it_fits():
    """Two types: the queue's quota is two fast GPUs, then four slow ones, on which jobs take twice as long."""
    tree = quota_tree(("c", "", 0, None, None), ("a", "c", 0, 0, None), flavors=("fast", "slow"))
    tree = replace(tree, nominal=np.array([[0, 0], [2000, 4000]]))
    cluster = Cluster(gpus=np.array([4, 4]), kind=np.array([0, 1]), kinds=("fast", "slow"))
    slow = np.tile([PPM, 2 * PPM], (4, 1))
    jobs = jobs_of((0, 2, 10, "a"), (0, 4, 10, "a"), (0, 2, 10, "a"), (0, 1, 10, "a"), gpu_type_slowdown_ppm=slow)
    assert ends(tree, jobs, cluster)[0] == [10, 20, 20, 30]
    fast_only = replace(jobs, gpu_type_slowdown_ppm=np.tile([PPM, 0], (4, 1)))
    with pytest.raises(
        UnsupportedProblemError, match="asks for 4 GPUs, and queue 'a' can have at most 2 of one flavor"
    ):
        ends(tree, fast_only, cluster)
    with pytest.raises(InvalidProblemError, match="flavor 'fast' matches no GPU type"):
        ends(tree, jobs, Cluster(gpus=np.array([4, 4]), kind=np.array([0, 1]), kinds=("a100", "h100")))


def test_a_label_of_a_flavor_names_its_type_of_gpu():
    tree = quota_tree(("c", "", 0, None, None), ("a", "c", 1, 0, None), flavors=("x",), labels={"x": ("H100",)})
    cluster = Cluster(gpus=np.array([1, 1]), kind=np.array([0, 1]), kinds=("a100", "h100"))
    _, run = ends(tree, jobs_of((0, 1, 10, "a")), cluster)
    assert run.log.machine.tolist() == [1]


def test_a_machine_has_all_labels_of_its_flavor_that_name_anything():
    """Two pools of one type: the flavors differ only by the pool, and each one has its quota; a label of neither has no effect."""
    labels = {"reserved": ("A100", "bought", "zone-1"), "spot": ("A100", "rented", "zone-1")}
    tree = quota_tree(("c", "", 0, None, None), ("a", "c", 0, 0, None), flavors=("reserved", "spot"), labels=labels)
    tree = replace(tree, nominal=np.array([[0, 0], [2000, 1000]]))
    cluster = Cluster(
        gpus=np.array([4, 4]),
        kind=np.array([0, 1]),
        kinds=("one", "two"),
        gpu_types=("a100", "a100"),
        partitions=(("bought",), ("rented",)),
    )
    found, run = ends(tree, jobs_of(*[(0, 1, 10, "a")] * 4), cluster)
    assert found == [10, 10, 10, 20]
    assert sorted(run.log.machine.tolist()) == [0, 0, 0, 1]
    with pytest.raises(InvalidProblemError, match="no machine matches"):
        ends(replace(tree, labels=labels | {"spot": ("A100", "bought", "rented")}), jobs_of((0, 1, 10, "a")), cluster)


def test_reclaim_is_only_as_wide_as_the_place_needs():
    """b's gang of two needs one machine: no job of a on the other machine is stopped."""
    tree = pair((2, None, None), (2, None, None))
    jobs = jobs_of(*[(number, 1, 100, "a") for number in range(4)], (10, 2, 20, "b"))
    _, run = ends(tree, jobs, "2x2")
    stopped = sorted(job for _, kind, job, _ in run.log.rows() if kind == Event.PREEMPT)
    assert stopped == [2, 3]


def held_at(jobs, log):
    """Yield each instant with the GPUs of each queue after it, and the waiting and the running jobs."""
    rows, running = log.rows(), {}
    for at, (time, kind, job, _) in enumerate(rows):
        if kind == Event.START:
            running[job] = time
        else:
            running.pop(job, None)
        if at + 1 == len(rows) or rows[at + 1][0] > time:
            over = {row[2] for row in rows[: at + 1] if row[1] in (Event.END, Event.LEAVE)}
            waiting = [
                each
                for each in np.flatnonzero(jobs.submit_us <= time).tolist()
                if each not in running and each not in over
            ]
            yield time, running, waiting


@settings(max_examples=60)
@given(st.data())
def test_every_instant_keeps_to_the_quotas_and_leaves_none_idle_that_a_waiting_job_could_have(data):
    """Check by linear programming that the right jobs run.

    The running jobs are admissible. No waiting job could be admitted on free GPUs, and none within its queue's quota waits
    while others borrow. Single GPUs on one machine always have a place.
    """
    tree = data.draw(trees(rules=ANY))
    gpus = max(1, int(tree.nominal.sum()) // 1000)
    names = sorted(tree.queues)
    row = st.tuples(st.integers(0, 6), st.just(1), st.integers(1, 6), st.sampled_from(names), st.integers(0, 1))
    rows = [
        each
        for each in sorted(data.draw(st.lists(row, min_size=1, max_size=9)))
        if most_by_programme(tree, {}, tree.queues[each[3]]) >= 1
    ]
    if not rows:
        return
    jobs = jobs_of(*[(each[0] - rows[0][0], *each[1:]) for each in rows])
    _, run = ends(tree, jobs, Cluster(gpus=np.array([gpus])))
    queue = [tree.queues[jobs.groups[group]] for group in jobs.group]
    for _, running, waiting in held_at(jobs, run.log):
        used = {}
        for job in running:
            used[queue[job]] = used.get(queue[job], 0) + 1
        assert is_admitted(tree, used)
        for job in waiting:
            wanted = used | {queue[job]: used.get(queue[job], 0) + 1}
            assert not (sum(wanted.values()) <= gpus and is_admitted(tree, wanted))
            for other in used:
                common = next((node for node in tree.path(queue[job]) if node in tree.path(other)), None)
                if common is None or other == queue[job]:
                    continue
                mine, yours = (path[: path.index(common)] for path in (tree.path(queue[job]), tree.path(other)))
                # If its own queue may not borrow, no departure admits it.
                is_possible = is_admitted(tree, {queue[job]: wanted[queue[job]]})
                is_promised = is_possible and any(fits_below(tree, node, wanted, queue[job]) for node in mine)
                assert not is_promised or any(fits_below(tree, node, used, other) for node in yours)


def test_reclaim_goes_across_cohorts_and_not_within_one_that_lends_its_own():
    """Cohorts A (a, b) and B (d): d's job is within d's quota, which a borrowed; b's would only take the quota that A lent to a."""
    tree = quota_tree(
        *(("c", "", 0, None, None), ("A", "c", 1, None, None), ("B", "c", 0, None, None)),
        *(("a", "A", 0, None, None), ("b", "A", 0, None, None), ("d", "B", 1, None, None)),
        rules=ANY,
    )
    first = ((0, 1, 100, "a"), (0, 1, 100, "a"))
    assert ends(tree, jobs_of(*first, (10, 1, 20, "d")))[0] == [100, 120, 30]
    assert ends(tree, jobs_of(*first, (10, 1, 20, "b")))[0] == [100, 100, 120]


def test_without_a_file_virtual_clusters_share_by_gpu_time():
    jobs = jobs_of((0, 1, 300, "a"), (0, 1, 100, "b"))
    policy = make_policy("hierarchical-quota", jobs)
    policy.begin(Cluster.grid("1x8"), 0)
    assert list(policy.quota) == [6.0, 2.0]


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"quotas": "nowhere.yaml"}, "quotas must be a file"),
        ({"queue_by": "mood"}, "queue_by must be"),
        ({"half_life_h": -1}, "half_life_h must be"),
    ],
)
def test_options_out_of_range_are_refused(options, cause):
    with pytest.raises(InvalidOptionError, match=cause):
        make_policy("hierarchical-quota", jobs_of((0, 1, 1, "a")), options)


def test_jobs_find_their_queue_by_virtual_cluster_account_user_or_default(tmp_path):
    path = tmp_path / "queues.yaml"
    path.write_text(write_kueue(pair((1, None, None), (1, None, None)))[0])
    jobs = jobs_of((0, 1, 1, "b"), (0, 1, 1, "a"), users=("a", "zoe"), user=np.array([0, 1]))
    for options, queues in (({}, ["b", "a"]), ({"queue_by": "user", "default_queue": "b"}, ["a", "b"])):
        policy = make_policy("hierarchical-quota", jobs, {"quotas": path, **options})
        policy.begin(Cluster.grid("1x2"), 0)
        assert [policy.tree.names[row] for row in policy.queue] == queues
    with pytest.raises(InvalidProblemError, match=r"no queue 'zoe', used by jobs \(queues: a, b\)"):
        make_policy("hierarchical-quota", jobs, {"quotas": path, "queue_by": "user"})
    with pytest.raises(InvalidProblemError, match="default_queue must be one of the queues a, b, got 'c'"):
        make_policy("hierarchical-quota", jobs, {"quotas": path, "default_queue": "c"})


def test_a_queue_that_is_stopped_or_too_small_is_said_before_the_run():
    jobs = jobs_of((0, 2, 1, "a"), (0, 1, 1, "b"))
    with pytest.raises(UnsupportedProblemError, match="j0 asks for 2 GPUs, and queue 'a' can have at most 1"):
        ends(pair((1, 0, None), (1, None, None)), jobs)
    with pytest.raises(UnsupportedProblemError, match="queue 'a' has jobs but is stopped"):
        ends(pair((2, None, None), (1, None, None), rules=QueueRules(is_held=True)), jobs)


@pytest.mark.parametrize(
    ("reclaimer", "victim", "of_queue", "of_ancestor"),
    [
        ("leaf1", "leaf2", 180, 180),
        ("leaf2", "leaf1", 0, 0),
        ("leaf3", "leaf1", 0, 600),
        ("leaf3", "leaf2", 180, 600),
        ("leaf1", "leaf3", 60, 60),
        ("leaf2", "leaf3", 60, 60),
    ],
)
def test_the_minimum_run_times_of_kais_example(reclaimer, victim, of_queue, of_ancestor):
    """KAI Scheduler, "MinRuntime Plugin", section Examples: queues B 600 s, D 60 s, leaf1 0 s, leaf2 180 s, by both methods."""
    quota = {reclaimer: 1}
    names = (("A", ""), ("B", "A"), ("C", "B"), ("D", "B"), ("leaf1", "C"), ("leaf2", "C"), ("leaf3", "D"))
    seconds = {"B": 600, "D": 60, "leaf1": 0, "leaf2": 180}
    tree = quota_tree(
        *((name, parent, quota.get(name, 0), None, None) for name, parent in names),
        rules=ANY,
        reclaim_after_us=np.array([seconds[name] * US if name in seconds else -1 for name, _ in names]),
    )
    for is_by_ancestor, least in ((False, of_queue), (True, of_ancestor)):
        jobs = jobs_of((0, 1, 1000, victim), (1, 1, 10, reclaimer))
        _, run = ends(replace(tree, is_by_ancestor=is_by_ancestor), jobs, "1x1")
        assert [time // US for time, kind, *_ in run.log.rows() if kind == Event.PREEMPT] == [max(1, least)]


def test_who_need_not_be_stopped_after_all_is_spared():
    """b's gang of two: the least important of a's jobs goes first and frees one GPU of machine 0; the gang of two on machine 1 is enough alone."""
    tree = pair((2, None, None), (2, None, None))
    jobs = jobs_of((0, 1, 100, "a", 0), (0, 1, 100, "a", 5), (0, 2, 100, "a", 1), (10, 2, 20, "b"))
    _, run = ends(tree, jobs, "2x2")
    assert [job for _, kind, job, _ in run.log.rows() if kind == Event.PREEMPT] == [2]
    assert run.figures["reclaimed"] == 1
