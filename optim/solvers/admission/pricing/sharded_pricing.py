"""Pricing by a worker pool: each worker prices its shards and stores their columns until the master requests them.

Workers receive prices and return payoffs, the rows' summed use and the columns' keys. The instance fixes the number of
shards, and results are merged in the order of shards, so that any number of workers gives the same bound.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.execution.tasks import ShardWorker, WorkerPool
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.packing.capacity_rows import CapacityRows, total_use
from optim.solvers.admission.packing.column_pool import schedule_keys
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules, price

JOBS_A_SHARD, MAX_SHARDS = 50, 16


class ShardPrices(NamedTuple):
    """A shard's reply to prices: its jobs' payoffs, the rows' summed use, and the key of each job's schedule or None."""

    payoff: FloatArray
    use: FloatArray
    keys: list[bytes | None]


class ShardColumns(NamedTuple):
    """Schedules in transfer: completion slots, and the nonzero counts of workers and of PSs as (flat indices, counts)."""

    completion: IntArray
    counts: tuple[tuple[IntArray, IntArray], ...]


@dataclass(frozen=True, eq=False)
class JobShards(ShardWorker):
    """An instance whose jobs are priced in shards: job i is in shard i mod the number of shards."""

    instance: AdmissionInstance
    num_shards: int

    @classmethod
    def of(cls, instance: AdmissionInstance) -> "JobShards":
        """Split an instance's jobs by index."""
        return cls(instance, max(1, min(MAX_SHARDS, instance.num_jobs // JOBS_A_SHARD)))

    def __getstate__(self) -> dict[str, Any]:
        """Omit the tables: each process builds its own."""
        return {"instance": self.instance, "num_shards": self.num_shards}

    def laid_out(self, tables: JobTables, rows: CapacityRows) -> "JobShards":
        """Set existing tables and return self; otherwise several threads would each build them."""
        vars(self).update(tables=tables, rows=rows)
        _ = self._segments, self._last
        return self

    @cached_property
    def tables(self) -> JobTables:
        """The pricing tables of the jobs."""
        return JobTables.build(self.instance)

    @cached_property
    def rows(self) -> CapacityRows:
        """The capacity rows."""
        return CapacityRows.of(self.tables)

    @cached_property
    def _last(self) -> dict[int, tuple[bytes, PricedSchedules]]:
        """The schedules of each shard at its latest prices."""
        return {}

    def jobs(self, shard: int) -> IntArray:
        """Return the jobs of a shard."""
        return np.arange(shard, self.tables.num_jobs, self.num_shards)

    @cached_property
    def _segments(self) -> list[IntArray]:
        """The demand segments of each shard's jobs."""
        return [np.flatnonzero(self.tables.segment_job % self.num_shards == shard) for shard in range(self.num_shards)]

    def answer(self, shard: int, question: FloatArray, wanted_jobs: IntArray | None) -> ShardPrices | ShardColumns:
        """Price a shard's jobs at row prices, or return the schedules of some of them at these prices."""
        name = question.tobytes()
        before, priced = self._last.get(shard, (b"", None))
        if priced is None or before != name:
            priced = price(
                self.tables, self.rows.prices(question), jobs=self.jobs(shard), segments=self._segments[shard]
            )
            self._last[shard] = name, priced
        if wanted_jobs is None:
            return ShardPrices(priced.payoff, total_use(self.tables, self.rows, priced), schedule_keys(priced))
        wanted = priced.select(wanted_jobs)
        counts = tuple((np.flatnonzero(side), side[side != 0]) for side in (wanted.workers, wanted.ps))
        return ShardColumns(wanted.completion, counts)


class CrewPricer:
    """Prices all jobs with a worker pool; the master process calls it."""

    def __init__(self, crew: WorkerPool, tables: JobTables, num_shards: int) -> None:
        self._crew, self._tables, self._num_shards = crew, tables, num_shards
        self._jobs = [np.arange(shard, tables.num_jobs, num_shards) for shard in range(num_shards)]

    def price(self, point: FloatArray) -> tuple[FloatArray, FloatArray, list[bytes | None]]:
        """Return all jobs' payoffs, the rows' summed use, and the keys of the schedules, at row prices."""
        answers = self._crew.ask(point, dict.fromkeys(range(self._num_shards)))
        payoff = np.zeros(self._tables.num_jobs)
        use = np.zeros_like(point)
        keys: list[bytes | None] = [None] * self._tables.num_jobs
        for shard, jobs in enumerate(self._jobs):
            answer: ShardPrices = answers[shard]
            payoff[jobs] = answer.payoff
            use += answer.use
            keys[shard :: self._num_shards] = answer.keys
        return payoff, use, keys

    def columns(self, point: FloatArray, jobs: IntArray) -> PricedSchedules:
        """Return the schedules of some jobs, ascending, at row prices; their payoffs are set to 0."""
        instance = self._tables.instance
        shard_jobs = {
            shard: jobs[jobs % self._num_shards == shard] // self._num_shards
            for shard in np.unique(jobs % self._num_shards).tolist()
        }
        answers = self._crew.ask(point, shard_jobs)
        classes = instance.worker_servers.num_classes, instance.ps_servers.num_classes
        sides = [np.zeros((len(jobs), count, instance.horizon), dtype=np.int32) for count in classes]
        completion = np.zeros(len(jobs), dtype=np.int64)
        for shard, answer in answers.items():
            where = np.flatnonzero(jobs % self._num_shards == shard)
            completion[where] = answer.completion
            for side, (places, numbers) in zip(sides, answer.counts, strict=True):
                block = np.zeros((len(where), *side.shape[1:]), dtype=np.int32)
                block.reshape(-1)[places] = numbers
                side[where] = block
        return PricedSchedules(
            jobs=jobs, payoff=np.zeros(len(jobs)), completion=completion, workers=sides[0], ps=sides[1]
        )
