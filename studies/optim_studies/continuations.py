"""Sampled continuations of scaled series by several models, and their score (CRPS).

A model draws a continuation sample by sample, each conditional on the samples before it. The samples at a horizon are
therefore draws from the forecast density there.
"""

from abc import ABC, abstractmethod
from typing import Self

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.phases.anomalies import DELAYS, LinearForecast
from optim.phases.encoders.crbm import CrbmEncoder, CrbmOptions
from optim.phases.encoders.hmm import HmmEncoder, HmmOptions
from optim.phases.preprocessing import ScaledSeries

USUAL_STATES = 5

CRBM_RATE = 1e-4
"""Learning rate of the CRBM for paths: the one with the best densities among rates from 1e-4 to 3e-2."""


class AbstractContinuation(ABC):
    """A model that draws continuations of series."""

    @abstractmethod
    def fit(self, series: ScaledSeries, seed: int) -> Self:
        """Fit to training series."""

    @abstractmethod
    def paths(
        self, series: ScaledSeries, ends: IntArray, num_steps: int, num_paths: int, rng: np.random.Generator
    ) -> FloatArray:
        """Return continuations after rows `ends`, shape (n, num_paths, num_steps, R).

        Each of the n rows has at least three earlier rows in its segment; later rows are not used.
        """


class Increments(AbstractContinuation):
    """The last sample plus changes drawn from the training series: persistence with its empirical errors."""

    def fit(self, series: ScaledSeries, seed: int) -> Self:
        """Store the series."""
        del seed
        self._series = series
        return self

    def paths(
        self, series: ScaledSeries, ends: IntArray, num_steps: int, num_paths: int, rng: np.random.Generator
    ) -> FloatArray:
        """Draw the changes from contiguous stretches of training series."""
        known = self._series
        num_following = np.repeat(known.lengths, known.lengths) - 1 - known.place
        rows = np.flatnonzero(num_following >= num_steps)
        if not len(rows):
            raise InvalidProblemError(f"no training series has more than {num_steps} samples; give longer ones")
        begin = rows[rng.integers(len(rows), size=(len(ends), num_paths))]
        change = known.values[begin[..., None] + np.arange(1, num_steps + 1)] - known.values[begin][:, :, None]
        return np.asarray(series.values[ends][:, None, None] + change)


class LinearPaths(AbstractContinuation):
    """The linear autoregression of three samples, with errors drawn from its residuals on training series, jointly for all resources."""

    def fit(self, series: ScaledSeries, seed: int) -> Self:
        """Fit by least squares."""
        del seed
        self._forecast = LinearForecast.fit(series)
        self._errors = self._forecast.errors(series)
        self._range = range_of(series)
        return self

    def paths(
        self, series: ScaledSeries, ends: IntArray, num_steps: int, num_paths: int, rng: np.random.Generator
    ) -> FloatArray:
        """Simulate."""
        history = np.repeat(_history(series, ends, DELAYS), num_paths, axis=0)
        bounds, steps = _widened(self._range, history[:, -1]), []
        for _ in range(num_steps):
            mean = history.reshape(len(history), -1) @ self._forecast.matrix + self._forecast.bias
            fresh = np.clip(mean + self._errors[rng.integers(len(self._errors), size=len(mean))], *bounds)
            history = np.concatenate([history[:, 1:], fresh[:, None]], axis=1)
            steps.append(fresh)
        return _by_path(steps, num_paths)


class SwitchingPaths(AbstractContinuation):
    """The switching autoregression: states from their filtered probabilities, then a chain of states and normal errors."""

    def __init__(self, options: HmmOptions | None = None) -> None:
        self._encoder = HmmEncoder(options or HmmOptions())

    def fit(self, series: ScaledSeries, seed: int) -> Self:
        """Fit by expectation maximisation."""
        self._encoder.fit(series, USUAL_STATES, seed)
        self._range = range_of(series)
        return self

    def paths(
        self, series: ScaledSeries, ends: IntArray, num_steps: int, num_paths: int, rng: np.random.Generator
    ) -> FloatArray:
        """Simulate."""
        model = self._encoder.arrays()
        belief = np.zeros((len(series.values), len(model["log_initial"])))
        belief[series.ends(self._encoder.num_delays)] = self._encoder.encode(series)
        state = _sampled(np.repeat(belief[ends], num_paths, axis=0), rng)
        move, root = np.exp(model["log_transition"]), np.linalg.cholesky(model["covariance"])
        value, steps = np.repeat(series.values[ends], num_paths, axis=0), []
        bounds = _widened(self._range, value)
        for _ in range(num_steps):
            state = _sampled(move[state], rng)
            inputs = np.concatenate([np.ones((len(value), 1)), value], axis=1)[:, : model["regression"].shape[1]]
            mean = np.einsum("nr,nrv->nv", inputs, model["regression"][state])
            noise = np.einsum("nvw,nw->nv", root[state], rng.normal(size=mean.shape))
            value = np.clip(mean + noise, *bounds)
            steps.append(value)
        return _by_path(steps, num_paths)


