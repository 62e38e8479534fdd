"""Fits of step times by speed models, choice of the model, and concave speed-up curves.

References
----------
Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018,
DOI 10.1145/3190508.3190517 (both speed functions and their fit by non-negative least squares).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from msgspec import UNSET
from scipy.optimize import nnls

from optim.core.arrays import FloatArray
from optim.core.errors import InvalidProblemError
from optim.models.admission.data import TWENTIETHS
from optim.models.bidding.data import CurveKind, Scalability
from optim.profiling.document import JobProfile, MeasuredValue, SpeedFunction
from optim.statistics import bootstrap

SAME = 1e-6
"""Maximum relative difference at which terms count as linearly dependent."""

RESAMPLES = 200
"""Number of bootstrap samples per interval."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearFit:
    """A fit of times by a sum of terms, with the uncertainty of the coefficients.

    Parameters
    ----------
    coefficients
        Shape (terms,): coefficient of each term, at least 0.
    low, high
        Shape (terms,) each: lower and upper end of each coefficient's bootstrap interval.
    errors
        Shape (samples,): relative error of predicting each sample from all others.
    unidentifiable
        Indices of the terms that the samples can't separate from earlier terms; their coefficients are 0, and the earlier terms
        include their share.
    """

    coefficients: FloatArray
    low: FloatArray
    high: FloatArray
    errors: FloatArray
    unidentifiable: tuple[int, ...] = ()

    @property
    def error(self) -> float:
        """Median of the absolute relative errors."""
        return float(np.median(np.abs(self.errors)))

    def predict(self, terms: FloatArray) -> FloatArray:
        """Return the fitted times, shape (points,), for terms of shape (points, terms)."""
        return np.asarray(terms @ self.coefficients)


def fit_times(terms: FloatArray, seconds: FloatArray, *, seed: int = 0) -> LinearFit:
    """Fit ``seconds ~ terms @ coefficients`` by least squares of relative errors, with coefficients of at least 0.

    A term that the samples can't separate from earlier terms, because there are too few samples or because terms are
    collinear, is left out and listed in the result.

    Parameters
    ----------
    terms
        Shape (samples, terms): value of each term in each sample.
    seconds
        Shape (samples,): measured seconds, positive.
    seed
        Seed of the bootstrap.

    Raises
    ------
    InvalidProblemError
        If there is no sample, or a time isn't positive.
    """
    terms, seconds = np.asarray(terms, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not len(seconds):
        raise InvalidProblemError(f"{terms.shape[1]} coefficients need measurements, got none; measure some points")
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise InvalidProblemError("measured times must be positive; measure longer pieces of work")
    columns = identifiable_columns(terms / seconds[:, None])
    unidentifiable = tuple(k for k in range(terms.shape[1]) if k not in columns)
    terms = terms * np.isin(np.arange(terms.shape[1]), columns)
    coefficients = _solve(terms, seconds)
    rng = np.random.default_rng(seed)
    resampled = rng.integers(len(seconds), size=(RESAMPLES, len(seconds)))
    samples = np.array([_solve(terms[pick], seconds[pick]) for pick in resampled])
    low, high = bootstrap(samples)
    return LinearFit(
        coefficients=coefficients,
        low=np.minimum(low, coefficients),
        high=np.maximum(high, coefficients),
        errors=_left_out_errors(terms, seconds, len(columns)),
        unidentifiable=unidentifiable,
    )


def identifiable_columns(terms: FloatArray) -> list[int]:
    """Return the columns that aren't linear combinations of earlier columns, with a relative tolerance of `SAME`."""
    independent: list[int] = []
    basis = np.zeros((len(terms), 0))
    for column in range(terms.shape[1]):
        direction = terms[:, column]
        length = float(np.linalg.norm(direction))
        for _ in range(2):  # the second pass removes rounding errors
            direction = direction - basis @ (basis.T @ direction)
        rest = float(np.linalg.norm(direction))
        if rest > SAME * length:
            independent.append(column)
            basis = np.column_stack([basis, direction / rest])
    return independent


def _solve(terms: FloatArray, seconds: FloatArray) -> FloatArray:
    """Return the coefficients; columns are scaled first, as they may differ by a factor of 10^10."""
    relative = terms / seconds[:, None]
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0] = 1.0
    solution, _ = nnls(relative / scale, np.ones(len(seconds)))
    return np.asarray(solution / scale)


