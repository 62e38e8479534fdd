"""Several jobs at once on this machine, with the workers and servers of an admission plan, slot by slot.

The plan says for each job and slot how many workers and parameter servers it has. Here every one of them is a process, and
a slot lasts as long as the scale of time says. A job's work is its own: its mini-batches by the seconds that the instance
says of one, at that scale. Each worker holds itself to a share of a core. Whether the work is done when the plan says is
the question.
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
    """Train all admitted jobs at once, and return a row for each.

    Parameters
    ----------
    instance, plan
        The problem and its decision.
    options
        How it is played.
    is_stopped
        Asked again and again; once true, all jobs end where they are.
    on_slot
        Told each slot that begins.
    on_paused
        Told at the end for how many seconds the clock stood still while processes started.

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
    """Train jobs at once, each with the machines that its plan gives it slot by slot.

    Parameters
    ----------
    jobs, options
        What they are given, and how that is played.
    scale
        Seconds here for one of the jobs' own: what their gradients are shortened by.
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
    """Slot after slot, each of which begins when its machines are up: until then the clock stands still.

    Starting a process takes as long at any scale of time, and cores that the jobs' workers are promised.
    """

    def __init__(self, runs: Sequence[JobRun], clock: SharedClock, options: PlanOptions) -> None:
        self._runs, self._clock, self._slot_s = runs, clock, options.slot_s
        self._slot = 0

    def play(self, last_slot: int, is_stopped: Callable[[], bool], on_slot: Callable[[int], None]) -> None:
        """Play all jobs until each has ended, each in a thread of its own."""

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
            "raise it, or choose a smaller instance"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """How far the jobs of a run were from their plan.

    Attributes
    ----------
    jobs, unfinished
        How many were played, and how many weren't done in time.
    median_error, p90_error, max_error
        Of the absolute relative error of the time from a job's first slot to its completion, over those done.
    mean_error
        With its sign: above 0 jobs are late.
    planned_utility, realised_utility
        Summed over all jobs.
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
    """Return the errors' distribution, and what they do to utility."""
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
