"""Anomaly scores of series on the grid, and what is usual of them."""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import ContainerSeries, FloatArray, IntArray
from optim.phases.anomaly import DELAYS, AnomalyKind, LinearForecast
from optim.phases.drift import Calibration, calibrate
from optim.phases.encoders import Encoder
from optim.phases.encoders.crbm import CrbmEncoder
from optim.phases.scaling import Scaling


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
    """Return the kinds of score that an encoder allows."""
    kinds = (AnomalyKind.FORECAST_ERROR, AnomalyKind.FREE_ENERGY)
    return kinds if isinstance(encoder, CrbmEncoder) else kinds[:1]
