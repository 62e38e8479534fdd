"""Jobs of several days on one cluster."""

from dataclasses import fields

import numpy as np

from optim.models.admission.union import PER_JOB, PER_SEGMENT, take_jobs, together
from tests.support.admission.tiny import SEGMENTS, job_document, tiny_instance

FIRST = tiny_instance(job_document("a", segments=SEGMENTS), job_document("b", arrival=2))
SECOND = tiny_instance(job_document("a", arrival=1), job_document("late", arrival=5), horizon=6)


def test_jobs_of_all_days_stand_side_by_side_and_late_ones_are_left_out() -> None:
    union = together([FIRST.jobs, SECOND.jobs], FIRST)
    assert union.jobs.ids == ("0:a", "0:b", "1:a")
    np.testing.assert_array_equal(union.jobs.arrival, [0, 2, 1])
    np.testing.assert_array_equal(union.jobs.segment_offset, [0, 2, 3, 4])
    np.testing.assert_array_equal(union.value[:2], FIRST.value)
    np.testing.assert_array_equal(union.value[2], SECOND.value[0, :4])
    np.testing.assert_array_equal(union.workers_per_server[:3], FIRST.workers_per_server)


def test_no_days_are_a_cluster_without_jobs() -> None:
    assert together([], FIRST).num_jobs == 0


def test_jobs_are_taken_in_the_order_asked_for() -> None:
    taken = take_jobs(FIRST.jobs, np.array([1, 0]))
    assert taken.ids == ("b", "a")
    np.testing.assert_array_equal(taken.segment_offset, [0, 1, 3])
    np.testing.assert_array_equal(taken.worker_demand[1:], FIRST.jobs.worker_demand[:2])


def test_speeds_of_several_workers_go_with_their_jobs() -> None:
    fast = tiny_instance(job_document("fast", speedup=[1, 1.5]), job_document("plain"))
    union = together([SECOND.jobs, fast.jobs], FIRST)
    assert union.jobs.speedup == ((), fast.jobs.speedup[0], ())
    np.testing.assert_array_equal(union.target[1:], fast.target)
    assert take_jobs(fast.jobs, np.array([1, 0])).speedup == fast.jobs.speedup[::-1]


def test_every_field_of_jobs_is_joined() -> None:
    named = {field.name for field in fields(FIRST.jobs)}
    assert named == {*PER_JOB, *PER_SEGMENT, "ids", "utilities", "segment_offset", "speedup"}
