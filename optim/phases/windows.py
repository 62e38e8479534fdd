"""Windows of scaled series, built from ragged segments without padding any."""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import ContainerSeries, FloatArray, IntArray, Segmented


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaledSeries(Segmented):
    """Scaled samples of many segments.

    Attributes
    ----------
    values
        Shape (T, R).
    lengths
        Shape (S,), samples of each segment.
    """

    values: FloatArray
    lengths: IntArray

    def padded(self, num_delays: int) -> "ScaledSeries":
        """Return the series with the first sample of each segment repeated `num_delays` times before it."""
        repeats = np.where(self.place == 0, 1 + num_delays, 1)
        return ScaledSeries(values=np.repeat(self.values, repeats, axis=0), lengths=self.lengths + num_delays)

    def sampled(self, size: int, rng: np.random.Generator) -> "ScaledSeries":
        """Return at most `size` random segments, in their order."""
        if len(self.lengths) <= size:
            return self
        is_chosen = np.zeros(len(self.lengths), dtype=bool)
        is_chosen[rng.permutation(len(self.lengths))[:size]] = True
        return ScaledSeries(values=self.values[np.repeat(is_chosen, self.lengths)], lengths=self.lengths[is_chosen])

    def stretches(self, most: int, rng: np.random.Generator) -> "ScaledSeries":
        """Return a random stretch of at most `most` samples of each segment."""
        kept = np.minimum(self.lengths, most)
        first = (rng.random(len(kept)) * (self.lengths - kept + 1)).astype(np.int64)
        is_kept = (self.place >= first[self.segment]) & (self.place < (first + kept)[self.segment])
        return ScaledSeries(values=self.values[is_kept], lengths=kept)


def split_containers(
    series: ContainerSeries, share: float, rng: np.random.Generator, least_samples: int = 1
) -> tuple[IntArray, IntArray]:
    """Return segments of a random part of the containers, and of a `share` of them that is held out.

    All segments of a container, and all containers of a unit (a pod), are on one side. Units without a segment of at least `least_samples` are never held
    out: they would tell nothing. Where a single unit tells something, both sides are all containers.
    """
    owner = series.unit_index
    telling = np.unique(owner[series.lengths >= least_samples])
    number = len(telling)
    if number <= 1:
        everything = np.arange(series.num_segments)
        return everything, everything
    held = telling[rng.permutation(number)[: min(max(1, round(share * number)), number - 1)]]
    is_held = np.isin(owner, held)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)
