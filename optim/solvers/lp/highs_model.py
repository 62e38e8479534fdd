"""Solve a Pyomo model with HiGHS: silent, on one thread, stopped at any time.

Pyomo's own interfaces return when HiGHS does, and not before. Here HiGHS runs in a thread of its own
and asks at its interrupt points whether to go on, so that a stopping rule or Ctrl-C ends it soon, with
the best solution that it has.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.status import Termination

INFINITE = 1e29
"""HiGHS' infinities are at least this large."""

POLL_S = 0.05
"""How often the waiting thread looks whether HiGHS is done."""

OptionValue = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class HighsState:
    """How far HiGHS is, in the model's own sense; None where there is no figure yet."""

    elapsed_s: float
    nodes: int
    objective: float | None
    bound: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HighsOutcome:
    """What HiGHS reports.

    Parameters
    ----------
    termination
        Why it stopped. `optimal` is HiGHS' claim, which comes without a proof.
    has_values
        Whether the model's variables have been given the values of a feasible point.
    objective, bound
        Value of the point and bound on every point's value, as HiGHS claims; None without one.
    nodes, simplex_iterations
        Work done.
    """

    termination: Termination
    has_values: bool
    objective: float | None
    bound: float | None
    nodes: int
    simplex_iterations: int


Watch = Callable[[HighsState], Termination | None]
"""Called at HiGHS' interrupt points; a reason ends the run."""


def keep_going(state: HighsState) -> Termination | None:
    """Let HiGHS run."""
    return None


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

    Parameters
    ----------
    compiled
        The model.
    time_limit_s
        Wall-clock limit.
    seed
        HiGHS' random seed.
    options
        Further options by HiGHS' names.
    watch
        Asked at HiGHS' interrupt points whether to stop.

    Returns
    -------
    HighsOutcome
        Ctrl-C is the termination `interrupted`, not an exception.
    """
    import highspy

    if not compiled.columns:
        return _constant(compiled.lp.offset_)
    highs = highspy.Highs()
    highs.silent()
    chosen: dict[str, OptionValue] = {"threads": 1, "random_seed": seed, **(options or {})}
    if math.isfinite(time_limit_s):
        chosen["time_limit"] = max(0.0, time_limit_s)
    for name, value in chosen.items():
        _must_be_ok(highs.setOptionValue(name, value), f"option {name}={value!r}")
    _must_be_ok(highs.passModel(compiled.lp), "the model")
    run = _Run(highs, watch)
    run.execute()
    info = highs.getInfo()
    has_values = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if has_values:
        compiled.load(highs.getSolution().col_value)
    is_mip = bool(len(compiled.lp.integrality_))
    return HighsOutcome(
        termination=run.reason or _termination(highs.getModelStatus()),
        has_values=has_values,
        objective=_finite(info.objective_function_value) if has_values else None,
        bound=_finite(info.mip_dual_bound if is_mip else info.objective_function_value) if info.valid else None,
        nodes=max(0, int(info.mip_node_count)),
        simplex_iterations=max(0, int(info.simplex_iteration_count)),
    )


def _constant(value: float) -> HighsOutcome:
    """Return the outcome of a model without variables, to which HiGHS gives no value."""
    return HighsOutcome(
        termination=Termination.OPTIMAL,
        has_values=True,
        objective=value,
        bound=value,
        nodes=0,
        simplex_iterations=0,
    )


class _Run:
    """One run of HiGHS in its own thread."""

    def __init__(self, highs: Any, watch: Watch) -> None:
        self._highs, self._watch = highs, watch
        self._begun = time.perf_counter()
        self._is_done = threading.Event()
        self._error: BaseException | None = None
        self.reason: Termination | None = None

    def execute(self) -> None:
        """Run to the end, to a reason to stop, or to Ctrl-C; raise what the watching code raised."""
        highs = self._highs
        is_mip = bool(len(highs.getLp().integrality_))
        # Stopping the linear programmes inside a mixed-integer run would lose the run's best point.
        events = [highs.cbMipInterrupt] if is_mip else [highs.cbSimplexInterrupt, highs.cbIpmInterrupt]
        for event in events:
            event.subscribe(self._ask)
        threading.Thread(target=self._run, name="highs", daemon=True).start()
        # Not Thread.join: interrupted by Ctrl-C it may take a running thread for a finished one (Python 3.11).
        has_ended = False
        while not has_ended:
            try:
                while not has_ended:
                    has_ended = self._is_done.wait(POLL_S)
            except KeyboardInterrupt:
                self.reason = Termination.INTERRUPTED
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._highs.run()
        finally:
            self._is_done.set()

    def _ask(self, event: Any) -> None:
        """Tell HiGHS to stop if there is a reason; an exception must not cross into it."""
        if self.reason is None and self._error is None:
            data = event.data_out
            state = HighsState(
                elapsed_s=time.perf_counter() - self._begun,
                nodes=max(0, int(data.mip_node_count)),
                objective=_finite(data.mip_primal_bound),
                bound=_finite(data.mip_dual_bound),
            )
            try:
                self.reason = self._watch(state)
            except BaseException as error:
                self._error = error
        if self.reason is not None or self._error is not None:
            event.interrupt()


def _highs_lp(form: Any, *, is_maximisation: bool) -> Any:
    """Return HiGHS' form of a compiled programme."""
    import highspy

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(form.columns), len(form.rows)
    lp.sense_ = highspy.ObjSense.kMaximize if is_maximisation else highspy.ObjSense.kMinimize
    lp.offset_ = float(form.c_offset[0])
    lp.col_cost_ = np.asarray(form.c.todense(), dtype=np.float64).ravel()
    bounds = [variable.bounds for variable in form.columns]
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


def _must_be_ok(status: Any, what: str) -> None:
    import highspy

    if status == highspy.HighsStatus.kError:
        raise ValueError(f"HiGHS refuses {what}")


def _finite(value: float) -> float | None:
    return float(value) if abs(value) < INFINITE else None


def _termination(status: Any) -> Termination:
    import highspy

    kinds = highspy.HighsModelStatus
    known = {
        kinds.kOptimal: Termination.OPTIMAL,
        kinds.kInfeasible: Termination.INFEASIBLE,
        kinds.kUnbounded: Termination.DUAL_INFEASIBLE,
        kinds.kUnboundedOrInfeasible: Termination.DUAL_INFEASIBLE,
        kinds.kTimeLimit: Termination.TIME_LIMIT,
        kinds.kIterationLimit: Termination.ITERATION_LIMIT,
        kinds.kSolutionLimit: Termination.NODE_LIMIT,
        kinds.kInterrupt: Termination.INTERRUPTED,
    }
    return known.get(status, Termination.NUMERICAL_ERROR)
