"""Counts over classes split over single servers, against trying every way."""

from itertools import product
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.models.admission.data import ServerClasses
from optim.models.admission.decision import AdmissionPlan, Side
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branching.splitting import NODES_A_CHECK, Item, ServerSpace, UnpackableSet, pack, split
from optim.solvers.admission.packing.capacity_rows import plan_schedules
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules
from tests.support.admission.strategies import tiny_instances
from tests.support.admission.tiny import job_document, tiny_instance

Sketch = tuple[int, tuple[int, int], int]
"""Units, demand of one, and the most on one server."""

KINDS = st.lists(
    st.tuples(st.integers(0, 4), st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 3)), max_size=3
)


def as_kind(owner: int, units: int, demand: tuple[int, int], most: int) -> Item:
    """Return workers of one schedule."""
    return Item(owner=owner, side=Side.WORKER, units=units, demand=demand, most=most)


def equal_servers(room: tuple[int, int], number: int) -> ServerSpace:
    """Return a number of servers of one capacity."""
    return ServerSpace(ServerClasses(types=("w",), capacity=np.array([[room]]), count=np.array([number])), 0, 0, None)


def ways(units: int, number: int) -> list[tuple[int, ...]]:
    """List the ways to spread units over servers."""
    return [way for way in product(range(units + 1), repeat=number) if sum(way) == units]


def is_held(kinds: list[Sketch], way: tuple[tuple[int, ...], ...], room: tuple[int, int], number: int) -> bool:
    """Return whether every server can hold its units."""
    return all(
        all(way[k][h] <= most for k, (_, _, most) in enumerate(kinds))
        and all(sum(way[k][h] * demand[r] for k, (_, demand, _) in enumerate(kinds)) <= room[r] for r in range(2))
        for h in range(number)
    )


@given(KINDS, st.tuples(st.integers(0, 6), st.integers(0, 6)), st.integers(1, 3))
def test_spreads_units_exactly_where_some_way_exists(kinds: list[Sketch], room: tuple[int, int], number: int) -> None:
    found, is_proven = pack([as_kind(k, *kind) for k, kind in enumerate(kinds)], equal_servers(room, number))
    assert is_proven
    if found is None:
        every = product(*(ways(units, number) for units, _, _ in kinds))
        assert not any(is_held(kinds, way, room, number) for way in every)
    else:
        assert [sum(row) for row in found] == [units for units, _, _ in kinds]
        assert is_held(kinds, tuple(tuple(row) for row in found), room, number)


@pytest.mark.parametrize("number", [22, 60])
def test_no_way_is_begun_that_leaves_units_over(number: int) -> None:
    # A server of three holds one unit of two, and there is one unit more than there are servers.
    begun = process_time()
    half = number // 2
    kinds = [as_kind(0, half, (2, 0), 1), as_kind(1, number + 1 - half, (2, 0), 1)]
    assert pack(kinds, equal_servers((3, 0), number)) == (None, True)
    assert process_time() - begun < 0.5


def test_spreads_over_more_servers_than_functions_may_call_each_other() -> None:
    number = 3_000
    kinds = [as_kind(k, number, (1, 1), 1) for k in range(2)]
    assert pack(kinds, equal_servers((2, 2), number)) == ([[1] * number] * 2, True)


def test_spreads_more_kinds_than_functions_may_call_each_other() -> None:
    number = 3_000  # Python's default limit is 1,000; other tests of this process may have raised it
    placed, is_proven = pack([as_kind(k, 1, (1, 1), 1) for k in range(number)], equal_servers((number, number), 1))
    assert (placed, is_proven) == ([[1]] * number, True)


TANGLED = [
    as_kind(owner, units, (demand, 0), 3)
    for owner, (units, demand) in enumerate([(2, 6), (2, 8), (3, 6), (1, 5), (1, 9), (2, 7), (3, 6)])
]
"""Units that would fill four servers of 23 to the last, which some hundred ways show to be impossible."""


