"""Plans are executed by the rules: random ones against the checker, worked examples, and each rule broken once."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optim.core.errors import NotAllowedError, UnsupportedProblemError
from optim.models.cluster.check import check_runs, replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import measure
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate as engine_play
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.engine import play_plans
from optim.simulation.cluster.planning.policy import BrokenRuleError, Oracle, Plan, PlanningPolicy
from tests.support.random_plans import RandomPlans
from tests.support.small_clusters import workload

FREE = EngineOptions(overhead_s=0)


def play(jobs, cluster, policy, options, seed=0):
    return play_plans(jobs, cluster, policy, options, seed)


@st.composite
def planned_worlds(draw):
    """Machines of two types in two racks, jobs with every field of a workload, and rules."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    count = draw(st.integers(1, 6))
    whole = st.integers(0, 12)
    gangs = [draw(st.integers(1, min(4, sum(sizes)))) for _ in range(count)]
    rules = Rules(
        restart_us=draw(st.sampled_from([0, 3, 1500])),
        move_us=draw(st.sampled_from([0, 7, 2500])),
        is_elastic=draw(st.booleans()),
        is_shared=draw(st.booleans()),
        jobs_a_gpu=draw(st.integers(1, 2)),
        neighbour_ppm=draw(st.sampled_from([PPM, 1_500_000])),
        may_refuse=draw(st.booleans()),
    )
    submit = np.array(sorted(draw(st.lists(whole, min_size=count, max_size=count))))
    share = [draw(st.sampled_from([300, 500, 1000])) if gang == 1 else 1000 for gang in gangs]
    jobs = Workload(
        submit_us=1000 * (submit - submit[0]),
        gpus=np.array(gangs),
        duration_us=np.array([1000 * draw(st.integers(1, 9)) + draw(st.integers(0, 2)) for _ in gangs]),
        slowdown_ppm=np.array([draw(st.sampled_from([(PPM,) * 3, (PPM, 1_300_000, 2 * PPM)])) for _ in gangs]),
        share_milli=np.array(share),
        busy_milli=np.array([draw(st.sampled_from([400, 700, 1000])) for _ in gangs]),
        gpu_type_slowdown_ppm=np.array([draw(st.sampled_from([(PPM, PPM), (1_700_000, PPM)])) for _ in gangs]),
        cpu_milli=np.array([draw(st.sampled_from([500, 2000])) for _ in gangs]),
        max_gpus=np.array([min(sum(sizes), gang + draw(st.integers(0, 1))) for gang in gangs]),
    )
    racks, kinds = [draw(st.integers(0, 1)) for _ in sizes], [draw(st.integers(0, 1)) for _ in sizes]
    cluster = Cluster(gpus=np.array(sizes), rack=np.array(racks), kind=np.array(kinds), kinds=("a", "b"))
    return jobs, cluster, rules


def _agrees(jobs, cluster, run):
    """Check a run against the replay of its log."""
    found, problems = replay(jobs, cluster, run.log, run.rules)
    assert not problems
    for name in ("first_start_us", "end_us", "executed_us", "overhead_us", "is_done"):
        assert getattr(found, name) == tuple(getattr(run, name).tolist()), name
    assert (found.allocated_gpu_us, found.overhead_gpu_us) == (run.allocated_gpu_us, run.overhead_gpu_us)
    return found


@given(planned_worlds(), st.integers(0, 10**6))
def test_a_run_is_what_the_checker_finds_in_its_log(world, seed):
    jobs, cluster, rules = world
    run = play(jobs, cluster, RandomPlans(rules), FREE, seed)
    _agrees(jobs, cluster, run)
    left = (run.log.kind == 3).sum()
    assert run.is_done.sum() + left == len(jobs)


def test_a_log_in_which_every_job_is_sent_away_is_read():
    jobs = Workload(submit_us=np.zeros(2, int), gpus=np.ones(2, int), duration_us=np.full(2, 1000))
    policy = Scripted(Plan(gpus={}, leave=(0, 1)), rules=Rules(may_refuse=True))
    run = play(jobs, Cluster.grid("1x1"), policy, FREE, 0)
    assert not _agrees(jobs, Cluster.grid("1x1"), run).is_done[0]


