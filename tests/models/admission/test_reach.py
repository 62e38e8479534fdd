"""When a job can complete at the earliest, alone on the cluster."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies import stress
from optim_studies.stress import document, job, servers

from optim.models.admission.data import ServerClasses
from optim.models.admission.earliest_completion import earliest_completion
from optim.models.admission.instance import AdmissionInstance, instance_from_document
from tests.support.admission.strategies import tiny_instances


def _by_enumeration(instance: AdmissionInstance) -> list[int]:
    """Return the earliest completion slot of each job, -1 without any: every number of workers is tried."""
    return [_first_completion(instance, i) for i in range(instance.num_jobs)]


def _first_completion(instance: AdmissionInstance, i: int) -> int:
    jobs, table, target = instance.jobs, instance.progress[i], int(instance.target[i])
    starts = jobs.segment_start[jobs.segment_offset[i] : jobs.segment_offset[i + 1]].tolist()
    reached = {0}
    for slot in range(int(jobs.arrival[i]), instance.horizon):
        following = set(reached)
        for segment, start in enumerate(starts):
            end = [*starts[1:], target][segment]
            here = {done for done in reached if start <= done < end}
            number = int(jobs.segment_offset[i]) + segment
            for workers in range(1, len(table) if here else 1):
                if _can_place(instance, number, slot, workers, int(instance.ps_needed[i][workers])):
                    following |= {done + int(table[workers]) for done in here}
        if max(following) >= target:
            return slot if instance.value[i, slot] > 0 else -1
        reached = following
    return -1


def _can_place(instance: AdmissionInstance, segment: int, slot: int, workers: int, ps: int) -> bool:
    """Return whether given numbers of workers and PSs fit on the empty servers, server by server."""
    demand = (instance.jobs.worker_demand[segment].tolist(), instance.jobs.ps_demand[segment].tolist())
    sides = (instance.worker_servers, instance.ps_servers)
    if instance.has_shared_servers:
        return (workers, ps) in _sums(instance, sides[0], slot, demand, (workers, ps))
    return (workers, 0) in _sums(instance, sides[0], slot, demand, (workers, 0)) and (0, ps) in _sums(
        instance, sides[1], slot, demand, (0, ps)
    )


def _sums(
    instance: AdmissionInstance,
    servers: ServerClasses,
    slot: int,
    demand: tuple[list[int], list[int]],
    most: tuple[int, int],
) -> set[tuple[int, int]]:
    """Return the pairs (workers, PSs), at most `most`, that the servers hold together."""
    share = instance.max_share_per_server
    sums = {(0, 0)}
    for c in servers.class_of_server.tolist():
        capacity = servers.capacity[c, slot].tolist()
        pairs = [
            (y, z)
            for y, z in product(range(most[0] + 1), range(most[1] + 1))
            if all(
                y * w + z * s <= room and (share is None or y + z <= 1 or y * w + z * s <= share * room)
                for w, s, room in zip(*demand, capacity, strict=True)
            )
        ]
        sums = {(a + y, b + z) for (a, b), (y, z) in product(sums, pairs) if a + y <= most[0] and b + z <= most[1]}
    return sums


FAMILIES = st.one_of(
    tiny_instances(),
    tiny_instances(is_shared=True),
    tiny_instances(has_segments=True),
    tiny_instances(is_shared=True, has_segments=True, is_chunk_integral=True),
)


@given(FAMILIES)
def test_no_job_can_end_before_the_earliest_completion(instance: AdmissionInstance) -> None:
    assert earliest_completion(instance).tolist() == _by_enumeration(instance)


def test_holding_back_is_seen_to_finish_earlier() -> None:
    assert earliest_completion(stress.growing_demand()).tolist() == [2]


def test_holding_back_is_seen_with_whole_chunks_too() -> None:
    instance = replace(stress.growing_demand(), chunk_integral=True)
    assert earliest_completion(instance).tolist() == [2]


@pytest.mark.parametrize(("worker", "ps"), [("3", "1"), ("1", "3")], ids=["worker", "PS"])
def test_a_single_worker_or_ps_may_exceed_the_share_of_a_shared_server(worker: str, ps: str) -> None:
    large = job("large", worker=(worker,), ps=(ps,))
    instance = instance_from_document(
        document("share", [large], [servers(("4",), count=2)], None, horizon=1, share="0.5")
    )
    assert earliest_completion(instance).tolist() == [0]


def test_a_worker_and_a_ps_that_exceed_the_share_together_need_two_servers() -> None:
    both = job("both", worker=("2",), ps=("2",))
    fits = {
        count: earliest_completion(
            instance_from_document(
                document("share", [both], [servers(("4",), count=count)], None, horizon=1, share="0.5")
            )
        ).tolist()
        for count in (1, 2)
    }
    assert fits == {1: [-1], 2: [0]}


def test_work_steps_over_the_day() -> None:
    assert earliest_completion(stress.night_only()).tolist() == [3, 0, -1]


def test_a_worthless_job_never_completes() -> None:
    assert earliest_completion(stress.degenerate()).tolist() == [0, 0, 0, 0, 0, -1]


def test_without_any_server_nothing_completes() -> None:
    instance = instance_from_document(document("none", [job("a")], [], None, horizon=2))
    assert earliest_completion(instance).tolist() == [-1]
