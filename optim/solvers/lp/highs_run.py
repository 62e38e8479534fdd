"""One run of HiGHS: silent, on one thread, stopped at any time.

HiGHS by itself returns when it is done, and not before. Here it runs in a thread of its own; at its interrupt points
and several times a second it is asked whether to go on, so that a stopping rule or Ctrl-C ends it soon, with the best
solution that it has.

HiGHS proves nothing that could be checked, and has called points optimal that weren't (1.12 to 1.15 did in presolve). So no claim rests
on its word, and a wrong one is caught where it is used:

- dual points of linear programmes (trees of bidding and admission, prices of auctions and time shares) are only prices: the bound is
  added up from them anew, and `verify` does so again;
- points of mixed-integer programmes (`compact-milp`, `plain-milp`, `price-and-branch`, `dorm`, servers of recurring jobs, the search for
  bad instances) are only plans: they are valued, and checked, against the instance, and a missed optimum costs worth;
- its bounds of mixed-integer programmes stand apart as `claimed_bound`, and are called wrong where a plan is better.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import SolverError
from optim.core.status import Termination

INFINITE = 1e29
"""HiGHS' infinities are at least this large."""

POLL_S = 0.05
"""How often the waiting thread looks whether HiGHS is done, or has to stop."""

WHOLE_NUMBERS = 2**31
"""HiGHS' whole numbers, random seeds among them, are below this."""

OptionValue = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class HighsState:
    """How far HiGHS is, in the programme's own sense; None where there is no figure yet."""

    elapsed_s: float
    nodes: int
    objective: float | None
    bound: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HighsOutcome:
    """What HiGHS reports.

    Parameters
    ----------
    termination
        Why it stopped. `optimal` is HiGHS' claim, which comes without a proof.
    is_aborted
        Whether Ctrl-C stopped it; the termination is `interrupted` then.
    values
        The columns' values at a feasible point; None without one.
    objective, bound
        Value of the point and bound on every point's value, as HiGHS claims; None without one.
    nodes, simplex_iterations
        Work done.
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
"""Called at HiGHS' interrupt points and in between, by one thread at a time; a reason ends the run."""


def keep_going(state: HighsState) -> Termination | None:
    """Let HiGHS run."""
    return None


def silent_highs(lp: Any = None, **options: OptionValue) -> Any:
    """Return a solver on one thread that prints nothing, with options by HiGHS' names, and a `HighsLp` if one is given."""
    import highspy

    _greeted()
    highs = highspy.Highs()
    for name, value in {"output_flag": False, "threads": 1, **options}.items():
        _must_be_ok(highs.setOptionValue(name, value), f"option {name}={value!r}")
    if lp is not None:
        _must_be_ok(highs.passModel(lp), "the model")
    return highs


def run_in_place(highs: Any) -> Any:
    """Run HiGHS in the calling thread, to its end; return its `HighsModelStatus`, which is never that of an error.

    Where rounding keeps it from an answer (`kUnknown`, `kSolveError`) it runs again from the beginning, and may say so again:
    then nothing is known of the programme, and nothing may be concluded.

    Raises
    ------
    SolverError
        If HiGHS didn't run: that is no sign that there is no optimum.
    """
    if _must_end(highs) in _open_endings():
        highs.clearSolver()
        _must_end(highs)
    return highs.getModelStatus()


def run_to_optimum(highs: Any) -> None:
    """Run HiGHS in the calling thread on a programme that has an optimum; it holds a primal and a dual point then.

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
    """Run, and return the model's status unless it is that of an error."""
    import highspy

    has_failed = _ran(highs) == highspy.HighsStatus.kError
    status = highs.getModelStatus()
    if status not in _open_endings() and (has_failed or status not in _known_endings()):
        raise no_answer(highs)
    return status


def _ran(highs: Any) -> Any:
    """Run, and return HiGHS' status.

    HiGHS keeps for each thread the workers of its first run there, and refuses a run that asks for another number of
    them: one by default threads, of other code in this process, must not spoil ours.
    """
    import highspy

    status = highs.run()
    if status == highspy.HighsStatus.kError and highs.getModelStatus() == highspy.HighsModelStatus.kNotset:
        highspy.Highs.resetGlobalScheduler(True)
        status = highs.run()
    return status


