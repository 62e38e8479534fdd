"""How unlikely a sample is: forecast error of a linear rule, or the free energy of the encoder's machine."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from optim.models.containers.series import FloatArray
from optim.phases.encoders.crbm import least_squares
from optim.phases.windows import ScaledSeries

DELAYS = 3
LEAST_ERROR = 1e-3
"""Deviation of a scaled error below which errors are rounding and sensor noise."""


class AnomalyKind(StrEnum):
    """What an anomaly is measured by."""

    FORECAST_ERROR = "forecast-error"
    FREE_ENERGY = "free-energy"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearForecast:
    """The best linear forecast of a sample from the three before it.

    Attributes
    ----------
    matrix, bias
        Shape (3 R, R) and (R,).
    deviation
        Shape (R,): of the errors on the training series.
    """

    matrix: FloatArray
    bias: FloatArray
    deviation: FloatArray

    @classmethod
    def fit(cls, series: ScaledSeries) -> "LinearForecast":
        """Fit by least squares."""
        matrix, bias = least_squares(series, series.ends(DELAYS), DELAYS)
        plain = cls(matrix=matrix, bias=bias, deviation=np.ones(len(bias)))
        errors = plain.errors(series)
        return cls(matrix=matrix, bias=bias, deviation=np.maximum(errors.std(axis=0), LEAST_ERROR))

    def errors(self, series: ScaledSeries) -> FloatArray:
        """Return scaled errors at ``series.ends(3)``, shape (n, R)."""
        windows = series.windows(DELAYS)
        history = windows[:, :-1].reshape(len(windows), len(self.matrix))
        return np.asarray(windows[:, -1] - history @ self.matrix - self.bias)

    def scores(self, series: ScaledSeries) -> FloatArray:
        """Return ``log(1 + mean over resources of squared errors in deviations)`` at ``series.ends(3)``."""
        return np.asarray(np.log1p(((self.errors(series) / self.deviation) ** 2).mean(axis=1)))

    @property
    def least_score(self) -> float:
        """Score that errors within rounding and sensor noise can reach: above 0 where training series were constant."""
        return float(np.log(2.0)) if (self.deviation <= LEAST_ERROR).all() else 0.0
