"""The compact programme: it equals the packing ILP, and its plans are valid."""

import pyomo.environ as pyo
import pytest
from hypothesis import given
from optim_studies.packing_programme import enumerate_schedules, packing_model

from optim.core.errors import InvalidProblemError
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.check.placement import check_plan
from optim.models.admission.compact_index import compact_size
from optim.models.admission.compact_programme import compact_model, plan_from_compact
from optim.models.admission.instance import AdmissionInstance
from optim.models.reference import reference_instance
from tests.support.admission.small_clusters import (
    SEGMENTS,
    clusters,
    instance,
    job,
    servers,
    violations,
)
from tests.support.admission.solving import optimum

TOL = 1e-6
"""HiGHS' tolerances against values of the order of 10."""

OPTIMA = {"tiny-0": 63.885, "tiny-1": 168.34535773057462, "tiny-2": 307.838127568622}
"""Best plans on real servers; enumeration of all schedules gives the same."""


@given(clusters())
def test_the_best_point_is_worth_as_much_as_the_packing_ilps_and_makes_a_plan(given_instance: AdmissionInstance):
    """The packing ILP in turn finds the best of all plans, by enumeration; it has separate tests."""
    model = compact_model(given_instance)
    found = optimum(model)
    packing = packing_model(given_instance, enumerate_schedules(given_instance), is_integer=True)
    assert found == pytest.approx(optimum(packing), abs=TOL)
    plan = plan_from_compact(model, given_instance)
    assert plan.objective(given_instance) == pytest.approx(found, abs=TOL)
    assert violations(given_instance, plan) == []
    assert check_plan(read_exact_instance(given_instance), plan).violations == ()


@pytest.mark.parametrize("name", OPTIMA)
def test_finds_the_known_optima_of_the_tiny_instances(name: str):
    tiny = reference_instance(name)
    model = compact_model(tiny)
    assert optimum(model) == pytest.approx(OPTIMA[name], rel=1e-9)
    assert plan_from_compact(model, tiny).objective(tiny) == pytest.approx(OPTIMA[name], rel=1e-9)


def test_refuses_a_job_whose_workers_send_more_than_its_ps_take():
    with pytest.raises(InvalidProblemError, match=r"worker_mbps \(b = 3\) must not exceed ps_mbps \(B = 2\)"):
        instance(job(worker_mbps=3, ps_mbps=2))


def test_splits_no_worker_over_two_servers():
    """Two servers of 3 hold one worker of 2 each, though 6 would hold three of them."""
    jobs = [job(f"j{i}", chunks=1, worker=[2], ps=[0]) for i in range(3)]
    split = instance(*jobs, horizon=1, worker_servers=servers([3], count=2))
    assert optimum(compact_model(split)) == 16


def test_shared_servers_hold_workers_and_ps_together():
    """One server of 3: with a worker of 2, a PS of 1 fits, but not one of 1.5."""
    fits, too_large = (
        instance(job(chunks=1, worker=[2], ps=[demand]), shared_servers=servers([3])) for demand in (1, 1.5)
    )
    assert optimum(compact_model(fits)) == 8
    assert optimum(compact_model(too_large)) == 0


def test_a_worker_above_the_share_of_a_shared_server_stands_alone_on_it():
    """Half of 4 is 2: a worker of 3 may be alone on its server, and its PS of 1 needs another server."""
    alone = instance(job(chunks=1, worker=[3], ps=[1]), shared_servers=servers([4]), max_share_per_server=0.5)
    beside = instance(job(chunks=1, worker=[3], ps=[1]), shared_servers=servers([4], count=2), max_share_per_server=0.5)
    assert optimum(compact_model(alone)) == 0
    assert optimum(compact_model(beside)) == 8


def test_a_shared_server_gives_a_job_no_more_than_its_share():
    """Half of 4 is 2: one worker and one PS of 1 each, so two worker-slots take two slots, or two servers."""
    one = instance(job(ps_mbps=1), shared_servers=servers([4]), max_share_per_server=0.5)
    two = instance(job(ps_mbps=1), shared_servers=servers([4], count=2), max_share_per_server=0.5)
    assert optimum(compact_model(one)) == 4
    assert optimum(compact_model(two)) == 8


