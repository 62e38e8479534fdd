"""Logs in which machines fail in ways that can't be: each rule broken once, in logs of both kinds."""

import numpy as np
import pytest

from optim.models.cluster.check import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import NO_JOB, Event, EventLog
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import US
from tests.support.small_clusters import workload

START, PREEMPT, END, _, CRASH, FAIL, REPAIR, *_ = Event
ON_0 = (0, START, 0, (0, 1))
RULES = Rules(restart_us=US, move_us=US, checkpoint_us=2 * US)


def _log(events, is_planned):
    first = np.cumsum([0, *(len(event) > 3 for event in events)])
    places = [event[3] for event in events if len(event) > 3]
    return EventLog(
        time_us=np.array([event[0] * US for event in events]),
        kind=np.array([event[1] for event in events], np.int8),
        job=np.array([event[2] for event in events]),
        first=first,
        machine=np.array([machine for machine, _ in places], np.int64),
        gpus=np.array([gpus for _, gpus in places], np.int64),
        slot=np.full(len(places), 0 if is_planned else -1),
    )


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([ON_0, (3, FAIL, NO_JOB, (1, 0)), (4, FAIL, NO_JOB, (1, 0))], "fail twice"),
        ([ON_0, (3, REPAIR, NO_JOB, (1, 0))], "repaired twice"),
        ([ON_0, (3, CRASH, 0)], "no machine has just failed"),
        ([ON_0, (3, FAIL, NO_JOB, (1, 0)), (3, CRASH, 0)], "no machine has just failed"),
        ([ON_0, (3, FAIL, NO_JOB, (0, 0)), (3, START, 1, (1, 1))], "comes before job 0 crashes"),
        ([ON_0, (3, FAIL, NO_JOB, (0, 0)), (4, CRASH, 0)], "comes before job 0 crashes"),
        ([(3, FAIL, NO_JOB, (0, 0)), (4, START, 0, (0, 1))], "machine"),
        ([ON_0, (3, FAIL, 0, (0, 0))], "job"),
        ([ON_0, (3, FAIL, NO_JOB, (9, 0))], "names no machine"),
        ([ON_0, (6, FAIL, NO_JOB, (0, 0)), (6, CRASH, 0)], "a job whose work is done"),
        ([ON_0, (3, FAIL, NO_JOB, (0, 0)), (3, CRASH, 0), (4, START, 0, (1, 1)), (8, END, 0)], "4000000 microseconds|5000000 of its 6"),
        ([ON_0, (3, FAIL, NO_JOB, (0, 0))], "machine that failed|runs on"),
    ],
)  # fmt: skip
def test_the_first_broken_event_is_named(events, cause, is_planned):
    jobs, cluster = workload([(0, 1, 6), (0, 1, 1)]), Cluster.grid("2x1")
    found, problems = replay(jobs, cluster, _log(events, is_planned), RULES)
    assert found is None
    assert any(part in problems[0].message for part in cause.split("|")), problems[0].message


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_job_goes_on_from_its_last_checkpoint(is_planned):
    """6 s of work, checkpoints every 2: at 3 s a second is lost; from 4 on a restart of 1 s and 4 s of work."""
    events = [ON_0, (3, FAIL, NO_JOB, (0, 0)), (3, CRASH, 0), (4, START, 0, (1, 1)), (9, END, 0)]
    events += [(9, START, 1, (1, 1)), (10, END, 1)]
    found, problems = replay(workload([(0, 1, 6), (0, 1, 1)]), Cluster.grid("2x1"), _log(events, is_planned), RULES)
    assert not problems
    assert (found.lost_us, found.executed_us, found.overhead_us) == ((US, 0), (7 * US, US), (US, 0))
