"""Pyomo models through HiGHS, without Pyomo's own interface in between."""

import _thread
import itertools

import pyomo.environ as pyo
import pytest

from optim.core.solution import Termination
from optim.models.admission.compact_programme import compact_model
from optim.solvers.lp.highs import CompiledModel, HighsState, solve_with_highs
from tests.support.admission.small_clusters import crowd


def knapsack(sizes: list[int], room: int, *, is_integer: bool = True) -> pyo.ConcreteModel:
    """Build a knapsack whose values are the squares of the sizes, plus 1 for nothing."""
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
    """The best point is better than the next by a hundred-thousandth, and both are worth less than HiGHS' tolerances."""
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
