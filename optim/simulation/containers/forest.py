"""Moments are similar that trees which forecast the next cycle don't tell apart; what followed on these and on the nearest ones counts.

A quantile regression forest (Meinshausen 2006. Quantile regression forests. JMLR 7), whose draws from leaves are pooled with the nearest
neighbours of `analogs`: the two err differently, and the pool saves more than either.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from optim.core.missing import require
from optim.models.containers.series import FloatArray
from optim.simulation.containers.learned_policies import NUM_OF_RATES, Analogs, quantiles
from optim.simulation.containers.policy import NamedPolicy
from optim.simulation.containers.windows import Lessons, Moments
from optim.simulation.containers.world import World

NUM_TREES, LEAST_LEAF, FEATURE_SHARE = 100, 10, 1.0 / 3.0
DRAWS_OF_A_LEAF = 4
NEIGHBOUR_WEIGHT = 4
"""Each of the nearest 50 counts so many times: a third of the pool, two thirds are the leaves'."""

LEVELS = np.array([0.5, 0.8, 0.95])
"""Of a rate's samples in the next cycle: trees split by these quantiles and by the mean, of a resource that is held by the peak."""


class Forest(Analogs):
    """What followed on moments in the same leaves, and on the nearest ones.

    Parameters
    ----------
    world
        Whose training containers are learned from.
    has_phases
        Whether the present phase is among what makes moments similar.

    Raises
    ------
    MissingDependencyError
        If scikit-learn isn't there.
    """

    def __init__(self, world: World, *, has_phases: bool = False) -> None:
        super().__init__(world, has_phases=has_phases)
        self._model = _fitted(self._lessons.moments.features, _targets(self._lessons, world))
        leaves = self._leaves(self._lessons.moments.features)
        self._order = np.argsort(leaves, axis=0, kind="stable")
        ordered = np.take_along_axis(leaves, self._order, axis=0)
        self._ordered = [np.ascontiguousarray(own) for own in ordered.T]

    def _leaves(self, features: FloatArray) -> NDArray[np.int64]:
        with threadpool_limits(1):
            return np.asarray(self._model.apply(features), dtype=np.int64)

    def _similar(self, moments: Moments) -> list[NDArray[np.intp]]:
        nearest = super()._similar(moments)[0][:, :NUM_OF_RATES]
        leaves, rng, pool = self._leaves(moments.features), np.random.default_rng(0), []
        for tree, ordered in enumerate(self._ordered):
            first, end = (np.searchsorted(ordered, leaves[:, tree], side=side) for side in ("left", "right"))
            drawn = first[:, None] + rng.random((len(first), DRAWS_OF_A_LEAF)) * (end - first)[:, None]
            pool.append(self._order[drawn.astype(np.int64), tree])
        both = np.concatenate([*pool, np.repeat(nearest, NEIGHBOUR_WEIGHT, axis=1)], axis=1)
        return [both] * moments.level.shape[1]


def _targets(lessons: Lessons, world: World) -> FloatArray:
    """Return what trees forecast of each lesson, shape (N, targets), in deviations."""
    found = []
    for column, is_level in enumerate(world.is_level.tolist()):
        if is_level:
            found.append(lessons.peak[:, [column]])
            continue
        after = np.where(lessons.is_there, lessons.after[:, :, column], np.nan)
        found.append(quantiles(after, LEVELS))
        found.append(np.nanmean(np.exp(after), axis=1)[:, None])
    targets = np.concatenate(found, axis=1)
    deviation = targets.std(axis=0)
    return np.asarray((targets - targets.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0))


def _fitted(features: FloatArray, targets: FloatArray) -> Any:
    model = require("sklearn.ensemble", "policy forest").RandomForestRegressor(
        NUM_TREES, min_samples_leaf=LEAST_LEAF, max_features=FEATURE_SHARE, random_state=0, n_jobs=1
    )
    with threadpool_limits(1):
        return model.fit(features, targets)


FOREST_POLICIES = (
    NamedPolicy("forest", Forest),
    NamedPolicy("forest-phases", partial(Forest, has_phases=True)),
)
"""They need an optional package, and seconds: they run where they are asked for by name."""
