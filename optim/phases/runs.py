"""Runs of equal phases: a series' labels with their repetitions counted."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseRuns:
    """Runs of many segments, one after the other.

    Attributes
    ----------
    phase
        Shape (N,): phase of each run; neighbours of a segment differ.
    dwell
        Shape (N,): samples of each run.
    offsets
        Shape (S + 1,): runs of segment s are ``offsets[s]`` to ``offsets[s + 1]``.
    """

    phase: IntArray
    dwell: IntArray
    offsets: IntArray

    def __eq__(self, other: object) -> bool:
        """Tell whether all runs are the same."""
        if not isinstance(other, PhaseRuns):
            return NotImplemented
        mine, others = ((one.phase, one.dwell, one.offsets) for one in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, others, strict=True))

    __hash__ = None  # type: ignore[assignment]

    @property
    def num_segments(self) -> int:
        """S."""
        return len(self.offsets) - 1

    def sequences(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield phases and dwells of each segment that has any."""
        for begin, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            if end > begin:
                yield self.phase[begin:end], self.dwell[begin:end]

    def joined(self, other: "PhaseRuns") -> "PhaseRuns":
        """Return these runs with those of further segments behind them."""
        return PhaseRuns(
            phase=np.concatenate([self.phase, other.phase]),
            dwell=np.concatenate([self.dwell, other.dwell]),
            offsets=np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]]),
        )


def runs_of(labels: IntArray, lengths: IntArray, min_dwell: int = 1) -> PhaseRuns:
    """Return the runs of labelled segments.

    A run shorter than `min_dwell` becomes part of the run before it; a segment's first run has none and stays.

    Parameters
    ----------
    labels
        Shape (T,); negative ones, samples without a phase, are left out.
    lengths
        Shape (S,).
    min_dwell
        Samples that a run needs.
    """
    segment = np.repeat(np.arange(len(lengths)), lengths)
    known = labels >= 0
    labels, segment = labels[known], segment[known]
    is_first = np.ones(len(labels), dtype=bool)
    is_first[1:] = (labels[1:] != labels[:-1]) | (segment[1:] != segment[:-1])
    begins = np.flatnonzero(is_first)
    phase = labels[begins]
    dwell = np.diff(np.concatenate([begins, [len(labels)]]))
    counts = np.bincount(segment[begins], minlength=len(lengths)) if len(begins) else np.zeros(len(lengths), np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    runs = PhaseRuns(phase=phase.astype(np.int64), dwell=dwell.astype(np.int64), offsets=offsets)
    return runs if min_dwell <= 1 else _without_short(runs, min_dwell)


def _without_short(runs: PhaseRuns, min_dwell: int) -> PhaseRuns:
    phases: list[int] = []
    dwells: list[int] = []
    offsets = [0]
    for begin, end in zip(runs.offsets[:-1].tolist(), runs.offsets[1:].tolist(), strict=True):
        first = len(phases)
        for phase, dwell in zip(runs.phase[begin:end].tolist(), runs.dwell[begin:end].tolist(), strict=True):
            if len(phases) > first and (phase == phases[-1] or dwell < min_dwell):
                dwells[-1] += dwell
            else:
                phases.append(phase)
                dwells.append(dwell)
        offsets.append(len(phases))
    return PhaseRuns(
        phase=np.array(phases, dtype=np.int64),
        dwell=np.array(dwells, dtype=np.int64),
        offsets=np.array(offsets, dtype=np.int64),
    )


def run_numbers(labels: IntArray, segment: IntArray) -> IntArray:
    """Return the number of the run of equal labels that each sample belongs to, shape (T,).

    Parameters
    ----------
    labels
        Shape (T,); samples without a phase make runs of their own.
    segment
        Shape (T,): series of each sample, neighbours in time being neighbours.
    """
    begins = np.ones(len(labels), dtype=bool)
    begins[1:] = (labels[1:] != labels[:-1]) | (segment[1:] != segment[:-1])
    return np.asarray(np.cumsum(begins) - 1, dtype=np.int64)
