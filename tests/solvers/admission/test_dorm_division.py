"""Dorm's programme and how HiGHS is stopped in it; `test_dorm` tests its results."""

import _thread
import time
from dataclasses import replace
from threading import Timer

import numpy as np
import pytest

from optim.solvers.admission.dorm import Division, DivisionLimits, DivisionProblem, divide

SOON_S = 1.0
"""Seconds within which HiGHS ends after a request to stop, even on a busy machine."""

ENDLESS = DivisionLimits(columns=1000, nodes=10**9, time_s=20.0, relative_gap=0.0)


@pytest.fixture(name="hard")
def fixture_hard() -> DivisionProblem:
    """Return a programme for which HiGHS finds a feasible point at once, but an optimum only after minutes."""
    jobs, classes, rng = 12, 4, np.random.default_rng(0)
    none = np.zeros((jobs, classes), dtype=np.int64)
    return DivisionProblem(
        worker_demand=rng.uniform(1, 9, (jobs, 3)),
        ps_demand=rng.uniform(1, 5, (jobs, 3)),
        worker_limit=np.full((jobs, classes), 6),
        ps_limit=np.full((jobs, classes), 6),
        worker_capacity=rng.uniform(30, 60, (classes, 3)),
        ps_capacity=rng.uniform(20, 40, (classes, 3)),
        is_shared=False,
        ps_per_worker=rng.choice([0.25, 0.5, 1.0], jobs),
        least=np.full(jobs, 2),
        most=np.full(jobs, 9),
        fair=rng.integers(1, 5, jobs),
        is_running=np.zeros(jobs, dtype=np.int64),
        current=Division(workers=none, ps=none),
        fairness_limit=2.0,
        change_limit=3,
    )


def test_is_out_of_time_soon_after_it_is_told_to_stop(hard: DivisionProblem) -> None:
    stop_at = time.perf_counter() + 0.1
    outcome = divide(hard, replace(ENDLESS, should_stop=lambda: time.perf_counter() > stop_at))
    assert outcome.is_out_of_time
    assert outcome.division is not None
    assert 0 < time.perf_counter() - stop_at < SOON_S


@pytest.mark.usefixtures("heeded_ctrl_c")
def test_ctrl_c_passes_through(hard: DivisionProblem) -> None:
    pressed_at: list[float] = []

    def press() -> None:
        pressed_at.append(time.perf_counter())
        _thread.interrupt_main()

    Timer(0.1, press).start()
    with pytest.raises(KeyboardInterrupt):
        divide(hard, replace(ENDLESS, time_s=3.0))
    assert time.perf_counter() - pressed_at[0] < SOON_S
