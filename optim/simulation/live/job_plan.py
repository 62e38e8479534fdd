"""What an admission plan gives each job, slot by slot, and how it is played on this machine."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.models.admission.instance import MEGABITS_THERE_AND_BACK, MICRO, AdmissionInstance
from optim.models.admission.plan import COUNT, JOB, SLOT, AdmissionPlan
from optim.models.admission.speedup import TWENTIETHS, curve_of, progress_by_workers

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How a plan is played.

    Parameters
    ----------
    slot_s
        Seconds that a slot of the plan lasts here.
    gradient_s
        Least seconds that a lone worker takes for what it computes between two pushes: as many of the job's mini-batches.
    cores
        Cores that all workers of the busiest slot hold themselves to together.
    most_floats
        Longest vectors that are carried: a job's gradients at the scale of time, and no longer than this.
    max_processes
        Most processes at once.
    overrun
        Slots after the plan's last one that a late job may still use, with its last machines.
    seed
        Of the data.
    """

    slot_s: float = 4.0
    gradient_s: float = 0.05
    cores: float = 1.6
    most_floats: int = 1 << 18
    max_processes: int = 64
    overrun: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.slot_s > 0 and 0 <= self.gradient_s < self.slot_s):
            raise InvalidOptionError(
                f"need slot_s > 0 and 0 <= gradient_s < slot_s, got {self.slot_s} and {self.gradient_s}"
            )
        check_in("[1, inf)", self, "max_processes", "most_floats")
        check_in("(0, inf)", self, "cores")
        check_in("[0, inf)", self, "overrun", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What the plan gives one job.

    Attributes
    ----------
    job, name
        Its number and its name.
    machines
        By slot: number of workers and of servers; slots without any are absent.
    work
        Slots that one worker would take for the whole job: the job's own mini-batches by its own seconds of one.
    speeds
        How many times as fast 1, 2, ... workers are, as the instance says.
    link_share
        Share of a mini-batch's seconds in which gradients are carried.
    gradient_floats
        Length of the job's gradients at full size.
    """

    job: int
    name: str
    machines: dict[int, tuple[int, int]]
    work: float
    speeds: tuple[float, ...]
    link_share: float = 0.0
    gradient_floats: int = 0

    @property
    def last_slot(self) -> int:
        """The slot in which the plan completes it."""
        return max(self.machines)

    def speed(self, workers: int) -> float:
        """Return how many times as fast as one so many workers are."""
        return self.speeds[min(workers, len(self.speeds)) - 1] if workers else 0.0

    @property
    def planned_slots(self) -> float:
        """When the work is done by the instance's own speeds, in slots from the beginning."""
        left = self.work
        for slot, (workers, _) in sorted(self.machines.items()):
            speed = self.speed(workers)
            if left <= speed:
                return slot + left / speed
            left -= speed
        return float(self.last_slot + 1)

    @property
    def most(self) -> tuple[int, int]:
        """Most workers, and most servers, in any slot."""
        return max(pair[0] for pair in self.machines.values()), max(pair[1] for pair in self.machines.values())


def read_plan(instance: AdmissionInstance, plan: AdmissionPlan) -> tuple[JobPlan, ...]:
    """Return what each admitted job is given, slot by slot."""
    jobs = []
    for job in plan.admitted.tolist():
        machines: dict[int, list[int]] = {}
        for side, rows in enumerate((plan.workers, plan.ps)):
            for row in rows[rows[:, JOB] == job]:
                machines.setdefault(int(row[SLOT]), [0, 0])[side] += int(row[COUNT])
        pairs = {slot: (workers, max(1, servers)) for slot, (workers, servers) in machines.items() if workers > 0}
        jobs.append(_job_plan(instance, job, pairs))
    return tuple(jobs)


def _job_plan(instance: AdmissionInstance, job: int, machines: dict[int, tuple[int, int]]) -> JobPlan:
    """Return a job's plan with the job's own work, speeds and sizes."""
    jobs = instance.jobs
    most = max(workers for workers, _ in machines.values())
    curve = curve_of(jobs, job)
    table = progress_by_workers(curve, most)[1:] / TWENTIETHS if curve else np.arange(1.0, most + 1)
    gradient_mb = int(jobs.gradient_micro_mb[job]) / MICRO
    carried_s = MEGABITS_THERE_AND_BACK * gradient_mb / (int(jobs.worker_micro_mbps[job]) / MICRO)
    minibatch_s = int(jobs.minibatch_micro_s[job]) / MICRO + carried_s
    return JobPlan(
        job=job,
        name=jobs.ids[job],
        machines=machines,
        work=float(int(jobs.epochs[job]) * int(jobs.chunks[job]) * instance.chunk_slots[job]),
        speeds=tuple(table.tolist()),
        link_share=carried_s / minibatch_s if minibatch_s > 0 else 0.0,
        gradient_floats=round(gradient_mb * 1e6 / FLOAT_BYTES),
    )
