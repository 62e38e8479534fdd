"""Policies that learn from training containers what follows on a moment: nearest neighbours, and boosted quantiles.

Both know a moment by the same numbers (`windows`); with phases, which phase it is and how long it has lasted are among them.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from optim.core.missing import require
from optim.models.containers.series import FloatArray
from optim.simulation.containers.forecast import Forecast, scale_of, with_tail
from optim.simulation.containers.policy import CycleView, NamedPolicy, Stepper
from optim.simulation.containers.windows import Lessons, Moments, joined, lessons_of, moments_of
from optim.simulation.containers.world import World

NUM_OF_LEVELS, NUM_OF_RATES = 200, 50
"""Moments that count as similar: a moment tells one peak of a resource that is held, and a cycle's samples of a rate."""

NUM_QUANTILES = 100
BOOSTED_RISKS = np.array([0.75, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.004])
MOST_LESSONS = 20_000
"""Boosted quantiles learn from at most so many moments, evenly spread."""


class Analogs:
    """The needs that followed on the most similar moments of training containers.

    Parameters
    ----------
    world
        Whose training containers are learned from.
    has_phases
        Whether the present phase is among what makes moments similar.
    is_whole
        Whether a whole cycle must have followed, see `lessons_of`; then nothing is known of the ends of containers, and harm
        counts the same everywhere.
    """

    def __init__(self, world: World, *, has_phases: bool = False, is_whole: bool = False) -> None:
        self._world, self._has_phases, self._is_whole = world, has_phases, is_whole
        self._lessons = lessons_of(world, has_phases=has_phases, is_whole=is_whole)
        features = self._lessons.moments.features
        self._mean, deviation = features.mean(axis=0), features.std(axis=0)
        self._deviation = np.where(deviation > 0, deviation, 1.0)
        self._tree = cKDTree((features - self._mean) / self._deviation)
        self._number = min(max(NUM_OF_LEVELS, NUM_OF_RATES), len(features))
        self._scale = scale_of(world)
        self._risk: FloatArray = np.linspace(1.0, 0.0, NUM_QUANTILES + 2)[1:-1]

    def estimate(self, view: CycleView) -> Forecast:
        """Answer for a cycle."""
        return self.forecast([moments_of(view, self._world, has_phases=self._has_phases)])

    def forecast(self, parts: Sequence[Moments]) -> Forecast:
        """Return what followed on the moments most similar to these."""
        moments = joined(parts)
        near = self._similar(moments)
        followed = [self._followed(own, column) for column, own in enumerate(near)]
        need, risk = with_tail(np.stack(followed, axis=1), self._risk)
        weight = None if self._is_whole else np.stack([self._weight(own, k) for k, own in enumerate(near)], axis=1)
        return Forecast(need=moments.level[..., None] * need, risk=risk, scale=self._scale, weight=weight)

    def _similar(self, moments: Moments) -> list[NDArray[np.intp]]:
        """Return the lessons that count for each resource, shape (A, number)."""
        _, near = self._tree.query((moments.features - self._mean) / self._deviation, k=self._number)
        near = near.reshape(len(moments.level), self._number)
        return [near[:, : NUM_OF_LEVELS if is_level else NUM_OF_RATES] for is_level in self._world.is_level.tolist()]

    def _weight(self, near: NDArray[np.intp], column: int) -> FloatArray:
        """Return what a sample's harm counts by these lessons, over what it does by all, shape (A,)."""
        share, samples = self._lessons.share[:, column], self._lessons.is_there.sum(axis=1)
        usual = float((share * samples).sum() / samples.sum())
        return np.asarray((share[near] * samples[near]).sum(axis=1) / samples[near].sum(axis=1) / usual)

    def _followed(self, near: NDArray[np.intp], column: int) -> FloatArray:
        """Return quantiles of what followed, shape (A, Q)."""
        if self._world.is_level[column]:
            return quantiles(self._lessons.peak[near, column], 1.0 - self._risk)
        followed = np.where(self._lessons.is_there, self._lessons.after[:, :, column], np.nan)[near]
        return quantiles(followed.reshape(len(near), -1), 1.0 - self._risk)