@given(planned_worlds(), st.integers(0, 10**6), st.data())
def test_a_log_with_one_number_changed_is_refused(world, seed, data):
    jobs, cluster, rules = world
    run = play(jobs, cluster, RandomPlans(rules), FREE, seed)
    assume(run.is_done.any())
    figures = measure(jobs, cluster, run)
    column = data.draw(st.sampled_from(["time_us", "kind", "job", "machine", "gpus", "slot"]))
    values = getattr(run.log, column).astype(np.int64)
    at = data.draw(st.integers(0, len(values) - 1))
    change = data.draw(st.sampled_from([-1000, -1, 1, 2, 1000]))
    values[at] += change
    claimed = LoggedRun(policy="any", log=replace(run.log, **{column: values}), metrics=figures, rules=rules)
    record = RunRecord(jobs=jobs, cluster=cluster, overhead_us=0, runs=(claimed,))
    if all(found.is_ok for _, found in check_runs(record)):
        # Another GPU with capacity, a job equal to this one, or a microsecond: progress is rounded to integers, and
        # figures are compared to a billionth.
        assert column in ("machine", "slot", "job") or (column == "time_us" and abs(change) <= 2)


class Scripted(PlanningPolicy):
    """Returns the plans of a list, one per call."""

    name = "scripted"

    def __init__(self, *plans, rules=None):
        self.plans, self.given = plans, rules

    def rules(self, options):
        return self.given or super().rules(options)

    def begin(self, cluster, seed):
        self.left = list(self.plans)

    def plan(self, view):
        plan = self.left.pop(0) if self.left else Plan(gpus=dict(view.running))
        return plan(view) if callable(plan) else plan


TWO = workload([(0, 2, 4), (0, 1, 4)])
CLUSTER = Cluster(gpus=np.array([2, 2]), cpus=np.array([16.0, 16.0]))


def test_packed_jobs_slow_each_other_down_by_how_busy_they_are():
    """Two jobs that compute 0.6 of the time on one GPU take 1.2 times as long together; 6 s of work each, one from 3 on."""
    jobs = workload([(0, 1, 6), (3, 1, 6)], busy_milli=np.array([600, 600]))
    one = Cluster(gpus=np.array([1]))
    together = Scripted(Plan(gpus={0: (0,)}), Plan(gpus={0: (0,), 1: (0,)}), rules=Rules(jobs_a_gpu=2))
    run = play(jobs, one, together, FREE)
    assert (run.end_us / US).tolist() == [3 + 3 * 1.2, 6.6 + 6 - 3]
    assert run.allocated_gpu_us == run.end_us[1]
    _agrees(jobs, one, run)


def test_an_elastic_job_gets_on_by_its_width_and_pays_for_moving():
    """4 s on 2 GPUs: 2 s on one are 1 s of work, then a pause of 1 s, then 3 s on both."""
    rules = Rules(is_elastic=True, move_us=US, restart_us=0)
    script = Scripted(Plan(gpus={0: (0,)}, again_us=2 * US), Plan(gpus={0: (0, 1)}), rules=rules)
    jobs = workload([(0, 2, 4)])
    run = play(jobs, CLUSTER, script, FREE)
    assert run.end_us.tolist() == [6 * US]
    assert run.overhead_gpu_us == 2 * US
    assert run.allocated_gpu_us == (2 + 8) * US
    metrics = measure(jobs, CLUSTER, run)
    assert (metrics.preemptions, metrics.unfinished, metrics.left) == (1, 0, 0)
    _agrees(jobs, CLUSTER, run)


def test_a_job_that_comes_back_to_its_gpus_pays_for_restarting_only():
    rules = Rules(restart_us=US, move_us=2 * US)
    plans = [Plan(gpus={0: (0,)}, again_us=US), Plan(gpus={}, again_us=2 * US), Plan(gpus={0: (0,)}, again_us=4 * US)]
    jobs = workload([(0, 1, 4)])
    run = play(jobs, CLUSTER, Scripted(*plans, Plan(gpus={0: (1,)}), rules=rules), FREE)
    assert run.end_us.tolist() == [(2 + 1 + 1 + 2 + 2) * US]


def test_types_of_gpus_and_neighbours_slow_down():
    jobs = workload([(0, 2, 4), (0, 2, 4)], gpu_type_slowdown_ppm=np.array([[PPM, 1_500_000]] * 2))
    cluster = Cluster(gpus=np.array([2, 2]), kind=np.array([0, 1]), kinds=("a", "b"))
    apart = Scripted(Plan(gpus={0: (0, 1), 1: (2, 3)}))
    assert (play(jobs, cluster, apart, FREE).end_us / US).tolist() == [4, 6]
    mixed = Scripted(Plan(gpus={0: (0, 2), 1: (1, 3)}))
    both = play(jobs, cluster, mixed, EngineOptions(overhead_s=0, neighbour=2))
    assert (both.end_us / US).tolist() == [12, 12]
    _agrees(jobs, cluster, both)


