"""HiGHS: Pyomo models, packing programmes that grow, and one silent run on one thread.

HiGHS returns only when it is done. Here it runs in a separate thread, which is polled at HiGHS' interrupt points and
several times per second. So a stopping rule or Ctrl-C ends it soon, with its best solution.

HiGHS gives no checkable proof, and has declared points optimal that weren't (1.12 to 1.15 did in presolve). So no claim
relies on it, and an error is caught where the result is used:

- dual points of linear programmes (trees of bidding and admission, prices of auctions and time shares) are only prices: the
  bound is recomputed from them, and `verify` recomputes it again;
- points of mixed-integer programmes (`compact-milp`, `dorm`, servers of recurring jobs, the search for bad instances) are
  only plans: they are valued and checked against the instance, and a missed optimum only costs value;
- HiGHS' bounds of mixed-integer programmes are reported separately as `claimed_bound`, and marked wrong if a plan is better.

Pyomo's own interfaces also return only when HiGHS is done, so Pyomo models are passed to HiGHS directly.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from optim.core.arrays import BoolArray, FloatArray, power_of_two_scale
from optim.core.errors import SolverError
from optim.core.solution import Termination

if TYPE_CHECKING:
    import highspy

INFINITE = 1e29
"""HiGHS' infinities are at least this large."""

POLL_S = 0.05
"""Interval at which the waiting thread checks whether HiGHS is done or must stop."""

WHOLE_NUMBERS = 2**31
"""Upper limit of HiGHS' integers, including random seeds."""

OptionValue = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class HighsState:
    """Progress of HiGHS, in the programme's own sense; None for unknown values."""

    elapsed_s: float
    nodes: int
    objective: float | None
    bound: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HighsOutcome:
    """Result reported by HiGHS.

    Parameters
    ----------
    termination
        Why HiGHS stopped. `optimal` is HiGHS' claim, which comes without a proof.
    is_aborted
        Whether Ctrl-C stopped HiGHS; the termination is `interrupted` then.
    values
        The columns' values at a feasible point; None if none is known.
    objective, bound
        Value of the point, and bound on the value of every point, as HiGHS claims; None if unknown.
    nodes, simplex_iterations
        Number of branch-and-bound nodes and of simplex iterations.
    """

    termination: Termination
    is_aborted: bool = False
    values: NDArray[np.float64] | None
    objective: float | None
    bound: float | None
    nodes: int
    simplex_iterations: int

    @property
    def has_values(self) -> bool:
        """Whether there is a feasible point."""
        return self.values is not None


Watch = Callable[[HighsState], Termination | None]
"""Called at HiGHS' interrupt points and in between, by one thread at a time; a returned reason ends the run."""


DUAL_SIMPLEX, PRIMAL_SIMPLEX = 1, 4
"""HiGHS' simplex strategies: dual simplex after changes of bounds and new rows, primal simplex after new columns."""

OnSolution = Callable[[FloatArray], None]
"""Function called with the columns' values at each better point."""


def keep_going(state: HighsState) -> Termination | None:
    """Let HiGHS run."""
    return None


def silent_highs(lp: Any = None, **options: OptionValue) -> Any:
    """Return a solver on one thread without output, with options by HiGHS' names; it loads `lp`, a `HighsLp`, if given."""
    import highspy

    _greeted()
    highs = highspy.Highs()
    for name, value in {"output_flag": False, "threads": 1, **options}.items():
        _must_be_ok(highs.setOptionValue(name, value), f"option {name}={value!r}")
    if lp is not None:
        _must_be_ok(highs.passModel(lp), "the model")
    return highs


def run_in_place(highs: Any) -> Any:
    """Run HiGHS in the calling thread, to its end; return its `HighsModelStatus`, which is never an error status.

    If rounding prevents an answer (`kUnknown`, `kSolveError`), HiGHS runs again from the start. The second run may return
    the same status: then the result is unknown, and no conclusion is valid.

    Raises
    ------
    SolverError
        If HiGHS didn't run, which doesn't mean that there is no optimum.
    """
    if _must_end(highs) in _open_endings():
        highs.clearSolver()
        _must_end(highs)
    return highs.getModelStatus()


def run_to_optimum(highs: Any) -> None:
    """Run HiGHS in the calling thread on a programme with an optimum; afterwards it has a primal and a dual point.

    Raises
    ------
    SolverError
        If HiGHS finds no optimum, not even one that misses its tolerances by rounding.
    """
    import highspy

    status, solution = run_in_place(highs), highs.getSolution()
    is_near = status == highspy.HighsModelStatus.kUnknown and solution.value_valid and solution.dual_valid
    if not (status == highspy.HighsModelStatus.kOptimal or is_near):
        raise no_answer(highs)


