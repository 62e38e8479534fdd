"""Outcome of each job in a run, and waits by user, account, partition and gang."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.metrics import HOUR_US
from optim.models.cluster.run_file import LoggedRun
from optim.models.cluster.waiting import CAUSES, last_times, waiting
from optim.models.cluster.workload import Workload

GROUPS = ("user", "account", "partition", "gang")
"""Columns by which waits are grouped."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JobOutcomes:
    """Outcomes with one entry per job.

    Parameters
    ----------
    start_us
        Time of the job's first start, -1 if it never starts; shape (jobs,).
    end_us
        Time when the job completed, was rejected, or the run ended; shape (jobs,).
    reserved_us
        Time when the job's first reservation was made, -1 without a reservation; shape (jobs,).
    promised_us
        Start time that this reservation promised, -1 without a reservation; shape (jobs,).
    is_done
        Whether the job completed its work; shape (jobs,).
    cause_us
        Waiting time by cause (`optim.models.cluster.waiting.CAUSES`); shape (jobs, causes).
    preemptions
        Number of times that the job lost its GPUs; shape (jobs,).
    gpus
        Machines of the last start with the number of GPUs on each, such as ``3:8 4:8``; "" if none.
    """

    start_us: IntArray
    end_us: IntArray
    reserved_us: IntArray
    promised_us: IntArray
    is_done: BoolArray
    cause_us: FloatArray
    preemptions: IntArray
    gpus: tuple[str, ...]

    @property
    def wait_us(self) -> FloatArray:
        """All time without GPUs from the submission to the end; shape (jobs,)."""
        return np.asarray(self.cause_us.sum(axis=1))


def outcomes_of(jobs: Workload, cluster: Cluster, run: LoggedRun) -> JobOutcomes:
    """Return the outcome of each job in a run."""
    log, count = run.log, len(jobs)
    end = np.maximum(last_times(log, count), jobs.submit_us)
    spells = waiting(jobs, cluster, log, end, run.rules)
    cause = np.zeros((count, len(CAUSES)))
    np.add.at(cause, spells.job, spells.cause_us)
    starts = np.flatnonzero(log.kind == Event.START)
    first, latest = np.full(count, -1), np.full(count, -1)
    first[log.job[starts[::-1]]] = log.time_us[starts[::-1]]
    latest[log.job[starts]] = starts
    reserved, promised = np.full(count, -1), np.full(count, -1)
    reserved[log.job[starts[::-1]]] = log.reserved_us[starts[::-1]]
    promised[log.job[starts[::-1]]] = log.promised_us[starts[::-1]]
    lost = log.job[log.is_lost]
    places = []
    for event in latest.tolist():
        on: dict[int, int] = {}
        for at in range(int(log.first[event]), int(log.first[event + 1])) if event >= 0 else ():
            on[int(log.machine[at])] = on.get(int(log.machine[at]), 0) + int(log.gpus[at])
        places.append(" ".join(f"{machine}:{gpus}" for machine, gpus in sorted(on.items())))
    return JobOutcomes(
        start_us=first,
        end_us=end,
        reserved_us=reserved,
        promised_us=promised,
        is_done=log.is_done(count),
        cause_us=cause,
        preemptions=np.bincount(lost, minlength=count),
        gpus=tuple(places),
    )


def job_rows(
    jobs: Workload, cluster: Cluster, run: LoggedRun, begin: datetime | None = None
) -> Iterator[dict[str, Any]]:
    """Yield one table row per job.

    Times are UTC dates if `begin`, the date of time 0, is given, otherwise hours after the first submission.
    """

    def told(time_us: int) -> str | float:
        if begin is None:
            return round(time_us / HOUR_US, 6)
        return (begin + timedelta(microseconds=int(time_us))).strftime("%Y-%m-%dT%H:%M:%S")

    found = outcomes_of(jobs, cluster, run)
    for job, name in enumerate(jobs.ids):
        yield {
            "policy": run.policy,
            "id": name,
            "user": jobs.users[jobs.user[job]],
            "account": jobs.accounts[jobs.account[job]],
            "partition": jobs.groups[jobs.group[job]],
            "gpus": int(jobs.gpus[job]),
            "submit": told(int(jobs.submit_us[job])),
            "start": told(int(found.start_us[job])) if found.start_us[job] >= 0 else "",
            "end": told(int(found.end_us[job])),
            **{
                name: told(int(us[job])) if us[job] >= 0 else ""
                for name, us in (("reserved", found.reserved_us), ("promised", found.promised_us))
            },
            "is_done": bool(found.is_done[job]),
            "wait_h": round(float(found.wait_us[job]) / HOUR_US, 6),
            **{
                f"wait_{cause}_h": round(float(us) / HOUR_US, 6)
                for cause, us in zip(CAUSES, found.cause_us[job], strict=True)
            },
            "preemptions": int(found.preemptions[job]),
            "machines": found.gpus[job],
        }


SHARES = (50, 90, 95, 99)


def limit_rows(jobs: Workload, by: str) -> list[dict[str, Any]]:
    """Return run-time percentiles in hours by one of `GROUPS`, one row per group, as candidates for time limits.

    Rows are sorted by number of jobs, descending; gangs by size. The result is empty if the column has a single value.
    `stated_over_run` is the median ratio of stated limit to run time, None if no job of the group stated a limit.
    """
    of, name_of = _grouped(jobs, by)
    rows = []
    for value in np.unique(of).tolist():
        run, stated = jobs.duration_us[of == value], jobs.estimate_us[of == value]
        ratio = stated[stated > 0] / run[stated > 0]
        limits = np.percentile(run / HOUR_US, SHARES, method="higher").tolist()
        rows.append(
            {by: name_of(value), "jobs": len(run)}
            | {f"limit_{share}_h": limit for share, limit in zip(SHARES, limits, strict=True)}
            | {
                "longest_h": float(run.max()) / HOUR_US,
                "stated_over_run": float(np.median(ratio)) if len(ratio) else None,
            }
        )
    if by == "gang":
        return rows
    return sorted(rows, key=lambda row: -row["jobs"]) if len(rows) > 1 else []


def _grouped(jobs: Workload, by: str) -> tuple[IntArray, Callable[[int], Any]]:
    """Return each job's group by one of `GROUPS`, shape (jobs,), and a function that names a group."""
    names: dict[str, tuple[str, ...]] = {"user": jobs.users, "account": jobs.accounts, "partition": jobs.groups}
    of = {"user": jobs.user, "account": jobs.account, "partition": jobs.group, "gang": jobs.gpus}[by]
    return of, (lambda value: value) if by == "gang" else lambda value: names[by][value] or "(none)"


def wait_rows(jobs: Workload, wait_us: FloatArray, by: str) -> list[dict[str, Any]]:
    """Return waits in hours by one of `GROUPS`, one row per group: number of jobs, mean, median, 95 % quantile and maximum.

    Rows are sorted by longest wait, descending; gangs by size. The result is empty if the column has a single value.
    """
    of, name_of = _grouped(jobs, by)
    rows = []
    for value in np.unique(of).tolist():
        waits = wait_us[of == value] / HOUR_US
        rows.append(
            {
                by: name_of(value),
                "jobs": len(waits),
                "mean_h": float(waits.mean()),
                "median_h": float(np.median(waits)),
                "p95_h": float(np.percentile(waits, 95)),
                "longest_h": float(waits.max()),
            }
        )
    if by == "gang":
        return rows
    return sorted(rows, key=lambda row: -row["longest_h"]) if len(rows) > 1 else []
