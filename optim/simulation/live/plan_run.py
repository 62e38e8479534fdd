"""Several jobs at once on this machine, with the workers and servers of an admission plan, slot by slot.

The plan says for each job and slot how many workers and parameter servers it has. Here every one of them is a process.
A job trains until it has done the work that the plan allots to it; whether that is when the plan says is the question.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.instance import AdmissionInstance
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
    jobs = read_plan(instance, plan)
    _check_processes(jobs, options)
    runs = [JobRun(job, options) for job in jobs]
    last = max((job.last_slot for job in jobs), default=-1) + options.overrun
    start = threading.Barrier(len(runs) + 1)
    threads = [threading.Thread(target=run.play, args=(start, last, is_stopped), daemon=True) for run in runs]
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
    return tuple(run.row(instance) for run in runs)


def _check_processes(jobs: Sequence[JobPlan], options: PlanOptions) -> None:
    slots = {slot for job in jobs for slot in job.machines}
    at_once = max((sum(sum(job.machines.get(slot, (0, 0))) for job in jobs) for slot in slots), default=0)
    if at_once > options.max_processes:
        raise UnsupportedProblemError(
            f"the plan has {at_once} workers and servers in one slot, more than max_processes {options.max_processes}; "
            "raise it, or choose a smaller instance"
        )
