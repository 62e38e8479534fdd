"""Borg: priorities, scored placement, and preemption of jobs of lower bands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError
from optim.core.policies import policy
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.planning.free_gpus import Gpus
from optim.simulation.cluster.planning.placing import make_room, users_of
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View

BANDS = ("free", "batch", "production")


@dataclass(frozen=True, slots=True, kw_only=True)
class BorgOptions:
    """Options.

    Parameters
    ----------
    shares
        Probabilities of the bands free, batch and production for workloads without priorities, separated by colons.

    Raises
    ------
    InvalidOptionError
        If the shares aren't three numbers of at least 0, not all of them 0.
    """

    shares: str = "0.2:0.5:0.3"

    def __post_init__(self) -> None:
        """Check the shares."""
        self.chances()

    def chances(self) -> tuple[float, ...]:
        """Return the probabilities of the bands.

        Raises
        ------
        InvalidOptionError
            If the text isn't three numbers separated by colons.
        """
        try:
            values = tuple(float(part) for part in self.shares.split(":"))
        except ValueError:
            values = ()
        if len(values) != len(BANDS) or not all(0 <= value < 1e9 for value in values) or sum(values) <= 0:
            raise InvalidOptionError(f"shares must be three numbers such as 0.2:0.5:0.3, got {self.shares[:40]!r}")
        return tuple(value / sum(values) for value in values)


@policy(
    "borg",
    world="cluster",
    options=BorgOptions,
    summary="Schedule by priority (sampled if missing); production jobs preempt others; users of equal priority take turns.",
    source="Verma et al., Large-scale cluster management at Google with Borg, EuroSys 2015, sections 2.5 and 3.2",
)
class Borg(PlanningPolicy):
    """Schedule jobs by priority, round-robin among users of a priority; a job may preempt lower bands only."""

    assumptions = (
        "priorities come from the workload, or are sampled with the probabilities `borg.shares`; the placement rule scores places "
        "(best fit leaves the fewest GPUs unusable); production never preempts production; victims are chosen by lowest "
        "priority, then latest start"
    )

    def __init__(self, options: BorgOptions, jobs: Workload) -> None:
        self.options, self.jobs = options, jobs

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Sample the bands of workloads without priorities."""
        del cluster
        given = self.jobs.priority
        drawn = np.random.default_rng(seed).choice(len(BANDS), size=len(self.jobs), p=self.options.chances())
        self.priority = given if given.any() else drawn.astype(np.int64)
        self.preempted = 0
        self.turns: dict[tuple[int, int], int] = {}
        self.asked: set[tuple[int, int]] = set()

    def plan(self, view: View) -> Plan:
        """Place jobs from the highest priority down."""
        gpus, room, waiting = dict(view.running), view.room(), view.waiting
        user = users_of(view)
        order = waiting[np.lexsort((waiting, self._turn(user, waiting), -self.priority[waiting]))].tolist()
        lowest = min((int(self.priority[job]) for job in gpus), default=2**62)
        barred: dict[int, int] = {}
        for job in order:
            priority, width = int(self.priority[job]), room.site.widths[job]
            taken = room.place(job)
            if taken is not None:
                gpus[job] = taken
                self._served(job, user)
            elif priority > lowest and width < barred.get(priority, 2**62):
                before = dict(gpus)
                if make_room(room, job, self._victims(view, priority, before), gpus):
                    self.preempted += len(before) + 1 - len(gpus)
                    self._served(job, user)
                else:
                    barred[priority] = width
        return Plan(gpus=gpus)

    def _turn(self, user: IntArray, waiting: IntArray) -> IntArray:
        """Return each waiting job's turn: the number of jobs of its user and band that were served or wait before it.

        A user who returns to a band after having no waiting job joins at the current turn; unused turns don't accumulate.
        """
        bands = [(int(self.priority[job]), int(user[job])) for job in waiting.tolist()]
        present = set(bands)
        for band in {priority for priority, _ in present}:
            mine = [each for each in present if each[0] == band]
            staying = [self.turns.get(each, 0) for each in mine if each in self.asked]
            least = min(staying, default=0)
            self.turns.update({each: max(self.turns.get(each, 0), least) for each in mine if each not in self.asked})
        self.asked = present
        ahead: dict[tuple[int, int], int] = {}
        turn = np.empty(len(waiting), np.int64)
        for at, each in enumerate(bands):
            turn[at] = self.turns[each] + ahead.get(each, 0)
            ahead[each] = ahead.get(each, 0) + 1
        return turn

    def _served(self, job: int, user: IntArray) -> None:
        """Count a turn for the user of a served job."""
        self.turns[int(self.priority[job]), int(user[job])] += 1

    def _victims(self, view: View, priority: int, gpus: Mapping[int, Gpus]) -> Iterator[int]:
        started = view.started_us
        lower = [job for job in view.running if job in gpus and self.priority[job] < priority]
        yield from sorted(lower, key=lambda job: (self.priority[job], -started[job], -job))

    def figures(self) -> Mapping[str, float]:
        """Return the number of preempted jobs."""
        return {"preempted": float(self.preempted)}
