"""Neighbourhood search: plans that verify, an incremental state that never drifts."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.core.errors import InvalidOptionError
from optim.core.stopping import Interruption
from optim.solvers.admission.local_search.plan_moves import Neighbourhood
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import search_scale
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.search import MOVES_A_CHECK, SearchOptions, _Chains
from tests.support.admission.plans import violated_rows
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance

BEST_KNOWN = {"tiny-0": 63.885, "tiny-1": 168.34535773057462, "tiny-2": 307.838127568622}
"""Optima on real servers, by the compact MILP."""


def crowded(seed):
    """A neighbourhood over two classes of shared servers with random jobs, at prices from a line search."""
    rng = np.random.default_rng(seed)
    jobs = [
        job_document(
            f"j{i}",
            arrival=int(rng.integers(3)),
            chunks=int(rng.integers(1, 5)),
            worker=rng.integers(0, 4, 2).tolist(),
            ps=rng.integers(0, 4, 2).tolist(),
            utility={"kind": "constant", "value": float(rng.integers(1, 9))},
        )
        for i in range(12)
    ]
    boxes = [
        {"type": f"box{c}", "capacity": rng.integers(3, 8, 2).tolist(), "count": int(rng.integers(1, 4))}
        for c in range(2)
    ]
    share = {} if rng.random() < 0.5 else {"max_share_per_server": "0.5"}
    tables = JobTables.build(tiny_instance(*jobs, shared_servers=boxes, **share))
    rows = CapacityRows.of(tables)
    start = np.divide(1.0, rows.capacity, out=np.zeros(rows.num_rows), where=rows.capacity > 0)
    return Neighbourhood(tables, rows, search_scale(tables, rows, start), seed=seed % 2**32)


@pytest.fixture(name="search")
def fixture_search():
    """A neighbourhood over small-0 at prices from a line search, with a first plan."""
    instance = optim.reference_instance("small-0")
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    start = np.divide(1.0, rows.capacity, out=np.zeros(rows.num_rows), where=rows.capacity > 0)
    search = Neighbourhood(tables, rows, search_scale(tables, rows, start), seed=5)
    search.construct(np.arange(instance.num_jobs), 0.5)
    return search


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.prove if name == "tiny-2" else ()) for name in sorted(BEST_KNOWN)]
)
def test_search_finds_the_optimum_of_tiny_instances(name):
    instance = optim.reference_instance(name)
    solution = optim.solve(instance, "search", options={"num_moves": 20_000 if name == "tiny-2" else 4_000})
    assert solution.objective == pytest.approx(BEST_KNOWN[name], rel=1e-9)
    assert optim.verify(instance, solution).is_ok


@pytest.mark.parametrize("name", ["shared", "shared-capped"])
def test_finds_the_optimum_where_workers_and_pss_share_servers(name):
    instance = BY_HAND[name]
    solution = optim.solve(instance, "search", options={"num_moves": 400})
    assert solution.objective == pytest.approx(optim.solve(instance, "compact-milp").objective)
    assert optim.verify(instance, solution).is_ok


@given(st.builds(crowded, st.integers(0, 2**32 - 1)))
def test_moves_on_shared_servers_keep_plans_feasible_and_residuals_exact(search):
    search.construct(np.arange(search.instance.num_jobs), 0.1)
    search.run(100, 1.0, 4)
    plan = search.best_plan()
    assert violated_rows(search.instance, plan.workers, plan.ps) == set()
    assert search.incumbent_value == pytest.approx(plan.objective(search.instance))
    search.clear()
    servers = search.instance.worker_servers
    full = servers.capacity[servers.class_of_server].transpose(1, 0, 2)
    np.testing.assert_array_equal(search.state.workers.residual, full)
    assert search.state.ps.residual is search.state.workers.residual


def test_residuals_equal_capacity_less_the_plan_after_any_moves(search):
    full = search.state.workers.residual.copy(), search.state.ps.residual.copy()
    search.run(500, 0.1, 5)
    search.clear()
    instance = search.instance
    for left, servers in (
        (search.state.workers.residual, instance.worker_servers),
        (search.state.ps.residual, instance.ps_servers),
    ):
        expected = servers.capacity[servers.class_of_server].transpose(1, 0, 2)
        np.testing.assert_array_equal(left, expected)
    assert (full[0] >= 0).all()
    assert (full[1] >= 0).all()


def test_moves_never_lose_the_best_plan(search):
    incumbent_value = search.incumbent_value
    for _ in range(5):
        search.run(100, 50.0, 8)
        assert search.incumbent_value >= incumbent_value
        incumbent_value = search.incumbent_value
        assert search.best_plan().objective(search.instance) == pytest.approx(incumbent_value)


def test_an_adopted_plan_is_continued_from(search):
    plan = search.best_plan()
    search.clear()
    search.adopt(plan)
    assert search.value == pytest.approx(plan.objective(search.instance))
    search.run(50, 1.0, 3)
    assert search.incumbent_value >= plan.objective(search.instance) - 1e-9


@pytest.mark.parametrize(
    "options",
    [
        {"lp_tol": 0.0},  # a relative gap of zero is never reached
        {"num_moves": -1},  # counts can't be negative
        {"max_destroyed": 0},  # a move must take a job out
        {"start_temperature": 0.001, "end_temperature": 0.01},  # cooling must not heat
        {"temperature": 3},  # unknown name
    ],
)
def test_refuses_bad_options(options):
    with pytest.raises(InvalidOptionError):
        optim.solve(optim.reference_instance("tiny-0"), "search", options=options)


class Thermometer:
    """A chain that records temperatures and numbers of moves of its runs, and when it returns to its best plan."""

    incumbent_value = 0.0

    def __init__(self):
        self.heats, self.moves = [], []

    def run_at(self, heat, num_moves, max_destroyed):
        self.heats[-1].append(heat)
        self.moves.append(num_moves)

    def return_to_best(self):
        self.heats.append([])


def test_cycles_cool_from_the_first_heat_towards_the_last_and_begin_anew_twice_as_long():
    options = SearchOptions(
        first_cycle=4 * MOVES_A_CHECK, cycle_moves=6 * MOVES_A_CHECK, start_temperature=0.4, end_temperature=0.1
    )
    chain = Thermometer()
    relaxed = SimpleNamespace(point=SimpleNamespace(bound=1.0))
    chains = _Chains([chain], relaxed, options, 16 * MOVES_A_CHECK)
    while not chains.is_done():
        chains.step()
    assert [len(cycle) for cycle in chain.heats] == [4, 6, 6]
    for cycle in chain.heats:
        np.testing.assert_allclose(cycle, 0.4 * 0.25 ** (np.arange(len(cycle)) / len(cycle)))


@pytest.mark.parametrize(
    ("num_moves", "moves"),
    [
        (1, [1]),
        (MOVES_A_CHECK, [MOVES_A_CHECK]),
        (2 * MOVES_A_CHECK + 3, [MOVES_A_CHECK, MOVES_A_CHECK, 3]),
        (None, [MOVES_A_CHECK] * 3),
    ],
)
def test_makes_as_many_moves_as_are_asked_for(num_moves, moves):
    chain = Thermometer()
    chains = _Chains([chain], SimpleNamespace(point=SimpleNamespace(bound=1.0)), SearchOptions(), num_moves)
    while not chains.is_done() and len(chain.moves) < 3:
        chains.step()
    assert chain.moves == moves
    assert chains.moves == sum(moves)


def test_tells_how_many_moves_all_chains_made():
    options = {"num_moves": 1, "chains": 3, "cut_rounds": 0, "count_rounds": 0, "lp_tol": 0.05, "dives": False}
    solution = optim.solve(optim.reference_instance("small-0"), "search", options=options)
    assert (solution.stats.iterations, solution.stats.counts["moves"]) == (1, 3)


@pytest.mark.parametrize("polish", [False, True])
def test_tells_an_interruption_from_a_time_limit(polish):
    instance, options = optim.reference_instance("tiny-2"), {"polish": polish, "cut_rounds": 0, "count_rounds": 0}
    interrupted = optim.solve(instance, "search", stop=Interruption(is_requested=True), options=options)
    late = optim.solve(instance, "search", time_limit_s=0, options=options)
    assert (interrupted.termination, late.termination) == ("interrupted", "time_limit")


def test_the_last_chain_goes_on_from_a_dive_that_is_better(monkeypatch):
    instance, best = optim.reference_instance("tiny-2"), optim.reference_solution("tiny-2")
    monkeypatch.setattr("optim.solvers.admission.search.dive", lambda *_: best.decision)
    without, dived = (
        optim.solve(instance, "search", options={"num_moves": 0, "cut_rounds": 0, "lp_tol": 0.05, "dives": dives})
        for dives in (False, True)
    )
    assert without.objective < best.objective
    assert dived.objective == pytest.approx(best.objective)
