"""What an admission plan gives each job, slot by slot, and how it is played on this machine."""

from dataclasses import dataclass

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import COUNT, JOB, SLOT, AdmissionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How a plan is played.

    Parameters
    ----------
    slot_s
        Seconds that a slot of the plan lasts here.
    gradient_s
        Least seconds that a worker takes for a gradient. It waits for the rest, so a plan with more workers than this
        machine has cores can be played; 0 trains as fast as the cores do, and the plan's pace is measured beforehand.
    max_processes
        Most processes at once.
    overrun
        Slots after the plan's last one that a late job may still use, with its last machines.
    seed
        Of the data.
    """

    slot_s: float = 4.0
    gradient_s: float = 0.05
    max_processes: int = 64
    overrun: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.slot_s > 0 and 0 <= self.gradient_s < self.slot_s):
            raise InvalidOptionError(
                f"need slot_s > 0 and 0 <= gradient_s < slot_s, got {self.slot_s} and {self.gradient_s}"
            )
        check_in("[1, inf)", self, "max_processes")
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
        Worker-slots that complete it.
    """

    job: int
    name: str
    machines: dict[int, tuple[int, int]]
    work: int

    @property
    def last_slot(self) -> int:
        """The slot in which the plan completes it."""
        return max(self.machines)

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
        allotted = sum(workers for workers, _ in pairs.values())
        work = allotted if instance.chunk_integral else min(allotted, int(instance.work[job]))
        jobs.append(JobPlan(job=job, name=instance.jobs.ids[job], machines=pairs, work=work))
    return tuple(jobs)
