"""Forecasts of the next phase: Markov, and semi-Markov with sojourn times."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError
from optim.phases.sequences import PhaseRuns, change_transitions, sample_transitions

MAX_DWELL = 512
"""Number of samples in a phase after which its hazard is constant."""

SHRINKAGE = 5.0
"""Weight of the phase's mean hazard in an estimated hazard, as a number of runs at risk."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DwellModel:
    """Distributions of the dwell times of K phases; a dwell time is the number of samples of a run, at most L here.

    Attributes
    ----------
    hazard
        Shape (K, L): probability that a run of at least ``l + 1`` samples ends after ``l + 1`` samples. This is Kaplan
        and Meier's ratio of ends to runs at risk, shrunk to the phase's mean hazard with the weight of `SHRINKAGE`
        runs.
    survival
        Shape (K, L): Kaplan-Meier estimate of the probability that a run is longer than ``l + 1`` samples.
    mean, p90
        Shape (K,) each: mean dwell time, with runs cut at L samples, and 90 % quantile of the dwell time.
    """

    hazard: FloatArray
    survival: FloatArray
    mean: FloatArray
    p90: FloatArray


def fit_dwells(runs: PhaseRuns, num_phases: int) -> DwellModel:
    """Estimate hazards; the last run of a segment is censored, as its full length is unknown.

    With d ends among n runs at risk, and h the phase's mean hazard, the hazard is ``(d + 5 h) / (n + 5)``. The
    estimates `survival`, `mean` and `p90` are those of Kaplan and Meier, with ``d / n``.

    References
    ----------
    Kaplan and Meier (1958). Nonparametric estimation from incomplete observations. doi:10.1080/01621459.1958.10501452.
    """
    events = np.zeros((num_phases, MAX_DWELL))
    leaves = np.zeros((num_phases, MAX_DWELL))
    for phase, dwell in runs.sequences():
        place = np.minimum(dwell, MAX_DWELL) - 1
        np.add.at(leaves, (phase, place), 1)
        is_ended = (np.arange(len(phase)) < len(phase) - 1) & (dwell <= MAX_DWELL)
        np.add.at(events, (phase[is_ended], place[is_ended]), 1)
    at_risk = leaves[:, ::-1].cumsum(axis=1)[:, ::-1]
    # The added half end gives a phase without an observed end a small positive hazard.
    pooled = (events.sum(axis=1) + 0.5) / (at_risk.sum(axis=1) + 1.0)
    hazard = (events + SHRINKAGE * pooled[:, None]) / (at_risk + SHRINKAGE)
    plain = np.where(at_risk > 0, events / np.maximum(at_risk, 1.0), 0.0)
    survival: FloatArray = np.cumprod(1.0 - plain, axis=1, dtype=np.float64)
    mean = 1.0 + survival[:, :-1].sum(axis=1)
    is_below = survival <= 0.1 + 1e-12
    p90 = np.where(is_below.any(axis=1), is_below.argmax(axis=1) + 1, MAX_DWELL).astype(np.float64)
    return DwellModel(hazard=hazard, survival=survival, mean=mean, p90=p90)


CONTINUATION = 4
"""Number of phases after a match that a prototype forecast uses, and maximum number of last phases that it matches."""


class ForecastMethod(StrEnum):
    """Methods to forecast phases."""

    MARKOV = "markov"
    """The next sample's phase depends only on the current sample's phase; dwell times are geometric."""
    SEMI_MARKOV = "semi-markov"
    """Dwell times follow the observed hazards, and the next phase depends on the phase that ends."""
    PROTOTYPE = "prototype"
    """Dwell times are as in `SEMI_MARKOV`; the next phases are those of training paths with the same beginning or last
    phases."""
    SAME = "same"
    """The phase stays: the baseline for the other methods."""


