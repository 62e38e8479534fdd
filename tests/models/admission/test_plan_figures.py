"""Figures of plans."""

import pytest
from optim_studies import stress
from optim_studies.stress import document, job, servers

from optim.models.admission.codec import StepDocument
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import instance_from_document
from optim.models.admission.summary import PlanLoad, plan_load

NOTHING = AdmissionPlan.from_rows([], [])


def test_an_empty_plan_refuses_all_and_fills_nothing() -> None:
    load = plan_load(stress.saturated(), NOTHING)
    assert load == PlanLoad(
        tight_rows=0.0, rejected_jobs=1.0, worker_utilisation={"units": 0.0}, ps_utilisation={"units": 0.0}
    )


def test_without_jobs_nobody_is_refused() -> None:
    assert plan_load(stress.no_jobs(), NOTHING).rejected_jobs == 0.0


def test_rows_are_tight_where_the_smallest_demand_no_longer_fits() -> None:
    room = [servers(("2", "9"), count=2)]
    jobs = [job(f"j{i}", worker=("2", "1"), ps=("0", "0")) for i in range(2)]
    instance = instance_from_document(document("rows", jobs, room, room, horizon=2, resources=("a", "b")))
    one, both = (AdmissionPlan.from_rows([(i, 0, i, 1) for i in range(n)], []) for n in (1, 2))
    # No job needs the PS servers, so the rows are those of workers: 2 slots, 2 resources.
    assert plan_load(instance, one).tight_rows == 0.0  # a worker still fits on the second server
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
    assert plan_load(instance, plan).rejected_jobs == pytest.approx(15 / 16)


def test_rows_are_tight_for_jobs_that_can_run_in_the_slot() -> None:
    """The small job has no time after slot 0: from then on the remaining capacity is too small for any job."""
    room = [servers(("3",))]
    small = job("small", worker=("1",), ps=("0",), utility=StepDocument(5.0, 0))
    large = job("large", worker=("2",), ps=("0",), chunks=2)
    instance = instance_from_document(document("late", [small, large], room, room, horizon=2))
    plan = AdmissionPlan.from_rows([(1, 0, 0, 1), (1, 1, 0, 1)], [])
    assert plan_load(instance, plan).tight_rows == pytest.approx(1 / 2)
