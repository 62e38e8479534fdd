"""Concurrent jobs on this machine, with the workers and servers of an admission plan, slot by slot.

The plan sets the numbers of workers and parameter servers per job and slot. In the emulation each worker and each server is a
process, and a slot lasts `PlanOptions.slot_s` seconds. A job's work is its number of mini-batches times the instance's seconds
per mini-batch, at that scale. Each worker limits itself to a fraction of a core. The run measures whether jobs complete when
planned.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.data import MICRO
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.simulation.emulation.job_run import IDLE_S, JobPlan, JobRow, JobRun, PlanOptions, SharedClock, read_plan


def run_plan(
    instance: AdmissionInstance,
    plan: AdmissionPlan,
    options: PlanOptions,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_slot: Callable[[int], None] = lambda slot: None,
    on_paused: Callable[[float], None] = lambda seconds: None,
) -> tuple[JobRow, ...]:
    """Train all admitted jobs concurrently, and return one row per job.

    Parameters
    ----------
    instance, plan
        Problem and its solution.
    options
        Options of the run.
    is_stopped
        Function called repeatedly; all jobs end once it returns True.
    on_slot
        Function called with each slot that begins.
    on_paused
        Function called at the end with the seconds for which the clock was paused while processes started.

    Raises
    ------
    UnsupportedProblemError
        If the plan has more processes at once than allowed.
    """
    runs = play_jobs(
        read_plan(instance, plan),
        options,
        scale=options.slot_s / (instance.slot_micro_s / MICRO),
        is_stopped=is_stopped,
        on_slot=on_slot,
        on_paused=on_paused,
    )
    return tuple(
        run.row(float(instance.value[run.plan.job, run.plan.last_slot]), partial(_earned, instance, run.plan.job))
        for run in runs
    )


def _earned(instance: AdmissionInstance, job: int, slots: float) -> float:
    return float(instance.value[job, int(slots)]) if slots < instance.horizon else 0.0


def play_jobs(
    jobs: Sequence[JobPlan],
    options: PlanOptions,
    *,
    scale: float = 1.0,
    is_stopped: Callable[[], bool] = lambda: False,
    on_slot: Callable[[int], None] = lambda slot: None,
    on_paused: Callable[[float], None] = lambda seconds: None,
) -> tuple[JobRun, ...]:
    """Train jobs concurrently, each with the machines of its plan slot by slot.

    Parameters
    ----------
    jobs, options
        Plans of the jobs, and options of the run.
    scale
        Seconds of the run per second of the jobs; the length of their gradients is scaled by the same factor.
    is_stopped, on_slot, on_paused
        As in `run_plan`.

    Raises
    ------
    UnsupportedProblemError
        If there are more processes at once than allowed.
    """
    _check_processes(jobs, options)
    last = max((job.last_slot for job in jobs), default=-1)
    busiest = max((sum(job.machines.get(slot, (0, 0))[0] for job in jobs) for slot in range(last + 1)), default=0)
    share = min(1.0, options.cores / max(1, busiest))
    with closing(SharedClock()) as clock:
        runs = [JobRun(job, options, share=share, scale=scale, clock=clock) for job in jobs]
        _Slots(runs, clock, options).play(last + options.overrun, is_stopped, on_slot)
        on_paused(clock.paused_s)
    for run in runs:
        if run.error is not None:
            raise run.error
    return tuple(runs)


class _Slots:
    """The slots of a run. A slot begins when the machines of all jobs are up; until then the clock is paused.

    Without the pause, the start of processes, whose time does not scale, would use the workers' time and cores.
    """

    def __init__(self, runs: Sequence[JobRun], clock: SharedClock, options: PlanOptions) -> None:
        self._runs, self._clock, self._slot_s = runs, clock, options.slot_s
        self._slot = 0

    def play(self, last_slot: int, is_stopped: Callable[[], bool], on_slot: Callable[[int], None]) -> None:
        """Run all jobs, each in a separate thread, until all have ended."""

        def is_over() -> bool:
            return is_stopped() or any(run.error is not None for run in self._runs)

        arguments = (lambda: self._slot, last_slot, is_over)
        threads = [threading.Thread(target=run.play, args=arguments, daemon=True) for run in self._runs]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            on_slot(self._slot)
            while any(run.settled_slot < self._slot for run in self._runs):
                time.sleep(IDLE_S)
            self._clock.resume()
            end = (self._slot + 1) * self._slot_s
            while self._clock.monotonic() < end and any(thread.is_alive() for thread in threads):
                time.sleep(min(IDLE_S, self._slot_s / 4))
            self._clock.pause()
            self._slot += 1


def _check_processes(jobs: Sequence[JobPlan], options: PlanOptions) -> None:
    slots = {slot for job in jobs for slot in job.machines}
    at_once = max((sum(sum(job.machines.get(slot, (0, 0))) for job in jobs) for slot in slots), default=0)
    if at_once > options.max_processes:
        raise UnsupportedProblemError(
            f"the plan has {at_once} workers and servers in one slot, more than max_processes {options.max_processes}; "
            "raise max_processes, or choose a smaller instance"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """Errors of a run's jobs relative to their plan.

    Attributes
    ----------
    jobs, unfinished
        Number of jobs, and number of jobs that weren't done in time.
    median_error, p90_error, max_error
        Absolute relative error of the time from a job's first slot to its completion, over completed jobs.
    mean_error
        Mean signed relative error; jobs are late if it is positive.
    planned_utility, realised_utility
        Sum of the planned utilities, and sum of the realised utilities, over all jobs.
    """

    jobs: int
    unfinished: int
    median_error: float | None
    p90_error: float | None
    max_error: float | None
    mean_error: float | None
    planned_utility: float
    realised_utility: float


def summary_of(rows: Sequence[JobRow]) -> PlanSummary:
    """Return the distribution of the errors, and their effect on utility."""
    errors = np.array([row.error for row in rows if row.error is not None])
    figures: list[float | None] = [None] * 4
    if len(errors):
        figures = [*np.quantile(np.abs(errors), [0.5, 0.9, 1.0]).tolist(), float(errors.mean())]
    return PlanSummary(
        jobs=len(rows),
        unfinished=sum(row.realised_slots is None for row in rows),
        median_error=figures[0],
        p90_error=figures[1],
        max_error=figures[2],
        mean_error=figures[3],
        planned_utility=sum(row.planned_utility for row in rows),
        realised_utility=sum(row.realised_utility for row in rows),
    )
