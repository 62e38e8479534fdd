"""Policies that learn from similar past states: nearest neighbours and forests, with forecasts and a price on risk.

A forecast is a distribution of the need: for an incompressible resource the peak of the coming cycle, for a rate a
random sample of the coming cycle. At price m^2 a container gets the allocation y that minimises

    y + m^2 s w P(need > y),

where s is the mean demand of training containers and w the weight of a violation, which is smaller in containers that
run longer. Among all rules with the same average number of violations, this rule allocates least. The price is the
square of the multiplier, so that multipliers up to 1024 suffice for any risk; calibration corrects errors of the
distribution.

Both policies use the same `features`, which with phases include the current phase and its duration so far.

The forest is a quantile regression forest (Meinshausen, "Quantile regression forests", JMLR 7, 2006). Samples from the forest's
leaves are pooled with the nearest neighbours of `knn`: their errors differ, and the pool saves more than either.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from optim.core.arrays import FloatArray
from optim.core.optional import import_extra
from optim.core.policies import policy
from optim.rightsizing.features import Examples, Features, examples_of, joined, view_features
from optim.rightsizing.policy import CycleView, Trait
from optim.rightsizing.vpa import OOM_FACTOR
from optim.rightsizing.world import World

TAIL = 24
"""Number of points in the tail of a forecast, beyond the last quantile."""

TAIL_FIRST, TAIL_GROWTH, TAIL_POWER = 0.25, 1.3, 4.0
"""Distance d of the first point from the last quantile (in scales of the tail), the ratio of successive distances, and
the power p of the tail: the risk falls by the factor (1 + d / p)^-p, at first like exp(-d), then more slowly."""

MIN_TAIL = 0.005

TAIL_SHARE = 0.05
"""Scale of the tail, as a share of the distance from the median to the last quantile, both of log needs; the scale is
at least MIN_TAIL."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """Forecast distributions of the needs of A containers for R resources, as Q quantiles each.

    Attributes
    ----------
    need
        Shape (A, R, Q): quantiles in increasing order; NaN if unknown, as in the first cycle.
    risk
        Shape (Q,): probability that the need exceeds each quantile, decreasing.
    scale
        Shape (R,): amount of each resource that a violation of weight 1 costs at price 1.
    weight
        Shape (A, R): weight of a violation, 1 on average over training containers.
    """

    need: FloatArray
    risk: FloatArray
    scale: FloatArray
    weight: FloatArray | None = None

    def allocation(self, multiplier: FloatArray, unknown: FloatArray, limit: FloatArray) -> FloatArray:
        """Return the allocation of least cost with priced violations (the largest of several), at most the limit."""
        value = np.empty(self.need.shape[:2])
        last = len(self.risk) - 1
        for column, price in enumerate((multiplier**2 * self.scale).tolist()):
            need = self.need[:, column]
            weighted_risk = self.risk if self.weight is None else self.weight[:, column, None] * self.risk
            best = last - np.argmin((need + price * weighted_risk)[:, ::-1], axis=1)
            value[:, column] = np.take_along_axis(need, best[:, None], axis=1)[:, 0]
        return np.asarray(np.clip(np.where(np.isnan(value), unknown, value), 0.0, limit))

    def at_risk(self, share: float) -> FloatArray:
        """Return the smallest quantile that the need exceeds with probability at most `share`, shape (A, R)."""
        is_safe = self.risk <= share
        return self.need[:, :, int(is_safe.argmax()) if is_safe.any() else -1]


def with_tail(log_need: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return quantiles (no longer logarithms) and risks, with a heavy tail beyond the last quantile for very small risks.

    Parameters
    ----------
    log_need
        Shape (..., Q): logarithms of quantiles, increasing.
    risk
        Shape (Q,): probability that the need exceeds each quantile, above 0.
    """
    middle = int(np.argmin(np.abs(risk - 0.5)))
    top = log_need[..., -1:]
    width = np.maximum(TAIL_SHARE * (top - log_need[..., middle : middle + 1]), MIN_TAIL)
    steps = TAIL_FIRST * TAIL_GROWTH ** np.arange(TAIL)
    beyond = np.concatenate([log_need, top + width * steps], axis=-1)
    return np.exp(beyond), np.concatenate([risk, risk[-1] * (1.0 + steps / TAIL_POWER) ** -TAIL_POWER])


def scale_of(world: World) -> FloatArray:
    """Return the mean demand of the training containers, shape (R,)."""
    return np.asarray(world.training.values.mean(axis=0))


NUM_OF_LEVELS, NUM_OF_RATES = 200, 50
"""Numbers of neighbours for incompressible resources and for rates: each neighbour has one peak, but many samples of a rate."""

NUM_QUANTILES = 100

ANALOGS = "Nearest-neighbour forecast from similar states of training containers, with a price on violations; without and with phases."