def test_a_round_based_policy_is_called_at_its_rounds_only():
    class Rounds(PlanningPolicy):
        name, plans_at_events = "rounds", False

        def begin(self, cluster, seed):
            self.calls = []

        def plan(self, view):
            self.calls.append(view.now_us // US)
            room = view.room(view.running)
            gpus = {job: taken for job in view.jobs.tolist() if (taken := room.place(job))}
            return Plan(gpus=gpus, again_us=(view.now_us // (5 * US) + 1) * 5 * US)

    policy = Rounds()
    run = play(workload([(0, 1, 3), (1, 1, 3), (4, 1, 9)]), Cluster(gpus=np.array([1])), policy, FREE)
    assert policy.calls == [0, 5, 10, 15]
    assert (run.first_start_us / US).tolist() == [0, 5, 10]


def test_jobs_that_are_never_run_are_told():
    run = play(TWO, CLUSTER, Scripted(Plan(gpus={0: (0, 1)})), FREE)
    metrics = measure(TWO, CLUSTER, run)
    assert (metrics.unfinished, metrics.jct_mean_h) == (1, 4 / 3600)
    assert (metrics.wait_fragmented_share, metrics.wait_order_share) == (0, 1)
    _agrees(TWO, CLUSTER, run)


def test_a_policy_that_only_asks_again_comes_to_an_end():
    run = play(TWO, CLUSTER, Scripted(*[lambda view: Plan(gpus={}, again_us=view.now_us + 1)] * 2000), FREE)
    assert not run.is_done.any()
    with pytest.raises(UnsupportedProblemError, match="finished no job"):
        measure(TWO, CLUSTER, run)


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        (Plan(gpus={0: (0,)}), "job j0 gets 1 GPUs, but needs 2"),
        (Plan(gpus={0: (0, 0)}), "job j0 gets a GPU twice"),
        (Plan(gpus={0: (3, 4)}), "job j0 gets GPU 4, which does not exist"),
        (Plan(gpus={0: (-1, 1)}), "job j0 gets GPU -1"),
        (Plan(gpus={0: (0, 1), 1: (1,)}), "job j1 gets GPU 1, which job j0 holds"),
        (Plan(gpus={2: (0,)}), "job 2 is in `gpus`, but is neither waiting nor running"),
        (Plan(gpus={0: ()}), "gets 0 GPUs"),
        (Plan(gpus={0: "ab"}), "job numbers to GPU numbers"),
        (Plan(gpus={"a": (0, 1)}), "job numbers to GPU numbers"),
        (Plan(gpus={}, again_us=0), "requests a call at 0 us"),
        (Plan(gpus={}, leave=(0,)), "may_refuse"),
        ({0: (0, 1)}, "returns dict"),
        (lambda view: view.remaining_us, "run times are hidden"),
        (lambda view: 1 // 0, "fails with ZeroDivisionError"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_named_with_event_job_and_rule(plan, rule):
    with pytest.raises((BrokenRuleError, NotAllowedError), match=rule):
        play(TWO, CLUSTER, Scripted(plan), FREE)


@pytest.mark.parametrize(
    ("more", "rules", "gpus", "rule"),
    [
        ({"share_milli": np.array([600, 600])}, Rules(is_shared=True), {0: (0,), 1: (0,)}, "of which only 0.4 is free"),
        ({"gpu_type_slowdown_ppm": np.array([[0], [PPM]])}, Rules(), {0: (0,)}, "type on which it cannot run"),
        (
            {"cpu_milli": np.array([9000, 9000])},
            Rules(),
            {0: (0,), 1: (1,)},
            "vCPUs or memory than are free on machine 0",
        ),
        ({}, Rules(jobs_a_gpu=1, is_elastic=True), {0: (0, 1)}, "needs 1"),
        ({"max_gpus": np.array([3, 1])}, Rules(is_elastic=True), {0: (0, 1, 2, 3)}, "needs 1 to 3"),
    ],
)
def test_a_plan_that_breaks_a_rule_of_its_world_is_refused(more, rules, gpus, rule):
    jobs = workload([(0, 1, 4), (0, 1, 4)], **more)
    with pytest.raises(BrokenRuleError, match=rule):
        play(jobs, CLUSTER, Scripted(Plan(gpus=gpus), rules=rules), FREE)


def test_nothing_of_the_future_is_shown():
    seen = {}

    def look(view):
        seen.update(
            count=len(view.gpus),
            jobs=view.jobs.tolist(),
            left=view.remaining_us.tolist(),
            waiting=view.waiting.tolist(),
        )
        with pytest.raises(ValueError, match="read-only"):
            view.gpus[0] = 1
        with pytest.raises(TypeError):
            view.running[0] = (0,)
        return Plan(gpus={0: (0, 1)})

    policy = Scripted(look)
    type(policy).oracle_inputs = (Oracle.RUN_TIMES,)
    try:
        play(workload([(0, 2, 4), (1, 1, 1)]), CLUSTER, policy, FREE)
    finally:
        type(policy).oracle_inputs = ()
    assert seen == {"count": 1, "jobs": [0], "left": [4 * US], "waiting": [0]}


def test_pauses_work_and_losses_on_a_shared_gpu_count_as_shares_of_it():
    """0.1 of the GPU for 100 s, 0.95 for 50 s, and 0.1 for an hour's pause and 1,900 s: 607.5 s, of them 360 in vain."""
    jobs, cluster = workload([(0, 1, 2000), (100, 1, 50)], share_milli=np.array([100, 950])), Cluster.grid("1x1")
    options = EngineOptions(sharing=True, overhead_s=3600)
    run = engine_play(jobs, cluster, make_policy("srtf", jobs), options)
    assert (run.allocated_gpu_us, run.overhead_gpu_us) == (607.5 * US, 360.0 * US)
    metrics = measure(jobs, cluster, replace(run, lost_us=np.array([10, 20]) * US))
    assert metrics.goodput == pytest.approx(247.5 / 607.5)
    assert metrics.lost_gpu_hours == pytest.approx(20 / 3600)
    logged = LoggedRun(policy=run.policy, log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    record = RunRecord(jobs=jobs, cluster=cluster, overhead_us=options.overhead_us, runs=(logged,))
    assert all(found.is_ok for _, found in check_runs(record))
    replayed, _ = replay(jobs, cluster, run.log, run.rules)
    assert (replayed.allocated_gpu_us, replayed.overhead_gpu_us) == (run.allocated_gpu_us, run.overhead_gpu_us)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 1000), st.integers(1, 20)), min_size=1, max_size=6))
def test_time_held_in_shares_is_that_of_work_and_of_pauses(rows):
    """With GPUs of one machine and no failures, this option has no other effect."""
    rows = sorted(rows)
    jobs = workload(
        [(submit, 1, run) for submit, _, run in rows], share_milli=np.array([share for _, share, _ in rows])
    )
    run = engine_play(jobs, Cluster.grid("1x2"), make_policy("srtf", jobs), EngineOptions(sharing=True, overhead_s=7))
    metrics = measure(jobs, Cluster.grid("1x2"), run)
    assert metrics.goodput == pytest.approx(1 - run.overhead_gpu_us / run.allocated_gpu_us)


def test_a_policy_that_asks_for_what_no_view_has_is_told_what_there_is():
    def look(view):
        return view.remaining

    due = r"AttributeError: a view has no attribute 'remaining'; did you mean remaining_us or waiting\? it has: app, .* waiting"
    with pytest.raises(BrokenRuleError, match=due):
        play(TWO, CLUSTER, Scripted(look), FREE)


def test_the_page_on_policies_names_only_what_a_view_and_its_room_have():
    page = (Path(__file__).parents[4] / "docs" / "reference" / "extension-objects.md").read_text()
    section = page[page.index("## View of a cluster") : page.index("## Spot world")]
    assert "{fields} optim.simulation.cluster.planning.policy.View" in section
    names = re.findall(r"`([a-z]+_us|waiting)`", section)
    seen = set()

    def look(view):
        seen.update(name for name in names if name == "remaining_us" or hasattr(view, name))
        assert all(hasattr(view.room(), name) for name in ("place", "find", "give"))
        return Plan(gpus={0: (0,), 1: (1,)})

    play(workload([(0, 1, 4), (0, 1, 4)]), CLUSTER, Scripted(look), FREE)
    assert seen == set(names)
    assert len(names) == 4
