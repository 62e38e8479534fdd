"""The schedule pool of a restricted master, with keys that identify schedules."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, hstack, vstack

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.packing.capacity_rows import CapacityRows, usage_matrix
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules


class ScheduleKeys:
    """A list of schedules, each represented by its key (job and digest of its counts)."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._known: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.keys)

    def part(self, which: IntArray) -> "ScheduleKeys":
        """Return the given entries as a separate list."""
        other = ScheduleKeys()
        other.keys = self.keys
        other.take(which)
        return other

    def append_new(self, priced: PricedSchedules) -> IntArray:
        """Append the keys of the schedules that aren't in the list; return their positions in `priced`."""
        new = []
        for k in np.flatnonzero(priced.completion >= 0).tolist():
            key = _key(priced, k)
            if key not in self._known:
                self._known.add(key)
                self.keys.append(key)
                new.append(k)
        return np.array(new, dtype=np.int64)

    def unknown(self, keys: Sequence[bytes | None]) -> IntArray:
        """Return the positions in `keys` of schedules that aren't in the list."""
        return np.array([k for k, key in enumerate(keys) if key is not None and key not in self._known], dtype=np.int64)

    def take(self, which: IntArray) -> None:
        """Keep only the given entries, in the given order; removed schedules count as new again."""
        self.keys = [self.keys[k] for k in which.tolist()]
        self._known = set(self.keys)


def schedule_keys(priced: PricedSchedules) -> list[bytes | None]:
    """Return the key of each schedule, None for jobs without one."""
    return [_key(priced, k) if priced.completion[k] >= 0 else None for k in range(len(priced))]


def _key(priced: PricedSchedules, k: int) -> bytes:
    digest = blake2b(priced.workers[k].tobytes(), digest_size=16)
    digest.update(priced.ps[k].tobytes())
    return int(priced.jobs[k]).to_bytes(4, "big") + digest.digest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """One schedule of one job over server classes.

    Parameters
    ----------
    job, completion
        Index of the job, and its completion slot.
    workers, ps
        Shape (entries, 3): class, slot, count, sorted; entries with count 0 are omitted.
    """

    job: int
    completion: int
    workers: IntArray
    ps: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """Added columns that are not yet sorted into the pool."""

    job: IntArray
    value: FloatArray
    share: csc_array


