"""The pool of schedules that a restricted master programme knows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, hstack, vstack

from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.job_tables import JobTables
from optim.solvers.admission.pricing import PricedSchedules
from optim.solvers.admission.rows import CapacityRows, usage_matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule of one job over server classes.

    Parameters
    ----------
    job, completion
        Which job, and the slot in which it completes.
    workers, ps
        Shape (entries, 3): class, slot, count, sorted; entries with count 0 are left out.
    """

    job: int
    completion: int
    workers: IntArray
    ps: IntArray


class ColumnPool:
    """Schedules without duplicates, sorted by job, with their values and their use of capacity rows and cuts."""

    def __init__(self, tables: JobTables, rows: CapacityRows) -> None:
        self._tables, self._rows = tables, rows
        self._scale = np.divide(1.0, rows.capacity, out=np.zeros_like(rows.capacity), where=rows.capacity > 0)
        self.job: IntArray = np.zeros(0, dtype=np.int64)
        self.value: FloatArray = np.zeros(0)
        self.share: csc_array = csc_array((rows.num_rows, 0))
        """Use of each row as a share of its capacity, shape (rows, columns); cuts follow the capacity rows."""
        self._schedules: list[Schedule] = []
        self._keys: list[bytes] = []
        self._known: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.job)

    def schedule(self, column: int) -> Schedule:
        """Return the schedule of a column."""
        return self._schedules[column]

    def key(self, column: int) -> bytes:
        """Return what tells a column's schedule from all others, however columns are arranged."""
        return self._keys[column]

    def keys(self) -> tuple[bytes, ...]:
        """Return the keys of all columns."""
        return tuple(self._keys)

    def add(self, priced: PricedSchedules, usage: csc_array | None = None) -> int:
        """Add the schedules that are new; return how many."""
        live = np.flatnonzero(priced.completion >= 0)
        fresh, schedules, keys = [], [], []
        for k in live.tolist():
            schedule = _schedule(priced, k)
            key = _key(schedule)
            if key not in self._known:
                self._known.add(key)
                fresh.append(k)
                schedules.append(schedule)
                keys.append(key)
        if not fresh:
            return 0
        usage = usage if usage is not None else usage_matrix(self._tables, self._rows, priced)
        if usage.shape[0] != len(self._scale):
            raise ValueError(
                f"usage must have {len(self._scale)} rows (capacity rows, then cuts), got {usage.shape[0]}"
            )
        share = csc_array(usage[:, fresh].multiply(self._scale[:, None]))
        jobs = priced.jobs[fresh]
        value = self._tables.value[jobs, priced.completion[fresh]]
        self._schedules += schedules
        self._keys += keys
        self._arrange(
            np.concatenate([self.job, jobs]),
            np.concatenate([self.value, value]),
            hstack([self.share, share], format="csc"),
        )
        return len(fresh)

    def add_rows(self, use: FloatArray, right_hand_side: FloatArray) -> None:
        """Append cut rows: their left-hand side in each column, shape (cuts, columns), and their right-hand side."""
        scale = 1.0 / right_hand_side
        self.share = csc_array(vstack([self.share, csc_array(use * scale[:, None])], format="csc"))
        self._scale = np.concatenate([self._scale, scale])

    def keep_rows(self, rows: IntArray) -> None:
        """Forget all rows but the given ones."""
        self.share = csc_array(self.share.tocsr()[rows])
        self._scale = self._scale[rows]

    def as_priced(self, columns: IntArray) -> PricedSchedules:
        """Return columns' schedules as dense counts."""
        instance = self._tables.instance
        shapes = (
            (instance.worker_servers.num_classes, instance.horizon),
            (instance.ps_servers.num_classes, instance.horizon),
        )
        counts = tuple(np.zeros((len(columns), *shape), dtype=np.int32) for shape in shapes)
        for k, column in enumerate(columns.tolist()):
            schedule = self._schedules[column]
            for side, entries in zip(counts, (schedule.workers, schedule.ps), strict=True):
                side[k, entries[:, 0], entries[:, 1]] = entries[:, 2]
        completion = np.array([self._schedules[column].completion for column in columns.tolist()], dtype=np.int64)
        return PricedSchedules(
            jobs=self.job[columns],
            payoff=np.zeros(len(columns)),
            completion=completion,
            workers=counts[0],
            ps=counts[1],
        )

    def loads(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return how many workers and PSs of each job a fractional point puts in each class and slot.

        Shapes (jobs, classes, slots) each; `x` has one entry a column.
        """
        instance = self._tables.instance
        loads = tuple(
            np.zeros((instance.num_jobs, servers.num_classes, instance.horizon))
            for servers in (instance.worker_servers, instance.ps_servers)
        )
        for column in np.flatnonzero(x > 1e-9).tolist():
            schedule = self._schedules[column]
            for load, entries in zip(loads, (schedule.workers, schedule.ps), strict=True):
                load[schedule.job, entries[:, 0], entries[:, 1]] += x[column] * entries[:, 2]
        return loads[0], loads[1]

    def keep(self, columns: IntArray) -> None:
        """Forget all but the given columns; forgotten ones may be priced and added again."""
        if len(columns) == len(self):
            return
        self._schedules = [self._schedules[k] for k in columns.tolist()]
        self._keys = [self._keys[k] for k in columns.tolist()]
        self._known = set(self._keys)
        self.job, self.value, self.share = (
            self.job[columns],
            self.value[columns],
            csc_array(self.share[:, columns]),
        )

    def _arrange(self, job: IntArray, value: FloatArray, share: csc_array) -> None:
        """Sort columns by job, earlier columns first."""
        order = np.argsort(job, kind="stable")
        self.job, self.value, self.share = job[order], value[order], csc_array(share[:, order])
        self._schedules = [self._schedules[k] for k in order.tolist()]
        self._keys = [self._keys[k] for k in order.tolist()]


def _schedule(priced: PricedSchedules, k: int) -> Schedule:
    return Schedule(
        job=int(priced.jobs[k]),
        completion=int(priced.completion[k]),
        workers=_entries(priced.workers[k]),
        ps=_entries(priced.ps[k]),
    )


def _entries(counts: NDArray[np.int32]) -> IntArray:
    place = np.nonzero(counts)
    return np.stack([*place, counts[place]], axis=1).astype(np.int64)


def _key(schedule: Schedule) -> bytes:
    header = np.array([schedule.job, schedule.completion, len(schedule.workers)], dtype=np.int64)
    return header.tobytes() + schedule.workers.tobytes() + schedule.ps.tobytes()
