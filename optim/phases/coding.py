"""From series on the grid to codes, and on to labels: what each sample is by a fitted encoder."""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import UNKNOWN_PHASE, ContainerSeries, FloatArray, IntArray
from optim.phases.clustering import assign
from optim.phases.encoders import Encoder
from optim.phases.scaling import Scaling
from optim.phases.windows import ScaledSeries


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhasedSeries:
    """Series on the model's grid with their phases.

    Attributes
    ----------
    series
        On the grid.
    labels
        Shape (T,): phase of each sample, -1 where history is insufficient.
    """

    series: ContainerSeries
    labels: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """Scaling and encoder, one after the other.

    Attributes
    ----------
    scaling
        Fitted.
    encoder
        Fitted, except where only `scaled` is asked for.
    is_padded
        Whether the first sample is repeated as history, so that every sample has a code.
    """

    scaling: Scaling
    encoder: Encoder
    is_padded: bool

    def scaled(self, grid: ContainerSeries) -> ScaledSeries:
        """Return scaled values, with the history that is made up where series are padded."""
        scaled = self.scaling.scaled(grid)
        return scaled.padded(self.encoder.num_delays) if self.is_padded else scaled

    def codes(self, grid: ContainerSeries) -> tuple[FloatArray, IntArray]:
        """Return codes, shape (n, width), and their rows of the grid, shape (n,), increasing."""
        codes = self.encoder.encode(self.scaled(grid))
        if self.is_padded:
            return codes, np.arange(grid.num_samples)
        return codes, grid.ends(self.encoder.num_delays)

    def labels(self, grid: ContainerSeries, centres: FloatArray, smoothing: int) -> IntArray:
        """Return the nearest centre of each sample, the majority of the last few, shape (T,); -1 without a code.

        Parameters
        ----------
        grid
            T samples.
        centres
            Shape (K, width).
        smoothing
            Labels that a majority is of, at least 1.
        """
        labels = np.full(grid.num_samples, UNKNOWN_PHASE, dtype=np.int64)
        codes, rows = self.codes(grid)
        missing = 0 if self.is_padded else self.encoder.num_delays
        counts = np.maximum(grid.lengths - missing, 0)
        labels[rows] = majority(assign(codes, centres), counts, smoothing, len(centres))
        return labels


def majority(labels: IntArray, lengths: IntArray, size: int, num_labels: int) -> IntArray:
    """Return the most frequent of each segment's last `size` labels, at each sample; never a later one.

    Parameters
    ----------
    labels
        Shape (n,), all known; segments one after the other.
    lengths
        Labels of each segment, zeros allowed.
    size
        How many count; among equals the sample's own label wins, then the lowest.
    num_labels
        K.
    """
    if size <= 1 or not len(labels):
        return labels
    begin = np.repeat(np.cumsum(lengths) - lengths, lengths)
    row = np.arange(len(labels))
    hits = np.zeros((len(labels) + 1, num_labels), dtype=np.int64)
    hits[row + 1, labels] = 1
    sums = hits.cumsum(axis=0)
    votes = 2 * (sums[row + 1] - sums[np.maximum(begin, row - size + 1)])
    votes[row, labels] += 1
    return np.asarray(votes.argmax(axis=1), dtype=np.int64)
