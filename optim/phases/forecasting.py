"""Forecasts of the next phase: Markov, semi-Markov with sojourn times, and sampled continuations.

All work on scaled series. A continuation is drawn sample by sample, each from what was drawn before it, so that samples of a horizon
are draws from the forecast density there.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.phases.anomalies import DELAYS, LinearForecast
from optim.phases.encoders.crbm import CrbmEncoder, CrbmOptions
from optim.phases.encoders.hmm import HmmEncoder, HmmOptions
from optim.phases.preprocessing import ScaledSeries
from optim.phases.sequences import PhaseRuns, change_transitions, sample_transitions

LONGEST_DWELL = 512

"""Samples after which a hazard no longer changes."""

SHRINKAGE = 5.0

"""Samples at risk below which a hazard is drawn to the phase's mean hazard."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DwellModel:
    """Hazards of K phases.

    Attributes
    ----------
    hazard
        Shape (K, L): probability that a run of ``l + 1`` samples ends there, given that it lasted so long. Kaplan-Meier's ends over
        runs at risk, shrunk to the phase's mean hazard with the weight of `SHRINKAGE` runs: of few runs the mean says more.
    survival
        Shape (K, L): Kaplan-Meier estimate of the probability that a run is longer than ``l + 1`` samples.
    mean, p90
        Shape (K,): mean, up to L samples, and the 90 % quantile of the samples in a run.
    """

    hazard: FloatArray
    survival: FloatArray
    mean: FloatArray
    p90: FloatArray


def fit_dwells(runs: PhaseRuns, num_phases: int) -> DwellModel:
    """Estimate hazards; the last run of a segment ended with it, so its full length is unknown (censored).

    With d ends among n runs at risk, and h the phase's mean hazard, the hazard is ``(d + 5 h) / (n + 5)``; `survival`, `mean` and
    `p90` are Kaplan and Meier's, with ``d / n``.

    References
    ----------
    Kaplan and Meier (1958). Nonparametric estimation from incomplete observations. doi:10.1080/01621459.1958.10501452.
    """
    events = np.zeros((num_phases, LONGEST_DWELL))
    leaves = np.zeros((num_phases, LONGEST_DWELL))
    for phase, dwell in runs.sequences():
        place = np.minimum(dwell, LONGEST_DWELL) - 1
        np.add.at(leaves, (phase, place), 1)
        is_ended = (np.arange(len(phase)) < len(phase) - 1) & (dwell <= LONGEST_DWELL)
        np.add.at(events, (phase[is_ended], place[is_ended]), 1)
    at_risk = leaves[:, ::-1].cumsum(axis=1)[:, ::-1]
    # A phase that nobody left gets the smallest hazard that its time at risk allows.
    pooled = (events.sum(axis=1) + 0.5) / (at_risk.sum(axis=1) + 1.0)
    hazard = (events + SHRINKAGE * pooled[:, None]) / (at_risk + SHRINKAGE)
    plain = np.where(at_risk > 0, events / np.maximum(at_risk, 1.0), 0.0)
    survival: FloatArray = np.cumprod(1.0 - plain, axis=1, dtype=np.float64)
    mean = 1.0 + survival[:, :-1].sum(axis=1)
    is_over = survival <= 0.1 + 1e-12
    p90 = np.where(is_over.any(axis=1), is_over.argmax(axis=1) + 1, LONGEST_DWELL).astype(np.float64)
    return DwellModel(hazard=hazard, survival=survival, mean=mean, p90=p90)


CONTINUATION = 4

"""Further phases of a path that count for a forecast."""


class ForecastMethod(StrEnum):
    """How phases are forecast."""

    MARKOV = "markov"
    """The next sample's phase depends on this one's only; dwell is geometric."""
    SEMI_MARKOV = "semi-markov"
    """Dwell follows the observed hazards, and changes depend on the phase that is left."""
    PROTOTYPE = "prototype"
    """Dwell likewise; what comes next is what came next on the training paths that begin, or else went on, alike."""
    SAME = "same"
    """The phase stays as it is: what the others have to beat."""


