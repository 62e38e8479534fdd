"""HiGHS: models from Pyomo, runs, how they end and how they are stopped, and packing programmes that grow."""

import _thread
import ast
import itertools
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pyomo.environ as pyo
import pytest
from scipy.sparse import csc_array, csr_array

import optim
from optim.core.errors import SolverError
from optim.core.solution import Termination
from optim.models.admission.compact_programme import compact_model
from optim.solvers.lp.highs import (
    CompiledModel,
    HighsState,
    _Run,
    add_columns,
    add_rows,
    empty_programme,
    run_highs,
    run_in_place,
    run_to_optimum,
    silent_highs,
    solve_with_highs,
)
from tests.support.admission.small_clusters import crowd
from tests.support.public_traces import TRACE_DIR

SOON_S = 1.0
"""Seconds within which HiGHS ends after a request to stop, even on a busy machine."""


@pytest.fixture(name="hard")
def fixture_hard() -> Any:
    """Return a programme for which HiGHS finds a feasible point at once, but an optimum only after seconds."""
    return CompiledModel(compact_model(crowd(14))).lp


def pair(*, is_integer: bool = False) -> Any:
    """Return the programme max 3x + 2y, x + y <= 1.5, x, y <= 1."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_, lp.sense_ = 2, 1, highspy.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = np.array([3.0, 2.0]), np.zeros(2), np.ones(2)
    lp.row_lower_, lp.row_upper_ = np.array([-highspy.kHighsInf]), np.array([1.5])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = [0, 1, 2], [0, 0], [1.0, 1.0]
    if is_integer:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * 2
    return lp


@pytest.mark.parametrize(("is_integer", "values"), [(False, [1.0, 0.5]), (True, [1.0, 0.0])])
def test_solves_what_the_solver_holds(is_integer: bool, values: list[float]) -> None:
    outcome = run_highs(silent_highs(pair(is_integer=is_integer)))
    assert (outcome.termination, outcome.is_aborted, outcome.has_values) == (Termination.OPTIMAL, False, True)
    assert outcome.values.tolist() == pytest.approx(values)
    assert outcome.objective == pytest.approx(3 + 2 * values[1])


def test_a_relative_gap_is_the_only_one_unless_an_absolute_one_is_stated() -> None:
    for options, gap in ({}, 0.0), ({"mip_abs_gap": 0.25}, 0.25):
        highs = silent_highs(pair(is_integer=True))
        run_highs(highs, options=options)
        assert highs.getOptionValue("mip_abs_gap")[1] == gap


@pytest.mark.parametrize("seed", [2**31 - 1, 2**31, 2**31 + 5, 2**64 + 1, -1])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    highs = silent_highs(pair())
    assert run_highs(highs, seed=seed).termination is Termination.OPTIMAL
    assert highs.getOptionValue("random_seed")[1] == seed % 2**31


def test_a_limit_beyond_what_highs_can_hold_is_none() -> None:
    assert run_highs(silent_highs(pair()), options={"mip_max_nodes": 2**63 - 1}).termination is Termination.OPTIMAL


class Later:
    """Request a stop some time after the run has begun, and record when."""

    def __init__(self, after_s: float = 0.1) -> None:
        self._at = time.perf_counter() + after_s

    def __call__(self, state: HighsState) -> Termination | None:
        return Termination.GAP_LIMIT if self.late_s > 0 else None

    @property
    def late_s(self) -> float:
        """How long ago it was."""
        return time.perf_counter() - self._at


def test_is_stopped_soon(hard: Any) -> None:
    watch = Later()
    assert run_highs(silent_highs(hard), watch=watch).termination is Termination.GAP_LIMIT
    assert 0 < watch.late_s < SOON_S


def test_is_stopped_soon_where_there_are_no_interrupt_points(hard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in presolve, where HiGHS checks only its time limit."""
    monkeypatch.setattr(_Run, "_answer", lambda *_: None)
    watch = Later()
    assert run_highs(silent_highs(hard), watch=watch).termination is Termination.GAP_LIMIT
    assert 0 < watch.late_s < SOON_S