class CrbmPaths(AbstractContinuation):
    """Roll-outs of the conditional restricted Boltzmann machine.

    Its visible units have variance one, so it is trained on series in units of the linear forecast's errors.
    """

    def __init__(self, options: CrbmOptions | None = None) -> None:
        self._encoder = CrbmEncoder(options or CrbmOptions(learning_rate=CRBM_RATE))

    def fit(self, series: ScaledSeries, seed: int) -> Self:
        """Train by contrastive divergence."""
        self._unit = LinearForecast.fit(series).deviation
        self._encoder.fit(self._in_units(series), USUAL_STATES, seed)
        self._range = range_of(series)
        return self

    def paths(
        self, series: ScaledSeries, ends: IntArray, num_steps: int, num_paths: int, rng: np.random.Generator
    ) -> FloatArray:
        """Roll out."""
        import jax

        from optim.kernels import crbm

        history = _history(self._in_units(series), ends, self._encoder.num_delays).astype(np.float32)
        keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), len(ends))
        parameters = self._encoder.parameters

        def one(past: jax.Array, key: jax.Array) -> jax.Array:
            return crbm.roll_out(parameters, past, key, num_steps=num_steps, num_chains=num_paths)

        samples = np.asarray(jax.lax.map(lambda pair: one(*pair), (history, keys), batch_size=64), np.float64)
        bounds = _widened(self._range, series.values[ends][:, None, None])
        return np.clip(np.nan_to_num(samples * self._unit), *bounds)

    def _in_units(self, series: ScaledSeries) -> ScaledSeries:
        return ScaledSeries(values=series.values / self._unit, lengths=series.lengths)


def crps(samples: FloatArray, observed: FloatArray) -> FloatArray:
    """Return the continuous ranked probability score of samples from densities, without the bias of few samples.

    ``mean |x - y| - sum over pairs |x - x'| / (2 m (m - 1))``: 0 at best; for a point forecast the absolute error.

    Parameters
    ----------
    samples
        Shape (m, ...), at least two.
    observed
        Shape (...).

    References
    ----------
    Gneiting, Raftery (2007). Strictly proper scoring rules, prediction, and estimation. doi:10.1198/016214506000001437, eq. 21.
    Ferro (2014). Fair scores for ensemble forecasts. doi:10.1002/qj.2270, for the factor m (m - 1).
    """
    number = len(samples)
    weight = 2.0 * np.arange(1, number + 1) - number - 1.0
    pairs = np.tensordot(weight, np.sort(samples, axis=0), axes=1)
    return np.asarray(np.abs(samples - observed).mean(axis=0) - pairs / (number * (number - 1)))


def range_of(series: ScaledSeries) -> tuple[FloatArray, FloatArray]:
    """Return minimum and maximum of each resource; continuations stay in this range, extended to their last known sample."""
    return series.values.min(axis=0), series.values.max(axis=0)


def _widened(bounds: tuple[FloatArray, FloatArray], last: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds extended to a continuation's last known sample."""
    return np.minimum(bounds[0], last), np.maximum(bounds[1], last)


def _history(series: ScaledSeries, ends: IntArray, num_delays: int) -> FloatArray:
    """Return the last `num_delays` samples up to and including each row, shape (n, num_delays, R)."""
    return np.asarray(series.values[ends[:, None] + np.arange(1 - num_delays, 1)])


def _sampled(probability: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return a draw of each row's probabilities, shape (n,)."""
    total = np.cumsum(probability, axis=1)
    return np.asarray((rng.random((len(total), 1)) * total[:, -1:] > total[:, :-1]).sum(axis=1))


def _by_path(steps: list[FloatArray], num_paths: int) -> FloatArray:
    """Return steps, each (n num_paths, R), as (n, num_paths, steps, R)."""
    stacked = np.stack(steps, axis=1)
    return stacked.reshape(-1, num_paths, *stacked.shape[1:])
