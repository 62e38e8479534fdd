"""Jobs of several days on one cluster."""

from dataclasses import dataclass, fields, replace

import numpy as np

from optim.models.admission.data import Jobs
from optim.models.admission.instance import merge_days, take_jobs
from tests.support.admission.tiny import SEGMENTS, job_document, tiny_instance

FIRST = tiny_instance(job_document("a", segments=SEGMENTS), job_document("b", arrival=2))
SECOND = tiny_instance(job_document("a", arrival=1), job_document("late", arrival=5), horizon=6)


def test_jobs_of_all_days_stand_side_by_side_and_late_ones_are_left_out() -> None:
    union = merge_days([FIRST.jobs, SECOND.jobs], FIRST)
    assert union.jobs.ids == ("0:a", "0:b", "1:a")
    np.testing.assert_array_equal(union.jobs.arrival, [0, 2, 1])
    np.testing.assert_array_equal(union.jobs.segment_offset, [0, 2, 3, 4])
    np.testing.assert_array_equal(union.value[:2], FIRST.value)
    np.testing.assert_array_equal(union.value[2], SECOND.value[0, :4])
    np.testing.assert_array_equal(union.workers_per_server[:3], FIRST.workers_per_server)


def test_no_days_are_a_cluster_without_jobs() -> None:
    assert merge_days([], FIRST).num_jobs == 0


def test_jobs_are_taken_in_the_order_asked_for() -> None:
    taken = take_jobs(FIRST.jobs, np.array([1, 0]))
    assert taken.ids == ("b", "a")
    np.testing.assert_array_equal(taken.segment_offset, [0, 1, 3])
    np.testing.assert_array_equal(taken.worker_demand[1:], FIRST.jobs.worker_demand[:2])


def test_speeds_of_several_workers_go_with_their_jobs() -> None:
    fast = tiny_instance(job_document("fast", speedup=[1, 1.5]), job_document("plain"))
    union = merge_days([SECOND.jobs, fast.jobs], FIRST)
    assert union.jobs.speedup == ((), fast.jobs.speedup[0], ())
    np.testing.assert_array_equal(union.target[1:], fast.target)
    assert take_jobs(fast.jobs, np.array([1, 0])).speedup == fast.jobs.speedup[::-1]


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedJobs(Jobs):
    """Jobs with two fields more, as a later version may have them."""

    weight: np.ndarray
    tags: tuple[str, ...]


def weighted(jobs: Jobs, weight: list[float]) -> WeightedJobs:
    given = {field.name: getattr(jobs, field.name) for field in fields(jobs)}
    return WeightedJobs(**given, weight=np.array(weight), tags=tuple(f"tag of {name}" for name in jobs.ids))


def test_a_field_that_nobody_listed_goes_with_its_jobs() -> None:
    cluster = replace(FIRST, jobs=weighted(FIRST.jobs, [9.0, 9.0]))
    days = [weighted(FIRST.jobs, [1.0, 2.0]), weighted(SECOND.jobs, [3.0, 4.0])]
    taken = take_jobs(days[0], np.array([1, 0]))
    assert (taken.weight.tolist(), taken.tags) == ([2.0, 1.0], ("tag of b", "tag of a"))
    joined = merge_days(days, cluster).jobs
    assert (joined.weight.tolist(), joined.tags) == ([1.0, 2.0, 3.0], ("tag of a", "tag of b", "tag of a"))
    assert merge_days([], cluster).jobs.weight.tolist() == []


def test_every_field_of_jobs_is_joined_and_taken() -> None:
    nobody = merge_days([], FIRST).jobs
    for field in fields(FIRST.jobs):
        whole, column = getattr(FIRST.jobs, field.name), getattr(nobody, field.name)
        again = getattr(take_jobs(FIRST.jobs, np.arange(2)), field.name)
        assert np.array_equal(again, whole, equal_nan=field.name == "min_utility"), field.name
        assert len(column) == (1 if field.name == "segment_offset" else 0), field.name