def test_the_watch_is_told_the_time_that_has_passed(hard: Any) -> None:
    told: list[HighsState] = []
    run_highs(silent_highs(hard), time_limit_s=0.3, watch=told.append)
    assert 0.1 < max(state.elapsed_s for state in told) < 0.3 + SOON_S
    assert any(state.objective is not None for state in told)


@pytest.mark.usefixtures("heeded_ctrl_c")
def test_ctrl_c_aborts_soon(hard: Any) -> None:
    watch = Later()
    presses = iter([_thread.interrupt_main])

    def press_once(state: HighsState) -> None:
        if watch.late_s > 0:
            next(presses, bool)()

    outcome = run_highs(silent_highs(hard), watch=press_once)
    assert (outcome.termination, outcome.is_aborted) == (Termination.INTERRUPTED, True)
    assert watch.late_s < SOON_S


def test_ctrl_c_heard_by_the_watch_aborts_too(hard: Any) -> None:
    def press(state: HighsState) -> None:
        raise KeyboardInterrupt

    outcome = run_highs(silent_highs(hard), watch=press)
    assert (outcome.termination, outcome.is_aborted) == (Termination.INTERRUPTED, True)


OPTIMUM = 3.2062341861483765
"""The optimum of the programme that HiGHS 1.12 to 1.15 call optimal at 0."""


def gates() -> Any:
    """Return that programme, max f, written from its sentences.

    One gate f admits one pair a + a' or b + b' on each of two sides. Each costs two doors out of hundreds. At least
    three pieces are admitted where f is.
    """
    lower, upper = np.zeros(9), np.array([1.0, 1, 1, 2, 2, 1, 1, 2, 2])
    rows = [
        ({0: 1}, -np.inf, 1),
        ({0: -2, 1: 1, 2: 1}, -np.inf, 0),
        ({1: -100, 2: -100, 3: 200, 4: 200}, 0, np.inf),
        ({1: -1, 2: -1, 3: 1, 4: 1}, -np.inf, 0),
        ({0: -2, 5: 1, 6: 1}, -np.inf, 0),
        ({5: -100, 6: -100, 7: 200, 8: 200}, 0, np.inf),
        ({5: -1, 6: -1, 7: 1, 8: 1}, -np.inf, 0),
        ({0: -3, 1: 1, 2: 1, 5: 1, 6: 1}, 0, np.inf),
    ]
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_, lp.sense_ = 9, len(rows), highspy.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = OPTIMUM * (np.arange(9) == 0), lower, upper
    lp.row_lower_, lp.row_upper_ = np.array([low for _, low, _ in rows]), np.array([high for *_, high in rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, *_ in rows)])
    lp.a_matrix_.index_ = [column for row, *_ in rows for column in row]
    lp.a_matrix_.value_ = [float(value) for row, *_ in rows for value in row.values()]
    lp.integrality_ = [highspy.HighsVarType.kInteger] * 9
    return lp


def test_presolve_loses_no_optimum():
    outcome = run_highs(silent_highs(gates()))
    assert (outcome.termination, outcome.objective) == (Termination.OPTIMAL, pytest.approx(OPTIMUM))


@pytest.mark.skipif(
    not (MODEL := TRACE_DIR / "reports/27-highs-presolve/model.mps").exists(), reason=f"{MODEL} is absent"
)
def test_presolve_loses_no_optimum_of_a_programme_that_was_reported():
    highs = silent_highs()
    assert highs.readModel(str(MODEL)) == highspy.HighsStatus.kOk
    assert run_highs(highs).objective == pytest.approx(OPTIMUM)