@policy(
    "knn",
    world="containers",
    summary=ANALOGS,
    is_default=True,
)
@policy(
    "knn-phases",
    world="containers",
    summary=ANALOGS,
    is_default=True,
    traits=(Trait.PHASES,),
    has_phases=True,
)
class KnnQuantiles:
    """Forecast of needs from the most similar states of training containers.

    Parameters
    ----------
    world
        World with the training containers.
    has_phases
        Whether similarity includes the current phase.
    is_whole
        Whether a complete cycle must follow each state, see `examples_of`. If so, the ends of containers count as
        unknown, and all violations have the same weight.
    """

    def __init__(self, world: World, *, has_phases: bool = False, is_whole: bool = False) -> None:
        self._world, self._has_phases, self._is_whole = world, has_phases, is_whole
        self._examples = examples_of(world, has_phases=has_phases, is_whole=is_whole)
        features = self._examples.features.values
        self._mean, deviation = features.mean(axis=0), features.std(axis=0)
        self._deviation = np.where(deviation > 0, deviation, 1.0)
        self._tree = cKDTree((features - self._mean) / self._deviation)
        self._number = min(max(NUM_OF_LEVELS, NUM_OF_RATES), len(features))
        self._scale = scale_of(world)
        self._risk: FloatArray = np.linspace(1.0, 0.0, NUM_QUANTILES + 2)[1:-1]

    def estimate(self, view: CycleView) -> Forecast:
        """Return the forecast for a cycle."""
        return self.forecast([view_features(view, self._world, has_phases=self._has_phases)])

    def forecast(self, parts: Sequence[Features]) -> Forecast:
        """Return the distributions of the needs that followed the most similar states."""
        features = joined(parts)
        neighbours = self._similar(features)
        outcomes = [self._outcome_quantiles(rows, column) for column, rows in enumerate(neighbours)]
        need, risk = with_tail(np.stack(outcomes, axis=1), self._risk)
        weight = (
            None if self._is_whole else np.stack([self._weight(rows, k) for k, rows in enumerate(neighbours)], axis=1)
        )
        return Forecast(need=features.level[..., None] * need, risk=risk, scale=self._scale, weight=weight)

    def _similar(self, features: Features) -> list[NDArray[np.intp]]:
        """Return the indices of the examples most similar to each container, shape (A, number), one array per resource."""
        _, neighbours = self._tree.query((features.values - self._mean) / self._deviation, k=self._number)
        neighbours = neighbours.reshape(len(features.level), self._number)
        return [
            neighbours[:, : NUM_OF_LEVELS if is_level else NUM_OF_RATES] for is_level in self._world.is_level.tolist()
        ]

    def _weight(self, neighbours: NDArray[np.intp], column: int) -> FloatArray:
        """Return the mean weight of a violation in the neighbouring examples, relative to that in all examples, shape (A,)."""
        share, samples = self._examples.share[:, column], self._examples.is_there.sum(axis=1)
        baseline = float((share * samples).sum() / samples.sum())
        return np.asarray(
            (share[neighbours] * samples[neighbours]).sum(axis=1) / samples[neighbours].sum(axis=1) / baseline
        )

    def _outcome_quantiles(self, neighbours: NDArray[np.intp], column: int) -> FloatArray:
        """Return quantiles of the log needs, relative to the level, in the neighbouring examples; shape (A, Q)."""
        if self._world.is_level[column]:
            peak, is_censored = (each[neighbours, column] for each in (self._examples.peak, self._examples.is_censored))
            if is_censored.any():
                return survival_quantiles(peak, is_censored, 1.0 - self._risk, beyond=np.log(OOM_FACTOR))
            return quantiles(peak, 1.0 - self._risk)
        outcomes = np.where(self._examples.is_there, self._examples.after[:, :, column], np.nan)[neighbours]
        return quantiles(outcomes.reshape(len(neighbours), -1), 1.0 - self._risk)


def quantiles(values: FloatArray, levels: FloatArray) -> FloatArray:
    """Return linearly interpolated quantiles of each row's values that aren't NaN, shape (rows, levels)."""
    ordered = np.sort(values, axis=1)  # NaN last
    last = np.isfinite(ordered).sum(axis=1)[:, None] - 1
    place = levels * last
    low = np.minimum(place.astype(np.int64), np.maximum(last - 1, 0))
    below, above = (np.take_along_axis(ordered, np.minimum(rank, last), axis=1) for rank in (low, low + 1))
    return np.asarray(below + (place - low) * (above - below))


