"""Several rows of a table that are one job: its attempts, and the components of its gang."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from optim.workloads.traces.job_table import FloatArray, IntArray, JobTable, TextArray

TWICE = "that repeat another row"


class Gangs:
    """Rows put together to jobs: attempts of one job, one after the other, and components of one gang, side by side.

    A job's work is the GPU-time of all its rows, so that none is lost or counted twice, also where its gang changed.

    Parameters
    ----------
    base, ids
        Names of job and component of each row; the same where jobs have no components.
    submit, gpus, elapsed
        Time of submission, GPUs and run time of each row.

    Attributes
    ----------
    ids
        Names of the components.
    job
        Number of each row's job; jobs are in the order of their first rows.
    last
        Row of each job's last attempt.
    is_last
        Whether a row is the last attempt of its component.
    first_submit, workers, gpu_s
        First submission, GPUs of the last attempts of all components, and GPU-time of all rows, of each job.
    notes
        What was put together.
    """

    def __init__(
        self, base: TextArray, ids: TextArray, submit: FloatArray, gpus: IntArray, elapsed: FloatArray
    ) -> None:
        self.ids = ids
        order = np.argsort(submit, kind="stable")
        place = {int(row): rank for rank, row in enumerate(order.tolist())}
        numbers: dict[str, int] = {}
        self.job = np.array([numbers.setdefault(name, len(numbers)) for name in base.tolist()], np.int64)
        latest: dict[str, int] = {}
        for row, name in enumerate(ids.tolist()):
            if name not in latest or place[row] > place[latest[name]]:
                latest[name] = row
        self.is_last = np.zeros(len(base), dtype=bool)
        self.is_last[list(latest.values())] = True
        self.last = np.zeros(len(numbers), np.int64)
        self.last[self.job[order]] = order  # the last of equal indices stays
        count = len(numbers)
        self.first_submit = np.full(count, np.inf)
        np.minimum.at(self.first_submit, self.job, submit)
        self.workers = np.bincount(self.job, gpus * self.is_last, count).astype(np.int64)
        self.gpu_s = np.bincount(self.job, gpus * elapsed, count)
        again = int((np.bincount(self.job, ~self.is_last, count) > 0).sum())
        wide = int((np.bincount(self.job, self.is_last, count) > 1).sum())
        self.notes = (
            *((f"{_jobs(again)} in several records: attempts of one job, whose run times add up",) if again else ()),
            *((f"{_jobs(wide)} in heterogeneous components: one gang each",) if wide else ()),
        )

    def longest(self, amounts: FloatArray) -> FloatArray:
        """Return an amount of each job: that of all attempts of a component, of the component of which it is most."""
        names, component = np.unique(self.ids.astype(str), return_inverse=True)
        of_component = np.bincount(component, amounts, len(names))
        found = np.full(len(self.last), -np.inf)
        np.maximum.at(found, self.job, of_component[component])
        return found

    def idle(self, end_s: FloatArray, elapsed: FloatArray) -> FloatArray:
        """Return the time from each job's first submission to its last end in which none of its attempts ran, by their ends."""
        last_end = np.full(len(self.last), -np.inf)
        np.maximum.at(last_end, self.job, end_s)
        return np.asarray(last_end - self.first_submit - np.bincount(self.job, elapsed, len(self.last)))

    def summed(self, amounts: FloatArray) -> FloatArray:
        """Return an amount of each job: the sum over its components' last attempts."""
        return np.bincount(self.job, amounts * self.is_last, len(self.last)).astype(np.float64)


def _jobs(number: int) -> str:
    return f"{number} job is" if number == 1 else f"{number} jobs are"


def merge_attempts(table: JobTable) -> JobTable:
    """Return a table with a row a job: rows of one name are its attempts, and a row that repeats another is left out.

    Run times add up (at the gang of the last attempt, so that the GPU-time is that of all), the submission is the first, and
    the wait that is recorded is all time until the last end in which none ran, everything else is the last attempt's.
    """
    if len(set(table.ids)) == len(table):
        return table
    waited = np.zeros(len(table)) if table.waited_s is None else np.nan_to_num(table.waited_s, nan=-1.0)
    same = (table.submit_s, table.workers, table.duration_s, waited)
    rows = list(zip(table.ids, *(column.tolist() for column in same), strict=True))
    first = {row: place for place, row in reversed(list(enumerate(rows)))}
    once = np.array(sorted(first.values()), np.int64)
    repeated = len(rows) - len(once)
    ids = np.array(table.ids, object)[once]
    gangs = Gangs(ids, ids, table.submit_s[once], table.workers[once], table.duration_s[once])
    last = once[gangs.last]
    taken: dict[str, Any] = {}
    for name in (field.name for field in fields(JobTable)):
        value = getattr(table, name)
        if isinstance(value, np.ndarray):
            taken[name] = value[last]
    if table.waited_s is not None:
        taken["waited_s"] = gangs.idle(
            table.submit_s[once] + table.waited_s[once] + table.duration_s[once], table.duration_s[once]
        )
    taken |= {"submit_s": gangs.first_submit, "duration_s": gangs.gpu_s / gangs.workers}
    return replace(
        table,
        **taken,
        ids=tuple(table.ids[row] for row in last.tolist()),
        dropped={**table.dropped, TWICE: repeated} if repeated else table.dropped,
        notes=(*table.notes, *gangs.notes),
    )
