"""From the table of a trace to jobs that a cluster can play."""

import logging
from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.workload import US, Workload
from optim.workloads.traces.job_table import JobTable

LOGGER = logging.getLogger(__name__)
OVERSIZED = "larger than the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which of a trace's jobs are played.

    Parameters
    ----------
    first
        The first so many in time; None for all.
    oversized
        What to do with gangs larger than `num_gpus`: refuse or drop.
    num_gpus
        GPUs of the cluster; None if it isn't known.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    first: int | None = None
    oversized: str = "refuse"
    num_gpus: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if self.oversized not in ("refuse", "drop"):
            raise InvalidOptionError(f"oversized must be refuse or drop, got {self.oversized[:40]!r}")
        if self.first is not None and self.first < 1:
            raise InvalidOptionError(f"the number of jobs must be at least 1, got {self.first}")


def cluster_jobs(table: JobTable, selection: Selection) -> Workload:
    """Return the jobs in the order of their submission; times are rounded to microseconds.

    Raises
    ------
    InvalidProblemError
        If no job is left.
    """
    order = np.argsort(table.submit_s, kind="stable")
    dropped = dict(table.dropped)
    if len(order) and (np.diff(table.submit_s) < 0).any():
        LOGGER.info("the trace isn't in the order of time; its rows were sorted")
    if selection.oversized == "drop" and selection.num_gpus is not None:
        fits = table.workers[order] <= selection.num_gpus
        dropped[OVERSIZED] = int((~fits).sum())
        order = order[fits]
    order = order[: selection.first]
    if not len(order):
        raise InvalidProblemError("no job of the trace is left; choose other dates or a larger cluster")
    clusters = table.virtual_cluster[order] if table.virtual_cluster is not None else np.full(len(order), "", object)
    groups, group = np.unique(clusters.astype(str), return_inverse=True)
    submit = table.submit_s[order]
    duration = np.maximum(1, np.rint(table.duration_s[order] * US))
    return Workload(
        submit_us=np.rint((submit - submit[0]) * US).astype(np.int64),
        gpus=table.workers[order],
        duration_us=duration.astype(np.int64),
        group=group.astype(np.int64),
        groups=tuple(groups.tolist()),
        ids=tuple(table.ids[row] for row in order.tolist()),
        dropped={reason: count for reason, count in dropped.items() if count},
    )
