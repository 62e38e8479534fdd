"""The stress instances agree with their descriptions."""

import pytest
from optim_studies import stress
from optim_studies.stress import document, job, servers

from optim.core.errors import InvalidProblemError
from optim.models.admission.instance import instance_from_document
from optim.models.admission.problem import PROBLEM
from tests.support.admission.oracle import ilp_optimum, lp_optimum, packing

NAMES = tuple(stress.STRESS_INSTANCES)

OPTIMUM_TOL = 1e-9
"""The enumerated programme is solved in floating point."""


@pytest.mark.parametrize("name", NAMES)
def test_the_known_optimum_is_that_of_all_enumerated_schedules(name: str) -> None:
    optimum = ilp_optimum(packing(stress.STRESS_INSTANCES[name]()))
    assert optimum == pytest.approx(stress.KNOWN_OPTIMA[name], rel=OPTIMUM_TOL)


@pytest.mark.parametrize("name", NAMES)
def test_survives_writing_and_reading(name: str) -> None:
    data = PROBLEM.write_instance(stress.STRESS_INSTANCES[name]())
    assert PROBLEM.write_instance(PROBLEM.read_instance(data)) == data


def test_every_stress_instance_has_a_known_optimum() -> None:
    assert set(stress.KNOWN_OPTIMA) == set(NAMES)


def test_names_are_distinct() -> None:
    assert len({build().name for build in stress.STRESS_INSTANCES.values()}) == len(NAMES)


@pytest.mark.parametrize("late_value", [10.0, 1e6])
def test_the_late_job_of_the_coarse_pair_is_worth_what_is_asked(late_value: float) -> None:
    assert ilp_optimum(packing(stress.coarse_pair(late_value=late_value))) == late_value


def test_any_wave_of_the_ladder_fills_the_cluster() -> None:
    instance = stress.density_ladder(steps=2, factor=7.0, per_server=3, num_servers=2, horizon=1)
    assert instance.num_jobs == 2 * 6
    assert lp_optimum(packing(instance)) == pytest.approx(6 * 7.0)


def test_refuses_a_worker_that_is_faster_than_a_ps() -> None:
    with pytest.raises(InvalidProblemError, match=r"jobs\[0\].worker_mbps"):
        instance_from_document(stress.worker_faster_than_ps())


def test_decimal_capacity_is_a_case_that_floating_point_gets_wrong() -> None:
    assert 3 * 0.1 > 0.3
    instance = stress.decimal_capacity()
    assert instance.workers_per_server.max() == 3
    assert instance.ps_needed[0][3] == 3


def test_servers_of_a_sketch_may_change_by_slot() -> None:
    room = [servers(("1",), ("0",))]
    instance = instance_from_document(document("two-slots", [job("j")], room, room, horizon=2))
    assert instance.worker_servers.capacity[0, :, 0].tolist() == [1_000_000, 0]
