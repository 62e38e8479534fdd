"""One slot's servers: what is free on each of them, and jobs' workers and PSs placed on them in turn.

Everything is whole numbers: a unit is placed only where its exact demand fits, so that what a board
holds is always feasible for the slot.
"""

import numpy as np

from optim.models.admission.instance import IntArray
from optim.solvers.admission.slots.placement_loop import add_in_turn, keep_units, take_in_turn
from optim.solvers.admission.slots.view import Allocation, JobView, SlotServers

WORKERS, PS = 0, 1
"""The sides, in the order of all pairs."""


class Board:
    """Jobs' units on one slot's servers, placed round-robin: each unit goes to the next server with room.

    Parameters
    ----------
    servers
        The empty servers.
    cursors
        Servers at which the next turns of workers and of PSs begin; a cluster carries them from slot to slot.
    """

    def __init__(self, servers: SlotServers, cursors: tuple[int, int] = (0, 0)) -> None:
        self.servers = servers
        self.cursors = cursors
        free = servers.worker_capacity.copy()
        self._free = free, free if servers.is_shared else servers.ps_capacity.copy()
        self._units: dict[int, Allocation] = {}
        self._count: dict[int, int] = {}
        self._ps_count: dict[int, int] = {}

    def empty(self) -> "Board":
        """Return a board of the same slot with nothing on it."""
        return Board(self.servers, self.cursors)

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
        fits, worker_cursor, ps_cursor = add_in_turn(
            workers, int(view.ps_needed[total]) - self._ps_count[view.job], *self.cursors, *self._free, *view.demands,
            *self.servers.limits(view), *self._units[view.job].sides, self.servers.share_capacity,
        )  # fmt: skip
        self.cursors = worker_cursor, ps_cursor
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
        kept = self._keep(view, WORKERS, previous.workers, workers)
        self._keep(view, PS, previous.ps, int(view.ps_needed[kept]))
        return self.settle(view)

    def place_by_class(self, view: JobView, previous: Allocation | None, workers: IntArray, ps: IntArray) -> int:
        """Place given numbers in each class, on the job's old servers first; return the workers placed.

        Class totals that don't split onto the single servers leave workers over: they go to any
        server with room, or nowhere.
        """
        self._open(view)
        classes, limits = (self.servers.worker_class, self.servers.ps_class), self.servers.limits(view)
        for side, wanted in ((WORKERS, workers), (PS, ps)):
            of_class, limit = classes[side], limits[side]
            left = 0
            for c in np.flatnonzero(wanted).tolist():
                inside = of_class == c
                due = int(wanted[c])
                if previous is not None:
                    due -= self._keep(view, side, np.where(inside, previous.sides[side], 0), due)
                left += due - self._take(view, side, due, np.where(inside, limit, 0))
            self._take(view, side, left, limit)
        return self.settle(view)

    def settle(self, view: JobView) -> int:
        """Balance a job's PSs with its workers: add those that lack, else drop workers; drop spare PSs."""
        self._open(view)
        units = self._units[view.job]
        workers = int(units.workers.sum())
        self._take(view, PS, int(view.ps_needed[workers]) - int(units.ps.sum()), self.servers.limits(view)[PS])
        ps = int(units.ps.sum())
        served = min(workers, int(np.searchsorted(view.ps_needed, ps, side="right")) - 1)
        needed = int(view.ps_needed[served])
        self._give_back(view, WORKERS, _last_units(units.workers, workers - served))
        self._give_back(view, PS, _last_units(units.ps, ps - needed))
        self._count[view.job], self._ps_count[view.job] = served, needed
        return served

    def clear(self, view: JobView) -> None:
        """Take a job off the board."""
        if view.job in self._units:
            for side in (WORKERS, PS):
                self._give_back(view, side, self._units[view.job].sides[side].copy())
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

    def _take(self, view: JobView, side: int, count: int, limit: IntArray) -> int:
        """Place up to `count` more units of a side in turn; return how many found room."""
        units, demands, cursors = self._units[view.job].sides, view.demands, list(self.cursors)
        placed, cursors[side] = take_in_turn(
            count, cursors[side], np.zeros_like(limit), self._free[side], demands[side], limit,
            units[side], units[1 - side], demands[1 - side], self.servers.share_capacity,
        )  # fmt: skip
        self.cursors = cursors[WORKERS], cursors[PS]
        return int(placed)

    def _keep(self, view: JobView, side: int, previous: IntArray, count: int) -> int:
        """Place up to `count` units of a side on the servers where they were; return how many found room."""
        units, demands = self._units[view.job].sides, view.demands
        kept = keep_units(
            count, previous, self._free[side], demands[side], self.servers.limits(view)[side],
            units[side], units[1 - side], demands[1 - side], self.servers.share_capacity,
        )  # fmt: skip
        return int(kept)

    def _give_back(self, view: JobView, side: int, units: IntArray) -> None:
        held, free = self._units[view.job].sides[side], self._free[side]
        held -= units
        free += units[:, None] * view.demands[side]


def _last_units(held: IntArray, count: int) -> IntArray:
    """Return the last `count` of the units held, counted from the last server down."""
    if count <= 0:
        return np.zeros_like(held)
    from_last = np.cumsum(held[::-1])[::-1]
    last: IntArray = np.minimum(held, np.maximum(0, count - (from_last - held)))
    return last