def run_by_default() -> None:
    """Run HiGHS on two threads, as other code in this process may."""
    highs = highspy.Highs()
    highs.silent()
    highspy.Highs.resetGlobalScheduler(True)
    highs.setOptionValue("threads", 2)
    highs.passModel(pair())
    assert highs.run() == highspy.HighsStatus.kOk


@pytest.mark.parametrize("run", [run_in_place, run_to_optimum, run_highs])
def test_other_codes_number_of_threads_is_no_error_of_ours(run):
    run_by_default()
    highs = silent_highs(pair())
    run(highs)
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    assert highs.getInfo().objective_function_value == pytest.approx(4.0)


def test_a_tree_bounds_the_same_after_a_run_of_other_code():
    spot = optim.reference_instance("spot-tiny-own")
    usual = optim.solve(spot, "exchange").bound
    run_by_default()
    assert optim.solve(spot, "exchange").bound == usual > 0


class Failing:
    """A HiGHS solver that reports a given result of its runs instead of the true one."""

    def __init__(self, run: Any = None, model: Any = None) -> None:
        self._highs, self.run_status, self.model_status, self.runs = silent_highs(pair()), run, model, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._highs, name)

    def run(self) -> Any:
        self.runs += 1
        status = self._highs.run()
        return status if self.run_status is None else self.run_status

    def getModelStatus(self) -> Any:  # noqa: N802 - HiGHS' own name
        return self._highs.getModelStatus() if self.model_status is None else self.model_status


STATUSES = highspy.HighsModelStatus
ERRORS = [
    *(
        (highspy.HighsStatus.kOk, status)
        for status in (STATUSES.kNotset, STATUSES.kLoadError, STATUSES.kModelError, STATUSES.kMemoryLimit)
    ),
    (highspy.HighsStatus.kError, None),
    (highspy.HighsStatus.kError, STATUSES.kInfeasible),
]


@pytest.mark.parametrize(("run", "model"), ERRORS)
@pytest.mark.parametrize("how", [run_in_place, run_to_optimum])
def test_an_error_is_never_taken_for_an_answer(how, run, model):
    with pytest.raises(
        SolverError, match=r"HiGHS 1\.\d+\.\d+ ended with .* on a linear programme of 1 rows and 2 columns"
    ):
        how(Failing(run, model))


@pytest.mark.parametrize(("run", "model"), ERRORS)
def test_a_run_that_ends_with_an_error_says_so(run, model):
    assert run_highs(Failing(run, model)).termination is Termination.NUMERICAL_ERROR


def test_what_has_no_optimum_is_told_apart_from_an_error():
    lp = pair()
    lp.row_lower_ = np.array([2.5])
    lp.row_upper_ = np.array([np.inf])
    assert run_in_place(silent_highs(lp)) == STATUSES.kInfeasible
    with pytest.raises(SolverError, match="Infeasible"):
        run_to_optimum(silent_highs(lp))


def test_numbers_beyond_highs_are_tried_twice_and_then_told():
    hopeless = Failing(highspy.HighsStatus.kError, STATUSES.kSolveError)
    assert (run_in_place(hopeless), hopeless.runs) == (STATUSES.kSolveError, 2)
    with pytest.raises(SolverError, match="Solve error"):
        run_to_optimum(hopeless)
    near = Failing(model=STATUSES.kUnknown)
    assert (run_in_place(near), near.runs) == (STATUSES.kUnknown, 2)
    run_to_optimum(near)  # it holds a point, and prices
    near.clearSolver()
    near.run = lambda: highspy.HighsStatus.kWarning
    with pytest.raises(SolverError):
        run_to_optimum(near)