def _left_out_errors(terms: FloatArray, seconds: FloatArray, num_terms: int) -> FloatArray:
    """Return the relative error of predicting each sample from all others, infinity if there are too few samples."""
    samples_all = np.arange(len(seconds))
    if len(seconds) <= num_terms:
        return np.full(len(seconds), np.inf)
    predicted = [terms[i] @ _solve(terms[samples_all != i], seconds[samples_all != i]) for i in samples_all]
    return np.array(predicted) / seconds - 1.0


def concave_envelope(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the corners of the least concave function through the origin on or above all points.

    Parameters
    ----------
    x, y
        Coordinates of the points, shape (points,) each; x is positive and increasing.
    """
    corners: list[tuple[float, float]] = [(0.0, 0.0)]
    for point in zip(np.asarray(x).tolist(), np.asarray(y).tolist(), strict=True):
        while len(corners) > 1 and _turns_up(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    hull = np.array(corners[1:])
    return hull[:, 0], np.maximum.accumulate(hull[:, 1])


def _turns_up(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    rise = (middle[1] - first[1]) * (last[0] - first[0])
    return rise <= (last[1] - first[1]) * (middle[0] - first[0])


TERMS = ("M/w", "1", "w/p", "w", "p")
"""Names of the terms in the seconds of a step."""


def synchronous_terms(workers: FloatArray, servers: FloatArray, global_batch: float) -> FloatArray:
    """Return the terms in the seconds of a synchronous step, ``M/w, 1, w/p, w, p``; shape (points, 5)."""
    w, p = np.asarray(workers, dtype=np.float64), np.asarray(servers, dtype=np.float64)
    return np.stack([global_batch / w, np.ones_like(w), w / p, w, p], axis=1)


def update_terms(pushes: FloatArray, num_bytes: FloatArray) -> FloatArray:
    """Return the terms in the seconds of an update, ``1, W, bytes, W bytes``; shape (points, 4)."""
    w, size = np.asarray(pushes, dtype=np.float64), np.asarray(num_bytes, dtype=np.float64)
    return np.stack([np.ones_like(w), w, size, w * size], axis=1)


def steps_per_second(function: SpeedFunction, workers: FloatArray, servers: FloatArray) -> FloatArray:
    """Return the speed of a job in global steps per second."""
    values = np.array([interval.value for interval in function.coefficients])
    batch = function.global_batch
    assert isinstance(batch, float), "a synchronous speed function has a global batch"
    return np.asarray(1.0 / (synchronous_terms(workers, servers, batch) @ values))


def intervals(fit: LinearFit) -> list[MeasuredValue]:
    """Return each coefficient of a fit with its interval, in the form of the profile document."""
    return [
        MeasuredValue(value=value, low=low, high=high)
        for value, low, high in zip(
            fit.coefficients.tolist(), np.maximum(fit.low, 0.0).tolist(), fit.high.tolist(), strict=True
        )
    ]


MODELS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "compute": (0,),
        "compute and fixed": (0, 1),
        "compute and a part per worker": (0, 3),
        "compute, fixed and a part per worker": (0, 1, 3),
        "fixed": (1,),
    }
)
"""Indices in `TERMS` of each model's terms; without separate servers p is 1, so that w/p is w and p is a constant."""

TIE = 1e-6
"""Maximum difference at which prediction errors count as equal, so that the model with fewer coefficients wins."""


def choose_model(workers: Sequence[int], seconds: Sequence[float]) -> tuple[str, SpeedFunction]:
    """Fit every model with fewer coefficients than points, and return the one with the best predictions.

    The criterion is the root mean square of relative errors of leave-one-out predictions.

    Parameters
    ----------
    workers
        Numbers of workers, at least two different ones.
    seconds
        Seconds of a step with each number of workers.

    Raises
    ------
    InvalidProblemError
        If there are fewer than two points.
    """
    if len(set(workers)) < 2:
        raise InvalidProblemError(
            f"a speed needs at least 2 numbers of workers, got {sorted(set(workers))}; add to --workers"
        )
    w = np.array(workers, dtype=np.float64)
    terms = synchronous_terms(w, np.ones_like(w), 1.0)
    fits: dict[str, LinearFit] = {}
    for name, columns in MODELS.items():
        if len(columns) < len(w):
            fits[name] = fit_times(terms[:, list(columns)], np.array(seconds))

    def badness(name: str) -> tuple[float, int]:
        error = float(np.sqrt(np.mean(fits[name].errors ** 2)))
        return round(error / TIE), len(MODELS[name])

    best = min(fits, key=badness)
    return best, _function(best, fits[best], int(w.max()))


def _function(name: str, fit: LinearFit, max_workers: int) -> SpeedFunction:
    """Return a fit as a speed function of the profile document, with coefficient 0 for terms outside the model."""
    coefficients = dict(zip(MODELS[name], intervals(fit), strict=True))
    nothing = coefficients[MODELS[name][0]].exactly(0.0)
    left_out = [TERMS[column] for column in range(5) if column not in coefficients]
    return SpeedFunction(
        kind="synchronous",
        coefficients=[coefficients.get(column, nothing) for column in range(5)],
        largest_workers=max_workers,
        error=fit.error if np.isfinite(fit.error) else 1.0,
        untold=[f"the terms {', '.join(left_out)} from those of the model '{name}'"],
        global_batch=1.0,
    )


TRUSTED_REACH = 2.0
"""Speed-ups are extrapolated up to this multiple of the largest measured number of workers, and constant from there."""


def scalability_of(job: JobProfile) -> Scalability:
    """Return a job's speed-up by number of workers (each of work rate 1): the concave envelope of the measurements.

    Beyond the largest measured number of workers, the envelope continues with its last slope up to twice this number,
    and is constant from there.
    """
    workers, speedup = concave_envelope(
        np.array([float(point.workers) for point in job.scaling]), np.array([point.speedup for point in job.scaling])
    )
    corners = list(zip(workers.tolist(), speedup.tolist(), strict=True))
    before = corners[-2] if len(corners) > 1 else (0.0, 0.0)
    last = corners[-1]
    slope = (last[1] - before[1]) / (last[0] - before[0])
    reach = TRUSTED_REACH * max(point.workers for point in job.scaling)
    if slope > 0:
        corners.append((reach, last[1] + slope * (reach - last[0])))
    return Scalability(kind=CurveKind.POINTS, points=tuple(corners))


def speedups(job: JobProfile, max_workers: int) -> FloatArray:
    """Return the speed-ups of 1, ..., `max_workers` workers relative to one worker.

    They follow the fitted speed function, with as many parameter servers as the bandwidths require, or, without such a
    function, the envelope of the measured speed-ups.
    """
    workers = np.arange(1, max_workers + 1, dtype=np.float64)
    if job.speed is UNSET:
        curve = scalability_of(job)
        return np.asarray(curve.value(workers) / curve.value(np.ones(1)))
    reached = np.minimum(workers, TRUSTED_REACH * job.speed.largest_workers)
    servers = np.ceil(reached * job.worker_mbps.value / job.ps_mbps.value)
    speed = steps_per_second(job.speed, reached, np.maximum(servers, 1.0))
    return np.asarray(speed / speed[0])


def speedup_table(job: JobProfile, max_workers: int) -> tuple[int, ...]:
    """Return an admission job's table of speed-ups in twentieths; empty if all are within a fortieth of linear speed-up."""
    exact = speedups(job, max_workers)
    if np.abs(exact - np.arange(1, max_workers + 1)).max() <= 0.5 / TWENTIETHS:
        return ()
    units = np.maximum.accumulate(np.round(exact * TWENTIETHS).astype(np.int64))
    units = np.maximum(units, TWENTIETHS)
    units[0] = TWENTIETHS
    last = int(np.searchsorted(units, units[-1]))
    return tuple(units[: last + 1].tolist())
