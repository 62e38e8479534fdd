"""Faults put into containers whose series are known: where each begins and ends is the truth that detectors are scored by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.containers.series import ContainerSeries


class FaultKind(StrEnum):
    """What goes wrong."""

    LEAK = "leak"
    """Memory that is never given back: until the end of the container's life as much again as its most."""
    STUCK_THREAD = "stuck-thread"
    """Work waits for a lock: CPU falls to a hundredth, memory stays where it is."""
    NOISY_NEIGHBOUR = "noisy-neighbour"
    """For a quarter of an hour somebody else takes between a third and two thirds of the CPU, a sample more and a sample less."""
    RESTART_LOOP = "restart-loop"
    """Every four to eight minutes the container dies and starts anew: memory begins at a twentieth and is loaded within two minutes."""


MIN_SAMPLES = 80
"""Shorter series get no fault: half an hour at most would be left to find it in, and as little to be usual before it."""

EARLIEST, LATEST = 0.3, 0.7
"""Faults begin in this part of a life."""

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
        The series, some of them with a fault.
    onset, end
        Shape (S,): first sample of each segment's fault and the one after its last; both -1 where there is none.
    """

    series: ContainerSeries
    onset: IntArray
    end: IntArray


def inject(series: ContainerSeries, kind: FaultKind | str, share: float, seed: int) -> Faulty:
    """Put a fault into a random share of the segments that are long enough; the others stay as they are.

    Parameters
    ----------
    series
        On a grid, with a rate first and a level second, as CPU and memory are; limits hold for what a fault adds, too.
    kind
        Of all faults.
    share
        In [0, 1].
    seed
        Same series, kind, share and seed, same faults.

    Raises
    ------
    InvalidProblemError
        If the series aren't on a grid, or aren't CPU and memory.
    """
    interval_s = series.interval_s
    if interval_s is None or [resource.is_level for resource in series.resources] != [False, True]:
        raise InvalidProblemError("faults need series on a grid with a rate and a level, as CPU and memory are")
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
