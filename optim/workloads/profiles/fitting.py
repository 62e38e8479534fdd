"""Fit times to sums of terms with coefficients of at least 0, and say how sure the coefficients are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from optim.core.errors import InvalidProblemError

FloatArray = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 200
"""Bootstrap samples behind an interval."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearFit:
    """A time as a sum of terms, with what the samples say of it.

    Parameters
    ----------
    coefficients
        Shape (terms,), at least 0.
    low, high
        Shape (terms,): the bootstrap's interval of each.
    errors
        Shape (samples,): relative error of each sample as predicted from all others.
    """

    coefficients: FloatArray
    low: FloatArray
    high: FloatArray
    errors: FloatArray

    @property
    def error(self) -> float:
        """Median of the absolute relative errors."""
        return float(np.median(np.abs(self.errors)))

    def predict(self, terms: FloatArray) -> FloatArray:
        """Return the times at some points, from their terms, shape (points, terms)."""
        return np.asarray(terms @ self.coefficients)


def fit_times(terms: FloatArray, seconds: FloatArray, *, seed: int = 0) -> LinearFit:
    """Fit ``seconds ~ terms @ coefficients`` by least squares of relative errors, coefficients at least 0.

    Parameters
    ----------
    terms
        Shape (samples, terms).
    seconds
        Shape (samples,), positive.
    seed
        Of the bootstrap.

    Raises
    ------
    InvalidProblemError
        If there are fewer samples than terms, or a time isn't positive.
    """
    terms, seconds = np.asarray(terms, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if len(seconds) < terms.shape[1]:
        raise InvalidProblemError(
            f"{terms.shape[1]} coefficients need at least so many measurements, got {len(seconds)}; measure more points"
        )
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise InvalidProblemError("measured times must be positive; measure longer pieces of work")
    coefficients = _solve(terms, seconds)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(seconds), size=(RESAMPLES, len(seconds)))
    samples = np.array([_solve(terms[pick], seconds[pick]) for pick in drawn])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
    return LinearFit(
        coefficients=coefficients,
        low=np.minimum(low, coefficients),
        high=np.maximum(high, coefficients),
        errors=_left_out_errors(terms, seconds),
    )


def _solve(terms: FloatArray, seconds: FloatArray) -> FloatArray:
    """Return the coefficients; columns are scaled first, as they may be ten decades apart."""
    relative = terms / seconds[:, None]
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0] = 1.0
    solution, _ = nnls(relative / scale, np.ones(len(seconds)))
    return np.asarray(solution / scale)


def _left_out_errors(terms: FloatArray, seconds: FloatArray) -> FloatArray:
    """Predict each sample from all others."""
    everybody = np.arange(len(seconds))
    if len(seconds) <= terms.shape[1]:
        return np.full(len(seconds), np.inf)
    predicted = [terms[i] @ _solve(terms[everybody != i], seconds[everybody != i]) for i in everybody]
    return np.array(predicted) / seconds - 1.0
