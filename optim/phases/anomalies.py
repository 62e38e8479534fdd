"""Anomaly scores, their calibration, and drift."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_in
from optim.models.containers.series import ContainerSeries
from optim.phases.encoders import Encoder
from optim.phases.encoders.crbm import CrbmEncoder, least_squares
from optim.phases.encoders.hmm import HmmEncoder
from optim.phases.preprocessing import ScaledSeries, Scaling

DOUBT_ERRORS = 2.0
"""Number of standard errors of the calibration's mean by which a drift trigger's slack is increased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Distribution of the anomaly scores of held-out containers.

    Attributes
    ----------
    threshold
        Score above which a sample is an anomaly.
    rate
        Share of held-out samples above the threshold, or an upper bound on it (see `calibrate`).
    mean, deviation
        Mean and standard deviation of a new container's mean score. The standard deviation includes the sampling error
        of `mean`.
    num_containers
        Number of containers in the calibration.
    """

    threshold: float
    rate: float
    mean: float
    deviation: float
    num_containers: int


def calibrate(scores: FloatArray, owner: IntArray, rate: float, noise: float = 0.0) -> Calibration:
    """Set the threshold to at least `noise`, such that at most a share `rate` of held-out samples is above it.

    Parameters
    ----------
    scores
        Shape (n,): scores of samples that weren't used for the fit.
    owner
        Shape (n,): the container of each sample.
    rate
        Allowed share of samples above the threshold, in (0, 1).
    noise
        Largest score due to rounding and sensor noise. It is a lower bound of the threshold, and of the standard
        deviation of a container's mean score.

    Raises
    ------
    InvalidOptionError
        If the rate is out of its range.
    InvalidProblemError
        If there are no scores.
    """
    check_in("(0, 1)", {"anomaly_rate": rate})
    if not len(scores):
        raise InvalidProblemError(
            "no score to calibrate with: no container has a sample with enough history; give longer series"
        )
    means = container_means(scores, owner)
    spread = float(means.std(ddof=1) * np.sqrt(1 + 1 / len(means))) if len(means) > 1 else 0.0
    return Calibration(
        # The smallest observed score with at most a share `rate` of the scores above it.
        threshold=max(float(np.quantile(scores, 1 - rate, method="higher")), noise),
        rate=rate,
        mean=float(means.mean()),
        deviation=max(spread, noise) if max(spread, noise) > 0 else max(abs(float(means.mean())), 1e-12),
        num_containers=len(means),
    )


def container_means(scores: FloatArray, owner: IntArray) -> FloatArray:
    """Return the mean score of each container with scores, in the order of the containers."""
    _, place = np.unique(owner, return_inverse=True)
    return np.asarray(np.bincount(place, weights=scores) / np.bincount(place))


class DriftTrigger:
    """Cumulative sum of the excess of containers' mean scores over the calibration's mean; detects small lasting shifts.

    The sum is ``s <- max(0, s + z - slack)`` with z a container's `excess`. The trigger fires as soon as s exceeds `limit`,
    and stays on until `reset`. The slack is increased by two standard errors of the calibration's mean, since the error of
    this mean would otherwise add up to a false alarm. With normal z, slack 0.5, limit 5 and a calibration from many
    containers, a false alarm occurs about once in 930 containers, and a shift of one standard deviation is found after
    about ten containers (Montgomery, Introduction to Statistical Quality Control, table of average run lengths).

    Parameters
    ----------
    calibration
        Calibration of the model's anomaly score.
    slack, limit
        Slack and limit, in standard deviations.

    References
    ----------
    Page (1954). Continuous inspection schemes. doi:10.1093/biomet/41.1-2.100.
    """

    def __init__(self, calibration: Calibration, slack: float = 0.5, limit: float = 5.0) -> None:
        if slack < 0 or limit <= 0:
            raise InvalidOptionError(f"need slack >= 0 and limit > 0, got {slack} and {limit}")
        self.calibration = calibration
        self.slack = slack
        self.limit = limit
        self.sum = 0.0
        self.is_triggered = False

    def update(self, container_score: float) -> bool:
        """Add a container's mean score, and return whether the model should be updated.

        Raises
        ------
        InvalidOptionError
            If the score isn't finite.
        """
        if not np.isfinite(container_score):
            raise InvalidOptionError(f"a container's score must be finite, got {container_score}; leave it out")
        doubt = DOUBT_ERRORS / np.sqrt(self.calibration.num_containers)
        self.sum = max(0.0, self.sum + self.excess(container_score) - self.slack - float(doubt))
        self.is_triggered = self.is_triggered or self.sum > self.limit
        return self.is_triggered

    def excess(self, container_score: float) -> float:
        """Return by how many standard deviations a container's mean score is above the calibration's mean."""
        return (container_score - self.calibration.mean) / self.calibration.deviation

    def reset(self) -> None:
        """Set the sum to 0, after an update of the model."""
        self.sum = 0.0
        self.is_triggered = False


DELAYS = 3

MIN_ERROR = 1e-3
"""Lower limit of the standard deviation of forecast errors in scaled units: smaller errors are rounding and sensor noise."""


class AnomalyKind(StrEnum):
    """Basis of an anomaly score."""

    FORECAST_ERROR = "forecast-error"
    FREE_ENERGY = "free-energy"
    """Free energy of the CRBM, with encoder ``crbm``."""
    SURPRISE = "surprise"
    """Negative log-density under the switching autoregression, with encoder ``hmm``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearForecast:
    """The best linear forecast of a sample from the three previous samples, for R resources.

    Attributes
    ----------
    matrix
        Shape (3 R, R): coefficients of the three previous samples, oldest first.
    bias
        Shape (R,): constant term.
    deviation
        Shape (R,): standard deviation of the errors on the training series, at least `MIN_ERROR`.
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
        return cls(matrix=matrix, bias=bias, deviation=np.maximum(errors.std(axis=0), MIN_ERROR))

    def errors(self, series: ScaledSeries) -> FloatArray:
        """Return the errors of the forecasts of samples ``series.ends(3)``, in scaled units, shape (n, R)."""
        windows = series.windows(DELAYS)
        history = windows[:, :-1].reshape(len(windows), len(self.matrix))
        return np.asarray(windows[:, -1] - history @ self.matrix - self.bias)

    def scores(self, series: ScaledSeries) -> FloatArray:
        """Return ``log(1 + mean over resources of (error / deviation)^2)`` at ``series.ends(3)``, shape (n,)."""
        return np.asarray(np.log1p(((self.errors(series) / self.deviation) ** 2).mean(axis=1)))

    @property
    def min_score(self) -> float:
        """Largest score due to rounding and sensor noise; 0 unless the training series were constant."""
        return float(np.log(2.0)) if (self.deviation <= MIN_ERROR).all() else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Anomaly scores of a fitted model.

    Attributes
    ----------
    scaling, encoder, linear_forecast
        Fitted parts of the model.
    """

    scaling: Scaling
    encoder: Encoder
    linear_forecast: LinearForecast

    def scores(self, grid: ContainerSeries, kind: AnomalyKind) -> FloatArray:
        """Return the score of each sample, shape (T,), NaN where history is insufficient; see `anomaly_kinds`."""
        series = self.scaling.scaled(grid)
        scores = np.full(grid.num_samples, np.nan)
        if kind == AnomalyKind.FREE_ENERGY and isinstance(self.encoder, CrbmEncoder):
            scores[series.ends(self.encoder.num_delays)] = self.encoder.free_energy(series)
        elif kind == AnomalyKind.SURPRISE and isinstance(self.encoder, HmmEncoder):
            scores[series.ends(self.encoder.num_delays)] = self.encoder.nll(series)
        else:
            scores[series.ends(DELAYS)] = self.linear_forecast.scores(series)
        return scores

    def owned_scores(self, grid: ContainerSeries, kind: AnomalyKind) -> tuple[FloatArray, IntArray]:
        """Return the scores of all samples with enough history, shape (n,), and the container of each."""
        scores = self.scores(grid, kind)
        known = np.isfinite(scores)
        return scores[known], grid.owner[known]

    def calibrations(self, held_out: ContainerSeries, rate: float) -> dict[str, Calibration]:
        """Return the calibration of each score, from containers that weren't used for the fit.

        Raises
        ------
        InvalidOptionError
            If `rate`, the share of held-out samples that count as anomalies, isn't in (0, 1).
        InvalidProblemError
            If no sample has enough history.
        """
        calibrations = {}
        for kind in anomaly_kinds(self.encoder):
            noise = self.linear_forecast.min_score if kind == AnomalyKind.FORECAST_ERROR else 0.0
            calibrations[str(kind)] = calibrate(*self.owned_scores(held_out, kind), rate, noise)
        return calibrations


def anomaly_kinds(encoder: Encoder) -> tuple[AnomalyKind, ...]:
    """Return the anomaly scores that an encoder allows; the score that finds most faults is last."""
    specific = {CrbmEncoder: AnomalyKind.FREE_ENERGY, HmmEncoder: AnomalyKind.SURPRISE}
    return (AnomalyKind.FORECAST_ERROR, *(kind for owner, kind in specific.items() if isinstance(encoder, owner)))
