"""Tetris: start the job with the best alignment to a machine's free resources minus its weighted remaining work."""

from dataclasses import dataclass

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import check_in
from optim.core.policies import policy
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus
from optim.simulation.cluster.planning.placing import capacity, demands, users_of
from optim.simulation.cluster.planning.policy import Oracle, Plan, PlanningPolicy, View


@dataclass(frozen=True, slots=True, kw_only=True)
class TetrisOptions:
    """Options.

    Parameters
    ----------
    fairness
        Only the fraction 1 - fairness of the users, those furthest below their fair share, is considered.
    remaining
        Weight of the remaining work relative to alignment.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    fairness: float = 0.25
    remaining: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[0, 1)", self, "fairness")
        check_in("[0, 1000]", self, "remaining")


@policy(
    "tetris",
    world="cluster",
    options=TetrisOptions,
    summary="Start the jobs with the largest alignment of demand and free resources minus remaining work.",
    source="Grandl et al., Multi-Resource Packing for Cluster Schedulers, SIGCOMM 2014, section 3",
)
class Tetris(PlanningPolicy):
    """Pack jobs by alignment with a bias to short jobs, without preemption."""

    assumptions = (
        "resources are GPUs, vCPUs and memory; a job is one stage, so that there are no barriers; gangs wider than a "
        "machine are aligned with the mean of the empty machines and placed on those"
    )
    oracle_inputs = (Oracle.RUN_TIMES,)

    def __init__(self, options: TetrisOptions, jobs: Workload) -> None:
        self.options = options
        asks = np.stack([jobs.gpus, jobs.share_milli, jobs.cpu_milli, jobs.memory_mib], axis=1)
        self.kind = np.unique(asks, axis=0, return_inverse=True)[1].ravel()  # jobs of equal demand

    def plan(self, view: View) -> Plan:
        """Start the best pair of job and machine until no pair is left, then consider users nearer to their fair share."""
        gpus, room, waiting = dict(view.running), view.room(), view.waiting
        while len(waiting) and not (room.site.is_plain and not room.num_free):
            chosen = self._max_below(view, waiting, gpus)
            self._pack(view, room, chosen, gpus)
            waiting = np.setdiff1d(waiting, chosen)
        return Plan(gpus=gpus)

    def _pack(self, view: View, room: FreeGpus, chosen: IntArray, gpus: dict[int, Gpus]) -> None:
        asks = demands(view)
        penalty = (asks / capacity(view.cluster)).sum(axis=1) * view.remaining_us
        order = chosen[np.lexsort((chosen, penalty[chosen]))][::-1]
        queues = [order[self.kind[order] == each].tolist() for each in np.unique(self.kind[order])]
        machine = self._capacity(view)
        heads = np.array([queue[-1] for queue in queues])
        align = (asks[heads] / machine.mean(axis=1)) @ (self._free(room) / machine.mean(axis=1)[:, None])
        penalty *= self.options.remaining * float(align.mean()) / float(penalty[chosen].mean())
        while any(queues):
            taken, job = self._best(room, queues, asks, penalty, machine)
            if taken is None:
                return
            room.take(job, taken)
            gpus[job] = taken

    def _best(
        self, room: FreeGpus, queues: list[list[int]], asks: FloatArray, penalty: FloatArray, machine: FloatArray
    ) -> tuple[Gpus | None, int]:
        """Return the GPUs and the job with the best score; of each queue only the job with the least work left competes."""
        best, where, whose = -np.inf, None, -1
        share = self._free(room) / machine
        for queue in queues:
            if not queue:
                continue
            job = queue[-1]
            found = room.find(job)
            if found is None:
                queue.clear()
                continue
            ask = asks[job][:, None] / machine
            is_wide = len({room.site.machine_of[gpu] for gpu in found}) > 1
            if is_wide or room.site.shares[job] < 1000:
                score = float((ask * share).sum(axis=0).mean())
            else:
                fits = self._fits(room, job)
                scores = np.where(fits, (ask * share).sum(axis=0), -np.inf)
                at = int(scores.argmax())
                score, found = float(scores[at]), room.whole_gpus(at)[: len(found)]
            if score - penalty[job] > best:
                best, where, whose = score - penalty[job], found, job
        if whose >= 0:
            next(queue for queue in queues if queue and queue[-1] == whose).pop()
        return where, whose

    def _max_below(self, view: View, waiting: IntArray, gpus: dict[int, Gpus]) -> IntArray:
        """Return the waiting jobs of the users furthest below their fair share."""
        user = users_of(view)
        names = np.unique(user[waiting])
        held = np.zeros(int(user.max()) + 1)
        for job, taken in gpus.items():
            held[user[job]] += len(taken)
        count = max(1, int(np.ceil((1 - self.options.fairness) * len(names) - 1e-9)))
        kept = names[np.argsort(held[names], kind="stable")[:count]]
        return waiting[np.isin(user[waiting], kept)]

    @staticmethod
    def _capacity(view: View) -> FloatArray:
        cluster = view.cluster
        return np.stack([cluster.gpus, cluster.cpus * 1000, cluster.memory_gb * 1024]).astype(float)

    @staticmethod
    def _free(room: FreeGpus) -> FloatArray:
        gpus = np.add.reduceat(room.left_milli, room.site.first[:-1]) / 1000 if room.site.is_shared else room.free
        host = room.host if room.site.has_host else room.site.host * (room.free / room.site.cluster.gpus)
        return np.concatenate([gpus[None, :], host]).astype(float)

    @staticmethod
    def _fits(room: FreeGpus, job: int) -> BoolArray:
        width = room.site.widths[job]
        fits = room.free >= width
        limit = room.limit(job)
        if limit is not None:
            fits &= limit
        if room.site.has_host:
            fits &= np.all(room.host >= room.site.asks[:, job][:, None] * width, axis=0)
        return np.asarray(fits)
