"""Which types of GPU jobs can use: types that are the same to all jobs form one pool, jobs that can use the same types one class."""

from dataclasses import dataclass

import numpy as np

from optim.models.cluster.workload import PPM, Workload
from optim.models.cluster.world import Cluster, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class GpuPools:
    """Pools of GPUs, and what classes of jobs can do with them.

    Parameters
    ----------
    gpus
        GPUs of each pool; shape (pools,).
    pool_of
        Pool of each type of GPU, -1 if no job can use it; shape (types,).
    factor_ppm
        How much longer a class takes on a pool, 0 where it can't run; shape (classes, pools).
    class_of
        Class of each job; shape (jobs,).
    duration_us
        Run time of each job on the pool on which it is fastest, rounded down; shape (jobs,).
    """

    gpus: IntArray
    pool_of: IntArray
    factor_ppm: IntArray
    class_of: IntArray
    duration_us: IntArray

    @property
    def usable(self) -> list[IntArray]:
        """Return the pools of each class."""
        return [np.flatnonzero(row) for row in self.factor_ppm]

    @property
    def ratio(self) -> FloatArray:
        """Return how much longer a class takes on a pool than on its fastest, 0 where it can't run."""
        fastest = np.where(self.factor_ppm > 0, self.factor_ppm, self.factor_ppm.max()).min(axis=1, keepdims=True)
        return np.asarray(self.factor_ppm / fastest)

    def bound_together(self) -> list[tuple[IntArray, int]]:
        """Return for each set of pools that is all that some jobs can use: the jobs that can use no other, and its GPUs."""
        masks = np.unique(np.vstack([self.factor_ppm > 0, np.ones(len(self.gpus), bool)]), axis=0)
        found = []
        for mask in masks:
            goes_elsewhere = np.asarray((self.factor_ppm[:, ~mask] > 0).any(axis=1))
            who = np.flatnonzero(~goes_elsewhere[self.class_of])
            found.append((who, int(self.gpus[mask].sum())))
        return found

    def by_type(self, price: FloatArray) -> FloatArray:
        """Return prices of types from prices of pools; one row if all types are one pool."""
        if len(self.gpus) == 1 and (self.pool_of == 0).all():
            return np.asarray(price[0])
        return np.where((self.pool_of >= 0)[:, None], price[self.pool_of], 0.0)

    def type_of(self, pool: IntArray) -> IntArray:
        """Return a type of GPU of each pool."""
        first = np.array([np.flatnonzero(self.pool_of == each)[0] for each in range(len(self.gpus))])
        return np.asarray(first[pool])


def gpu_pools(jobs: Workload, cluster: Cluster) -> GpuPools:
    """Return the pools of a cluster for some jobs; a job that can run nowhere counts as if it could run anywhere."""
    types = jobs.kind_ppm.shape[1]
    table = jobs.kind_ppm if types else np.full((len(jobs), 1), PPM)
    gpus = np.bincount(cluster.kind, cluster.gpus, types).astype(np.int64) if types else np.array([cluster.num_gpus])
    table = np.where(gpus > 0, table, 0)
    table[~table.any(axis=1)] = np.where(gpus > 0, PPM, 0)
    rows, class_of = np.unique(table, axis=0, return_inverse=True)
    used = np.flatnonzero(rows.any(axis=0))
    factor, pool_of_used = np.unique(rows[:, used], axis=1, return_inverse=True)
    pool_of = np.full(len(gpus), -1)
    pool_of[used] = pool_of_used.ravel()
    fastest = np.where(rows > 0, rows, rows.max()).min(axis=1)[class_of.ravel()]
    return GpuPools(
        gpus=np.bincount(pool_of[used], gpus[used]).astype(np.int64),
        pool_of=pool_of,
        factor_ppm=factor,
        class_of=class_of.ravel(),
        duration_us=jobs.duration_us // PPM * fastest + jobs.duration_us % PPM * fastest // PPM,
    )


def choose_pools(jobs: Workload, pools: GpuPools) -> IntArray:
    """Return a pool for each job: where it would end first, if all work before it were spread over its pool's GPUs."""
    usable = pools.usable
    chosen = np.array([each[0] for each in usable])[pools.class_of]
    if all(len(each) == 1 for each in usable):
        return chosen
    ready, ratio, gpus = [0.0] * len(pools.gpus), pools.ratio.tolist(), pools.gpus.tolist()
    lists = [each.tolist() for each in usable]
    rows = zip(
        pools.class_of.tolist(), jobs.submit_us.tolist(), pools.duration_us.tolist(), jobs.gpus.tolist(), strict=True
    )
    for job, (own, submit, duration, width) in enumerate(rows):
        begins = {pool: max(ready[pool], float(submit)) for pool in lists[own]}
        best = min(lists[own], key=lambda pool: begins[pool] + duration * ratio[own][pool])
        ready[best] = begins[best] + duration * ratio[own][best] * width / gpus[best]
        chosen[job] = best
    return chosen