class PhaseForecaster:
    """Forecasts from the runs of training containers, all conditional on the container going on.

    Parameters
    ----------
    runs
        Training runs.
    num_phases
        K.
    """

    def __init__(self, runs: PhaseRuns, num_phases: int) -> None:
        self.num_phases = num_phases
        self.by_sample = sample_transitions(runs, num_phases)
        self.by_change = change_transitions(runs, num_phases)
        self.dwells: DwellModel = fit_dwells(runs, num_phases)
        self._paths = Counter(tuple(phase.tolist()) for phase, _ in runs.sequences())
        self._chains: dict[tuple[tuple[int, ...], int, int], FloatArray] = {}

    def forecast(self, phases: IntArray, dwell: int, num_steps: int, method: ForecastMethod | str) -> FloatArray:
        """Return the probability of each phase 1, ..., num_steps samples ahead.

        Parameters
        ----------
        phases
            The phases so far, equal neighbours once; the last one is the present one.
        dwell
            Samples spent in the present one, at least 1.
        num_steps
            How far.
        method
            One of `ForecastMethod`.

        Returns
        -------
        numpy.ndarray
            Shape (num_steps, K); rows have sum one.

        Raises
        ------
        InvalidOptionError
            If there is no phase yet, a number is below 1, or no such method exists.
        """
        if len(phases) == 0 or dwell < 1 or num_steps < 1:
            raise InvalidOptionError(
                f"a forecast needs a phase, a dwell and a number of steps of at least 1, got {len(phases)} phases, "
                f"dwell {dwell} and {num_steps} steps"
            )
        if method not in list(ForecastMethod):
            raise InvalidOptionError(f"method must be one of {', '.join(ForecastMethod)}, got {method!r}")
        current = int(phases[-1])
        if method == ForecastMethod.SAME:
            return np.tile(np.eye(self.num_phases)[current], (num_steps, 1))
        if method == ForecastMethod.MARKOV:
            return self._markov(current, num_steps)
        if method == ForecastMethod.SEMI_MARKOV:
            return self._semi_markov(current, dwell, num_steps)
        return self._prototype(tuple(phases.tolist()), dwell, num_steps)

    def _markov(self, current: int, num_steps: int) -> FloatArray:
        state = np.eye(self.num_phases)[current]
        found = np.empty((num_steps, self.num_phases))
        for step in range(num_steps):
            state = state @ self.by_sample
            found[step] = state
        return found

    def _semi_markov(self, current: int, dwell: int, num_steps: int) -> FloatArray:
        """Carry the probability of each phase and time spent in it forward."""
        state = np.zeros((self.num_phases, LONGEST_DWELL))
        state[current, min(dwell, LONGEST_DWELL) - 1] = 1.0
        found = np.empty((num_steps, self.num_phases))
        for step in range(num_steps):
            state, gone = _aged(state, self.dwells.hazard)
            state[:, 0] += gone @ self.by_change
            found[step] = state.sum(axis=1)
        return found

    def _prototype(self, phases: tuple[int, ...], dwell: int, num_steps: int) -> FloatArray:
        """Mix the forecasts along each way that training paths went on."""
        ways = self._continuations(phases)
        total = sum(ways.values())
        found = np.zeros((num_steps, self.num_phases))
        for way, number in sorted(ways.items()):
            found += number / total * self._along((phases[-1], *way), dwell, num_steps)
        return found

    def _continuations(self, phases: tuple[int, ...]) -> Counter[tuple[int, ...]]:
        """Return how training paths went on after these phases: from their beginning, else after their last ones."""
        ways: Counter[tuple[int, ...]] = Counter()
        for path, number in self._paths.items():
            if len(path) > len(phases) and path[: len(phases)] == phases:
                ways[path[len(phases) : len(phases) + CONTINUATION]] += number
        length = min(len(phases), CONTINUATION)
        while not ways and length > 0:
            last = phases[-length:]
            for path, number in self._paths.items():
                for place in range(length, len(path)):
                    if path[place - length : place] == last:
                        ways[path[place : place + CONTINUATION]] += number
            length -= 1
        return ways or Counter({(): 1})

    def _along(self, way: tuple[int, ...], dwell: int, num_steps: int) -> FloatArray:
        """Return the forecast of a container that goes through these phases in turn, and then by its last change."""
        key = (way, min(dwell, LONGEST_DWELL), num_steps)
        if key not in self._chains:
            self._chains[key] = self._chain(way, dwell, num_steps)
        return self._chains[key]

    def _chain(self, way: tuple[int, ...], dwell: int, num_steps: int) -> FloatArray:
        hazard = self.dwells.hazard[list(way)]
        state = np.zeros_like(hazard)
        state[0, min(dwell, LONGEST_DWELL) - 1] = 1.0
        beyond = np.zeros(self.num_phases)
        found = np.zeros((num_steps, self.num_phases))
        for step in range(num_steps):
            state, gone = _aged(state, hazard)
            state[1:, 0] += gone[:-1]
            # Past the last known phase, the sample-wise chain goes on.
            beyond = beyond @ self.by_sample + gone[-1] * self.by_change[way[-1]]
            np.add.at(found[step], list(way), state.sum(axis=1))
            found[step] += beyond
        return found


