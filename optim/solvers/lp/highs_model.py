"""Solve a Pyomo model with HiGHS: silent, on one thread, stopped at any time.

Pyomo's own interfaces return when HiGHS does, and not before; `highs_run` ends it soon, with the best solution that
it has.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from optim.core.status import Termination
from optim.core.units import unit_of
from optim.solvers.lp.highs_run import (
    HighsOutcome,
    HighsState,
    OptionValue,
    Watch,
    keep_going,
    run_highs,
    silent_highs,
)

__all__ = ["CompiledModel", "HighsOutcome", "HighsState", "solve_with_highs"]


class CompiledModel:
    """A linear or mixed-integer Pyomo model with one objective, translated for HiGHS.

    Parameters
    ----------
    model
        A concrete Pyomo model; it keeps its variables, which receive the solution's values.
    """

    def __init__(self, model: Any) -> None:
        from pyomo.core.base.objective import maximize
        from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

        form = LinearStandardFormCompiler().write(model, mixed_form=True, set_sense=None)
        self.columns: list[Any] = list(form.columns)
        self.rows: list[Any] = [row.constraint for row in form.rows]
        self.lp = _highs_lp(form, is_maximisation=form.objectives[0].sense == maximize)

    def load(self, values: Any) -> None:
        """Give the model's variables their values."""
        for variable, value in zip(self.columns, values, strict=True):
            variable.set_value(float(value), skip_validation=True)


def solve_with_highs(
    compiled: CompiledModel,
    *,
    time_limit_s: float = math.inf,
    seed: int = 0,
    options: Mapping[str, OptionValue] | None = None,
    watch: Watch = keep_going,
) -> HighsOutcome:
    """Run HiGHS and load the best point it finds into the model's variables.

    HiGHS' tolerances are absolute. Where all costs are below 1 it is given them in a unit in which the largest isn't, a
    power of two; unless `options` state an absolute gap, which is one in the model's own unit.

    Parameters
    ----------
    compiled
        The model.
    time_limit_s, seed, options, watch
        As in `run_highs`.

    Returns
    -------
    HighsOutcome
        Ctrl-C is the termination `interrupted`, not an exception.
    """
    if not compiled.columns:
        return _constant(compiled.lp.offset_)
    highs = silent_highs(compiled.lp)
    has_own_gap = options is not None and "mip_abs_gap" in options
    unit = 1.0 if has_own_gap else unit_of(float(np.abs(np.asarray(compiled.lp.col_cost_)).max(initial=0.0)))
    if unit != 1.0:
        count = len(compiled.columns)
        highs.changeColsCost(count, np.arange(count, dtype=np.int32), np.asarray(compiled.lp.col_cost_) / unit)
        highs.changeObjectiveOffset(compiled.lp.offset_ / unit)
    outcome = run_highs(
        highs,
        time_limit_s=time_limit_s,
        seed=seed,
        options=options,
        watch=lambda state: watch(
            replace(state, objective=_times(unit, state.objective), bound=_times(unit, state.bound))
        ),
    )
    if outcome.values is not None:
        compiled.load(outcome.values)
    return replace(outcome, objective=_times(unit, outcome.objective), bound=_times(unit, outcome.bound))


def _times(unit: float, value: float | None) -> float | None:
    return None if value is None else unit * value


def _constant(value: float) -> HighsOutcome:
    """Return the outcome of a model without variables, to which HiGHS gives no value."""
    return HighsOutcome(
        termination=Termination.OPTIMAL,
        values=np.zeros(0),
        objective=value,
        bound=value,
        nodes=0,
        simplex_iterations=0,
    )


def _highs_lp(form: Any, *, is_maximisation: bool) -> Any:
    """Return HiGHS' form of a compiled programme."""
    import highspy

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(form.columns), len(form.rows)
    lp.sense_ = highspy.ObjSense.kMaximize if is_maximisation else highspy.ObjSense.kMinimize
    lp.offset_ = float(form.c_offset[0])
    lp.col_cost_ = np.asarray(form.c.todense(), dtype=np.float64).ravel()
    # Pyomo 6.9.3, the oldest that is promised, keeps a fixed variable as a column.
    bounds = [(one.value, one.value) if one.fixed else one.bounds for one in form.columns]
    lp.col_lower_ = np.array([-highspy.kHighsInf if low is None else low for low, _ in bounds], dtype=np.float64)
    lp.col_upper_ = np.array([highspy.kHighsInf if high is None else high for _, high in bounds], dtype=np.float64)
    if any(not variable.is_continuous() for variable in form.columns):
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        lp.integrality_ = [kinds[not variable.is_continuous()] for variable in form.columns]
    senses = np.array([row.bound_type for row in form.rows], dtype=np.int64)
    rhs = np.asarray(form.rhs, dtype=np.float64)
    lp.row_lower_ = np.where(senses <= 0, rhs, -highspy.kHighsInf)
    lp.row_upper_ = np.where(senses >= 0, rhs, highspy.kHighsInf)
    matrix = form.A.tocsc()
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    lp.a_matrix_.index_ = matrix.indices.astype(np.int32)
    lp.a_matrix_.value_ = matrix.data.astype(np.float64)
    return lp