def _must_end(highs: Any) -> Any:
    """Run HiGHS, and return the model's status; raise SolverError if it is an error status."""
    import highspy

    has_failed = _ran(highs) == highspy.HighsStatus.kError
    status = highs.getModelStatus()
    if status not in _open_endings() and (has_failed or status not in _known_endings()):
        raise no_answer(highs)
    return status


def _ran(highs: Any) -> Any:
    """Run HiGHS, and return its status.

    HiGHS keeps the workers of its first run in each thread, and rejects a run with another number of workers. Other
    code in this process, which uses threads by default, must not break our runs.
    """
    import highspy

    status = highs.run()
    if status == highspy.HighsStatus.kError and highs.getModelStatus() == highspy.HighsModelStatus.kNotset:
        highspy.Highs.resetGlobalScheduler(True)
        status = highs.run()
    return status


def no_answer(highs: Any) -> SolverError:
    """Return the error for a programme that HiGHS couldn't answer."""
    return SolverError(
        f"HiGHS {highs.version()} ended with {highs.modelStatusToString(highs.getModelStatus())!r} on a linear programme of "
        f"{highs.getNumRow()} rows and {highs.getNumCol()} columns; try another solver, or another version of highspy"
    )


@cache
def _greeted() -> None:
    """Create a first solver while output is suppressed, since it prints HiGHS' banner (from 1.16 on)."""
    import highspy

    with _nothing_printed():
        highspy.Highs()


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """Redirect file descriptor 1, if open: output of compiled code bypasses `sys.stdout`."""
    try:
        stdout_copy = os.dup(1)
    except OSError:
        yield
        return
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.close(sink)
        yield
    finally:
        os.dup2(stdout_copy, 1)
        os.close(stdout_copy)


def run_highs(
    highs: Any,
    *,
    time_limit_s: float = math.inf,
    seed: int = 0,
    options: Mapping[str, OptionValue] | None = None,
    watch: Watch = keep_going,
    on_solution: OnSolution | None = None,
    has_interrupts: bool = True,
) -> HighsOutcome:
    """Run HiGHS on its loaded programme.

    Parameters
    ----------
    highs
        A solver with a linear or mixed-integer programme.
    time_limit_s
        Wall-clock limit.
    seed
        Seed of HiGHS' random numbers; only the last 31 bits count.
    options
        Further options by HiGHS' names. Only a relative gap stops the run unless they include an absolute one.
    watch
        Called at HiGHS' interrupt points and in between; a returned reason stops the run.
    on_solution
        Called with every better point of a mixed-integer programme when it is found, in HiGHS' thread.
    has_interrupts
        Whether `watch` is also called at the interrupt points. HiGHS reaches some hundred of them per second, and at
        each it waits for Python's lock while other threads are busy. Without these calls, the state that `watch` gets
        contains only the elapsed time.

    Returns
    -------
    HighsOutcome
        Ctrl-C is the termination `interrupted`, not an exception.
    """
    import highspy

    chosen: dict[str, OptionValue] = {
        "threads": 1,
        "random_seed": seed % WHOLE_NUMBERS,
        "mip_abs_gap": 0.0,
        "time_limit": max(0.0, time_limit_s),
        **(options or {}),
    }
    for name, value in chosen.items():
        capped = min(value, WHOLE_NUMBERS - 1) if isinstance(value, int) else value  # a larger limit has no effect
        _must_be_ok(highs.setOptionValue(name, capped), f"option {name}={value!r}")
    run = _Run(highs, watch, on_solution)
    run.execute(has_interrupts=has_interrupts)
    info = highs.getInfo()
    has_values = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    is_mip = bool(len(highs.getLp().integrality_))
    return HighsOutcome(
        termination=Termination.NUMERICAL_ERROR
        if run.has_failed
        else run.reason or _termination(highs.getModelStatus()),
        is_aborted=run.is_aborted,
        values=np.array(highs.getSolution().col_value, dtype=np.float64) if has_values else None,
        objective=_finite(info.objective_function_value) if has_values else None,
        bound=_finite(info.mip_dual_bound if is_mip else info.objective_function_value) if info.valid else None,
        nodes=max(0, int(info.mip_node_count)),
        simplex_iterations=max(0, int(info.simplex_iteration_count)),
    )


