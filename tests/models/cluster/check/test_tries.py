"""Logs in which tries fail in ways that can't be: each rule broken once, in logs of both kinds."""

import numpy as np
import pytest

from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.rules import Retries, Rules
from optim.models.cluster.workload import US
from tests.support.small_clusters import workload

START, PREEMPT, END, FAULT, GIVE_UP = Event.START, Event.PREEMPT, Event.END, Event.FAULT, Event.GIVE_UP
RULES = Rules(restart_us=US, move_us=US, retries=int(Retries.BY_CLASS), most_retries=2, retry_wait_us=2 * US)


def _jobs(reason="GPU ECC error", good=4):
    """A job of 10 s whose first two tries fail after 3."""
    told = {"fails_us": [3 * US], "tries": [2], "good_us": [good * US], "reason": [1]}
    return workload([(0, 1, 10)], reasons=("", reason), **{name: np.array(values) for name, values in told.items()})


def _log(events, is_planned):
    starts = [kind == START for _, kind in events]
    return EventLog(
        time_us=np.array([time * US for time, _ in events]),
        kind=np.array([kind for _, kind in events], np.int8),
        job=np.zeros(len(events), np.int64),
        first=np.cumsum([0, *starts]),
        machine=np.zeros(sum(starts), np.int64),
        gpus=np.ones(sum(starts), np.int64),
        slot=np.full(sum(starts), 0 if is_planned else -1),
    )


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize(
    ("jobs", "events", "cause"),
    [
        (_jobs(), [(0, START), (2, FAULT)], "after 2000000 us, which fails after 3000000"),
        (_jobs(), [(0, START), (4, FAULT)], "after 4000000 us"),
        (_jobs(), [(0, START), (3, PREEMPT)], "goes on from a try that fails"),
        (_jobs(), [(0, START), (10, END)], "goes on from a try that fails"),
        (_jobs(), [(0, START), (3, GIVE_UP)], "has a try left"),
        (_jobs(), [(0, START), (3, FAULT), (4, START)], "held back until 5000000 us"),
        (_jobs("syntax error"), [(0, START), (3, FAULT)], "repeats a try that was the last"),
        (_jobs(good=0), [(0, START), (3, FAULT), (5, START), (9, FAULT)], "repeats a try that was the last"),
        (_jobs(), [(0, START), (3, FAULT), (5, START), (9, FAULT), (11, START), (15, END)], "of its 10000000"),
        (_jobs(), [(0, START), (3, FAULT), (5, START), (9, FAULT), (11, START), (15, GIVE_UP)], "at no time"),
        (_jobs("syntax error"), [(0, START), (3, GIVE_UP), (5, START)], "runs or is over"),
    ],
)
def test_the_first_broken_event_is_named(jobs, events, cause, is_planned):
    found, problems = replay(jobs, Cluster.grid("1x1"), _log(events, is_planned), RULES)
    assert found is None
    assert cause in problems[0].message


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_job_is_done_after_its_last_failure(is_planned):
    events = [(0, START), (3, FAULT), (5, START), (9, FAULT), (11, START), (16, END)]
    found, problems = replay(_jobs(), Cluster.grid("1x1"), _log(events, is_planned), RULES)
    assert not problems
    assert (found.lost_us, found.executed_us, found.overhead_us, found.is_done) == (
        (6 * US,),
        (10 * US,),
        (2 * US,),
        (True,),
    )


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_job_that_is_given_up_is_over_and_not_done(is_planned):
    found, problems = replay(
        _jobs("syntax error"), Cluster.grid("1x1"), _log([(0, START), (3, GIVE_UP)], is_planned), RULES
    )
    assert not problems
    assert (found.end_us, found.lost_us, found.is_done) == ((3 * US,), (3 * US,), (False,))


@pytest.mark.parametrize("is_planned", [False, True])
def test_what_failing_tries_leave_is_done_where_no_good_one_is_told_and_others_never_fail(is_planned):
    """Two tries of 3 s leave 4 of the 10; the job behind it doesn't fail."""
    told = {"fails_us": [3 * US, -1], "tries": [2, 1], "good_us": [-1, -1]}
    jobs = workload([(0, 1, 10), (0, 1, 5)], **{name: np.array(values) for name, values in told.items()})
    events = [(0, START), (3, FAULT), (5, START), (9, FAULT), (11, START), (16, END), (16, START), (21, END)]
    log = _log(events, is_planned)
    log.job[-2:] = 1
    found, problems = replay(jobs, Cluster.grid("1x1"), log, RULES)
    assert not problems
    assert (found.is_done, found.executed_us) == ((True, True), (10 * US, 5 * US))
