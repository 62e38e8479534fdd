"""Several jobs at once on this machine, with the workers and servers of an admission plan, slot by slot.

The plan says for each job and slot how many workers and parameter servers it has. Here every one of them is a process, and
a slot lasts as long as the scale of time says. A job's work is its own: its mini-batches by the seconds that the instance
says of one, at that scale. Each worker holds itself to a share of a core. Whether the work is done when the plan says is
the question.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.instance import MICRO, AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.simulation.live.job_plan import JobPlan, PlanOptions, read_plan
from optim.simulation.live.job_run import IDLE_S, JobRow, JobRun


def run_plan(
    instance: AdmissionInstance,
    plan: AdmissionPlan,
    options: PlanOptions,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_slot: Callable[[int], None] = lambda slot: None,
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
) -> tuple[JobRun, ...]:
    """Train jobs at once, each with the machines that its plan gives it slot by slot.

    Parameters
    ----------
    jobs, options
        What they are given, and how that is played.
    scale
        Seconds here for one of the jobs' own: what their gradients are shortened by.
    is_stopped, on_slot
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
    runs = [JobRun(job, options, share=share, scale=scale) for job in jobs]
    start = threading.Barrier(len(runs) + 1)
    arguments = (start, last + options.overrun, is_stopped)
    threads = [threading.Thread(target=run.play, args=arguments, daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):  # the run that broke it says why
        start.wait()
    begun = time.perf_counter()
    seen = -1
    while any(thread.is_alive() for thread in threads):
        slot = int((time.perf_counter() - begun) / options.slot_s)
        if slot > seen:
            seen = slot
            on_slot(slot)
        time.sleep(IDLE_S)
    for run in runs:
        if run.error is not None:
            raise run.error
    return tuple(runs)


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
