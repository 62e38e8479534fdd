"""One slot's servers: what is free on each of them, and jobs' workers and PSs placed on them in turn.

Everything is whole numbers: a unit is placed only where its exact demand fits, so that what a board
holds is always feasible for the slot.
"""

import numpy as np

from optim.models.admission.instance import IntArray
from optim.solvers.admission.slots.placement_loop import add_in_turn, keep_units, take_in_turn
from optim.solvers.admission.slots.view import Allocation, JobView, SlotServers


class Board:
    """Jobs' units on one slot's servers, placed round-robin: each unit goes to the next server with room.

    Parameters
    ----------
    servers
        The empty servers.
    worker_cursor, ps_cursor
        Servers at which the next turns begin; a cluster carries them from slot to slot.
    """

    def __init__(self, servers: SlotServers, worker_cursor: int = 0, ps_cursor: int = 0) -> None:
        self.servers = servers
        self.worker_cursor = worker_cursor
        self.ps_cursor = ps_cursor
        self._worker_free = servers.worker_capacity.copy()
        self._ps_free = self._worker_free if servers.is_shared else servers.ps_capacity.copy()
        self._units: dict[int, Allocation] = {}
        self._count: dict[int, int] = {}
        self._ps_count: dict[int, int] = {}

    def empty(self) -> "Board":
        """Return a board of the same slot with nothing on it."""
        return Board(self.servers, self.worker_cursor, self.ps_cursor)

    def count(self, view: JobView) -> int:
        """Return how many workers a job has."""
        return self._count.get(view.job, 0)

    def allocations(self) -> dict[int, Allocation]:
        """Return what every job with workers has."""
        return {
            job: Allocation(workers=units.workers.copy(), ps=units.ps.copy())
            for job, units in self._units.items()
            if self._count[job] > 0
        }

    def add(self, view: JobView, workers: int) -> bool:
        """Give a job more workers, and the PSs that it then lacks: all of them, or none and return False."""
        self._open(view)
        total = self._count[view.job] + workers
        units = self._units[view.job]
        fits, self.worker_cursor, self.ps_cursor = add_in_turn(
            workers, int(view.ps_needed[total]) - self._ps_count[view.job],
            self.worker_cursor, self.ps_cursor, self._worker_free, self._ps_free,
            view.worker_demand, view.ps_demand,
            self.servers.worker_limit(view), self.servers.ps_limit(view), units.workers, units.ps,
            self.servers.share_capacity,
        )  # fmt: skip
        if fits:
            self._count[view.job] = total
            self._ps_count[view.job] = int(view.ps_needed[total])
        return bool(fits)

    def add_up_to(self, view: JobView, workers: int) -> int:
        """Raise a job to `workers` in all, one after the other while there is room; return its count."""
        lacking = workers - self.count(view)
        if lacking > 0 and not self.add(view, lacking):
            while self.count(view) < workers and self.add(view, 1):
                pass
        return self.count(view)

    def hold(self, view: JobView, previous: Allocation, workers: int) -> int:
        """Keep up to `workers` of a job where they were; return how many.

        Where a server has lost room (capacity falls, or the job's next demand segment asks for more)
        its last units go; then PSs are balanced as in `settle`. A job left without workers pauses.
        """
        self._open(view)
        kept = self._keep(view, previous.workers, workers, is_worker=True)
        self._keep(view, previous.ps, int(view.ps_needed[kept]), is_worker=False)
        return self.settle(view)

    def place_by_class(self, view: JobView, previous: Allocation | None, workers: IntArray, ps: IntArray) -> int:
        """Place given numbers in each class, on the job's old servers first; return the workers placed.

        Class totals that don't split onto the single servers leave workers over: they go to any
        server with room, or nowhere.
        """
        self._open(view)
        for is_worker, wanted in ((True, workers), (False, ps)):
            of_class = self.servers.worker_class if is_worker else self.servers.ps_class
            limit = self.servers.worker_limit(view) if is_worker else self.servers.ps_limit(view)
            take = self._take_workers if is_worker else self._take_ps
            old = None if previous is None else previous.workers if is_worker else previous.ps
            left = 0
            for c in np.flatnonzero(wanted).tolist():
                inside = of_class == c
                due = int(wanted[c])
                if old is not None:
                    due -= self._keep(view, np.where(inside, old, 0), due, is_worker=is_worker)
                left += due - take(view, due, np.where(inside, limit, 0))
            take(view, left, limit)
        return self.settle(view)

    def settle(self, view: JobView) -> int:
        """Balance a job's PSs with its workers: add those that lack, else drop workers; drop spare PSs."""
        self._open(view)
        units = self._units[view.job]
        workers = int(units.workers.sum())
        self._take_ps(view, int(view.ps_needed[workers]) - int(units.ps.sum()), self.servers.ps_limit(view))
        ps = int(units.ps.sum())
        served = min(workers, int(np.searchsorted(view.ps_needed, ps, side="right")) - 1)
        needed = int(view.ps_needed[served])
        self._give_back_workers(view, _last_units(units.workers, workers - served))
        self._give_back_ps(view, _last_units(units.ps, ps - needed))
        self._count[view.job], self._ps_count[view.job] = served, needed
        return served

    def clear(self, view: JobView) -> None:
        """Take a job off the board."""
        if view.job in self._units:
            units = self._units[view.job]
            self._give_back_workers(view, units.workers.copy())
            self._give_back_ps(view, units.ps.copy())
            self._count[view.job] = self._ps_count[view.job] = 0

    def most_alone(self, view: JobView, workers: int) -> int:
        """Return how many workers, up to `workers`, the job would get if nothing else were there."""
        return self.empty().add_up_to(view, workers)

    def _open(self, view: JobView) -> None:
        if view.job not in self._units:
            self._units[view.job] = Allocation(
                workers=np.zeros(len(self.servers.worker_class), dtype=np.int64),
                ps=np.zeros(len(self.servers.ps_class), dtype=np.int64),
            )
            self._count[view.job] = self._ps_count[view.job] = 0

    def _take_workers(self, view: JobView, count: int, limit: IntArray) -> int:
        """Place up to `count` more workers in turn; return how many found room."""
        units = self._units[view.job]
        placed, self.worker_cursor = take_in_turn(
            count, self.worker_cursor, np.zeros_like(limit), self._worker_free, view.worker_demand, limit,
            units.workers, units.ps, view.ps_demand, self.servers.share_capacity,
        )  # fmt: skip
        return int(placed)

    def _take_ps(self, view: JobView, count: int, limit: IntArray) -> int:
        """Place up to `count` more PSs in turn; return how many found room."""
        units = self._units[view.job]
        placed, self.ps_cursor = take_in_turn(
            count, self.ps_cursor, np.zeros_like(limit), self._ps_free, view.ps_demand, limit,
            units.ps, units.workers, view.worker_demand, self.servers.share_capacity,
        )  # fmt: skip
        return int(placed)

    def _keep(self, view: JobView, previous: IntArray, count: int, *, is_worker: bool) -> int:
        """Place up to `count` units on the servers where they were; return how many found room."""
        units, share = self._units[view.job], self.servers.share_capacity
        if is_worker:
            kept = keep_units(
                count, previous, self._worker_free, view.worker_demand, self.servers.worker_limit(view),
                units.workers, units.ps, view.ps_demand, share,
            )  # fmt: skip
        else:
            kept = keep_units(
                count, previous, self._ps_free, view.ps_demand, self.servers.ps_limit(view),
                units.ps, units.workers, view.worker_demand, share,
            )  # fmt: skip
        return int(kept)

    def _give_back_workers(self, view: JobView, units: IntArray) -> None:
        self._units[view.job].workers[:] -= units
        self._worker_free += units[:, None] * view.worker_demand

    def _give_back_ps(self, view: JobView, units: IntArray) -> None:
        self._units[view.job].ps[:] -= units
        self._ps_free += units[:, None] * view.ps_demand


def _last_units(held: IntArray, count: int) -> IntArray:
    """Return the last `count` of the units held, counted from the last server down."""
    if count <= 0:
        return np.zeros_like(held)
    from_last = np.cumsum(held[::-1])[::-1]
    last: IntArray = np.minimum(held, np.maximum(0, count - (from_last - held)))
    return last
