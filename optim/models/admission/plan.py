"""The decision of an admission problem: who runs how many workers and PSs, where and when."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import ComparesByValue, derived, own_whole_rows, whole_numbers
from optim.core.errors import InvalidProblemError
from optim.core.frames import Columns
from optim.models.admission.instance import AdmissionInstance, IntArray

JOB, SLOT, SERVER, COUNT = range(4)
"""Columns of a plan's rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AdmissionPlan(ComparesByValue):
    """Integer numbers of workers and PSs on single servers.

    Parameters
    ----------
    workers, ps
        Shape (rows, 4): job, slot, server, count, sorted, each (job, slot, server) once, counts
        positive. Servers are numbered through their classes in order (`ServerClasses.class_of_server`).

    Examples
    --------
    >>> import optim
    >>> plan = optim.AdmissionPlan.from_rows(workers=[(0, 2, 0, 3), (0, 1, 0, 1)], ps=[(0, 1, 0, 1), (0, 2, 0, 1)])
    >>> plan.admitted.tolist(), plan.completion.tolist()
    ([0], [2])
    """

    workers: IntArray
    ps: IntArray

    def __post_init__(self) -> None:
        own_whole_rows(self, {"workers": 4, "ps": 4}, "a plan's")

    @classmethod
    def from_rows(cls, workers: Iterable[Iterable[float]], ps: Iterable[Iterable[float]]) -> "AdmissionPlan":
        """Build a plan from (job, slot, server, count) rows in any order; rows with count 0 are dropped.

        Numbers within 1e-6 of a whole one are rounded to it, as solvers of integer programmes return them.

        Raises
        ------
        InvalidProblemError
            If a number is not whole, or a row has another length.
        """
        return cls(workers=_sorted_rows(workers, "workers"), ps=_sorted_rows(ps, "ps"))

    @derived
    def admitted(self) -> IntArray:
        """Jobs with at least one worker, ascending."""
        return np.unique(self.workers[:, JOB])

    @derived
    def completion(self) -> IntArray:
        """Completion slot of each admitted job, row (8): the last slot in which it has workers."""
        last = np.full(int(self.admitted[-1]) + 1 if len(self.admitted) else 0, -1, dtype=np.int64)
        np.maximum.at(last, self.workers[:, JOB], self.workers[:, SLOT])
        completion: IntArray = last[self.admitted]
        return completion

    def objective(self, instance: AdmissionInstance) -> float:
        """Return the summed value of all admitted jobs at their completion slots."""
        return float(np.sum(instance.value[self.admitted, self.completion])) if len(self.admitted) else 0.0

    def columns(self, instance: AdmissionInstance | None = None) -> Columns:
        """Return the rows as columns side, job, slot, server, count; with the instance, jobs by their names."""
        rows = np.concatenate([self.workers, self.ps])
        jobs = rows[:, JOB] if instance is None else [instance.jobs.ids[job] for job in rows[:, JOB].tolist()]
        side = ["worker"] * len(self.workers) + ["ps"] * len(self.ps)
        return {"side": side, "job": jobs, "slot": rows[:, SLOT], "server": rows[:, SERVER], "count": rows[:, COUNT]}

    def picture(self) -> str:
        """Return a Gantt chart as an ``<svg>`` element: a row a job, darker cells where more workers run."""
        from optim.core.svg import Cell, grid

        counts: dict[tuple[int, int], int] = {}
        for job, slot, _, count in self.workers.tolist():
            counts[job, slot] = counts.get((job, slot), 0) + count
        most = max(counts.values(), default=1)
        row_of = {job: row for row, job in enumerate(self.admitted.tolist())}
        cells = [
            Cell(row_of[job], slot, 0.25 + 0.75 * count / most, f"job {job}, slot {slot}: workers {count}")
            for (job, slot), count in counts.items()
        ]
        return grid([f"job {job}" for job in row_of], cells, "slots", f"Plan of {len(row_of)} admitted jobs over time")


def _sorted_rows(rows: Iterable[Iterable[float]], side: str) -> IntArray:
    listed = [tuple(row) if isinstance(row, Iterable) else row for row in rows]
    wrong = next((row for row in listed if not isinstance(row, tuple) or len(row) != 4), None)
    if wrong is not None:
        raise InvalidProblemError(f"a plan's {side} must be rows of job, slot, server and count, got {wrong!r}")
    array = whole_numbers(listed, "a plan's rows").reshape(-1, 4)
    array = array[array[:, COUNT] != 0]
    ordered: IntArray = array[np.lexsort((array[:, SERVER], array[:, SLOT], array[:, JOB]))]
    return ordered
