"""Figures of instances and plans."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.admission.instance import AdmissionInstance, ServerClasses
from optim.models.admission.load import PlanLoad, describe, earliest_completion, plan_load
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.reading import instance_from_document
from optim.models.reference import reference_instance
from optim.workloads.admission import stress
from optim.workloads.admission.sketch import document, job, servers
from tests.support.admission.strategies import tiny_instances

NOTHING = AdmissionPlan.from_rows([], [])


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
    """Tell whether so many workers and PSs fit on the empty servers, server by server."""
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


@pytest.mark.parametrize(("name", "number"), [("medium-0", 188), ("heavy-0", 163), ("heavy-1", 146), ("heavy-2", 126)])
def test_as_many_jobs_fit_alone_as_the_reference_instances_state(name: str, number: int) -> None:
    assert describe(reference_instance(name))["schedulable_jobs"] == number


@pytest.mark.parametrize("build", stress.STRESS_INSTANCES.values(), ids=stress.STRESS_INSTANCES.keys())
def test_describes_every_stress_instance(build: Callable[[], AdmissionInstance]) -> None:
    instance = build()
    figures = describe(instance)
    assert figures["jobs"] == instance.num_jobs
    assert figures["best_value"] >= stress.KNOWN_OPTIMA[dict(_names())[build]] - 1e-9


def _names() -> list[tuple[Callable[[], AdmissionInstance], str]]:
    return [(build, name) for name, build in stress.STRESS_INSTANCES.items()]


def test_demand_is_measured_against_the_capacity_of_all_slots() -> None:
    figures = describe(stress.ps_bound())
    # 4 jobs of 2 worker-slots; 2 servers of 3 workers, 2 of 1 PS, 3 slots.
    assert figures["worker_demand"] == {"units": pytest.approx(8 / 18)}
    assert figures["ps_demand"] == {"units": pytest.approx(8 / 6)}


def test_demand_follows_the_segments() -> None:
    # 3 worker-slots at 1 unit, 3 at 3 units; capacity 3 in 4 slots.
    assert describe(stress.growing_demand())["worker_demand"] == {"units": pytest.approx(12 / 12)}


def test_demand_leaves_out_jobs_that_cannot_finish() -> None:
    assert describe(stress.nothing_fits())["worker_demand"] == {"units": 0.0}


def test_the_share_of_a_server_that_one_job_may_use_is_the_largest() -> None:
    assert describe(stress.density_ladder(per_server=4))["max_share_of_server"] == pytest.approx(0.25)
    assert describe(stress.coarse_pair())["max_share_of_server"] == pytest.approx(0.6)
    assert describe(stress.capped_share())["max_share_of_server"] == pytest.approx(0.5)


def test_the_share_of_a_shared_server_counts_workers_and_pss_together() -> None:
    room = [servers(("8",))]
    pair = job("pair", chunks=2, worker=("1",), ps=("3",), rates=("1", "2"))
    instance = instance_from_document(document("pair", [pair], room, None, horizon=1))
    # At most 2 workers and the one PS that they need: 2 + 3 of 8.
    assert describe(instance)["max_share_of_server"] == pytest.approx(5 / 8)


def test_an_empty_plan_refuses_all_and_fills_nothing() -> None:
    load = plan_load(stress.saturated(), NOTHING)
    assert load == PlanLoad(
        tight_rows=0.0, refused_jobs=1.0, worker_utilisation={"units": 0.0}, ps_utilisation={"units": 0.0}
    )


def test_without_jobs_nobody_is_refused() -> None:
    assert plan_load(stress.no_jobs(), NOTHING).refused_jobs == 0.0


def test_rows_are_tight_where_the_smallest_demand_no_longer_fits() -> None:
    room = [servers(("2", "9"), count=2)]
    jobs = [job(f"j{i}", worker=("2", "1"), ps=("0", "0")) for i in range(2)]
    instance = instance_from_document(document("rows", jobs, room, room, horizon=2, resources=("a", "b")))
    one, both = (AdmissionPlan.from_rows([(i, 0, i, 1) for i in range(n)], []) for n in (1, 2))
    # Nobody asks the PS servers for anything, so the rows are those of workers: 2 slots, 2 resources.
    assert plan_load(instance, one).tight_rows == 0.0  # the second server still has room for a worker
    assert plan_load(instance, both).tight_rows == pytest.approx(1 / 4)
    assert plan_load(instance, both).worker_utilisation == pytest.approx({"a": 4 / 8, "b": 2 / 36})


def test_rows_that_nothing_fits_are_not_counted() -> None:
    room = [servers(("1",)), servers(("3",))]
    instance = instance_from_document(document("rows", [job("j", worker=("3",), ps=("0",))], room, room, horizon=1))
    assert plan_load(instance, AdmissionPlan.from_rows([(0, 0, 1, 1)], [])).tight_rows == 1.0


def test_shared_servers_carry_both_sides() -> None:
    load = plan_load(stress.shared_pair(), AdmissionPlan.from_rows([(0, 0, 1, 1)], [(0, 0, 0, 1)]))
    assert load.worker_utilisation == load.ps_utilisation == {"units": 1.0}
    assert load.tight_rows == 1.0


def test_usage_follows_the_segment_in_which_a_slot_begins() -> None:
    plan = AdmissionPlan.from_rows([(0, 0, 0, 2), (0, 1, 0, 3), (0, 2, 0, 1)], [(0, t, 0, 1) for t in range(3)])
    # 2 and 3 workers at 1 unit, then 1 at 3 units, of 3 units in 4 slots.
    assert plan_load(stress.growing_demand(), plan).worker_utilisation == {"units": pytest.approx(8 / 12)}


def test_refused_jobs_are_those_without_workers() -> None:
    instance = stress.saturated()
    plan = AdmissionPlan.from_rows([(0, 0, 0, 2)], [(0, 0, 0, 2)])
    assert plan_load(instance, plan).refused_jobs == pytest.approx(15 / 16)


def test_figures_are_plain_values() -> None:
    for value in describe(reference_instance("tiny-0")).values():
        assert not isinstance(value, (np.generic, np.ndarray))
