"""Omega: several schedulers plan on snapshots of the cluster and commit atomically."""

from collections.abc import Mapping
from dataclasses import dataclass

from optim.core.errors import check_in
from optim.core.policies import policy
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus
from optim.simulation.cluster.planning.placing import users_of
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View


@dataclass(frozen=True, slots=True, kw_only=True)
class OmegaOptions:
    """Options.

    Parameters
    ----------
    schedulers
        Number of schedulers; users are assigned to them round-robin.
    job_s, task_s
        Decision time in seconds per job, and additional seconds per GPU of the job.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    schedulers: int = 2
    job_s: float = 0.1
    task_s: float = 0.005

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[1, 1000]", self, "schedulers")
        check_in("[0.000001, 3600]", self, "job_s")
        check_in("[0, 3600]", self, "task_s")


@dataclass(slots=True)
class _Decision:
    """A scheduler's pending commit: the GPUs that it found for a job in its snapshot, and the time of the commit."""

    job: int
    gpus: Gpus
    until_us: int


@policy(
    "omega",
    world="cluster",
    options=OmegaOptions,
    summary="Plan with several schedulers on snapshots of the cluster; conflicting commits are retried.",
    source="Schwarzkopf et al., Omega: flexible, scalable schedulers for large compute clusters, EuroSys 2013, section 3.4",
)
class Omega(PlanningPolicy):
    """Each scheduler plans one job at a time; a commit of a gang fails if any of its GPUs has been taken."""

    assumptions = (
        "users (those of the table, else virtual clusters, else apps) are assigned to the schedulers by number; a scheduler plans its first "
        "job that fits in its snapshot (the search takes no time); after a conflict it takes a new snapshot and "
        "retries the same job; simultaneous commits are ordered by the scheduler's number"
    )

    def __init__(self, options: OmegaOptions, jobs: Workload) -> None:
        del jobs
        self.options = options

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Reset all schedulers to idle."""
        del cluster, seed
        self.working: list[_Decision | None] = [None] * self.options.schedulers
        self.commits = self.conflicts = 0
        self.busy_us = 0

    def plan(self, view: View) -> Plan:
        """Commit due decisions, and start idle schedulers on the resulting state."""
        gpus, room = dict(view.running), view.room()
        retried: list[int | None] = [None] * len(self.working)
        for number, decision in enumerate(self.working):
            if decision is not None and decision.until_us <= view.now_us:
                self.working[number] = None
                if self._is_free(room, decision):
                    room.take(decision.job, decision.gpus)
                    gpus[decision.job] = decision.gpus
                    self.commits += 1
                else:
                    retried[number] = decision.job
                    self.conflicts += 1
        queues = self._queues(view, gpus)
        for number, queue in enumerate(queues):
            if self.working[number] is None:
                first = retried[number]
                self.working[number] = self._decide(view, room, queue if first is None else [first, *queue])
        return Plan(gpus=gpus, again_us=min((each.until_us for each in self.working if each), default=None))

    def _queues(self, view: View, gpus: Mapping[int, Gpus]) -> list[list[int]]:
        """Return the waiting jobs of each scheduler, except jobs that are being planned."""
        user, count = users_of(view), len(self.working)
        taken = {each.job for each in self.working if each}
        queues: list[list[int]] = [[] for _ in range(count)]
        for job in view.waiting.tolist():
            if job not in gpus and job not in taken:
                queues[int(user[job]) % count].append(job)
        return queues

    def _decide(self, view: View, room: FreeGpus, queue: list[int]) -> _Decision | None:
        """Return the decision for the first job that fits on the GPUs free now."""
        left = room.num_free
        for job in queue:
            width = room.site.widths[job]
            if room.site.is_plain and (width > left or room.cannot_fit(width)):
                continue
            found = room.find(job)
            if found is not None:
                takes = round((self.options.job_s + self.options.task_s * len(found)) * US)
                self.busy_us += takes
                return _Decision(job, found, view.now_us + max(1, takes))
        return None

    @staticmethod
    def _is_free(room: FreeGpus, decision: _Decision) -> bool:
        share = room.site.shares[decision.job]
        if any(room.left_milli[gpu] < share for gpu in decision.gpus):
            return False
        machines = [room.site.machine_of[gpu] for gpu in decision.gpus]
        asks = room.site.asks[:, decision.job]
        return not room.site.has_host or all(
            (room.host[:, machine] >= asks * machines.count(machine)).all() for machine in set(machines)
        )

    def figures(self) -> Mapping[str, float]:
        """Return commits, conflicts, the fraction of conflicts, and the schedulers' busy hours."""
        tries = max(1, self.commits + self.conflicts)
        return {
            "commits": float(self.commits),
            "conflicts": float(self.conflicts),
            "conflict_share": self.conflicts / tries,
            "busy_h": self.busy_us / US / 3600,
        }