@pytest.mark.parametrize("asked", [1, 3])
def test_a_search_that_is_stopped_proves_nothing(asked: int) -> None:
    room, answers = equal_servers((23, 0), 4), iter([False] * (asked - 1) + [True])
    assert pack(TANGLED, room) == (None, True)
    assert pack(TANGLED, room, lambda: next(answers)) == (None, False)
    assert list(answers) == []


def test_a_short_search_is_not_asked_to_stop() -> None:
    def answer() -> bool:
        pytest.fail("asked")

    number = NODES_A_CHECK - 1
    kinds = [as_kind(k, 1, (1, 1), 1) for k in range(number)]
    assert pack(kinds, equal_servers((number, number), 1), answer) == ([[1]] * number, True)


@given(st.booleans().flatmap(lambda is_shared: tiny_instances(is_shared=is_shared)))
def test_splits_what_came_from_single_servers(instance: AdmissionInstance) -> None:
    plan = optim.solve(instance, "online").decision
    tables = JobTables.build(instance)
    schedules = plan_schedules(tables, plan)
    placed = split(tables, schedules)
    assert isinstance(placed, AdmissionPlan)
    assert placed.objective(instance) == pytest.approx(plan.objective(instance))
    again = plan_schedules(tables, placed)
    assert np.array_equal(again.workers, schedules.workers)
    assert np.array_equal(again.ps, schedules.ps)


def test_names_the_place_that_is_crowded() -> None:
    # Three workers of two GPUs each: six GPUs in all, but a server of three holds one.
    jobs = [job_document(f"j{i}", chunks=1, epochs=1, worker=[2, 0], ps=[0, 1]) for i in range(3)]
    servers = {
        "worker_servers": [{"type": "gpus", "capacity": [3, 9], "count": 2}],
        "ps_servers": [{"type": "cpus", "capacity": [0, 9], "count": 1}],
    }
    instance = tiny_instance(*jobs, **servers)
    tables = JobTables.build(instance)
    schedules = PricedSchedules.blank(tables, np.arange(3))
    schedules.workers[:, 0, 1] = schedules.ps[:, 0, 1] = 1
    found = split(tables, schedules)
    assert isinstance(found, UnpackableSet)
    assert (found.hosts, found.server_class, found.slot, found.is_proven) == (Side.WORKER, 0, 1, True)
    assert {item.owner for item in found.items} == {0, 1, 2}
    assert isinstance(split(tables, schedules.select(np.arange(2))), AdmissionPlan)


def test_leaves_out_of_what_crowds_servers_all_that_does_not_matter() -> None:
    # Three workers of two GPUs don't fit two servers of three; the small fourth one is irrelevant.
    jobs = [job_document(f"j{i}", chunks=1, epochs=1, worker=[2 if i else 0, 1], ps=[0, 1]) for i in range(4)]
    servers = {
        "worker_servers": [{"type": "gpus", "capacity": [3, 9], "count": 2}],
        "ps_servers": [{"type": "cpus", "capacity": [0, 9], "count": 1}],
    }
    tables = JobTables.build(tiny_instance(*jobs, **servers))
    schedules = PricedSchedules.blank(tables, np.arange(4))
    schedules.workers[:, 0, 1] = schedules.ps[:, 0, 1] = 1
    found = split(tables, schedules)
    assert isinstance(found, UnpackableSet)
    assert {item.owner for item in found.items} == {1, 2, 3}


@pytest.mark.parametrize(("share", "is_held"), [(None, True), ("0.5", False)])
def test_a_jobs_workers_and_pss_share_its_part_of_a_shared_server(share: str | None, is_held: bool) -> None:
    # Two workers and two PSs of one unit each, on one server of four: half a server holds two of them.
    fields = {} if share is None else {"max_share_per_server": share}
    job = job_document("a", chunks=2, epochs=1, ps_mbps=1, worker=[1, 0], ps=[1, 0])
    instance = tiny_instance(job, shared_servers=[{"type": "box", "capacity": [4, 0], "count": 1}], **fields)
    tables = JobTables.build(instance)
    schedules = PricedSchedules.blank(tables, np.arange(1))
    schedules.workers[:, 0, 0] = schedules.ps[:, 0, 0] = 2
    assert isinstance(split(tables, schedules), AdmissionPlan) == is_held