def no_answer(highs: Any) -> SolverError:
    """Return the error that HiGHS gave a programme no answer."""
    return SolverError(
        f"HiGHS {highs.version()} ended with {highs.modelStatusToString(highs.getModelStatus())!r} on a linear programme of "
        f"{highs.getNumRow()} rows and {highs.getNumCol()} columns; try another solver, or another version of highspy"
    )


@cache
def _greeted() -> None:
    """Make a first solver, which prints who made HiGHS (from 1.16 on), while nothing that is printed arrives."""
    import highspy

    with _nothing_printed():
        highspy.Highs()


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """Turn file descriptor 1 aside, if it is open: what compiled code prints doesn't pass `sys.stdout`."""
    try:
        kept = os.dup(1)
    except OSError:
        yield
        return
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.close(sink)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def run_highs(
    highs: Any,
    *,
    time_limit_s: float = math.inf,
    seed: int = 0,
    options: Mapping[str, OptionValue] | None = None,
    watch: Watch = keep_going,
) -> HighsOutcome:
    """Run HiGHS on the programme that it holds.

    Parameters
    ----------
    highs
        A solver that holds a linear or mixed-integer programme.
    time_limit_s
        Wall-clock limit.
    seed
        Of HiGHS' random numbers; of larger ones the last 31 binary digits count.
    options
        Further options by HiGHS' names. A relative gap alone decides when to stop unless an absolute one is among them.
    watch
        Asked at HiGHS' interrupt points and in between whether to stop.

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
        **(options or {}),
    }
    if math.isfinite(time_limit_s):
        chosen["time_limit"] = max(0.0, time_limit_s)
    for name, value in chosen.items():
        given = min(value, WHOLE_NUMBERS - 1) if isinstance(value, int) else value  # a limit beyond is none
        _must_be_ok(highs.setOptionValue(name, given), f"option {name}={value!r}")
    run = _Run(highs, watch)
    run.execute()
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
    """One run in a thread of its own."""

    def __init__(self, highs: Any, watch: Watch) -> None:
        self._highs, self._watch = highs, watch
        self._begun = time.perf_counter()
        self._state = HighsState(elapsed_s=0.0, nodes=0, objective=None, bound=None)
        self._asking = threading.Lock()
        self._is_done = threading.Event()
        self._error: BaseException | None = None
        self.reason: Termination | None = None
        self.is_aborted = self.has_failed = False

    def execute(self) -> None:
        """Run to the end, to a reason to stop, or to Ctrl-C; raise what the watching code raised."""
        highs = self._highs
        is_mip = bool(len(highs.getLp().integrality_))
        # Stopping the linear programmes inside a mixed-integer run would lose the run's best point.
        events = [highs.cbMipInterrupt] if is_mip else [highs.cbSimplexInterrupt, highs.cbIpmInterrupt]
        for event in events:
            event.subscribe(self._answer)
        threading.Thread(target=self._run, name="highs", daemon=True).start()
        # Not Thread.join: interrupted by Ctrl-C it may take a running thread for a finished one (Python 3.11).
        has_ended = False
        while not has_ended:
            try:
                while not has_ended:
                    has_ended = self._is_done.wait(POLL_S)
                    if not has_ended and self._must_stop(self._state):
                        # There are no interrupt points in presolve, which looks at the time limit.
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
        """Tell HiGHS at an interrupt point whether to stop."""
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

    def _must_stop(self, state: HighsState) -> bool:
        """Ask whether there is a reason to stop; an exception must not cross into HiGHS."""
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
        raise ValueError(f"HiGHS refuses {what}")


def _finite(value: float) -> float | None:
    return float(value) if abs(value) < INFINITE else None


def _termination(status: Any) -> Termination:
    return _known_endings().get(status, Termination.NUMERICAL_ERROR)


@cache
def _open_endings() -> frozenset[Any]:
    """Return HiGHS' ends that say nothing of a programme: it tried, and its numbers were beyond it."""
    import highspy

    return frozenset({highspy.HighsModelStatus.kUnknown, highspy.HighsModelStatus.kSolveError})


@cache
def _known_endings() -> dict[Any, Termination]:
    """Return what HiGHS' ends are called here; all others are errors, or say nothing."""
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
