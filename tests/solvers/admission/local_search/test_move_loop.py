"""Single moves: acceptance, rejection, re-insertion, and perturbation of prices."""

from itertools import pairwise

import numpy as np
import pytest

import optim
from optim.solvers.admission.local_search.plan_moves import Neighbourhood
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.pricing.classes import JobTables
from tests.support.admission.tiny import job_document, tiny_instance

SERVER = [{"type": "w", "capacity": [2, 0], "count": 1}]


def free_search(instance, seed=0):
    """A neighbourhood at no prices, without a plan."""
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    worth = tables.value.max(axis=1)
    point = DualPoint(row_prices=np.zeros(rows.num_rows), payoff=worth, bound=float(worth.sum()))
    return Neighbourhood(tables, rows, point, seed)


@pytest.fixture(name="search")
def fixture_search():
    """A neighbourhood of small-0 with a greedy plan."""
    search = free_search(optim.reference_instance("small-0"), seed=1)
    search.construct(np.arange(search.instance.num_jobs), 1.0)
    return search


def test_a_cold_move_never_lowers_the_present_plan(search):
    for _ in range(40):
        before = search.value
        search.run(5, 1e-12, 5)
        assert search.value >= before - 1e-9
        assert search.incumbent_value == pytest.approx(search.value)


def test_a_hot_move_may_lower_the_present_plan_and_never_the_best(search):
    values = []
    for _ in range(40):
        search.run(5, 1e9, 5)
        values.append(search.value)
    assert any(later < earlier for earlier, later in pairwise(values))
    assert max(values) <= search.incumbent_value + 1e-9


def test_a_refused_job_that_is_worth_more_takes_a_poor_ones_place():
    jobs = [
        job_document(name, epochs=1, chunks=2, utility={"kind": "constant", "value": value})
        for name, value in (("poor", 1.0), ("rich", 9.0))
    ]
    search = free_search(tiny_instance(*jobs, horizon=1, worker_servers=SERVER))
    search.construct(np.array([0]), 1.0)
    assert search.value == 1.0
    search.run(60, 1e-9, 3)
    assert search.incumbent_value == 9.0
    assert search.best_plan().admitted.tolist() == [1]


def test_noise_is_drawn_anew_for_every_slot_and_class_and_keeps_prices_positive(search):
    noises = []
    for _ in range(2):
        search.run(1, 1.0, 3)
        noises.append(np.hstack([search.scratch.workers.noise, search.scratch.ps.noise]))
    for noise in noises:
        assert (noise >= 0).all()
        assert (noise < 4).all()
        assert np.ptp(noise[:, 0]) > 0
    assert (noises[0] != noises[1]).any()


def test_the_value_that_is_kept_is_that_of_the_plan(search):
    for heat in (1e-9, 1.0, 50.0):
        search.run(100, heat, 8)
        admitted = np.flatnonzero(search.state.completion >= 0)
        worth = search.instance.value[admitted, search.state.completion[admitted]].sum()
        assert search.value == pytest.approx(worth)
        assert search.incumbent_value == pytest.approx(search.best_plan().objective(search.instance))


def test_moves_find_a_planted_tiling():
    # Two servers of two units over four slots: eight jobs of two units for one slot fill them exactly.
    jobs = [
        job_document(f"fit{k}", epochs=1, chunks=2, arrival=k // 2, utility={"kind": "step", "value": 6, "deadline": 0})
        for k in range(8)
    ]
    decoys = [
        job_document(f"decoy{k}", epochs=1, chunks=3, arrival=k, utility={"kind": "step", "value": 8, "deadline": 0})
        for k in range(4)
    ]
    servers = [{"type": "w", "capacity": [2, 0], "count": 2}]
    search = free_search(tiny_instance(*decoys, *jobs, worker_servers=servers))
    search.construct(np.arange(12), 0.0)
    first = search.incumbent_value
    search.run(2_000, 0.5, 4)
    assert first < 48.0
    assert search.incumbent_value == 48.0
