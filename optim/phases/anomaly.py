"""How unlikely a sample is: by a linear rule's forecast error, or by what the encoder has learned; and what is usual."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from optim.models.containers.series import ContainerSeries, FloatArray, IntArray
from optim.phases.drift import Calibration, calibrate
from optim.phases.encoders import Encoder
from optim.phases.encoders.crbm import CrbmEncoder, least_squares
from optim.phases.encoders.hmm import HmmEncoder
from optim.phases.scaling import Scaling
from optim.phases.windows import ScaledSeries

DELAYS = 3
LEAST_ERROR = 1e-3
"""Deviation of a scaled error below which errors are rounding and sensor noise."""


class AnomalyKind(StrEnum):
    """What an anomaly is measured by."""

    FORECAST_ERROR = "forecast-error"
    FREE_ENERGY = "free-energy"
    """Of the machine, with encoder ``crbm``."""
    SURPRISE = "surprise"
    """Minus the logarithm of the switching autoregression's density, with encoder ``hmm``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """What a fitted model finds unlikely.

    Attributes
    ----------
    scaling, encoder, linear_forecast
        Fitted.
    """

    scaling: Scaling
    encoder: Encoder
    linear_forecast: LinearForecast

    def scores(self, grid: ContainerSeries, kind: AnomalyKind) -> FloatArray:
        """Return the score of each sample, shape (T,), NaN where history is insufficient; `kind` is an allowed one."""
        series = self.scaling.scaled(grid)
        scores = np.full(grid.num_samples, np.nan)
        if kind == AnomalyKind.FREE_ENERGY and isinstance(self.encoder, CrbmEncoder):
            scores[series.ends(self.encoder.num_delays)] = self.encoder.free_energy(series)
        elif kind == AnomalyKind.SURPRISE and isinstance(self.encoder, HmmEncoder):
            scores[series.ends(self.encoder.num_delays)] = self.encoder.surprise(series)
        else:
            scores[series.ends(DELAYS)] = self.linear_forecast.scores(series)
        return scores

    def owned_scores(self, grid: ContainerSeries, kind: AnomalyKind) -> tuple[FloatArray, IntArray]:
        """Return the scores that there are, shape (n,), and the container of each."""
        scores = self.scores(grid, kind)
        known = np.isfinite(scores)
        return scores[known], grid.owner[known]

    def calibrations(self, held: ContainerSeries, rate: float) -> dict[str, Calibration]:
        """Return what is usual of each kind of score, on containers that the model wasn't fitted on.

        Raises
        ------
        InvalidOptionError
            If `rate`, the share of usual samples that count as anomalies, isn't in (0, 1).
        InvalidProblemError
            If no sample has enough history.
        """
        found = {}
        for kind in anomaly_kinds(self.encoder):
            noise = self.linear_forecast.least_score if kind == AnomalyKind.FORECAST_ERROR else 0.0
            found[str(kind)] = calibrate(*self.owned_scores(held, kind), rate, noise)
        return found


def anomaly_kinds(encoder: Encoder) -> tuple[AnomalyKind, ...]:
    """Return the kinds of score that an encoder allows, the one that finds most faults last."""
    own = {CrbmEncoder: AnomalyKind.FREE_ENERGY, HmmEncoder: AnomalyKind.SURPRISE}
    return (AnomalyKind.FORECAST_ERROR, *(kind for owner, kind in own.items() if isinstance(encoder, owner)))
