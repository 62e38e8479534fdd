"""Counts over classes split over single servers, against trying every way."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.proof import Side
from optim.solvers.admission.pricing.capacity_rows import plan_schedules
from optim.solvers.admission.pricing.class_pricing import PricedSchedules
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.tree.splitting import Crowded, split, spread
from tests.support.admission.strategies import tiny_instances
from tests.support.admission.tiny import job_document, tiny_instance

Kind = tuple[int, tuple[int, int], int]
"""Units, demand of one, and the most on one server."""

KINDS = st.lists(
    st.tuples(st.integers(0, 4), st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 3)), max_size=3
)


def ways(units: int, number: int) -> list[tuple[int, ...]]:
    """List the ways to spread units over servers."""
    return [way for way in product(range(units + 1), repeat=number) if sum(way) == units]


def is_held(kinds: list[Kind], way: tuple[tuple[int, ...], ...], room: tuple[int, int], number: int) -> bool:
    """Tell whether every server holds what it is given."""
    return all(
        all(way[k][h] <= most for k, (_, _, most) in enumerate(kinds))
        and all(sum(way[k][h] * demand[r] for k, (_, demand, _) in enumerate(kinds)) <= room[r] for r in range(2))
        for h in range(number)
    )


@given(KINDS, st.tuples(st.integers(0, 6), st.integers(0, 6)), st.integers(1, 3))
def test_spreads_units_exactly_where_some_way_exists(kinds: list[Kind], room: tuple[int, int], number: int) -> None:
    columns = list(zip(*kinds, strict=True)) or [(), (), ()]
    found = spread(columns[0], columns[1], columns[2], room, number)
    if found is None:
        every = product(*(ways(units, number) for units, _, _ in kinds))
        assert not any(is_held(kinds, way, room, number) for way in every)
    else:
        assert [sum(row) for row in found] == [units for units, _, _ in kinds]
        assert is_held(kinds, tuple(tuple(row) for row in found), room, number)


@given(tiny_instances(is_shared=False))
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
    assert split(tables, schedules) == Crowded(side=Side.WORKER, server_class=0, slot=1)
    assert isinstance(split(tables, schedules.select(np.arange(2))), AdmissionPlan)