def test_demands_follow_the_work_done_before_the_slot():
    """The first worker-slot takes a worker of 1, the second one of 3; one worker at a time."""
    segments = [{"start": 0, "worker": [1], "ps": [1]}, {"start": 1, "worker": [3], "ps": [1]}]
    rising = job(chunks=1, epochs=2, segments=segments)
    for capacities, expected in (([[1], [3]], 4), ([[1], [2]], 0), ([[3], [1]], 0)):
        assert optimum(compact_model(instance(rising, worker_servers=servers(capacities)))) == expected


def test_workers_of_one_slot_all_have_the_demands_with_which_it_starts():
    """Two workers at once start in the first segment and never see the second's demands."""
    segments = [{"start": 0, "worker": [1], "ps": [1]}, {"start": 1, "worker": [3], "ps": [1]}]
    assert optimum(compact_model(instance(job(segments=segments)))) == 8


def test_whole_chunks_waste_what_is_left_of_a_slot():
    """Chunks of 0.7 slots: a worker finishes one per slot, three finish four; by worker-slots three would suffice."""
    wasteful = job(epochs=2, chunks=2, minibatch_s=7, utility={"kind": "table", "table": [9, 5, 2]})
    for chunk_integral, most, expected in ((True, 1, 0), (True, 3, 5), (False, 2, 5), (False, 1, 2)):
        narrow = instance(
            wasteful,
            horizon=3,
            worker_servers=servers([most]),
            ps_servers=servers([2]),
            chunk_integral=chunk_integral,
        )
        assert optimum(compact_model(narrow)) == expected


def test_every_row_of_the_paper_is_named_by_its_number_and_states_itself():
    model = compact_model(instance(job()))
    rows = [*model.component_objects(pyo.Constraint), *model.component_objects(pyo.Objective)]
    assert {component.local_name for component in rows} == {
        "total_utility_1",
        "work_2",
        "max_workers_3",
        "worker_capacity_4",
        "ps_capacity_5",
        "bandwidth_6",
        "fewer_ps_than_workers_7",
        "completion_8",
        "worker_place_8",
        "ps_place_8",
    }
    for component in rows:
        assert component.doc.startswith(f"({component.local_name.split('_')[-1]}) ")


def test_rows_of_resources_have_whole_coefficients():
    """3 x 0.1 must fit in 0.3, and 0.1 must not fit in 0.099999."""
    tight = instance(job(chunks=3, worker=[0.1]), worker_servers=servers([0.3]), ps_servers=servers([2]))
    assert str(compact_model(tight).worker_capacity_4[0, 0, 0].expr) == "workers[0,0,0,0]  <=  3"
    short = instance(job(chunks=1, worker=[0.1]), worker_servers=servers([0.099999]))
    assert optimum(compact_model(short)) == 0


@pytest.mark.parametrize(
    "given_instance",
    [
        *map(reference_instance, OPTIMA),
        instance(job(segments=SEGMENTS[-1]), horizon=3, worker_servers=servers([3], [1], count=2)),
        instance(job(minibatch_s=7), chunk_integral=True, shared_servers=servers([3], count=2)),
        instance(job(chunks=5, epochs=5)),
    ],
    ids=[*OPTIMA, "segments", "chunks", "hopeless"],
)
def test_its_size_is_known_before_it_is_built(given_instance: AdmissionInstance):
    model = compact_model(given_instance)
    assert compact_size(given_instance) == sum(len(var) for var in model.component_objects(pyo.Var))


def test_variables_without_values_make_the_plan_that_refuses_everybody():
    given_instance = instance(job())
    plan = plan_from_compact(compact_model(given_instance), given_instance)
    assert plan.objective(given_instance) == 0


def test_every_worker_needs_its_share_of_the_servers_that_take_its_bandwidth():
    """Two workers at full rate need two PSs, of which the host holds one: one worker a slot does half of the work."""
    one = instance(job(ps_mbps=1, utility={"kind": "constant", "value": 5}), horizon=1)
    assert optimum(compact_model(one)) == 0.0
    two = instance(job(ps_mbps=1, utility={"kind": "constant", "value": 5}), horizon=2)
    assert optimum(compact_model(two)) == 5.0


def test_there_are_no_more_ps_than_workers():
    """One PS has the bandwidth for several workers, and the number of PSs never exceeds that of workers."""
    model = compact_model(instance(job(ps_mbps=2), ps_servers=servers([9])))
    optimum(model)
    for run in model.RUNS:
        assert pyo.value(model.ps_in_slot[run]) <= pyo.value(model.workers_in_slot[run]) + TOL