def _aged(state: FloatArray, hazard: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what stays, a sample older, and what leaves each row; the oldest age holds all beyond it as well."""
    leaving = state * hazard
    stays = state - leaving
    older = np.zeros_like(state)
    older[:, 1:] = stays[:, :-1]
    older[:, -1] += stays[:, -1]
    return older, leaving.sum(axis=1)


def forecast_segments(
    forecaster: PhaseForecaster, runs: PhaseRuns, num_steps: int, method: ForecastMethod | str
) -> FloatArray:
    """Return the probability of each phase after the end of each segment, shape (S, num_steps, K); NaN without a run."""
    found = np.full((runs.num_segments, num_steps, forecaster.num_phases), np.nan)
    for segment, (begin, end) in enumerate(zip(runs.offsets[:-1].tolist(), runs.offsets[1:].tolist(), strict=True)):
        if end > begin:
            dwell = int(runs.dwell[end - 1])
            found[segment] = forecaster.forecast(runs.phase[begin:end], dwell, num_steps, method)
    return found


def forecast_scores(
    forecaster: PhaseForecaster,
    runs: PhaseRuns,
    horizons: tuple[int, ...],
    method: ForecastMethod | str,
    *,
    max_points: int = 500,
    seed: int = 0,
) -> dict[int, tuple[float, float]]:
    """Return mean log-loss (nats) and Brier score of forecasts at random samples of other containers, by horizon.

    Both are proper: whoever tells what he believes has the least in the mean. The log-loss of a forecast that rules out what
    then comes is infinite, and so is the mean over it; the Brier score, at most 2, compares forecasts without doubt, too.

    References
    ----------
    Gneiting and Raftery (2007). Strictly proper scoring rules, prediction, and estimation. doi:10.1198/016214506000001437.
    """
    labels = [(np.repeat(phase, dwell), phase, dwell) for phase, dwell in runs.sequences()]
    furthest = max(horizons)
    points = [(k, t) for k, (own, *_) in enumerate(labels) for t in range(len(own) - furthest)]
    if not points:
        raise InvalidOptionError(f"no series is longer than the furthest horizon of {furthest} samples")
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(points))[:max_points]
    loss = {horizon: [0.0, 0.0] for horizon in horizons}
    for k, t in (points[place] for place in chosen.tolist()):
        own, phase, dwell = labels[k]
        ends = np.cumsum(dwell)
        run = int(np.searchsorted(ends, t, side="right"))
        spent = t - (int(ends[run]) - int(dwell[run])) + 1
        found = forecaster.forecast(phase[: run + 1], spent, furthest, method)
        for horizon in horizons:
            probability = found[horizon - 1]
            truth = int(own[t + horizon])
            loss[horizon][0] += -math.log(probability[truth]) if probability[truth] > 0 else math.inf
            loss[horizon][1] += float(((probability - np.eye(forecaster.num_phases)[truth]) ** 2).sum())
    return {horizon: (a / len(chosen), b / len(chosen)) for horizon, (a, b) in loss.items()}


def score_table(
    forecaster: PhaseForecaster,
    runs: PhaseRuns,
    horizons: tuple[int, ...],
    methods: Sequence[ForecastMethod | str] = tuple(ForecastMethod),
    *,
    max_points: int = 500,
) -> list[tuple[str, int, float, float]]:
    """Return method, horizon, log-loss and Brier score of each method at each horizon; see `forecast_scores`."""
    rows = []
    for method in methods:
        found = forecast_scores(forecaster, runs, horizons, method, max_points=max_points)
        rows += [(str(method), horizon, *found[horizon]) for horizon in horizons]
    return rows


USUAL_STATES = 5

CRBM_RATE = 1e-4

"""Learning rate of the machine that is rolled out: of 1e-4 to 3e-2 the one with the best densities, and larger ones only did worse."""


class AbstractContinuation(ABC):
    """Draws continuations."""

    @abstractmethod
    def fit(self, series: ScaledSeries, seed: int) -> Self:
        """Fit to training series."""

    @abstractmethod
    def paths(
        self, series: ScaledSeries, ends: IntArray, num_steps: int, num_paths: int, rng: np.random.Generator
    ) -> FloatArray:
        """Return continuations after rows `ends`, shape (n, num_paths, num_steps, R).

        Each of the n rows has at least three rows of its own segment before it; later rows aren't looked at.
        """


class Increments(AbstractContinuation):
    """The last sample plus what series changed by elsewhere: persistence, with the errors that it makes."""

    def fit(self, series: ScaledSeries, seed: int) -> Self:
        """Keep the series."""
        del seed
        self._series = series
        return self

    def paths(
        self, series: ScaledSeries, ends: IntArray, num_steps: int, num_paths: int, rng: np.random.Generator
    ) -> FloatArray:
        """Draw whole stretches of training series."""
        known = self._series
        left = np.repeat(known.lengths, known.lengths) - 1 - known.place
        rows = np.flatnonzero(left >= num_steps)
        if not len(rows):
            raise InvalidProblemError(f"no training series has more than {num_steps} samples; give longer ones")
        begin = rows[rng.integers(len(rows), size=(len(ends), num_paths))]
        change = known.values[begin[..., None] + np.arange(1, num_steps + 1)] - known.values[begin][:, :, None]
        return np.asarray(series.values[ends][:, None, None] + change)


class LinearPaths(AbstractContinuation):
    """The linear autoregression of three samples, with errors drawn from its own on training series, all resources together."""

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
        bounds, found = _widened(self._range, history[:, -1]), []
        for _ in range(num_steps):
            mean = history.reshape(len(history), -1) @ self._forecast.matrix + self._forecast.bias
            fresh = np.clip(mean + self._errors[rng.integers(len(self._errors), size=len(mean))], *bounds)
            history = np.concatenate([history[:, 1:], fresh[:, None]], axis=1)
            found.append(fresh)
        return _by_path(found, num_paths)


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
        state = _drawn(np.repeat(belief[ends], num_paths, axis=0), rng)
        move, root = np.exp(model["log_transition"]), np.linalg.cholesky(model["covariance"])
        value, found = np.repeat(series.values[ends], num_paths, axis=0), []
        bounds = _widened(self._range, value)
        for _ in range(num_steps):
            state = _drawn(move[state], rng)
            inputs = np.concatenate([np.ones((len(value), 1)), value], axis=1)[:, : model["regression"].shape[1]]
            mean = np.einsum("nr,nrv->nv", inputs, model["regression"][state])
            noise = np.einsum("nvw,nw->nv", root[state], rng.normal(size=mean.shape))
            value = np.clip(mean + noise, *bounds)
            found.append(value)
        return _by_path(found, num_paths)


class CrbmPaths(AbstractContinuation):
    """Roll-outs of the conditional restricted Boltzmann machine.

    Its visibles have variance one: so it is trained on series in units of the linear forecast's errors.
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

        found = np.asarray(jax.lax.map(lambda pair: one(*pair), (history, keys), batch_size=64), np.float64)
        bounds = _widened(self._range, series.values[ends][:, None, None])
        return np.clip(np.nan_to_num(found * self._unit), *bounds)

    def _in_units(self, series: ScaledSeries) -> ScaledSeries:
        return ScaledSeries(values=series.values / self._unit, lengths=series.lengths)


def crps(samples: FloatArray, observed: FloatArray) -> FloatArray:
    """Return the continuous ranked probability score of samples from densities, without the bias of few samples.

    ``mean |x - y| - sum over pairs |x - x'| / (2 m (m - 1))``: 0 at best, the absolute error for a density that is a point.

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
    """Return the least and the most of each resource: no continuation leaves what was ever seen, or its own last sample if that does."""
    return series.values.min(axis=0), series.values.max(axis=0)


def _widened(bounds: tuple[FloatArray, FloatArray], last: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds that hold a continuation's last known sample, too."""
    return np.minimum(bounds[0], last), np.maximum(bounds[1], last)


def _history(series: ScaledSeries, ends: IntArray, num_delays: int) -> FloatArray:
    """Return the last `num_delays` samples up to each row, that row's included, shape (n, num_delays, R)."""
    return np.asarray(series.values[ends[:, None] + np.arange(1 - num_delays, 1)])


def _drawn(probability: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return a draw of each row's probabilities, shape (n,)."""
    total = np.cumsum(probability, axis=1)
    return np.asarray((rng.random((len(total), 1)) * total[:, -1:] > total[:, :-1]).sum(axis=1))


def _by_path(steps: list[FloatArray], num_paths: int) -> FloatArray:
    """Return steps, each (n num_paths, R), as (n, num_paths, steps, R)."""
    stacked = np.stack(steps, axis=1)
    return stacked.reshape(-1, num_paths, *stacked.shape[1:])
