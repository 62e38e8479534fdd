"""Resources on one scale: logarithm, then mean zero and deviation one over the training containers."""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import ContainerSeries, FloatArray
from optim.phases.windows import ScaledSeries

SMALLEST_SHARE = 0.01
"""Added before the logarithm, as a share of a resource's mean: below it, differences don't count."""

LARGEST_SCORE = 10.0
"""Values further from the mean, in deviations, are cut there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaling:
    """Scaling of R resources.

    Attributes
    ----------
    offset
        Shape (R,): added before the logarithm; NaN for a resource that is scaled without one.
    mean, deviation
        Shape (R,): over the training samples, after the logarithm.
    """

    offset: FloatArray
    mean: FloatArray
    deviation: FloatArray

    @classmethod
    def fit(cls, values: FloatArray, *, has_logarithm: bool) -> "Scaling":
        """Return the scaling of training samples (T, R); a constant resource has deviation one."""
        width = values.shape[1]
        average = values.mean(axis=0)
        offset = np.where(average > 0, SMALLEST_SHARE * average, 1.0) if has_logarithm else np.full(width, np.nan)
        moved = _logarithm(values, offset)
        deviation = moved.std(axis=0)
        is_constant = deviation <= 1e-12 * np.maximum(np.abs(moved).max(axis=0), 1.0)
        return cls(offset=offset, mean=moved.mean(axis=0), deviation=np.where(is_constant, 1.0, deviation))

    def apply(self, values: FloatArray) -> FloatArray:
        """Return scaled samples, shape (T, R)."""
        score = (_logarithm(values, self.offset) - self.mean) / self.deviation
        return np.clip(score, -LARGEST_SCORE, LARGEST_SCORE)

    def scaled(self, series: ContainerSeries) -> ScaledSeries:
        """Return series with scaled samples, in the same segments."""
        return ScaledSeries(values=self.apply(series.values), lengths=series.lengths)


def _logarithm(values: FloatArray, offset: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(np.isnan(offset), values, np.log(values + offset)))