def test_an_exception_in_a_run_arrives(monkeypatch):
    monkeypatch.setattr("optim.solvers.lp.highs._ran", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_highs(silent_highs(pair()))


FIRST = """
import os, sys
from optim.solvers.lp.highs import run_highs, silent_highs
if "closed" in sys.argv:
    os.close(1)
silent_highs().run()
if "closed" not in sys.argv:
    print("ours", flush=True)
"""


@pytest.mark.parametrize(("words", "told"), [((), "ours\n"), (("closed",), "")])
def test_nothing_is_printed_by_the_first_solver_of_a_process(words, told):
    ran = subprocess.run([sys.executable, "-c", FIRST, *words], capture_output=True, text=True, check=True, timeout=60)
    assert (ran.stdout, ran.stderr) == (told, "")


def test_no_module_makes_or_runs_a_solver_by_itself():
    """All calls use `run_highs`: one thread, no output, reported errors."""
    by_itself = []
    for path in Path(optim.__file__).parent.rglob("*.py"):
        if path.name == "highs.py":
            continue
        text = path.read_text()
        if not re.search(r"\bHighs\b|\.run\(|\.milp\(|SolverFactory", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value).lower().rpartition(".")[2]
                if node.func.attr == "Highs" or (node.func.attr == "run" and owner in {"highs", "_highs", "solver"}):
                    by_itself.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
                if node.func.attr == "milp" or ast.unparse(node.func).endswith("SolverFactory"):
                    by_itself.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert by_itself == []


def knapsack(sizes: list[int], room: int, *, is_integer: bool = True) -> pyo.ConcreteModel:
    """Build a knapsack whose values are the squares of the sizes, and 1 for the empty set."""
    model = pyo.ConcreteModel()
    model.taken = pyo.Var(range(len(sizes)), domain=pyo.Binary if is_integer else pyo.UnitInterval)
    model.fits = pyo.Constraint(expr=sum(size * model.taken[k] for k, size in enumerate(sizes)) <= room)
    model.value = pyo.Objective(
        expr=1 + sum(size**2 * model.taken[k] for k, size in enumerate(sizes)), sense=pyo.maximize
    )
    return model


def hard_model() -> pyo.ConcreteModel:
    """Return a model that takes HiGHS seconds."""
    return compact_model(crowd())


@pytest.mark.parametrize(
    ("sizes", "room"), [([1], 0), ([3], 3), ([2, 3, 4], 6), ([5, 4, 4], 8), ([9, 6, 5, 5], 15), ([7, 5, 3, 2, 2], 11)]
)
def test_maximises_knapsacks(sizes: list[int], room: int):
    model = knapsack(sizes, room)
    outcome = solve_with_highs(CompiledModel(model), options={"mip_rel_gap": 0.0})
    picks = itertools.product((0, 1), repeat=len(sizes))
    worth = (
        1 + sum(size**2 for size, taken in zip(sizes, pick, strict=True) if taken)
        for pick in picks
        if sum(size for size, taken in zip(sizes, pick, strict=True) if taken) <= room
    )
    assert outcome.termination is Termination.OPTIMAL
    assert outcome.objective == pytest.approx(max(worth))
    assert outcome.bound == pytest.approx(outcome.objective)
    assert pyo.value(model.value) == pytest.approx(outcome.objective)


def test_minimises_under_rows_of_every_sense():
    model = pyo.ConcreteModel()
    model.x, model.y, model.z = pyo.Var(bounds=(0, None)), pyo.Var(bounds=(None, 5)), pyo.Var()
    model.at_least = pyo.Constraint(expr=model.x + model.y >= 3)
    model.equal = pyo.Constraint(expr=model.z == 2 * model.x - 1)
    model.at_most = pyo.Constraint(expr=model.y <= 1)
    model.cost = pyo.Objective(expr=model.x + model.z)
    outcome = solve_with_highs(CompiledModel(model))
    assert outcome.objective == pytest.approx(5)
    assert (model.x.value, model.y.value, model.z.value) == pytest.approx((2, 1, 3))


@pytest.mark.parametrize(("sense", "expected"), [(pyo.minimize, 4), (pyo.maximize, 8)])
def test_a_row_of_equality_holds_from_both_sides(sense, expected):
    model = pyo.ConcreteModel()
    model.x, model.y = pyo.Var(bounds=(0, None)), pyo.Var(bounds=(0, None))
    model.equal = pyo.Constraint(expr=model.x + model.y == 4)
    model.cost = pyo.Objective(expr=model.x + 2 * model.y, sense=sense)
    assert solve_with_highs(CompiledModel(model)).objective == pytest.approx(expected)


def test_the_relaxation_is_solved_where_variables_are_continuous():
    outcome = solve_with_highs(CompiledModel(knapsack([3, 3], 4, is_integer=False)))
    assert outcome.objective == pytest.approx(1 + 9 + 3)


def test_counts_the_work_that_was_done_and_no_other():
    """Bounds alone decide the first; the second takes steps of the simplex method, and no tree."""
    nothing = solve_with_highs(CompiledModel(knapsack([3, 3], 9, is_integer=False)))
    assert (nothing.nodes, nothing.simplex_iterations) == (0, 0)
    hard = pyo.ConcreteModel()
    hard.x = pyo.Var(range(4), bounds=(0, None))
    hard.rows = pyo.Constraint(range(4), rule=lambda m, k: sum((1 + (k + j) % 4) * m.x[j] for j in range(4)) >= 1 + k)
    hard.cost = pyo.Objective(expr=sum(hard.x[j] for j in range(4)))
    some = solve_with_highs(CompiledModel(hard))
    assert some.nodes == 0
    assert some.simplex_iterations > 0


def test_says_infeasible_and_leaves_the_variables_alone():
    model = knapsack([3], 2)
    model.must = pyo.Constraint(expr=model.taken[0] >= 1)
    outcome = solve_with_highs(CompiledModel(model))
    assert outcome.termination is Termination.INFEASIBLE
    assert not outcome.has_values
    assert outcome.objective is None
    assert model.taken[0].value is None


def test_says_dual_infeasible_where_the_objective_has_no_limit():
    model = pyo.ConcreteModel()
    model.x = pyo.Var(bounds=(0, None))
    model.value = pyo.Objective(expr=model.x, sense=pyo.maximize)
    model.row = pyo.Constraint(expr=model.x >= 1)
    assert solve_with_highs(CompiledModel(model)).termination is Termination.DUAL_INFEASIBLE


def test_a_model_without_variables_is_worth_its_constant_at_no_work():
    model = pyo.ConcreteModel()
    model.value = pyo.Objective(expr=7)
    outcome = solve_with_highs(CompiledModel(model))
    assert outcome.termination is Termination.OPTIMAL
    assert outcome.has_values
    assert outcome.objective == outcome.bound == 7
    assert (outcome.nodes, outcome.simplex_iterations) == (0, 0)


def test_stops_when_the_watch_says_so_and_keeps_the_best_point():
    model = hard_model()

    def stop_at_a_point(state: HighsState) -> Termination | None:
        return Termination.GAP_LIMIT if state.objective is not None and state.objective > 0 else None

    outcome = solve_with_highs(CompiledModel(model), watch=stop_at_a_point)
    assert outcome.termination is Termination.GAP_LIMIT
    assert outcome.has_values
    assert pyo.value(model.total_utility_1) == pytest.approx(outcome.objective)
    assert outcome.bound > outcome.objective


@pytest.mark.usefixtures("heeded_ctrl_c")
def test_ctrl_c_ends_the_run_with_the_best_point():
    presses = iter([_thread.interrupt_main])

    def press_once(state: HighsState) -> None:
        if state.objective is not None and state.objective > 0:
            next(presses, bool)()

    outcome = solve_with_highs(CompiledModel(hard_model()), watch=press_once)
    assert outcome.termination is Termination.INTERRUPTED
    assert outcome.has_values


def test_an_exception_of_the_watch_ends_the_run_and_is_raised():
    def fail(state: HighsState) -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        solve_with_highs(CompiledModel(hard_model()), watch=fail)


def test_a_time_limit_of_zero_ends_the_run_at_once():
    outcome = solve_with_highs(CompiledModel(hard_model()), time_limit_s=0.0)
    assert outcome.termination is Termination.TIME_LIMIT


def test_an_unknown_option_is_refused():
    with pytest.raises(ValueError, match="no_such_option"):
        solve_with_highs(CompiledModel(knapsack([1], 1)), options={"no_such_option": 1})


@pytest.mark.parametrize("scale", [1e-4, 1e-9, 1e-300])
def test_small_costs_are_told_apart_like_large_ones(scale: float):
    """The best point is better than the next by a hundred-thousandth, and both values are below HiGHS' tolerances."""
    model = knapsack([5, 4, 4], 8)
    model.value.deactivate()
    model.small = pyo.Objective(
        expr=scale * (-3 + 5 * model.taken[0] + 4 * model.taken[1] + (1 + 1e-5) * model.taken[2]), sense=pyo.maximize
    )
    told: list[HighsState] = []
    outcome = solve_with_highs(CompiledModel(model), options={"mip_rel_gap": 0.0}, watch=told.append)
    assert [round(model.taken[k].value) for k in range(3)] == [0, 1, 1]
    assert outcome.objective == pytest.approx(scale * (2 + 1e-5), rel=1e-9, abs=0.0)
    assert outcome.bound == pytest.approx(outcome.objective, rel=1e-9, abs=0.0)
    assert all(state.bound is None or state.bound <= 10 * scale for state in told)


def test_a_stated_absolute_gap_is_one_of_the_models_own_unit():
    model = hard_model()
    model.total_utility_1.deactivate()
    model.small = pyo.Objective(expr=1e-6 * model.total_utility_1.expr, sense=pyo.maximize)
    outcome = solve_with_highs(CompiledModel(model), options={"mip_rel_gap": 0.0, "mip_abs_gap": 0.01})
    assert outcome.termination is Termination.OPTIMAL
    assert outcome.bound > 1.1 * outcome.objective


def test_says_nothing(capfd: pytest.CaptureFixture[str]):
    solve_with_highs(CompiledModel(knapsack([3, 2, 5], 6)))
    assert capfd.readouterr() == ("", "")


def test_runs_after_another_interface_has_used_more_threads():
    pyo.SolverFactory("appsi_highs").solve(knapsack([3, 2, 5], 6))
    assert solve_with_highs(CompiledModel(knapsack([3, 2, 5], 6))).objective == pytest.approx(1 + 25)


def solved(highs):
    highs.run()
    solution = highs.getSolution()
    return highs.getInfo().objective_function_value, list(solution.col_value), list(solution.row_dual)


def test_columns_and_rows_are_added_to_a_programme_with_right_hand_sides_1() -> None:
    highs = empty_programme(2)
    add_columns(highs, np.array([3.0, 2.0]), csc_array([[0.5, 0.0], [0.0, 0.25]]), np.array([np.inf, 1.5]))
    value, x, dual = solved(highs)
    assert x == pytest.approx([2.0, 1.5])
    assert value == pytest.approx(9.0)
    assert dual == pytest.approx([6.0, 0.0])
    add_rows(highs, csr_array([[0.5, 1.0]]))
    value, x, _ = solved(highs)
    assert value == pytest.approx(6.0)
    assert 0.5 * x[0] + x[1] <= 1.0 + 1e-9
    add_columns(highs, np.array([5.0]), csc_array([[1.0], [0.0], [0.5]]), np.array([np.inf]))
    value, x, _ = solved(highs)
    assert value == pytest.approx(6.0)
    assert x[0] * 0.5 + x[2] <= 1.0 + 1e-9
    assert highs.getNumRow() == 3
    assert highs.getNumCol() == 3
