"""Moves of single units: chains worked out by hand, and plans that stay feasible and never lose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.models.admission.decision import AdmissionPlan
from optim.solvers.admission.local_search import unit_moves
from optim.solvers.admission.local_search.plan_moves import Neighbourhood
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.pricing.classes import JobTables
from tests.support.admission.plans import violated_rows
from tests.support.admission.tiny import job_document, tiny_instance


def neighbourhood(instance, plan=None):
    """The instance at no prices, with a plan."""
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    free = DualPoint(row_prices=np.zeros(rows.num_rows), payoff=np.zeros(instance.num_jobs), bound=0.0)
    search = Neighbourhood(tables, rows, free, 0)
    if plan is not None:
        search.adopt(plan)
    return search


def one_slot_job(name, table, **fields):
    """A job of one worker-slot that needs one GPU and, for its PS, one CPU."""
    return job_document(name, epochs=1, chunks=1, utility={"kind": "table", "table": table}, **fields)


def cluster(*jobs, gpus=1, cpus=1, **fields):
    """One server for workers and one for PSs."""
    return tiny_instance(
        *jobs,
        worker_servers=[{"type": "gpus", "capacity": [gpus, 0], "count": 1}],
        ps_servers=[{"type": "cpus", "capacity": [0, cpus], "count": 1}],
        **fields,
    )


def at_slots(*slots):
    """A plan with one worker and one PS of job i on the first servers in its slot; None for a rejected job."""
    rows = [(i, slot, 0, 1) for i, slot in enumerate(slots) if slot is not None]
    return AdmissionPlan.from_rows(rows, rows)


def ends(search):
    """The completion slots of the best plan by job, None for a rejected job."""
    plan = search.best_plan()
    found = dict(zip(plan.admitted.tolist(), plan.completion.tolist(), strict=True))
    assert violated_rows(search.instance, plan.workers, plan.ps) == set()
    return [found.get(i) for i in range(search.instance.num_jobs)]


def polished(instance, plan, **options):
    search = neighbourhood(instance, plan)
    search.polish(**options)
    return search


FLAT = [5, 5, 5, 5]


def test_a_job_that_does_not_mind_gives_its_slot_to_one_that_does():
    search = polished(cluster(one_slot_job("a", FLAT), one_slot_job("b", [9, 3, 1, 1])), at_slots(0, 1))
    assert ends(search) == [1, 0]
    assert search.incumbent_value == 14


def test_a_chain_of_two_displacements_admits_a_refused_job():
    """b has only slot 0, a could have slot 1, where c is, which can have any."""
    jobs = one_slot_job("a", [5, 5]), one_slot_job("b", [9]), one_slot_job("c", [4, 4, 4, 4])
    search = polished(cluster(*jobs), at_slots(0, None, 1))
    assert ends(search) == [1, 0, 2]
    assert search.incumbent_value == 18


def test_one_swap_alone_does_not_reach_a_chain_of_two():
    jobs = one_slot_job("a", [5, 5]), one_slot_job("b", [9]), one_slot_job("c", [4, 4, 4, 4])
    search = neighbourhood(cluster(*jobs), at_slots(0, None, 1))
    units = unit_moves.make_units(search.instance, search.data)
    search.return_to_best()
    cursor = np.zeros(3, dtype=np.int64)
    while cursor[unit_moves.SWAPS] <= 1:
        unit_moves.move_units(search.data, search.state, search.scratch.shared, units, cursor, 1)
    assert search.state.completion.tolist() == [0, -1, 1]


@pytest.mark.parametrize(("first", "value", "expected"), [([5, 4], 13, [1, 0]), ([50, 1], 52, [0, 1])])
def test_a_displaced_job_may_lose_less_than_is_gained(first, value, expected):
    """b gains 7: a may lose 1, not 49."""
    search = polished(cluster(one_slot_job("a", first), one_slot_job("b", [9, 2])), at_slots(0, 1))
    assert (ends(search), search.incumbent_value) == (expected, value)


def test_losses_of_one_chain_add_up():
    """b gains 3 if a and c both move, who lose 2 each."""
    jobs = (
        one_slot_job("a", [5, 3, 3, 3]),
        one_slot_job("b", [6, 6, 3, 3], worker=[2, 0]),
        one_slot_job("c", [5, 3, 3, 3]),
    )
    instance = cluster(*jobs, gpus=2, cpus=2)
    plan = AdmissionPlan.from_rows(
        [(0, 0, 0, 1), (2, 0, 0, 1), (1, 2, 0, 1)], [(0, 0, 0, 1), (2, 0, 0, 1), (1, 2, 0, 1)]
    )
    search = polished(instance, plan)
    assert search.incumbent_value == 16  # slot 1 is free: b goes there and displaces no job
    assert ends(search) == [0, 1, 0]


def test_a_ps_that_is_in_the_way_moves_with_its_worker():
    """There are GPUs for all, and one CPU per slot."""
    instance = cluster(one_slot_job("a", FLAT), one_slot_job("b", [9, 3, 1, 1]), gpus=4)
    search = polished(instance, at_slots(0, 1))
    assert ends(search) == [1, 0]


def test_a_unit_moves_to_another_server_in_its_slot():
    """a's small worker leaves the large server to b, whose worker fits nowhere else."""
    instance = tiny_instance(
        one_slot_job("a", [5]),
        one_slot_job("b", [9], worker=[2, 0]),
        worker_servers=[
            {"type": "large", "capacity": [2, 0], "count": 1},
            {"type": "small", "capacity": [1, 0], "count": 1},
        ],
    )
    search = polished(instance, at_slots(0, None))
    assert ends(search) == [0, 0]
    assert search.incumbent_value == 14


