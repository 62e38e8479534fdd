"""When a model no longer fits: thresholds of anomaly scores, and a trigger that sums up small excesses."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.ranges import check_in
from optim.models.containers.series import FloatArray, IntArray

DOUBT_ERRORS = 2.0
"""Standard errors of the calibration's mean that an excess must go beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What scores of containers that the model fits look like.

    Attributes
    ----------
    threshold
        Samples above it are anomalies.
    rate
        Share of held-out samples above it.
    mean, deviation
        Of a further container's mean score: the deviation grows with the doubt about the mean where containers are few.
    num_containers
        Containers that these are taken from.
    """

    threshold: float
    rate: float
    mean: float
    deviation: float
    num_containers: int


def calibrate(scores: FloatArray, owner: IntArray, rate: float, noise: float = 0.0) -> Calibration:
    """Set the threshold so that a share `rate` of held-out samples lies above it, fewer if that is within `noise`.

    Parameters
    ----------
    scores
        Shape (n,): scores of samples that the model wasn't fitted on.
    owner
        Shape (n,): the container of each.
    rate
        In (0, 1).
    noise
        Scores up to it tell nothing: the least threshold, and the least deviation of a container's mean.

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
        # The smallest observed score with at most this share above it.
        threshold=max(float(np.quantile(scores, 1 - rate, method="higher")), noise),
        rate=rate,
        mean=float(means.mean()),
        deviation=max(spread, noise) if max(spread, noise) > 0 else max(abs(float(means.mean())), 1e-12),
        num_containers=len(means),
    )


def container_means(scores: FloatArray, owner: IntArray) -> FloatArray:
    """Return the mean score of each container that has one, in their order."""
    _, place = np.unique(owner, return_inverse=True)
    return np.asarray(np.bincount(place, weights=scores) / np.bincount(place))


class DriftTrigger:
    """Cumulative sum of containers' mean scores above what is usual: small but lasting excesses trigger it.

    ``s <- max(0, s + z - slack)`` with z a container's mean score in deviations from the calibration's; triggered once s
    exceeds `limit`, and until `reset`. To the slack come two standard errors of the calibration's mean, which would
    otherwise add up to a false alarm by themselves. With normal z, slack 0.5, limit 5 and a calibration from many
    containers a false alarm comes about once in 930 containers, and a shift of one deviation is found after about ten
    (Montgomery, Introduction to Statistical Quality Control, table of average run lengths of the one-sided sum).

    Parameters
    ----------
    calibration
        Of the model.
    slack, limit
        In deviations.

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
        """Take in a container's mean score; tell whether the model should be updated.

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
        """Return a container's mean score in deviations above the calibration's."""
        return (container_score - self.calibration.mean) / self.calibration.deviation

    def reset(self) -> None:
        """Begin anew, after an update of the model."""
        self.sum = 0.0
        self.is_triggered = False
