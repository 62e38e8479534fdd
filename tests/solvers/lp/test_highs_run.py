"""One run of HiGHS on a programme of its own form: when it stops, and with what."""

import _thread
import time
from typing import Any

import highspy
import numpy as np
import pytest

from optim.core.status import Termination
from optim.models.admission.compact import compact_model
from optim.solvers.lp.highs_model import CompiledModel
from optim.solvers.lp.highs_run import HighsState, _Run, run_highs, silent_highs
from tests.support.admission.small_clusters import crowd

SOON_S = 1.0
"""Within this time HiGHS ends when it is asked to, on a busy machine too."""


@pytest.fixture(name="hard")
def fixture_hard() -> Any:
    """Return a programme that HiGHS has a point of at once, and takes seconds for."""
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
    """Ask to stop a while after the run has begun, and remember when."""

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
    """As in presolve, where HiGHS looks at its time limit alone."""
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