class _Run:
    """One run in a separate thread."""

    def __init__(self, highs: Any, watch: Watch, on_solution: OnSolution | None) -> None:
        self._highs, self._watch, self._on_solution = highs, watch, on_solution
        self._begun = time.perf_counter()
        self._state = HighsState(elapsed_s=0.0, nodes=0, objective=None, bound=None)
        self._asking = threading.Lock()
        self._is_done = threading.Event()
        self._error: BaseException | None = None
        self.reason: Termination | None = None
        self.is_aborted = self.has_failed = False

    def execute(self, *, has_interrupts: bool) -> None:
        """Run HiGHS until it is done, `watch` returns a reason to stop, or Ctrl-C; re-raise exceptions of callbacks."""
        highs = self._highs
        is_mip = bool(len(highs.getLp().integrality_))
        # Stopping the linear programmes inside a mixed-integer run would discard the run's best point.
        events = [highs.cbMipInterrupt] if is_mip else [highs.cbSimplexInterrupt, highs.cbIpmInterrupt]
        for event in events if has_interrupts else ():
            event.subscribe(self._answer)
        if is_mip and self._on_solution is not None:
            highs.cbMipImprovingSolution.subscribe(self._hand_over)
        threading.Thread(target=self._run, name="highs", daemon=True).start()
        # Not Thread.join: interrupted by Ctrl-C, it may treat a running thread as finished (Python 3.11).
        has_ended = False
        while not has_ended:
            try:
                while not has_ended:
                    has_ended = self._is_done.wait(POLL_S)
                    if not has_ended and self._must_stop(self._state):
                        # Presolve has no interrupt points, but checks the time limit.
                        highs.setOptionValue("time_limit", 0.0)
            except KeyboardInterrupt:
                self._abort()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        import highspy

        try:
            self.has_failed = _ran(self._highs) == highspy.HighsStatus.kError
        except BaseException as error:
            self._error = error
        finally:
            self._is_done.set()

    def _answer(self, event: Any) -> None:
        """Store HiGHS' state at an interrupt point, and interrupt HiGHS if there is a reason to stop."""
        data = event.data_out
        state = HighsState(
            elapsed_s=0.0,
            nodes=max(0, int(data.mip_node_count)),
            objective=_finite(data.mip_primal_bound),
            bound=_finite(data.mip_dual_bound),
        )
        if self._must_stop(state):
            event.interrupt()
        self._state = state

    def _hand_over(self, event: Any) -> None:
        """Pass a better point to `on_solution`; an exception is stored, since it must not cross into HiGHS."""
        assert self._on_solution is not None
        try:
            self._on_solution(np.array(event.data_out.mip_solution, dtype=np.float64))
        except BaseException as error:
            self._error = error

    def _must_stop(self, state: HighsState) -> bool:
        """Return whether there is a reason to stop; an exception is stored, since it must not cross into HiGHS."""
        with self._asking:
            if self.reason is None and self._error is None:
                try:
                    self.reason = self._watch(replace(state, elapsed_s=time.perf_counter() - self._begun))
                except KeyboardInterrupt:
                    self._abort()
                except BaseException as error:
                    self._error = error
            return self.reason is not None or self._error is not None

    def _abort(self) -> None:
        self.reason, self.is_aborted = Termination.INTERRUPTED, True


def _must_be_ok(status: Any, what: str) -> None:
    import highspy

    if status == highspy.HighsStatus.kError:
        raise ValueError(f"HiGHS rejects {what}")


def _finite(value: float) -> float | None:
    return float(value) if abs(value) < INFINITE else None


def _termination(status: Any) -> Termination:
    return _known_endings().get(status, Termination.NUMERICAL_ERROR)


@cache
def _open_endings() -> frozenset[Any]:
    """Return the statuses of numerical failure, which carry no information on the programme."""
    import highspy

    return frozenset({highspy.HighsModelStatus.kUnknown, highspy.HighsModelStatus.kSolveError})


@cache
def _known_endings() -> dict[Any, Termination]:
    """Return the termination for each of HiGHS' statuses; all others are errors, or carry no information."""
    import highspy

    kinds = highspy.HighsModelStatus
    return {
        kinds.kOptimal: Termination.OPTIMAL,
        kinds.kInfeasible: Termination.INFEASIBLE,
        kinds.kUnbounded: Termination.DUAL_INFEASIBLE,
        kinds.kUnboundedOrInfeasible: Termination.DUAL_INFEASIBLE,
        kinds.kTimeLimit: Termination.TIME_LIMIT,
        kinds.kIterationLimit: Termination.ITERATION_LIMIT,
        kinds.kSolutionLimit: Termination.NODE_LIMIT,
        kinds.kInterrupt: Termination.INTERRUPTED,
    }


__all__ = ["CompiledModel", "HighsOutcome", "HighsState", "solve_with_highs"]