class PhaseForecaster:
    """Forecasts from the runs of training containers, given that the container continues.

    Parameters
    ----------
    runs
        Training runs.
    num_phases
        Number of phases K.
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
            The sequence of phases so far; successive phases differ, and the last is the current phase.
        dwell
            Samples spent in the current phase, at least 1.
        num_steps
            Number of samples to forecast.
        method
            One of `ForecastMethod`.

        Returns
        -------
        numpy.ndarray
            Probability of each phase (column) after each number of samples (row); shape (num_steps, K).

        Raises
        ------
        InvalidOptionError
            If there is no phase yet, a number is below 1, or no such method exists.
        """
        if len(phases) == 0 or dwell < 1 or num_steps < 1:
            raise InvalidOptionError(
                f"a forecast needs at least one phase, and dwell and num_steps of at least 1, got {len(phases)} phases, "
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
        probabilities = np.empty((num_steps, self.num_phases))
        for step in range(num_steps):
            state = state @ self.by_sample
            probabilities[step] = state
        return probabilities

    def _semi_markov(self, current: int, dwell: int, num_steps: int) -> FloatArray:
        """Forecast by propagating the joint probability of phase and dwell time."""
        state = np.zeros((self.num_phases, MAX_DWELL))
        state[current, min(dwell, MAX_DWELL) - 1] = 1.0
        probabilities = np.empty((num_steps, self.num_phases))
        for step in range(num_steps):
            state, gone = _aged(state, self.dwells.hazard)
            state[:, 0] += gone @ self.by_change
            probabilities[step] = state.sum(axis=1)
        return probabilities

    def _prototype(self, phases: tuple[int, ...], dwell: int, num_steps: int) -> FloatArray:
        """Return the mean of the forecasts along the continuations of training paths, weighted by frequency."""
        ways = self._continuations(phases)
        total = sum(ways.values())
        probabilities = np.zeros((num_steps, self.num_phases))
        for way, number in sorted(ways.items()):
            probabilities += number / total * self._along((phases[-1], *way), dwell, num_steps)
        return probabilities

    def _continuations(self, phases: tuple[int, ...]) -> Counter[tuple[int, ...]]:
        """Count the continuations, in training paths, of all these phases from a path's beginning, or else of the last ones."""
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
        """Return the forecast of a container that goes through the phases `way`, and then as training containers do."""
        key = (way, min(dwell, MAX_DWELL), num_steps)
        if key not in self._chains:
            self._chains[key] = self._chain(way, dwell, num_steps)
        return self._chains[key]

    def _chain(self, way: tuple[int, ...], dwell: int, num_steps: int) -> FloatArray:
        hazard = self.dwells.hazard[list(way)]
        state = np.zeros_like(hazard)
        state[0, min(dwell, MAX_DWELL) - 1] = 1.0
        beyond = np.zeros(self.num_phases)
        probabilities = np.zeros((num_steps, self.num_phases))
        for step in range(num_steps):
            state, gone = _aged(state, hazard)
            state[1:, 0] += gone[:-1]
            # After the last phase of `way`, the forecast follows the Markov chain of samples.
            beyond = beyond @ self.by_sample + gone[-1] * self.by_change[way[-1]]
            np.add.at(probabilities[step], list(way), state.sum(axis=1))
            probabilities[step] += beyond
        return probabilities


def _aged(state: FloatArray, hazard: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the probability that stays in each phase, one sample older, and the probability that leaves each phase."""
    leaving = state * hazard
    stays = state - leaving
    older = np.zeros_like(state)
    older[:, 1:] = stays[:, :-1]
    older[:, -1] += stays[:, -1]
    return older, leaving.sum(axis=1)


def forecast_segments(
    forecaster: PhaseForecaster, runs: PhaseRuns, num_steps: int, method: ForecastMethod | str
) -> FloatArray:
    """Return the phases' probabilities after the end of each segment, NaN without a run; shape (S, num_steps, K)."""
    probabilities = np.full((runs.num_segments, num_steps, forecaster.num_phases), np.nan)
    for segment, (begin, end) in enumerate(zip(runs.offsets[:-1].tolist(), runs.offsets[1:].tolist(), strict=True)):
        if end > begin:
            dwell = int(runs.dwell[end - 1])
            probabilities[segment] = forecaster.forecast(runs.phase[begin:end], dwell, num_steps, method)
    return probabilities


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

    Both scores are proper: the true probabilities have the lowest mean score. The log-loss is infinite, and so is its
    mean, if a forecast excludes the actual phase. The Brier score is at most 2 and can compare such forecasts as well.

    References
    ----------
    Gneiting and Raftery (2007). Strictly proper scoring rules, prediction, and estimation. doi:10.1198/016214506000001437.
    """
    labels = [(np.repeat(phase, dwell), phase, dwell) for phase, dwell in runs.sequences()]
    max_horizon = max(horizons)
    points = [(k, t) for k, (sample_phases, *_) in enumerate(labels) for t in range(len(sample_phases) - max_horizon)]
    if not points:
        raise InvalidOptionError(f"no series is longer than the longest horizon of {max_horizon} samples")
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(points))[:max_points]
    loss = {horizon: [0.0, 0.0] for horizon in horizons}
    for k, t in (points[place] for place in chosen.tolist()):
        sample_phases, phase, dwell = labels[k]
        ends = np.cumsum(dwell)
        run = int(np.searchsorted(ends, t, side="right"))
        spent = t - (int(ends[run]) - int(dwell[run])) + 1
        probabilities = forecaster.forecast(phase[: run + 1], spent, max_horizon, method)
        for horizon in horizons:
            probability = probabilities[horizon - 1]
            truth = int(sample_phases[t + horizon])
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
        scores = forecast_scores(forecaster, runs, horizons, method, max_points=max_points)
        rows += [(str(method), horizon, *scores[horizon]) for horizon in horizons]
    return rows
