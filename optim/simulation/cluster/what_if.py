"""Comparison of two runs of the same jobs under different settings: changes of each job's wait, and borrowing between queues."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.metrics import HOUR_US
from optim.models.cluster.waiting import last_times, waited_by_job
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.engine import Policy
from optim.simulation.cluster.policies.hierarchical_quota import HierarchicalQuota

MOVERS = 5
"""Number of jobs that the summary names for the largest decreases of the wait, and likewise for the largest increases."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueQuotas:
    """Queue of each job, and quotas of the queues.

    Parameters
    ----------
    names
        Names of the queues.
    queue
        Number of each job's queue; shape (jobs,).
    quota
        GPUs of each queue, NaN if the policy has no quotas; shape (queues,).
    """

    names: tuple[str, ...]
    queue: IntArray
    quota: FloatArray


def quotas_of(policy: Policy, jobs: Workload, cluster: Cluster) -> QueueQuotas:
    """Return the queues of a policy; for policies other than `hierarchical-quota`, the virtual clusters without quotas."""
    if not isinstance(policy, HierarchicalQuota):
        return QueueQuotas(names=jobs.groups, queue=jobs.group, quota=np.full(len(jobs.groups), np.nan))
    policy.begin(cluster, 0)
    rows = sorted(policy.tree.queues.values())
    number = np.full(len(policy.tree.names), -1)
    number[rows] = np.arange(len(rows))
    return QueueQuotas(
        names=tuple(policy.tree.names[row] for row in rows),
        queue=number[policy.queue],
        quota=policy.tree.nominal[rows].sum(axis=1) / 1000,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueUse:
    """Results of a run by queue, each of shape (queues,).

    Parameters
    ----------
    gpu_hours, borrowed_gpu_hours
        Allocated GPU-hours, and the part above the queue's quota.
    stopped
        Number of times that jobs of the queue were preempted.
    starved_h
        Hours in which a job of the queue waited although the unused part of its quota was sufficient.
    """

    gpu_hours: FloatArray
    borrowed_gpu_hours: FloatArray
    stopped: IntArray
    starved_h: FloatArray


def queue_use(jobs: Workload, log: EventLog, quotas: QueueQuotas) -> QueueUse:
    """Return the results of a run's log by queue; without quotas, borrowed and starved hours are 0."""
    count = len(quotas.names)
    quota = np.nan_to_num(quotas.quota, nan=np.inf)
    used, since = [0] * count, [0] * count
    held, borrowed, starved = ([0.0] * count for _ in range(3))
    stopped = np.zeros(count, np.int64)
    waiting: list[dict[int, int]] = [{} for _ in range(count)]
    queue, gang = quotas.queue.tolist(), jobs.gpus.tolist()

    def pass_time(which: int, now: int) -> None:
        span = now - since[which]
        since[which] = now
        if not span:
            return
        held[which] += used[which] * span
        borrowed[which] += max(0.0, used[which] - quota[which]) * span
        if np.isfinite(quota[which]) and waiting[which] and min(waiting[which]) + used[which] <= quota[which]:
            starved[which] += span

    def wait(job: int, more: int) -> None:
        mine = waiting[queue[job]]
        mine[gang[job]] = mine.get(gang[job], 0) + more
        if not mine[gang[job]]:
            del mine[gang[job]]

    runs: set[int] = set()
    submitted, end = 0, last_times(log, len(jobs)).max(initial=0)
    for time, kind, job, _ in [*log.rows(), (int(end), -1, 0, ())]:
        while submitted < len(jobs) and jobs.submit_us[submitted] <= time:
            pass_time(queue[submitted], int(jobs.submit_us[submitted]))
            wait(submitted, 1)
            submitted += 1
        if kind in (-1, Event.FAIL, Event.REPAIR):
            continue
        which = queue[job]
        pass_time(which, time)
        if kind == Event.START:
            wait(job, -1)
            used[which] += gang[job]
            runs.add(job)
            continue
        if job in runs:
            runs.discard(job)
            used[which] -= gang[job]
        else:
            wait(job, -1)  # rejected while it waits
        if kind in (Event.PREEMPT, Event.CRASH, Event.FAULT):
            wait(job, 1)
        stopped[which] += kind == Event.PREEMPT
    for which in range(count):
        pass_time(which, int(end))
    return QueueUse(
        gpu_hours=np.array(held) / HOUR_US,
        borrowed_gpu_hours=np.array(borrowed) / HOUR_US,
        stopped=stopped,
        starved_h=np.array(starved) / HOUR_US,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedRuns:
    """Two runs of the same jobs.

    Parameters
    ----------
    jobs
        Simulated jobs.
    now, then
        Logs with the present and with the proposed settings.
    quotas_now, quotas_then
        Queues of the first and of the second run; rows of the comparison are the queues of the second.
    """

    jobs: Workload
    now: EventLog
    then: EventLog
    quotas_now: QueueQuotas
    quotas_then: QueueQuotas

    @cached_property
    def waits_us(self) -> IntArray:
        """Microseconds that each job waits in either run; shape (2, jobs)."""
        return np.stack([waited_by_job(self.jobs, log) for log in (self.now, self.then)])

    @property
    def waits_h(self) -> FloatArray:
        """Hours that each job waits in either run; shape (2, jobs)."""
        return self.waits_us / HOUR_US

    @property
    def change_us(self) -> IntArray:
        """Microseconds that each job waits longer in the second run; shape (jobs,)."""
        return np.asarray(self.waits_us[1] - self.waits_us[0])

    @cached_property
    def _use(self) -> tuple[QueueUse, QueueUse]:
        return queue_use(self.jobs, self.now, self.quotas_now), queue_use(self.jobs, self.then, self.quotas_then)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per queue of the second run that has jobs or quota.

        Results of the first run are those of its queue with the same name.
        """
        names = self.quotas_then.names
        use_now, use_then = self._use
        waits, difference = self.waits_h, self.change_us
        by_name = {name: number for number, name in enumerate(self.quotas_now.names)}
        rows = []
        for number, name in enumerate(names):
            mine = self.quotas_then.queue == number
            before = by_name.get(name)
            if not mine.any() and not self.quotas_then.quota[number] > 0:
                continue
            count = int(mine.sum())
            rows.append(
                {
                    "queue": name,
                    "quota_now": _known(self.quotas_now.quota, before),
                    "quota_then": _known(self.quotas_then.quota, number),
                    "jobs": count,
                    "wait_mean_h_now": float(waits[0, mine].mean()) if count else None,
                    "wait_mean_h_then": float(waits[1, mine].mean()) if count else None,
                    "wait_less": int((difference[mine] < 0).sum()),
                    "wait_more": int((difference[mine] > 0).sum()),
                    "borrowed_gpu_hours_now": _lent(self.quotas_now, use_now.borrowed_gpu_hours, before),
                    "borrowed_gpu_hours_then": _lent(self.quotas_then, use_then.borrowed_gpu_hours, number),
                    "stopped_now": None if before is None else int(use_now.stopped[before]),
                    "stopped_then": int(use_then.stopped[number]),
                    "starved_h_now": _lent(self.quotas_now, use_now.starved_h, before),
                    "starved_h_then": _lent(self.quotas_then, use_then.starved_h, number),
                }
            )
        return rows

    def summary(self) -> dict[str, Any]:
        """Return the numbers of jobs that wait less and more, the total changes in hours, and the most affected jobs.

        For each run, the summary also lists the queues that are over quota or starved; None without quotas.
        """
        change = self.change_us
        order = np.argsort(change, kind="stable")
        rows = self.rows()
        figures: dict[str, Any] = {
            "jobs": len(self.jobs),
            "wait_less": int((change < 0).sum()),
            "wait_less_h": float(-change[change < 0].sum()) / HOUR_US,
            "wait_more": int((change > 0).sum()),
            "wait_more_h": float(change[change > 0].sum()) / HOUR_US,
            "wait_same": int((change == 0).sum()),
            "wait_mean_h_change": float(change.mean()) / HOUR_US,
            "most_less": self._named(order[:MOVERS][change[order[:MOVERS]] < 0], change),
            "most_more": self._named(order[::-1][:MOVERS][change[order[::-1][:MOVERS]] > 0], change),
        }
        for run in ("now", "then"):
            figures[f"borrowed_gpu_hours_{run}"] = _total(rows, f"borrowed_gpu_hours_{run}")
            figures[f"stopped_{run}"] = _total(rows, f"stopped_{run}")
            has_quotas = any(row[f"quota_{run}"] is not None for row in rows)
            for name, figure in (("over_quota", "borrowed_gpu_hours"), ("starved", "starved_h")):
                named = [row["queue"] for row in rows if row[f"{figure}_{run}"]]
                figures[f"{name}_{run}"] = named if has_quotas else None
        return figures

    def _named(self, rows: IntArray, change: IntArray) -> list[dict[str, Any]]:
        return [
            {
                "job": self.jobs.ids[row],
                "queue": self.quotas_then.names[self.quotas_then.queue[row]],
                "wait_h_change": int(change[row]) / HOUR_US,
            }
            for row in rows.tolist()
        ]


def _known(values: FloatArray, number: int | None) -> float | None:
    return None if number is None or np.isnan(values[number]) else float(values[number])


def _lent(quotas: QueueQuotas, values: FloatArray, number: int | None) -> float | None:
    return None if number is None or np.isnan(quotas.quota[number]) else float(values[number])


def _total(rows: list[dict[str, Any]], name: str) -> Any:
    told = [row[name] for row in rows if row[name] is not None]
    return sum(told) if told else None


def settings_of(path: Any) -> Mapping[str, Any]:
    """Return the policy that reads a settings file, with the option for its path.

    The policy is multifactor for `.conf` files, otherwise hierarchical-quota.
    """
    return {"multifactor": "conf"} if str(path).casefold().endswith(".conf") else {"hierarchical-quota": "quotas"}