def test_free_slots_are_taken_first_and_jobs_move_as_early_as_they_gain():
    search = polished(cluster(one_slot_job("a", [9, 6, 3, 1])), at_slots(3))
    assert ends(search) == [0]


def test_steps_of_progress_are_left_alone():
    chunked = tiny_instance(job_document(), chunk_integral=True)
    assert unit_moves.make_units(chunked, neighbourhood(chunked).data) is None
    search = neighbourhood(chunked)
    search.construct(np.arange(1), 0.0)
    before = search.incumbent_value
    search.polish()
    assert search.incumbent_value == before


def test_jobs_with_segments_stay_where_they_are():
    """The job with two demands holds slot 0; the other would gain there, and may not displace it."""
    segments = [{"start": 0, "worker": [1, 0], "ps": [0, 1]}, {"start": 1, "worker": [1, 0], "ps": [0, 1]}]
    held = job_document(
        "a", epochs=1, chunks=2, segments=segments, utility={"kind": "table", "table": [1, 1, 1, 1]}, ps_mbps=1
    )
    instance = cluster(held, one_slot_job("b", [9, 3, 1, 1]))
    rows = [(0, 0, 0, 1), (0, 1, 0, 1), (1, 2, 0, 1)]
    plan = AdmissionPlan.from_rows(rows, rows)
    search = polished(instance, plan)
    assert ends(search) == [1, 2]


def test_instances_of_too_many_cells_are_left_alone(monkeypatch):
    instance = cluster(one_slot_job("a", FLAT), one_slot_job("b", [9, 3, 1, 1]))
    monkeypatch.setattr(unit_moves, "MAX_CELLS", 15)
    assert unit_moves.make_units(instance, neighbourhood(instance).data) is None
    monkeypatch.setattr(unit_moves, "MAX_CELLS", 16)
    assert unit_moves.make_units(instance, neighbourhood(instance).data) is not None


def drawn(seed):
    """Jobs with falling values on a few servers, separate, shared or shared with a cap, and a first plan."""
    rng = np.random.default_rng(seed)
    jobs = [
        job_document(
            f"j{i}",
            arrival=int(rng.integers(3)),
            epochs=int(rng.integers(1, 3)),
            chunks=int(rng.integers(1, 4)),
            worker=rng.integers(0, 3, 2).tolist(),
            ps=rng.integers(0, 3, 2).tolist(),
            utility={"kind": "table", "table": np.sort(rng.integers(0, 9, 5))[::-1].tolist()},
        )
        for i in range(8)
    ]

    def boxes(name):
        return [
            {"type": f"{name}{c}", "capacity": rng.integers(2, 6, 2).tolist(), "count": int(rng.integers(1, 3))}
            for c in range(2)
        ]

    kind = rng.integers(3)
    sides = {"worker_servers": boxes("w"), "ps_servers": boxes("p")} if kind == 0 else {"shared_servers": boxes("s")}
    share = {"max_share_per_server": "0.5"} if kind == 2 else {}
    search = neighbourhood(tiny_instance(*jobs, horizon=5, **sides, **share))
    search.construct(rng.permutation(8), 0.0)
    return search


@given(st.builds(drawn, st.integers(0, 2**32 - 1)))
def test_plans_stay_feasible_never_lose_and_residuals_stay_exact(search):
    before = search.incumbent_value
    search.polish()
    plan = search.best_plan()
    assert violated_rows(search.instance, plan.workers, plan.ps) == set()
    assert search.incumbent_value >= before
    assert search.incumbent_value == pytest.approx(plan.objective(search.instance))
    assert search.value == pytest.approx(search.incumbent_value)
    again = neighbourhood(search.instance, plan)
    again.polish()
    assert again.incumbent_value == pytest.approx(search.incumbent_value)  # no job gains any more
    search.clear()
    sides = (search.state.workers, search.instance.worker_servers), (search.state.ps, search.instance.ps_servers)
    for side, servers in sides:
        full = servers.capacity[servers.class_of_server].transpose(1, 0, 2)
        np.testing.assert_array_equal(side.residual, full)


@given(st.integers(0, 2**32 - 1))
def test_pieces_of_work_make_the_same_plan_as_one(seed):
    whole, parts = drawn(seed), drawn(seed)
    whole.polish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optim.solvers.admission.local_search.plan_moves.PIECE_WORK", 1)
        parts.polish(num_pieces=100_000)
    assert parts.incumbent_value == whole.incumbent_value
    np.testing.assert_array_equal(parts.best_plan().workers, whole.best_plan().workers)


def test_a_run_that_is_over_moves_nothing():
    search = neighbourhood(cluster(one_slot_job("a", FLAT), one_slot_job("b", [9, 3, 1, 1])), at_slots(0, 1))
    search.polish(lambda: True)
    assert ends(search) == [0, 1]


def test_stays_below_the_proven_optimum_and_improves_plans_of_decisions_in_order_of_arrival():
    for name in ("small-0", "small-1", "small-2"):
        instance, best = optim.reference_instance(name), optim.reference_solution(name)
        first = optim.solve(instance, "fifo").decision
        search = polished(instance, first)
        ends(search)
        assert first.objective(instance) < search.incumbent_value <= best.bound * (1 + 1e-9)


def test_search_with_the_last_phase_is_never_worse():
    instance = optim.reference_instance("tiny-2")
    without, with_it = (
        optim.solve(instance, "search", options={"num_moves": 20, "polish": polish, "count_rounds": 0})
        for polish in (False, True)
    )
    assert optim.verify(instance, with_it).is_ok
    assert with_it.objective >= without.objective