def quantiles(values: FloatArray, levels: FloatArray) -> FloatArray:
    """Return quantiles of each row's values that aren't NaN, between neighbours linear, shape (rows, levels)."""
    ordered = np.sort(values, axis=1)  # NaN last
    last = np.isfinite(ordered).sum(axis=1)[:, None] - 1
    place = levels * last
    low = np.minimum(place.astype(np.int64), np.maximum(last - 1, 0))
    below, above = (np.take_along_axis(ordered, np.minimum(own, last), axis=1) for own in (low, low + 1))
    return np.asarray(below + (place - low) * (above - below))


class BoostedQuantiles:
    """Quantiles of the need by gradient-boosted trees, of a rate from one random sample of the cycle that followed.

    Parameters
    ----------
    world
        Whose training containers are learned from.
    has_phases
        Whether the present phase is among what is known.

    Raises
    ------
    MissingDependencyError
        If scikit-learn isn't there.
    """

    def __init__(self, world: World, *, has_phases: bool = False) -> None:
        self._world, self._has_phases = world, has_phases
        lessons = lessons_of(world, has_phases=has_phases)
        chosen = np.unique(np.linspace(0, len(lessons.after) - 1, MOST_LESSONS).astype(np.int64))
        features = lessons.moments.features[chosen]
        self._fitted = [
            [_fit(features, needs[chosen], 1.0 - risk) for risk in BOOSTED_RISKS.tolist()]
            for needs in _needs(lessons, world)
        ]

    def estimate(self, view: CycleView) -> Forecast:
        """Answer for a cycle."""
        moments = moments_of(view, self._world, has_phases=self._has_phases)
        found = [np.stack([predict(moments.features) for predict in own], axis=1) for own in self._fitted]
        # Each quantile is fitted on its own: sorted, they are as good or better (Chernozhukov et al. 2010).
        need, risk = with_tail(np.sort(np.stack(found, axis=1), axis=2), BOOSTED_RISKS)
        return Forecast(need=moments.level[..., None] * need, risk=risk, scale=scale_of(self._world))


def _needs(lessons: Lessons, world: World) -> list[FloatArray]:
    """Return a need of each moment by resource, shape (N,) each."""
    rng = np.random.default_rng(0)
    count = lessons.is_there.sum(axis=1)  # those that are there come first
    place = (rng.random(len(count)) * count).astype(np.int64)
    return [
        lessons.peak[:, column] if is_level else lessons.after[np.arange(len(count)), place, column]
        for column, is_level in enumerate(world.is_level.tolist())
    ]


def _fit(features: FloatArray, needs: FloatArray, level: float) -> Callable[[FloatArray], FloatArray]:
    model = require("sklearn.ensemble", "policy boosted-quantiles").HistGradientBoostingRegressor(
        loss="quantile", quantile=level, max_iter=80, max_leaf_nodes=16, min_samples_leaf=40, random_state=0
    )
    with threadpool_limits(1):  # more threads wait for each other on so little data
        model.fit(features, needs)

    def predict(asked: FloatArray) -> FloatArray:
        with threadpool_limits(1):
            return np.asarray(model.predict(asked), dtype=np.float64)

    return predict


def _made(maker: Callable[..., Stepper], *, has_phases: bool) -> Callable[[World], Stepper]:
    return partial(maker, has_phases=has_phases)


LEARNED_POLICIES = (
    NamedPolicy("analogs", Analogs),
    NamedPolicy("analogs-phases", _made(Analogs, has_phases=True)),
)
OPTIONAL_POLICIES = (
    NamedPolicy("boosted-quantiles", BoostedQuantiles),
    NamedPolicy("boosted-quantiles-phases", _made(BoostedQuantiles, has_phases=True)),
)
"""Those that need an optional package, and seconds: they run where they are asked for."""