def survival_quantiles(
    values: FloatArray, is_censored: NDArray[np.bool_], levels: FloatArray, *, beyond: float
) -> FloatArray:
    """Return product-limit quantiles of each row's values, some of which are lower bounds, shape (rows, levels).

    The mass of a lower bound is divided equally among all larger values (Efron 1967). The result is the Kaplan-Meier
    estimate, or Beran's if the values come from nearest neighbours. If the largest value is a lower bound, its mass lies
    `beyond` above it. Quantiles are interpolated linearly; without censoring they equal those of `quantiles`.

    Parameters
    ----------
    values, is_censored
        Finite values, n >= 1 per row, and whether each value is only a lower bound; shape (rows, n) each.
    levels
        Levels of the quantiles, in [0, 1]; shape (levels,).
    beyond
        Distance above the largest value at which its mass lies if it is a lower bound; at least 0.

    References
    ----------
    Kaplan, Meier, "Nonparametric estimation from incomplete observations", JASA 53, 1958; Efron, "The two sample problem with
    censored data", Fifth Berkeley Symposium, 1967, section 7; Beran, "Nonparametric regression with randomly censored survival
    data", 1981.
    """
    number = values.shape[1]
    # Among equal values, uncensored values precede censored values.
    order = np.lexsort((is_censored, values), axis=1)
    ordered, is_bound = np.take_along_axis(values, order, axis=1), np.take_along_axis(is_censored, order, axis=1)
    at_risk = number - np.arange(number)
    surviving = np.cumprod(np.where(is_bound, 1.0, 1.0 - 1.0 / at_risk), axis=1)
    before = np.concatenate([np.ones((len(values), 1)), surviving[:, :-1]], axis=1)
    mass = before - surviving
    ordered[:, -1] = ordered[:, -1] + np.where(is_bound[:, -1], beyond, 0.0)
    mass[:, -1] = before[:, -1]
    found = np.empty((len(values), len(levels)))
    for row, is_there in enumerate(mass > 0):
        points, weights = ordered[row, is_there], mass[row, is_there]
        place = np.concatenate([[0.0], np.cumsum((weights[1:] + weights[:-1]) / 2)])
        found[row] = np.interp(levels, place / place[-1], points) if len(points) > 1 else points[0]
    return found


NUM_TREES, MIN_LEAF, FEATURE_SHARE = 100, 10, 1.0 / 3.0

DRAWS_OF_A_LEAF = 4

NEIGHBOUR_WEIGHT = 4
"""Multiplicity of each nearest neighbour in the pool; the neighbours form a third of the pool, samples from leaves the rest."""

LEVELS = np.array([0.5, 0.8, 0.95])
"""For a rate, the trees predict these quantiles and the mean of the samples in the next cycle; for an incompressible
resource, they predict the peak."""


FOREST = "As `knn`, pooled with the samples in the same leaves of a random forest (extra `learn`; runs only if named)."


@policy(
    "forest",
    world="containers",
    summary=FOREST,
)
@policy(
    "forest-phases",
    world="containers",
    summary=FOREST,
    traits=(Trait.PHASES,),
    has_phases=True,
)
class Forest(KnnQuantiles):
    """Forecast of needs from the training states in the same leaves of a random forest, and from the nearest training states.

    Parameters
    ----------
    world
        World with the training containers.
    has_phases
        Whether the features include the current phase.

    Raises
    ------
    MissingDependencyError
        If scikit-learn isn't installed.
    """

    def __init__(self, world: World, *, has_phases: bool = False) -> None:
        super().__init__(world, has_phases=has_phases)
        forest = import_extra("sklearn.ensemble", "policy forest").RandomForestRegressor(
            NUM_TREES, min_samples_leaf=MIN_LEAF, max_features=FEATURE_SHARE, random_state=0, n_jobs=1
        )
        with threadpool_limits(1):
            self._model = forest.fit(self._examples.features.values, _targets(self._examples, world))
        leaves = self._leaves(self._examples.features.values)
        self._order = np.argsort(leaves, axis=0, kind="stable")
        ordered = np.take_along_axis(leaves, self._order, axis=0)
        self._ordered = [np.ascontiguousarray(column) for column in ordered.T]

    def _leaves(self, features: FloatArray) -> NDArray[np.int64]:
        with threadpool_limits(1):
            return np.asarray(self._model.apply(features), dtype=np.int64)

    def _similar(self, features: Features) -> list[NDArray[np.intp]]:
        nearest = super()._similar(features)[0][:, :NUM_OF_RATES]
        leaves, rng, pool = self._leaves(features.values), np.random.default_rng(0), []
        for tree, ordered in enumerate(self._ordered):
            first, end = (np.searchsorted(ordered, leaves[:, tree], side=side) for side in ("left", "right"))
            sampled = first[:, None] + rng.random((len(first), DRAWS_OF_A_LEAF)) * (end - first)[:, None]
            pool.append(self._order[sampled.astype(np.int64), tree])
        both = np.concatenate([*pool, np.repeat(nearest, NEIGHBOUR_WEIGHT, axis=1)], axis=1)
        return [both] * features.level.shape[1]


def _targets(examples: Examples, world: World) -> FloatArray:
    """Return the standardised targets of the trees for each example, shape (N, targets)."""
    targets = []
    for column, is_level in enumerate(world.is_level.tolist()):
        if is_level:
            targets.append(examples.peak[:, [column]])
            continue
        after = np.where(examples.is_there, examples.after[:, :, column], np.nan)
        targets.append(quantiles(after, LEVELS))
        targets.append(np.nanmean(np.exp(after), axis=1)[:, None])
    stacked = np.concatenate(targets, axis=1)
    deviation = stacked.std(axis=0)
    return np.asarray((stacked - stacked.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0))
