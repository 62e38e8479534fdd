"""The LP's fractional solution and its dual by name, recomputed from the instance's raw numbers."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import optim
from optim.models.admission.data import MICRO
from tests.solvers.admission.test_own_unit import scaled
from tests.support.admission.oracle import lp_optimum, packing
from tests.support.admission.strategies import JobSketch, ServerSketch, make_instance

TOL = 1e-5
"""Relative tolerance: the LP is solved to 1e-6."""

SHARED = make_instance(
    jobs=[JobSketch(arrival=0, epochs=2, chunks=2, chunk_slots="1", worker=("1",), ps=("0.5",), workers_per_ps="2")]
    * 3,
    worker_servers=[ServerSketch(capacity=("2",), count=2)],
    ps_servers=None,
    horizon=3,
)
INSTANCES = {
    "tiny-0": optim.reference_instance("tiny-0"),
    "small-0": optim.reference_instance("small-0"),
    "shared": SHARED,
    "in thousandths": scaled(optim.reference_instance("tiny-0"), 1e-4),
}


@pytest.fixture(params=INSTANCES, name="case")
def solved(request):
    instance = INSTANCES[request.param]
    return instance, optim.solve(instance, "column-generation")


def demands(instance, job, side):
    first = int(instance.jobs.segment_offset[job])
    table = instance.jobs.worker_demand if side == "worker" else instance.jobs.ps_demand
    return [Fraction(int(amount), MICRO) for amount in table[first]]


def test_the_use_of_every_row_is_that_of_the_columns(case):
    instance, solution = case
    if instance.has_segments:
        pytest.skip("demands of a segment depend on the work done before")
    columns, rows = solution.relaxation.columns, solution.relaxation.rows
    use = {}
    for job, weight, *sides in zip(columns["job"], columns["weight"], columns["workers"], columns["ps"], strict=True):
        i = instance.jobs.ids.index(job)
        for side, entries in zip(("worker", "ps"), sides, strict=True):
            row_side = "worker" if instance.has_shared_servers else side
            for servers, slot, count in entries:
                for resource, amount in zip(instance.resources, demands(instance, i, side), strict=True):
                    at = (row_side, servers, slot, resource)
                    use[at] = use.get(at, 0.0) + weight * count * float(amount)
    names = list(zip(rows["row"], rows["side"], rows["servers"], rows["slot"], rows["resource"], strict=True))
    for (row, *at), stated, capacity in zip(names, rows["use"], rows["capacity"], strict=True):
        assert stated <= capacity * (1 + 1e-9) + 1e-9
        if row == "capacity":
            assert stated == pytest.approx(use.pop(tuple(at), 0.0), abs=1e-6 + TOL * capacity)
    assert not any(amount > 1e-6 for amount in use.values())


def test_columns_are_worth_their_slot_and_add_up_to_the_objective(case):
    instance, solution = case
    columns = solution.relaxation.columns
    worth = [
        instance.value[instance.jobs.ids.index(job), slot]
        for job, slot in zip(columns["job"], columns["completion"].tolist(), strict=True)
    ]
    assert columns["value"] == pytest.approx(worth)
    assert solution.relaxation.objective == pytest.approx(float(columns["weight"] @ columns["value"]), rel=1e-6)


def test_primal_and_dual_agree(case):
    _, solution = case
    rows = solution.relaxation.rows
    dual = float(np.asarray(rows["price"]) @ rows["capacity"])
    assert dual == pytest.approx(solution.bound, rel=1e-9)
    assert solution.relaxation.objective <= solution.bound * (1 + 1e-9)
    assert solution.relaxation.objective == pytest.approx(solution.bound, rel=TOL)
    slack = (np.asarray(rows["capacity"]) - rows["use"]) * rows["price"]
    assert slack.sum() == pytest.approx(0.0, abs=TOL * solution.bound)


@pytest.mark.parametrize("name", ["tiny-0", "shared"])
def test_it_is_the_optimum_that_another_solver_finds(name):
    instance = INSTANCES[name]
    solution = optim.solve(instance, "column-generation")
    assert solution.relaxation.objective == pytest.approx(lp_optimum(packing(instance)), rel=TOL)


def test_frames_have_a_row_per_column_and_per_row():
    instance = INSTANCES["tiny-0"]
    relaxation = optim.solve(instance, "column-generation").relaxation
    frame = relaxation.rows_frame()
    assert set(frame["job"].dropna()) == set(instance.jobs.ids)
    assert len(relaxation.columns_frame()) == len(relaxation.columns["weight"])
    capacity_rows = (instance.worker_servers.num_classes + instance.ps_servers.num_classes) * instance.horizon
    assert len(frame) == capacity_rows * instance.num_resources + instance.num_jobs


def test_two_solutions_are_compared_without_it():
    solution = optim.solve(INSTANCES["tiny-0"], "column-generation")
    assert replace(solution, relaxation=None) == solution
    assert optim.solve(INSTANCES["tiny-0"], "online").relaxation is None
