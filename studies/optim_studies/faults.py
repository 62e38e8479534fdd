"""Inject faults into series of containers; their onsets and ends are the ground truth for scoring detectors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.containers.series import ContainerSeries


class FaultKind(StrEnum):
    """Type of fault."""

    LEAK = "leak"
    """Memory leak: memory grows linearly; at the end of the series the leak equals the container's peak."""
    STUCK_THREAD = "stuck-thread"
    """A thread waits for a lock: CPU falls to 1 %, memory stays constant."""
    NOISY_NEIGHBOUR = "noisy-neighbour"
    """For 15 minutes another container takes a random third to two thirds of the CPU in each sample."""
    RESTART_LOOP = "restart-loop"
    """The container restarts every four to eight minutes: memory starts at 5 % and is reloaded within two minutes."""


MIN_SAMPLES = 80
"""Minimum number of samples for a fault; shorter series have too few samples before or after its onset."""

EARLIEST, LATEST = 0.3, 0.7
"""Range of onsets, as a fraction of the series."""

STUCK_SHARE = 0.01
STOLEN = (1 / 3, 2 / 3)
NEIGHBOUR_S, RELOAD_S = 900.0, 120.0
LOOP_S = (240.0, 480.0)
START_SHARE = 0.05
RELOAD_CORES_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Faulty:
    """Series with faults.

    Attributes
    ----------
    series
        Series, some of them with a fault.
    onset, end
        Shape (S,): first sample of each segment's fault, and the sample after its last; both -1 without a fault.
    """

    series: ContainerSeries
    onset: IntArray
    end: IntArray


def inject(series: ContainerSeries, kind: FaultKind | str, share: float, seed: int) -> Faulty:
    """Inject a fault into a random part of the segments with at least `MIN_SAMPLES` samples; other segments are unchanged.

    Parameters
    ----------
    series
        Series on a grid, with a rate and a level, such as CPU and memory. Limits also cap samples with a fault.
    kind
        Type of all faults.
    share
        Probability of a fault in a segment, in [0, 1].
    seed
        Seed of the faults.

    Raises
    ------
    InvalidProblemError
        If the series aren't on a grid, or aren't a rate and a level.
    """
    interval_s = series.interval_s
    if interval_s is None or [resource.is_level for resource in series.resources] != [False, True]:
        raise InvalidProblemError("faults need series on a grid with a rate and a level, such as CPU and memory")
    put, rng = _FAULTS[FaultKind(kind)], np.random.default_rng(seed)
    values, onset, end = series.values.copy(), np.full(series.num_segments, -1), np.full(series.num_segments, -1)
    for segment, rows in enumerate(series.segments()):
        length = rows.stop - rows.start
        is_chosen, place = rng.random() < share, rng.uniform(EARLIEST, LATEST)
        fault_rng = np.random.default_rng(rng.integers(2**63))
        if not is_chosen or length < MIN_SAMPLES:
            continue
        first = int(place * length)
        most = values[rows].max(axis=0)
        changed = put(values[rows][first:], most, interval_s, fault_rng)
        if series.limit is not None:
            changed = np.fmin(changed, series.limit[segment])
        last = first + len(changed)
        values[rows.start + first : rows.start + last] = changed
        onset[segment], end[segment] = first, last
    return Faulty(series=replace(series, values=values), onset=onset, end=end)


def _leak(after: FloatArray, most: FloatArray, _interval_s: float, _rng: np.random.Generator) -> FloatArray:
    leaked = most[1] * np.arange(1, len(after) + 1) / len(after)
    return np.stack([after[:, 0], after[:, 1] + leaked], axis=1)


def _stuck(after: FloatArray, _most: FloatArray, _interval_s: float, _rng: np.random.Generator) -> FloatArray:
    return np.stack([STUCK_SHARE * after[:, 0], np.full(len(after), after[0, 1])], axis=1)


def _neighbour(after: FloatArray, _most: FloatArray, interval_s: float, rng: np.random.Generator) -> FloatArray:
    number = min(len(after), max(1, round(NEIGHBOUR_S / interval_s)))
    share_left = 1.0 - rng.uniform(*STOLEN, size=number)
    return np.stack([after[:number, 0] * share_left, after[:number, 1]], axis=1)


def _restarts(after: FloatArray, most: FloatArray, interval_s: float, rng: np.random.Generator) -> FloatArray:
    changed, reload = after.copy(), max(1, round(RELOAD_S / interval_s))
    begin = 0
    while begin < len(after):
        stop = min(begin + reload, len(after))
        share = np.linspace(START_SHARE, 1.0, reload + 1)[: stop - begin]
        changed[begin:stop, 1] = share * after[begin:stop, 1]
        changed[begin:stop, 0] = RELOAD_CORES_SHARE * most[0]
        begin += max(reload + 1, round(rng.uniform(*LOOP_S) / interval_s))
    return changed


_FAULTS: Mapping[FaultKind, Callable[[FloatArray, FloatArray, float, np.random.Generator], FloatArray]] = (
    MappingProxyType(
        {
            FaultKind.LEAK: _leak,
            FaultKind.STUCK_THREAD: _stuck,
            FaultKind.NOISY_NEIGHBOUR: _neighbour,
            FaultKind.RESTART_LOOP: _restarts,
        }
    )
)
