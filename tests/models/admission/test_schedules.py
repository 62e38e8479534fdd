"""Listing every minimal schedule of every job."""

import pytest
from hypothesis import given
from optim_studies.packing_programme import Level, Row, Schedule, enumerate_schedules

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.data import MICRO
from optim.models.admission.decision import Side
from optim.models.admission.instance import AdmissionInstance
from tests.support.admission.enumeration import Enumerator
from tests.support.admission.enumeration import Schedule as Listed
from tests.support.admission.small_clusters import clusters, instance, job, servers


def counts_of(schedules: tuple[Schedule, ...]) -> list[tuple]:
    return [(schedule.workers, schedule.ps) for schedule in schedules]


def test_lists_the_three_ways_to_do_two_worker_slots_in_two_slots():
    found = enumerate_schedules(instance(job()))
    assert counts_of(found.schedules) == [
        (((1, 0, 2),), ((1, 0, 1),)),
        (((0, 0, 1), (1, 0, 1)), ((0, 0, 1), (1, 0, 1))),
        (((0, 0, 2),), ((0, 0, 1),)),
    ]
    assert [schedule.completion for schedule in found.schedules] == [1, 1, 0]
    assert [schedule.value for schedule in found.schedules] == [4, 4, 8]


def test_states_what_a_schedule_uses_of_every_row():
    found = enumerate_schedules(instance(job(worker=[0.5], ps=[0.25]), horizon=1))
    (only,) = found.schedules
    assert only.use == {Row(Side.WORKER, 0, 0, 0): MICRO, Row(Side.PS, 0, 0, 0): MICRO // 4}
    assert found.capacity == {Row(Side.WORKER, 0, 0, 0): 2 * MICRO, Row(Side.PS, 0, 0, 0): MICRO}


def test_uses_the_demands_of_the_segment_in_which_a_slot_starts():
    segments = [{"start": 0, "worker": [1], "ps": [1]}, {"start": 1, "worker": [2], "ps": [1]}]
    found = enumerate_schedules(instance(job(chunks=1, epochs=2, segments=segments)))
    (only,) = found.schedules
    assert [only.use[Row(Side.WORKER, 0, slot, 0)] for slot in (0, 1)] == [MICRO, 2 * MICRO]


def test_splits_workers_over_single_servers_but_not_over_a_class():
    given_instance = instance(job(), horizon=1, worker_servers=servers([2], count=2))
    on_servers = enumerate_schedules(given_instance).schedules
    assert [schedule.workers for schedule in on_servers] == [((0, 1, 2),), ((0, 0, 1), (0, 1, 1)), ((0, 0, 2),)]
    on_classes = enumerate_schedules(given_instance, level=Level.CLASSES)
    assert [schedule.workers for schedule in on_classes.schedules] == [((0, 0, 2),)]
    assert on_classes.capacity[Row(Side.WORKER, 0, 0, 0)] == 4 * MICRO


def test_a_class_of_shared_servers_holds_only_sums_of_what_single_ones_hold():
    """Two servers of 3 hold no worker of 2 beside a PS of 2, although the class has room for both thrice."""
    found = enumerate_schedules(
        instance(job(worker=[2], ps=[2], ps_mbps=1), horizon=1, shared_servers=servers([3], count=2)),
        level=Level.CLASSES,
    )
    assert found.schedules == ()
    found = enumerate_schedules(
        instance(job(worker=[1], ps=[2], ps_mbps=1), horizon=1, shared_servers=servers([3], count=2)),
        level=Level.CLASSES,
    )
    assert counts_of(found.schedules) == [(((0, 0, 2),), ((0, 0, 2),))]


def test_a_unit_above_the_share_stands_alone_on_a_shared_server():
    """Half of 4 is 2: a worker of 3 may be alone on a server, with its PS on the other one."""
    found = enumerate_schedules(
        instance(
            job(chunks=1, worker=[3], ps=[1]),
            horizon=1,
            shared_servers=servers([4], count=2),
            max_share_per_server=0.5,
        )
    )
    assert counts_of(found.schedules) == [(((0, 1, 1),), ((0, 0, 1),)), (((0, 0, 1),), ((0, 1, 1),))]


def test_skips_worker_counts_that_finish_no_further_chunk():
    found = enumerate_schedules(
        instance(
            job(chunks=4, minibatch_s=15, epochs=1),
            chunk_integral=True,
            horizon=3,
            worker_servers=servers([4]),
            ps_servers=servers([2]),
        )
    )
    assert {count for schedule in found.schedules for _, _, count in schedule.workers} == {2, 3}


def test_lists_nothing_for_a_job_that_can_only_complete_too_late():
    late = {"kind": "step", "value": 1, "deadline": 0}
    assert enumerate_schedules(instance(job(chunks=1, epochs=2, utility=late))).by_job == {}


def test_refuses_to_list_more_schedules_than_the_limit():
    assert len(enumerate_schedules(instance(job()), limit=3).schedules) == 3
    with pytest.raises(UnsupportedProblemError, match=r"'cluster' has more than 2 schedules.*'a'.*raise limit"):
        enumerate_schedules(instance(job()), limit=2)


def test_stops_at_the_limit_without_listing_a_huge_set_first():
    huge = instance(
        job(chunks=20, epochs=4, utility={"kind": "constant", "value": 1}),
        horizon=20,
        worker_servers=servers([5], count=10),
        ps_servers=servers([5], count=5),
    )
    with pytest.raises(UnsupportedProblemError, match="more than 100 schedules"):
        enumerate_schedules(huge, limit=100)


@given(clusters(max_jobs=2, max_horizon=2, max_servers=1))
def test_every_schedule_contains_a_listed_one_and_every_listed_one_is_a_schedule(given_instance: AdmissionInstance):
    listed = enumerate_schedules(given_instance)
    every = Enumerator(given_instance, is_stripped=False, is_by_class=False)
    for i in range(given_instance.num_jobs):
        own = [listed.schedules[position] for position in listed.by_job.get(i, [])]
        plain = list(every.schedules(i))
        assert {(one.completion, one.workers, one.ps) for one in own} <= {
            (one.completion, _rows(one, 0), _rows(one, 1)) for one in plain
        }
        for one in plain:
            use = one.load.reshape(-1, given_instance.horizon, given_instance.num_resources)
            assert any(less.completion <= one.completion and _is_within(less, use, given_instance) for less in own)


@given(clusters())
def test_the_schedules_of_classes_are_those_of_servers_summed_up(given_instance: AdmissionInstance):
    on_servers = enumerate_schedules(given_instance)
    on_classes = enumerate_schedules(given_instance, level=Level.CLASSES)
    sides = given_instance.worker_servers.class_of_server, given_instance.ps_servers.class_of_server
    summed = {(one.job, _summed(one.workers, sides[0]), _summed(one.ps, sides[1])) for one in on_servers.schedules}
    found = [(one.job, one.workers, one.ps) for one in on_classes.schedules]
    assert len(found) == len(set(found))
    assert summed == set(found)


def _rows(schedule: Listed, side: int) -> tuple[tuple[int, int, int], ...]:
    """Return the counts of workers (0) or PSs (1) as (slot, server, count)."""
    slots = sorted(schedule.counts.items())
    return tuple((t, h, count) for t, counts in slots for h, count in enumerate(counts[side]) if count)


def _is_within(schedule: Schedule, use, given_instance: AdmissionInstance) -> bool:
    """Whether a schedule uses no more of any server."""
    first_ps = 0 if given_instance.has_shared_servers else given_instance.worker_servers.num_servers
    return all(
        amount <= use[row.place + (first_ps if row.side is Side.PS else 0), row.slot, row.resource]
        for row, amount in schedule.use.items()
    )


def _summed(rows: tuple[tuple[int, int, int], ...], class_of_server) -> tuple[tuple[int, int, int], ...]:
    total: dict[tuple[int, int], int] = {}
    for slot, server, count in rows:
        key = (slot, int(class_of_server[server]))
        total[key] = total.get(key, 0) + count
    return tuple((*key, count) for key, count in sorted(total.items()))
