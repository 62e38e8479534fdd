"""Fit times to sums of terms with coefficients of at least 0, and say how sure the coefficients are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from optim.core.errors import InvalidProblemError
from optim.core.intervals import bootstrap

FloatArray = NDArray[np.float64]

SAME = 1e-6
"""Terms that differ by no more, relative to their length, are taken for the same."""

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
    untold
        Terms that the samples can't tell from those before them: their coefficients are 0, their share is in the others'.
    """

    coefficients: FloatArray
    low: FloatArray
    high: FloatArray
    errors: FloatArray
    untold: tuple[int, ...] = ()

    @property
    def error(self) -> float:
        """Median of the absolute relative errors."""
        return float(np.median(np.abs(self.errors)))

    def predict(self, terms: FloatArray) -> FloatArray:
        """Return the times at some points, from their terms, shape (points, terms)."""
        return np.asarray(terms @ self.coefficients)


def fit_times(terms: FloatArray, seconds: FloatArray, *, seed: int = 0) -> LinearFit:
    """Fit ``seconds ~ terms @ coefficients`` by least squares of relative errors, coefficients at least 0.

    Terms that the samples can't tell apart, because there are too few of them or because they grow alike, are left out
    in the order given, and named in the result.

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
        If there is no sample, or a time isn't positive.
    """
    terms, seconds = np.asarray(terms, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not len(seconds):
        raise InvalidProblemError(f"{terms.shape[1]} coefficients need measurements, got none; measure more points")
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise InvalidProblemError("measured times must be positive; measure longer pieces of work")
    told = told_apart(terms / seconds[:, None])
    untold = tuple(k for k in range(terms.shape[1]) if k not in told)
    terms = terms * np.isin(np.arange(terms.shape[1]), told)
    coefficients = _solve(terms, seconds)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(seconds), size=(RESAMPLES, len(seconds)))
    samples = np.array([_solve(terms[pick], seconds[pick]) for pick in drawn])
    low, high = bootstrap(samples)
    return LinearFit(
        coefficients=coefficients,
        low=np.minimum(low, coefficients),
        high=np.maximum(high, coefficients),
        errors=_left_out_errors(terms, seconds, len(told)),
        untold=untold,
    )


def told_apart(terms: FloatArray) -> list[int]:
    """Return the columns that aren't sums of multiples of columns before them, to a millionth of their length."""
    kept: list[int] = []
    basis = np.zeros((len(terms), 0))
    for column in range(terms.shape[1]):
        own = terms[:, column]
        length = float(np.linalg.norm(own))
        for _ in range(2):  # twice, because once leaves rounding behind
            own = own - basis @ (basis.T @ own)
        rest = float(np.linalg.norm(own))
        if rest > SAME * length:
            kept.append(column)
            basis = np.column_stack([basis, own / rest])
    return kept


def _solve(terms: FloatArray, seconds: FloatArray) -> FloatArray:
    """Return the coefficients; columns are scaled first, as they may be ten decades apart."""
    relative = terms / seconds[:, None]
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0] = 1.0
    solution, _ = nnls(relative / scale, np.ones(len(seconds)))
    return np.asarray(solution / scale)


def _left_out_errors(terms: FloatArray, seconds: FloatArray, told: int) -> FloatArray:
    """Predict each sample from all others."""
    everybody = np.arange(len(seconds))
    if len(seconds) <= told:
        return np.full(len(seconds), np.inf)
    predicted = [terms[i] @ _solve(terms[everybody != i], seconds[everybody != i]) for i in everybody]
    return np.array(predicted) / seconds - 1.0
