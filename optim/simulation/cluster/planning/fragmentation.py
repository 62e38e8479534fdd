"""Fragmentation of GPUs: how much of what is free on a machine a typical job couldn't use.

For a mix of demands with shares of the submissions, the fragmentation of a machine is the expected free GPU that a job
drawn from the mix can't take: all of it if the job doesn't fit there, otherwise that of the GPUs too full for its share
(docs/mathematics/cluster.md, (D.5)). The rule places each job where fragmentation grows least. Host demands decide
whether a job fits where it is placed; the mix weighs GPUs alone.

References
----------
Weng, Yang, Yu, Wang, Tang, Yang, Zhang, "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023, section 4.
"""

from typing import TYPE_CHECKING

import numpy as np

from optim.models.cluster.workload import WHOLE_MILLI, Workload
from optim.models.cluster.world import IntArray

if TYPE_CHECKING:
    from optim.simulation.cluster.planning.room import Room


def gang_growth(widths: IntArray, largest: int) -> IntArray:
    """Return how much fragmentation grows when a gang takes some of a machine's free GPUs, in GPUs times jobs of the mix.

    Parameters
    ----------
    widths
        Gang of each job of the mix; shape (jobs,).
    largest
        GPUs of the largest machine; wider gangs need that many of each machine.

    Returns
    -------
    IntArray
        By free GPUs and gang; shape (largest + 1, largest + 1).
    """
    free = np.arange(largest + 1)
    lost = free * (len(widths) - np.cumsum(np.bincount(np.minimum(widths, largest), minlength=largest + 1)))
    left = np.maximum(free[:, None] - free[None, :], 0)
    return np.asarray(lost[left] - lost[:, None])


class Fragmentation:
    """What a placement adds to fragmentation, for the mix of demands of a workload."""

    def __init__(self, jobs: Workload, largest: int, is_shared: bool) -> None:
        demand = np.where(jobs.gpus == 1, jobs.share_milli if is_shared else WHOLE_MILLI, 0)
        demand += np.where(jobs.gpus > 1, WHOLE_MILLI * np.minimum(jobs.gpus, largest), 0)
        self.demand, self.weight = np.unique(demand, return_counts=True)  # whole numbers: no tie hangs on rounding
        self.growth = gang_growth(jobs.gpus, largest)
        self.is_shared = is_shared
        self._known: dict[tuple[int, ...], int] = {}

    def growth_of_gang(self, room: "Room", machines: IntArray, width: int) -> IntArray:
        """Return the growth where a gang takes wholly free GPUs of each machine."""
        if not self.is_shared:
            return np.asarray(self.growth[room.free[machines], width])
        growth = np.empty(len(machines), np.int64)
        for at, machine in enumerate(machines.tolist()):
            before = self._left(room, machine)
            growth[at] = self._lost(before[:-width]) - self._lost(before)  # wholly free ones stand last
        return growth

    def growth_of_share(self, room: "Room", gpus: IntArray, share: int) -> IntArray:
        """Return the growth where each GPU gives a share."""
        growth = np.empty(len(gpus), np.int64)
        seen: dict[tuple[int, int], int] = {}
        for at, gpu in enumerate(gpus.tolist()):
            machine, left = room.site.machine_of[gpu], int(room.left_milli[gpu])
            if (machine, left) not in seen:
                before = self._left(room, machine)
                after = list(before)
                after.remove(left)
                seen[machine, left] = self._lost(tuple(sorted([*after, left - share]))) - self._lost(before)
            growth[at] = seen[machine, left]
        return growth

    def _left(self, room: "Room", machine: int) -> tuple[int, ...]:
        first = room.site.first
        return tuple(np.sort(room.left_milli[first[machine] : first[machine + 1]]).tolist())

    def _lost(self, left: tuple[int, ...]) -> int:
        """Return the fragmentation of a machine whose GPUs have so much left, in thousandths of a GPU."""
        if left not in self._known:
            each = np.array(left, np.int64)
            total, whole = each.sum(), (each == WHOLE_MILLI).sum()
            is_gang = self.demand > WHOLE_MILLI
            fits = np.where(is_gang, whole * WHOLE_MILLI >= self.demand, each.max(initial=0) >= self.demand)
            too_full = each[None, :] < np.minimum(self.demand, WHOLE_MILLI)[:, None]
            lost = np.where(fits, (too_full * each).sum(axis=1), total)
            self._known[left] = int(self.weight @ lost)
        return self._known[left]
