"""Lists of schedules contain each schedule once."""

import numpy as np

from optim.solvers.admission.packing.column_pool import ScheduleKeys
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules
from tests.support.admission.tiny import BY_HAND

TABLES = JobTables.build(BY_HAND[min(BY_HAND)])


def schedules(jobs, workers, ps):
    """Make schedules with given numbers of workers and PSs in the first class and slot; each completes in slot 0."""
    made = PricedSchedules.blank(TABLES, np.array(jobs))
    assert (made.completion == -1).all()
    assert not made.payoff.any()
    made.completion[:] = 0
    made.workers[:, 0, 0], made.ps[:, 0, 0] = workers, ps
    return made


def test_new_are_those_that_differ_in_job_workers_or_ps() -> None:
    keys = ScheduleKeys()
    assert keys.append_new(schedules([0, 1, 0, 0, 0], [1, 1, 2, 1, 1], [1, 1, 1, 2, 1])).tolist() == [0, 1, 2, 3]
    assert len(keys) == 4
    assert keys.append_new(schedules([1, 1, 0], [1, 3, 2], [1, 1, 1])).tolist() == [1]
    assert len(keys) == len(set(keys.keys)) == 5


def test_jobs_without_a_schedule_are_left_out() -> None:
    given = schedules([0, 1], [1, 1], [1, 1])
    given.completion[0] = -1
    assert ScheduleKeys().append_new(given).tolist() == [1]


def test_what_is_forgotten_is_new_again() -> None:
    keys, given = ScheduleKeys(), schedules([0, 0, 0], [1, 2, 3], [1, 1, 1])
    keys.append_new(given)
    before = list(keys.keys)
    keys.take(np.array([2, 0]))
    assert keys.keys == [before[2], before[0]]
    assert keys.append_new(given).tolist() == [1]
    assert keys.keys == [before[2], before[0], before[1]]


def test_schedules_are_selected_and_joined_field_by_field() -> None:
    given = schedules([0, 1, 0], [1, 2, 3], [4, 5, 6])
    joined = given.select(np.array([2])).followed_by(given.select(np.array([1, 0])))
    assert len(joined) == 3
    assert joined.jobs.tolist() == [0, 1, 0]
    assert joined.workers[:, 0, 0].tolist() == [3, 2, 1]
    assert joined.ps[:, 0, 0].tolist() == [6, 5, 4]
    assert joined.completion.tolist() == [0, 0, 0]
