"""Mesos: offer resources to one framework after the other; an offer locks its resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import check_in
from optim.core.policies import policy
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus
from optim.simulation.cluster.planning.placing import capacity, demands, users_of
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View


@dataclass(frozen=True, slots=True, kw_only=True)
class MesosOptions:
    """Options.

    Parameters
    ----------
    decide_s
        Seconds that a framework takes to answer an offer, during which the offered GPUs are locked.
    filter_s
        Seconds during which declined resources aren't offered to the framework again, unless a machine gains free GPUs.
    delay_s
        Seconds during which a framework's first job declines every locality but the best that its gang could have.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    decide_s: float = 1.0
    filter_s: float = 5.0
    delay_s: float = 60.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[0.001, 3600]", self, "decide_s", "filter_s")
        check_in("[0, 86400]", self, "delay_s")


@dataclass(slots=True, eq=False)
class _Offer:
    """An open offer to a framework, with its end and the number of free GPUs of each machine."""

    framework: int
    until_us: int
    free: IntArray


@dataclass(slots=True, eq=False)
class _Framework:
    """A framework, as the master knows it: the resources that it declined, and until when they aren't offered to it again.

    `insists` contains, for each job that insists on fewer machines than it was offered, the time since which it has
    done so.
    """

    declined: IntArray
    until_us: int = -1
    insists: dict[int, int] = field(default_factory=dict)


@policy(
    "mesos",
    world="cluster",
    options=MesosOptions,
    summary="Offer the free GPUs to one framework at a time, and lock them until it decides; gangs accept or decline.",
    source="Hindman et al., Mesos, NSDI 2011, sections 3.1 to 3.4",
)
class Mesos(PlanningPolicy):
    """Offer all free unlocked GPUs to the framework with the smallest dominant share; it places gangs on them or declines."""

    assumptions = (
        "frameworks are the users of the table (else virtual clusters, else apps); a framework serves its jobs first come, first served, as "
        "complete gangs, and skips jobs that don't fit; its first job declines worse places than the best for delay_s; offers that would "
        "be declined again because nothing changed aren't simulated"
    )

    def __init__(self, options: MesosOptions, jobs: Workload) -> None:
        del jobs
        self.options = options

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget all offers."""
        del seed
        self.offer: _Offer | None = None
        self.frameworks: dict[int, _Framework] = {}
        self.none = np.zeros(cluster.num_machines, np.int64)
        self.offers = self.declined = 0

    def plan(self, view: View) -> Plan:
        """Process the answer to the open offer when it is due, and make the next offer."""
        gpus, room = dict(view.running), view.room()
        if self.offer is not None and view.now_us < self.offer.until_us:
            return Plan(gpus=gpus, again_us=self.offer.until_us)
        if self.offer is not None:
            self._answer(view, room, self.offer, gpus)
            self.offer = None
        self.offer = self._next_offer(view, room, gpus)
        if self.offer is not None:
            self.offers += 1
            return Plan(gpus=gpus, again_us=self.offer.until_us)
        return Plan(gpus=gpus, again_us=self._next_change(view, gpus))

    def _answer(self, view: View, room: FreeGpus, offer: _Offer, gpus: dict[int, Gpus]) -> None:
        """Place the framework's jobs on the offered GPUs."""
        one = self.frameworks[offer.framework]
        before = len(gpus)
        for job in self._queue(view, offer.framework, gpus):
            if room.site.is_plain and room.site.widths[job] > room.num_free:
                continue
            within = room.find(job, machines=offer.free > 0, most=offer.free)
            if within is None:
                continue
            if self._is_worse(view, one, job, within):
                continue
            room.take(job, within)
            gpus[job] = within
        self.declined += len(gpus) == before
        one.declined = np.minimum(offer.free, room.free)
        one.until_us = view.now_us + round(self.options.filter_s * US)

    def _is_worse(self, view: View, one: _Framework, job: int, gpus: Gpus) -> bool:
        """Return whether a job declines GPUs because it still insists on fewer machines."""
        machines = len({view.machine_of(gpu) for gpu in gpus})
        fewest = -(-int(view.gpus[job]) // int(view.cluster.gpus.max()))
        if machines <= fewest:
            return False
        since = one.insists.setdefault(job, view.now_us)
        return view.now_us - since < round(self.options.delay_s * US)

    @staticmethod
    def _queue(view: View, framework: int, gpus: Mapping[int, Gpus]) -> list[int]:
        waiting = view.waiting
        return [job for job in waiting[users_of(view)[waiting] == framework].tolist() if job not in gpus]

    def _next_offer(self, view: View, room: FreeGpus, gpus: Mapping[int, Gpus]) -> _Offer | None:
        """Offer all free GPUs to the waiting framework with the smallest dominant share that hasn't just declined them."""
        waiting = view.waiting
        waiting = waiting[~np.isin(waiting, [job for job in gpus if job not in view.running])]
        if not len(waiting) or (room.site.is_plain and not room.num_free):
            return None
        user, part = users_of(view), demands(view) / capacity(view.cluster)
        used = np.zeros((int(user.max()) + 1, 3))
        np.add.at(used, user[list(gpus)], part[list(gpus)])
        owner = user[waiting]
        names = np.unique(owner)
        for name in names[np.argsort(used.max(axis=1)[names], kind="stable")].tolist():
            one = self.frameworks.setdefault(name, _Framework(self.none))
            fresh = room.free > (one.declined if view.now_us < one.until_us else self.none)
            free = np.where(fresh, room.free, 0)
            if fresh.any() and self._wants(view, room, one, waiting[owner == name], free):
                return _Offer(name, view.now_us + round(self.options.decide_s * US), free)
        return None

    def _wants(self, view: View, room: FreeGpus, one: _Framework, queue: IntArray, free: IntArray) -> bool:
        """Return whether a framework would accept part of an offer; of equal requests, only the first is tested."""
        if room.site.is_plain:
            queue = queue[view.gpus[queue] <= free.sum()]
            queue = queue[np.sort(np.unique(view.gpus[queue], return_index=True)[1])]
        for job in queue.tolist():
            found = room.find(job, machines=free > 0, most=free)
            if found is not None and not self._is_worse(view, one, job, found):
                return True
        return False

    def _next_change(self, view: View, gpus: Mapping[int, Gpus]) -> int | None:
        """Return the next time at which a job's locality delay or a filter ends."""
        times = [one.until_us for one in self.frameworks.values()]
        step = round(self.options.delay_s * US)
        waiting = [job for job in view.waiting.tolist() if job not in gpus]
        times += [
            since + step
            for one in self.frameworks.values()
            for job, since in one.insists.items()
            if job in set(waiting)
        ]
        return min((time for time in times if time > view.now_us), default=None)

    def figures(self) -> Mapping[str, float]:
        """Return the number of offers, and of offers on which no job was placed."""
        return {"offers": float(self.offers), "declined": float(self.declined)}