class CompiledModel:
    """A linear or mixed-integer Pyomo model with one objective, translated for HiGHS.

    Parameters
    ----------
    model
        A concrete Pyomo model; its variables receive the solution's values.
    """

    def __init__(self, model: Any) -> None:
        from pyomo.core.base.objective import maximize
        from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

        form = LinearStandardFormCompiler().write(model, mixed_form=True, set_sense=None)
        self.columns: list[Any] = list(form.columns)
        self.rows: list[Any] = [row.constraint for row in form.rows]
        self.lp = _highs_lp(form, is_maximisation=form.objectives[0].sense == maximize)

    def load(self, values: Any) -> None:
        """Set the values of the model's variables."""
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
    """Run HiGHS, and load the best point that it finds into the model's variables.

    HiGHS' tolerances are absolute. So costs that are all below 1 are scaled by a power of two, which makes the largest at
    least 1. They are not scaled if `options` contain an absolute gap, which is in the model's own unit.

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
    unit = 1.0 if has_own_gap else power_of_two_scale(float(np.abs(np.asarray(compiled.lp.col_cost_)).max(initial=0.0)))
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
    """Return the outcome of a model without variables, for which HiGHS gives no value."""
    return HighsOutcome(
        termination=Termination.OPTIMAL,
        values=np.zeros(0),
        objective=value,
        bound=value,
        nodes=0,
        simplex_iterations=0,
    )


def _highs_lp(form: Any, *, is_maximisation: bool) -> Any:
    """Return Pyomo's standard form of a model in HiGHS' form."""
    # Pyomo 6.9.3, the oldest supported version, keeps a fixed variable as a column.
    bounds = [(one.value, one.value) if one.fixed else one.bounds for one in form.columns]
    senses = np.array([row.bound_type for row in form.rows], dtype=np.int64)
    rhs = np.asarray(form.rhs, dtype=np.float64)
    lp = highs_lp(
        cost=np.asarray(form.c.todense(), dtype=np.float64).ravel(),
        lower=np.array([-np.inf if low is None else low for low, _ in bounds], dtype=np.float64),
        upper=np.array([np.inf if high is None else high for _, high in bounds], dtype=np.float64),
        matrix=form.A.tocsc(),
        row_lower=np.where(senses <= 0, rhs, -np.inf),
        row_upper=np.where(senses >= 0, rhs, np.inf),
        is_integer=np.array([not variable.is_continuous() for variable in form.columns], dtype=np.bool_),
        is_maximisation=is_maximisation,
    )
    lp.offset_ = float(form.c_offset[0])
    return lp


def highs_lp(
    *,
    cost: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    matrix: csc_array,
    row_lower: FloatArray,
    row_upper: FloatArray,
    is_integer: BoolArray,
    is_maximisation: bool,
) -> Any:
    """Return min or max ``cost @ x`` with ``lower <= x <= upper`` and ``row_lower <= matrix @ x <= row_upper`` in HiGHS' form.

    Bounds may be infinite; `is_integer` marks the integer columns, shape (columns,).
    """
    import highspy

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(row_lower)
    lp.sense_ = highspy.ObjSense.kMaximize if is_maximisation else highspy.ObjSense.kMinimize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, lower, upper
    lp.row_lower_, lp.row_upper_ = row_lower, row_upper
    if is_integer.any():
        types = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        lp.integrality_ = [types[each] for each in is_integer.tolist()]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    lp.a_matrix_.index_ = matrix.indices.astype(np.int32)
    lp.a_matrix_.value_ = matrix.data.astype(np.float64)
    return lp


def empty_programme(num_rows: int) -> "highspy.Highs":
    """Return a programme without columns, solved by the simplex method on one thread.

    Costs and bounds are not perturbed: programmes that change a little and start from the last basis take fewer steps
    without perturbation.
    """
    import highspy

    highs = silent_highs(
        solver="simplex",
        presolve="off",
        simplex_scale_strategy=0,
        dual_simplex_cost_perturbation_multiplier=0.0,
        primal_simplex_bound_perturbation_multiplier=0.0,
    )
    highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
    add_rows(highs, csr_array((num_rows, 0)))
    return highs


def add_rows(highs: "highspy.Highs", matrix: csr_array) -> None:
    """Append rows with right-hand side 1, shape (rows, columns so far)."""
    number = matrix.shape[0]
    highs.addRows(
        number, np.full(number, -np.inf), np.ones(number), matrix.nnz, matrix.indptr[:-1].astype(np.int32),
        matrix.indices.astype(np.int32), matrix.data,
    )  # fmt: skip


def add_columns(highs: "highspy.Highs", value: FloatArray, matrix: csc_array, upper: FloatArray) -> None:
    """Append columns between 0 and `upper`, shape (rows so far, columns)."""
    number = matrix.shape[1]
    highs.addCols(
        number, value, np.zeros(number), upper, matrix.nnz, matrix.indptr[:-1].astype(np.int32),
        matrix.indices.astype(np.int32), matrix.data,
    )  # fmt: skip
