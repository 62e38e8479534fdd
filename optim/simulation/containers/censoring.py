"""What containers need that run into their limits: more than is seen.

A resource that is held can't be used beyond its limit: a container that tries is killed, and begins anew. A sample close to the limit with
a fall to less than half of it behind it is such a kill, and the need there is taken as the Vertical Pod Autoscaler takes it after
one: a fifth above the limit, memory at least 100 MiB above it. A container that reaches its limit without being killed needs at least
the limit. Neither's limit binds what it should get.
"""

from dataclasses import dataclass, replace

import numpy as np

from optim.models.containers.series import MEMORY, ContainerSeries, FloatArray, IntArray
from optim.simulation.containers.harm import SECONDS_PER_DAY
from optim.simulation.containers.vpa import OOM_FACTOR, OOM_STEP

AT_LIMIT = 0.95
"""From this share of the limit on a sample is at it: samples are seconds apart, and few are taken just before a kill."""

FALL = 0.5
"""A container whose use falls below this share of its limit at once has begun anew."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Uncensored:
    """Series with needs in place of what limits left of them.

    Attributes
    ----------
    series
        Samples at kills raised; limits that were reached are unknown.
    kills
        Shape (S, R): kills at the limit.
    kills_per_day
        Shape (S, R): likewise, over the time from a segment's first sample to its last.
    least
        Shape (S, R): what a segment needs at least; 0 where no limit was reached.
    limit
        Shape (S, R): limits as they were; infinite where unknown.
    """

    series: ContainerSeries
    kills: IntArray
    kills_per_day: FloatArray
    least: FloatArray
    limit: FloatArray


def uncensor(series: ContainerSeries) -> Uncensored:
    """Return what containers need that ran into their limits, of resources that are held."""
    shape = (series.num_segments, len(series.resources))
    is_held = np.array([resource.is_level for resource in series.resources])
    limit = (
        np.full(shape, np.inf) if series.limit is None else np.where(np.isfinite(series.limit), series.limit, np.inf)
    )
    bound = np.where(is_held & (limit > 0), limit, np.inf)
    by_row = bound[series.segment]
    is_at = series.values >= AT_LIMIT * by_row
    is_next = series.segment[1:] == series.segment[:-1]
    is_kill = np.zeros_like(is_at)
    is_kill[:-1] = is_at[:-1] & (series.values[1:] < FALL * by_row[:-1]) & is_next[:, None]
    kills, reached = (np.add.reduceat(own.astype(np.int64), series.starts, axis=0) for own in (is_kill, is_at))
    step = OOM_STEP * np.array([resource == MEMORY for resource in series.resources])
    raised = np.maximum(OOM_FACTOR * bound, bound + step)
    ends = series.starts + series.lengths - 1
    days = (series.time_s[ends] - series.time_s[series.starts]) / SECONDS_PER_DAY
    return Uncensored(
        series=replace(
            series,
            values=np.where(is_kill, np.maximum(raised[series.segment], series.values), series.values),
            limit=None if series.limit is None else np.where(reached > 0, np.nan, series.limit),
        ),
        kills=kills,
        kills_per_day=np.where(kills > 0, kills / np.where(days > 0, days, 1.0)[:, None], 0.0),
        least=np.where(kills > 0, raised, np.where(reached > 0, bound, 0.0)),
        limit=limit,
    )