class ColumnPool:
    """Schedules without duplicates, sorted by job, with their values and their use of capacity rows and cuts.

    Added columns are collected; the next read sorts them into the pool.
    """

    def __init__(self, tables: JobTables, rows: CapacityRows) -> None:
        self.tables, self.rows = tables, rows
        self._scale = np.divide(1.0, rows.capacity, out=np.zeros_like(rows.capacity), where=rows.capacity > 0)
        self._job: IntArray = np.zeros(0, dtype=np.int64)
        self._value: FloatArray = np.zeros(0)
        self._share: csc_array = csc_array((rows.num_rows, 0))
        self._weight: FloatArray = np.zeros(0)
        self._idle: IntArray = np.zeros(0, dtype=np.int64)
        self._schedules: list[Schedule] = []
        self._keys = ScheduleKeys()
        self._added: list[_Block] = []

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def job(self) -> IntArray:
        """Job of each column, ascending, shape (columns,)."""
        self._arrange()
        return self._job

    @property
    def value(self) -> FloatArray:
        """Value of each schedule, shape (columns,)."""
        self._arrange()
        return self._value

    @property
    def share(self) -> csc_array:
        """Use of each row as a share of its capacity, shape (rows, columns); cuts follow the capacity rows."""
        self._arrange()
        return self._share

    @property
    def weight(self) -> FloatArray:
        """Weight of each column in the last master's point, shape (columns,); NaN for columns added later."""
        self._arrange()
        return self._weight

    @property
    def idle(self) -> IntArray:
        """Number of consecutive idle rounds of each column, shape (columns,); see `count_idle`."""
        self._arrange()
        return self._idle

    def set_weight(self, weight: FloatArray) -> None:
        """Store the weights of a master's point, shape (columns,)."""
        self._weight = weight

    def count_idle(self, is_idle: NDArray[np.bool_]) -> None:
        """Increase the number of idle rounds of columns where `is_idle`, shape (columns,); reset it to 0 elsewhere."""
        self._idle = np.where(is_idle, self._idle + 1, 0)

    def schedule(self, column: int) -> Schedule:
        """Return the schedule of a column."""
        self._arrange()
        return self._schedules[column]

    def key(self, column: int) -> bytes:
        """Return the key of a column's schedule (job and digest of counts), independent of the columns' order."""
        self._arrange()
        return self._keys.keys[column]

    def unknown(self, keys: Sequence[bytes | None]) -> IntArray:
        """Return the positions in `keys` of schedules that aren't in the pool."""
        return self._keys.unknown(keys)

    def add(self, priced: PricedSchedules, usage: csc_array | None = None) -> int:
        """Add the new schedules; return how many were new."""
        fresh = self._keys.append_new(priced)
        if not len(fresh):
            return 0
        self._schedules += [_schedule(priced, k, self.tables.arrival[priced.jobs[k]]) for k in fresh.tolist()]
        usage = usage if usage is not None else usage_matrix(self.tables, self.rows, priced)
        if usage.shape[0] != len(self._scale):
            raise ValueError(
                f"usage must have {len(self._scale)} rows (capacity rows, then cuts), got {usage.shape[0]}"
            )
        jobs = priced.jobs[fresh]
        share = csc_array(usage[:, fresh])
        share.data = share.data * self._scale[share.indices]
        value = self.tables.value[jobs, priced.completion[fresh]]
        self._added.append(_Block(job=jobs, value=value, share=share))
        return len(fresh)

    def add_rows(self, use: FloatArray, right_hand_side: FloatArray) -> None:
        """Append rows of cuts: `use` is each column's coefficient in each cut, shape (cuts, columns)."""
        scale = 1.0 / right_hand_side
        self._share = csc_array(vstack([self.share, csc_array(use * scale[:, None])], format="csc"))
        self._scale = np.concatenate([self._scale, scale])

    def keep_rows(self, rows: IntArray) -> None:
        """Remove all rows except the given ones."""
        self._share = csc_array(self.share.tocsr()[rows])
        self._scale = self._scale[rows]

    def as_priced(self, columns: IntArray) -> PricedSchedules:
        """Return columns' schedules as dense counts."""
        self._arrange()
        instance = self.tables.instance
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
        """Return the numbers of workers and PSs of each job in each class and slot at a fractional point.

        Shapes (jobs, classes, slots) each; `x` has one entry per column.
        """
        return class_loads(self.tables.instance, *self._entries(x))

    def counts(self, x: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the entries of a fractional point's schedules, one row per entry.

        A row is (0 for workers or 1 for PSs, class, slot, job, count). The second array has the weight of each row's
        schedule. Rows are sorted.
        """
        return sorted_counts(*self._entries(x))

    def _entries(self, x: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the arrays of `counts`, but in the order of the columns."""
        self._arrange()
        blocks, weights = [], []
        for column in np.flatnonzero(x > 1e-9).tolist():
            schedule = self._schedules[column]
            for side, entries in enumerate((schedule.workers, schedule.ps)):
                job = np.full(len(entries), schedule.job)
                blocks.append(
                    np.column_stack([np.full_like(job, side), entries[:, 0], entries[:, 1], job, entries[:, 2]])
                )
                weights.append(np.full(len(entries), x[column]))
        return np.concatenate([np.zeros((0, 5), dtype=np.int64), *blocks]), np.concatenate([np.zeros(0), *weights])

    def keep(self, columns: IntArray) -> None:
        """Remove all columns except the given ones; a removed schedule may be added again."""
        if len(columns) == len(self):
            return
        self._arrange()
        self._take(columns)
        self._share = csc_array(self._share[:, columns])

    def on(self, tables: JobTables, rows: CapacityRows) -> "ColumnPool":
        """Return a pool of the columns that have a positive value in `tables`, on rows with new capacities, without cuts.

        Parameters
        ----------
        tables
            The same jobs, possibly with lower values.
        rows
            The same rows, possibly with other capacities. A row that a column uses must have had capacity before.
        """
        job, share = self.job, self.share
        completion = np.array([schedule.completion for schedule in self._schedules], dtype=np.int64)
        value = tables.value[job, completion]
        columns = np.flatnonzero(value > 0)
        pool = ColumnPool(tables, rows)
        pool._job, pool._value = job[columns], value[columns]
        pool._weight, pool._idle = self._weight[columns], self._idle[columns]
        pool._schedules = [self._schedules[k] for k in columns.tolist()]
        pool._keys = self._keys.part(columns)
        factor = np.divide(pool._scale, self._scale, out=np.zeros_like(self._scale), where=self._scale > 0)
        part = csc_array(share[:, columns])
        part.data = part.data * factor[part.indices]
        pool._share = part
        return pool

    def _arrange(self) -> None:
        """Sort newly added columns into the pool by job; within a job, earlier columns come first."""
        if not self._added:
            return
        blocks, self._added = self._added, []
        count = sum(len(block.job) for block in blocks)
        self._job = np.concatenate([self._job, *(block.job for block in blocks)])
        self._value = np.concatenate([self._value, *(block.value for block in blocks)])
        self._weight = np.concatenate([self._weight, np.full(count, np.nan)])
        self._idle = np.concatenate([self._idle, np.zeros(count, dtype=np.int64)])
        share = hstack([self._share, *(block.share for block in blocks)], format="csc")
        order = np.argsort(self._job, kind="stable")
        self._take(order)
        self._share = csc_array(share[:, order])

    def _take(self, columns: IntArray) -> None:
        self._job, self._value = self._job[columns], self._value[columns]
        self._weight, self._idle = self._weight[columns], self._idle[columns]
        self._schedules = [self._schedules[k] for k in columns.tolist()]
        self._keys.take(columns)


def class_loads(instance: AdmissionInstance, rows: IntArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the numbers of workers and PSs of each job in each class and slot, summed over schedule entries.

    Shapes (jobs, classes, slots) each; `rows` and `weight` are as returned by `ColumnPool.counts`, in any order.
    """
    loads = []
    for side, servers in enumerate((instance.worker_servers, instance.ps_servers)):
        of_side = rows[:, 0] == side
        _, c, t, job, count = rows[of_side].T
        load = np.zeros((instance.num_jobs, servers.num_classes, instance.horizon))
        np.add.at(load, (job, c, t), weight[of_side] * count)
        loads.append(load)
    return loads[0], loads[1]


def sorted_counts(rows: IntArray, weight: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return rows of schedules, as in `ColumnPool.counts`, in ascending order."""
    order = np.lexsort(rows.T[::-1])
    return rows[order], weight[order]


def _schedule(priced: PricedSchedules, k: int, arrival: int) -> Schedule:
    """Return schedule k; only slots from the job's arrival to its completion are read, since long horizons have many more."""
    window = slice(arrival, priced.completion[k] + 1)
    return Schedule(
        job=int(priced.jobs[k]),
        completion=int(priced.completion[k]),
        workers=_entries(priced.workers[k, :, window], arrival),
        ps=_entries(priced.ps[k, :, window], arrival),
    )


def _entries(counts: NDArray[np.signedinteger[Any]], first_slot: int) -> IntArray:
    classes, slots = np.nonzero(counts)
    entries = np.empty((len(classes), 3), dtype=np.int64)
    entries[:, 0], entries[:, 1], entries[:, 2] = classes, slots + first_slot, counts[classes, slots]
    return entries
