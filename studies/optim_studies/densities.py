"""The study `densities`: forecast densities of several models, scored by CRPS."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidProblemError, check_in
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.containers.series import ContainerSeries
from optim.phases.preprocessing import ScaledSeries, Scaling, split_containers, to_grid
from optim_studies.continuations import AbstractContinuation, CrbmPaths, Increments, LinearPaths, SwitchingPaths, crps
from optim_studies.series import GENERATED, given_series, series_name

HELD_SHARE = 0.3

HISTORY = 8
"""Minimum number of samples before a forecast origin."""

CONTINUATIONS: Mapping[str, Callable[[], AbstractContinuation]] = MappingProxyType(
    {"increments": Increments, "linear": LinearPaths, "switching": SwitchingPaths, "crbm": CrbmPaths}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityOptions:
    """Sizes of the study.

    Parameters
    ----------
    series
        ``generated``, or a file that `read_containers` reads.
    containers
        Number of generated containers.
    interval_s, max_gap_s
        Interval of the grid and longest gap to interpolate, in seconds.
    moments, paths, steps
        Number of forecast origins on held-out containers, of samples per density, and of steps of the longest horizon.
    """

    series: str = GENERATED
    containers: int = 100
    interval_s: float = 15.0
    max_gap_s: float = 60.0
    moments: int = 100
    paths: int = 50
    steps: int = 40

    def __post_init__(self) -> None:
        check_in("[5, inf)", self, "containers")
        check_in("[1, inf)", self, "moments", "steps")
        check_in("[2, inf)", self, "paths")
        check_in("(0, inf)", self, "interval_s", "max_gap_s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Training data, and forecast origins: rows of the held-out series, and the samples that followed, shape (n, steps, R)."""

    training: ScaledSeries
    held_out: ScaledSeries
    ends: IntArray
    observed: FloatArray


def moments_to_forecast(options: DensityOptions, seed: int) -> Moments:
    """Split series by container (a single one in its middle), scale them by the training part, and draw forecast origins.

    Raises
    ------
    InvalidProblemError
        If no held-out series is long enough.
    """
    series = given_series(options.series, options.containers, seed)
    grid = to_grid(series, options.interval_s, options.max_gap_s).series
    rng = np.random.default_rng(seed)
    training, held_out = _sides(grid, rng)
    scaling = Scaling.fit(training.values, has_logarithm=True)
    scaled = scaling.scaled(held_out)
    num_following = np.repeat(held_out.lengths, held_out.lengths) - 1 - held_out.place
    rows = np.flatnonzero((held_out.place >= HISTORY - 1) & (num_following >= options.steps))
    if not len(rows):
        raise InvalidProblemError(
            f"no held-out series has {HISTORY + options.steps} samples at {options.interval_s:g} s without a gap"
        )
    ends = np.sort(rng.choice(rows, size=min(options.moments, len(rows)), replace=False))
    observed = scaled.values[ends[:, None] + np.arange(1, options.steps + 1)]
    return Moments(training=scaling.scaled(training), held_out=scaled, ends=ends, observed=observed)


def _sides(grid: ContainerSeries, rng: np.random.Generator) -> tuple[ContainerSeries, ContainerSeries]:
    if int(grid.unit_index.max()) > 0:
        known, held_out = split_containers(grid, HELD_SHARE, rng, HISTORY)
        return grid.select(known), grid.select(held_out)
    first = np.arange(grid.num_samples) < grid.num_samples // 2
    return _part(grid, first), _part(grid, ~first)


def _part(grid: ContainerSeries, is_part: np.ndarray) -> ContainerSeries:
    lengths = np.bincount(grid.segment[is_part], minlength=grid.num_segments)
    there = np.flatnonzero(lengths)
    return ContainerSeries(
        resources=grid.resources,
        containers=tuple(grid.containers[k] for k in there.tolist()),
        lengths=lengths[there],
        values=grid.values[is_part],
        time_s=grid.time_s[is_part],
        interval_s=grid.interval_s,
    )


def density_scores(way: str, moments: Moments, options: DensityOptions, seed: int) -> FloatArray:
    """Return the mean CRPS of a model's densities by horizon and resource, shape (steps, R), in scaled units."""
    fitted = CONTINUATIONS[way]().fit(moments.training, seed)
    rng = np.random.default_rng(seed)
    paths = fitted.paths(moments.held_out, moments.ends, options.steps, options.paths, rng)
    return np.asarray(crps(np.moveaxis(paths, 1, 0), moments.observed).mean(axis=0))


HORIZONS = (1, 4, 10, 20, 40)
"""Samples ahead that have a column; `mean` is over all horizons, and `by_horizon` has each."""

SIZES: Mapping[str, DensityOptions] = MappingProxyType(
    {SMALL: DensityOptions(), FULL: DensityOptions(containers=500, moments=500, paths=100)}
)


@dataclass(frozen=True, kw_only=True)
class DensityWork(AbstractStudy):
    """Fit and score one model, which `solver` names."""

    options_type = DensityOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Fit, draw, score."""
        del stop, progress
        options, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            moments = _sampled_moments(options, self.seed)
        with clock.phase("solve"):
            scores = density_scores(self.solver, moments, options, self.seed)
        by_horizon = scores.mean(axis=1)
        shown = {f"crps_{step}": float(by_horizon[step - 1]) for step in HORIZONS if step <= options.steps}
        problems = [] if np.isfinite(scores).all() else ["a score isn't finite"]
        return Finding(
            findings={**shown, "mean": float(by_horizon.mean())},
            measures={"by_horizon": by_horizon.tolist(), "by_resource": scores.mean(axis=0).tolist()},
            parameters={"moments": len(moments.ends)},
            seconds=clock.seconds,
            problems=problems,
        )


@lru_cache(maxsize=1)
def _sampled_moments(options: DensityOptions, seed: int) -> Moments:
    """Return the result of `moments_to_forecast`, cached for all models of one seed."""
    return moments_to_forecast(options, seed)


def _subjects(options: DensityOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    what = series_name(options.series, options.containers)
    yield StudySubject(name=f"{what}-{seed}", topic="phases", drawn_from=options_as_dict(options)), {}


SPEC = register_study(
    "densities",
    "phases",
    "forecast densities of containers by CRPS: CRBM compared with linear and switching autoregressions, 1 to 40 samples ahead",
    kind=DensityWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=tuple(CONTINUATIONS),
    columns=("moments", *(f"crps_{step}" for step in HORIZONS), "mean"),
)
