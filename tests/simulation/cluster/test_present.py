"""Runs that begin in a present state: the rest of an uninterrupted run, event by event."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.cluster.check.replay import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.present import Present, present_at, starts_of
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import first_starts, simulate
from optim.simulation.cluster.index import loop
from optim.simulation.cluster.index.policy import IndexPolicy, Key, Preempts

S = 1_000_000
SIZES = [4, 2, 2]
NEVER_STOPS = (
    ("fifo", {}),
    ("fifo", {"backfill": True}),
    ("srtf", {"preempt": False}),
    ("srsf", {"preempt": False, "backfill": False}),
    ("drf", {}),
    ("easy", {}),
    ("conservative", {}),
)


@st.composite
def interrupted(draw):
    """Jobs with ties and gangs wider than a machine, a policy that stops no job, and a time during the run."""
    count = draw(st.integers(2, 12))
    submit = sorted(draw(st.lists(st.integers(0, 15), min_size=count, max_size=count)))
    duration = S * np.array(draw(st.lists(st.integers(1, 9), min_size=count, max_size=count)))
    jobs = Workload(
        submit_us=S * np.array(submit),
        gpus=np.array(draw(st.lists(st.integers(1, 6), min_size=count, max_size=count))),
        duration_us=duration,
        estimate_us=duration,
        group=np.array(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))),
        groups=("a", "b"),
    )
    name, options = draw(st.sampled_from(NEVER_STOPS))
    return *typed(jobs, CLUSTER, draw(st.booleans())), name, options, draw(st.integers(0, 40 * S))


CLUSTER = Cluster(gpus=np.array(SIZES), rack=np.array([0, 0, 1]))


def typed(jobs, cluster, has_types=True):
    """The same with a machine more on which no job can run, so that the loop is the one that asks policies for plans."""
    if not has_types:
        return jobs, cluster
    kind = np.append(np.zeros(cluster.num_machines, np.int64), 1)
    wider = Cluster(gpus=np.append(cluster.gpus, 1), rack=np.append(cluster.rack, 0), kind=kind, kinds=("a", "b"))
    return replace(jobs, gpu_type_slowdown_ppm=np.array([[10**6, 0]] * len(jobs))), wider


@given(interrupted())
def test_goes_on_as_the_run_that_was_not_interrupted(drawn):
    jobs, cluster, name, options, now = drawn
    whole = simulate(jobs, cluster, make_policy(name, jobs, options))
    if (whole.end_us <= now).all():
        return
    rest, present = present_at(jobs, whole.log, now)
    again = simulate(rest, cluster, make_policy(name, rest, options), present=present)
    late = whole.end_us > now
    assert again.first_start_us.tolist() == whole.first_start_us[late].tolist()
    assert again.end_us.tolist() == whole.end_us[late].tolist()
    pending = np.flatnonzero(present.is_pending(rest))
    with patch.object(loop, "STEPS_BETWEEN_LOOKS", 1):
        awaited = first_starts(rest, cluster, make_policy(name, rest, options), present, pending)
    assert awaited.tolist() == whole.first_start_us[late][pending].tolist()
    assert again.executed_us.tolist() == whole.executed_us[late].tolist()
    assert replay(rest, cluster, again.log, again.rules)[1] == []
    rows, after = np.flatnonzero(late), whole.log.time_us > now
    kept = after & late[np.maximum(whole.log.job, 0)]
    ours = again.log.time_us > now
    named = list(zip(whole.log.time_us[kept].tolist(), whole.log.job[kept].tolist(), strict=True))
    assert named == list(zip(again.log.time_us[ours].tolist(), rows[again.log.job[ours]].tolist(), strict=True))


@pytest.mark.parametrize("has_types", [False, True])
def test_first_starts_of_a_queue_are_all_waited_for(has_types):
    jobs = Workload(submit_us=np.zeros(3, int), gpus=np.full(3, 4), duration_us=S * np.array([10, 5, 5]))
    jobs, cluster = typed(jobs, Cluster(gpus=np.array([4]), rack=np.array([0])), has_types)
    present = Present(now_us=2 * S, starts=starts_of([(0, 0, [(0, 4)])]))
    with patch.object(loop, "STEPS_BETWEEN_LOOKS", 1):
        found = first_starts(jobs, cluster, make_policy("fifo", jobs), present, np.array([1, 2]))
    assert found.tolist() == [10 * S, 15 * S]


def held(*starts, now=10 * S):
    return Present(now_us=now, starts=starts_of(list(starts)))


JOBS = Workload(submit_us=np.zeros(3, int), gpus=np.array([2, 4, 1]), duration_us=np.array([20, 30, 5]) * S)


def test_a_running_job_keeps_what_it_attained_and_its_machine():
    las = IndexPolicy(name="las", key=Key.ATTAINED_SERVICE, preempts=Preempts.AT_EVENTS)
    run = simulate(JOBS, Cluster.grid("1x4"), las, present=held((2 * S, 0, [(0, 2)])))
    # At 10 s job 0 has attained 8 s x 2; the others have attained no service and precede it.
    assert run.log.rows()[:2] == [(2 * S, Event.START, 0, ((0, 2),)), (10 * S, Event.PREEMPT, 0, ())]
    assert run.log.rows()[2][:3] == (10 * S, Event.START, 1)


def test_without_running_jobs_the_pending_start_now():
    run = simulate(JOBS, Cluster.grid("2x4"), make_policy("fifo", JOBS), present=held())
    assert run.first_start_us.tolist() == [10 * S] * 3


@pytest.mark.parametrize("has_types", [False, True])
@pytest.mark.parametrize("name", ["easy", "conservative"])
def test_nobody_passes_a_gang_whose_reserved_start_is_behind_running_jobs(name, has_types):
    jobs = Workload(
        submit_us=np.arange(4) * S,
        gpus=np.array([1, 8, 1, 1]),
        duration_us=np.array([1000, 10, 5000, 800]) * S,
        estimate_us=np.array([1000, 10, 5000, 800]) * S,
    )
    jobs, cluster = typed(jobs, Cluster.grid("1x8"), has_types)
    run = simulate(jobs, cluster, make_policy(name, jobs), present=held((0, 0, [(0, 1)]), now=100 * S))
    assert run.first_start_us.tolist() == [0, 1000 * S, 1010 * S, 100 * S]


@pytest.mark.parametrize(
    ("starts", "now", "said"),
    [
        ([(0, 0, [(0, 3)])], 10, "holds 3 GPUs, but its gang is 2"),
        ([(0, 0, [(5, 2)])], 10, "a machine outside the cluster"),
        ([(0, 0, [(0, 2)]), (0, 1, [(0, 4)])], 10, "more than the 4 GPUs of machine 0"),
        ([(11 * S, 0, [(0, 2)])], 10, "must start between its submission and now"),
        ([(0, 0, [(0, 2)])], 20, "its run time has passed"),
        ([(0, 7, [(0, 2)])], 10, "job 7 is unknown"),
        ([(0, 0, [(0, 2)]), (1, 0, [(0, 2)])], 10, "job 0 runs twice"),
    ],
)
def test_refuses_what_cannot_be(starts, now, said):
    with pytest.raises(InvalidProblemError, match=said):
        held(*starts, now=now * S).check(JOBS, Cluster.grid("2x4"))


def test_refuses_a_type_on_which_the_job_cannot_run():
    cluster = Cluster(gpus=np.array([4, 4]), kind=np.array([0, 1]), kinds=("a", "b"))
    jobs = replace(JOBS, gpu_type_slowdown_ppm=np.array([[10**6, 0]] * 3))
    with pytest.raises(InvalidProblemError, match="on which it can't run"):
        held((0, 0, [(1, 2)])).check(jobs, cluster)


def test_gpus_are_the_lowest_free_ones_of_the_machine():
    present = held((0, 0, [(1, 2)]), (1, 1, [(0, 4)]), (2, 2, [(1, 1)]))
    assert present.gpu_numbers(Cluster.grid("2x4")) == [(4, 5), (0, 1, 2, 3), (6,)]


def test_a_log_with_a_stop_leaves_no_such_state():
    run = simulate(JOBS, Cluster.grid("1x4"), make_policy("srtf", JOBS))
    las = simulate(JOBS, Cluster.grid("1x4"), make_policy("las", JOBS, {"quantum_s": 1.0}))
    assert present_at(JOBS, run.log, 3 * S)[1].now_us == 3 * S
    with pytest.raises(InvalidProblemError, match="without preemptions and failures"):
        present_at(JOBS, las.log, 30 * S)
