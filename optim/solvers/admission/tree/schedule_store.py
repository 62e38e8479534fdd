"""The schedules that branch and price knows, as stacked arrays."""

import numpy as np
from numpy.typing import NDArray

from optim.models.admission.instance import IntArray
from optim.solvers.admission.pricing.class_pricing import PricedSchedules
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.tree.node_pricing import NodeLimits


class ScheduleStore:
    """Schedules over server classes without duplicates, in the order in which they were added."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables
        horizon = tables.value.shape[1]
        self.job: IntArray = np.zeros(0, dtype=np.int64)
        self.completion: IntArray = np.zeros(0, dtype=np.int64)
        self.workers: IntArray = np.zeros((0, tables.worker_limit.shape[1], horizon), dtype=np.int64)
        self.ps: IntArray = np.zeros((0, tables.ps_limit.shape[1], horizon), dtype=np.int64)
        self._keys: list[bytes] = []
        self._known: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.job)

    def add(self, priced: PricedSchedules) -> PricedSchedules:
        """Append the schedules that are new, and return them alone."""
        new = []
        for k in np.flatnonzero(priced.completion >= 0).tolist():
            key = _key(priced, k)
            if key not in self._known:
                self._known.add(key)
                self._keys.append(key)
                new.append(k)
        added = _selected(priced, np.array(new, dtype=np.int64))
        self.job = np.concatenate([self.job, added.jobs])
        self.completion = np.concatenate([self.completion, added.completion])
        self.workers = np.concatenate([self.workers, added.workers])
        self.ps = np.concatenate([self.ps, added.ps])
        return added

    def keep(self, which: IntArray) -> None:
        """Forget all but the given schedules; forgotten ones may be priced and added again."""
        self.job, self.completion = self.job[which], self.completion[which]
        self.workers, self.ps = self.workers[which], self.ps[which]
        self._keys = [self._keys[k] for k in which.tolist()]
        self._known = set(self._keys)

    def all(self) -> PricedSchedules:
        """Return every schedule; payoffs are left 0."""
        return PricedSchedules(
            jobs=self.job,
            payoff=np.zeros(len(self)),
            completion=self.completion,
            workers=self.workers,
            ps=self.ps,
        )

    def allowed(self, limits: NodeLimits) -> NDArray[np.bool_]:
        """Tell which schedules a node leaves, shape (schedules,)."""
        job, tables = self.job, self._tables
        result: NDArray[np.bool_] = (limits.is_refused[job] == 0) & (self.completion >= limits.first[job])
        result &= self.completion <= limits.last[job]
        sides = (
            (self.workers, limits.worker_low, limits.worker_high, tables.worker_limit),
            (self.ps, limits.ps_low, limits.ps_high, tables.ps_limit),
        )
        for counts, low, high, most in sides:
            for i, c, t in np.argwhere(low > 0).tolist():
                result &= (job != i) | (counts[:, c, t] >= low[i, c, t])
            for s, c, t in np.argwhere(high < most).tolist():
                result &= (job != tables.segment_job[s]) | (counts[:, c, t] <= high[s, c, t])
        return result


def _key(priced: PricedSchedules, k: int) -> bytes:
    key: bytes = int(priced.jobs[k]).to_bytes(4, "big") + priced.workers[k].tobytes() + priced.ps[k].tobytes()
    return key


def _selected(priced: PricedSchedules, which: IntArray) -> PricedSchedules:
    return PricedSchedules(
        jobs=priced.jobs[which],
        payoff=priced.payoff[which],
        completion=priced.completion[which],
        workers=priced.workers[which],
        ps=priced.ps[which],
    )
