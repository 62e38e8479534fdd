"""Generator of a Themis cluster's workload: apps of tuning trials that arrive over time."""

from dataclasses import dataclass

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, check_in
from optim.models.auction.data import COMPUTE_BOUND, NETWORK_BOUND, Slowdown
from optim.models.cluster.workload import PPM, US, Workload

MINUTE_US, HOUR_MIN = 60 * US, 60.0

TRIALS_SHARE, TRIALS_LEAST = (0.0, 0.2, 0.35, 0.5, 1.0), (1.0, 6.0, 21.0, 81.0, 101.0)
"""Distribution of an app's number of trials: levels, and the quantile at each level, interpolated and rounded down."""

TASK_SHARE, TASK_MIN = (0.0, 0.1, 0.5, 0.8, 0.95, 1.0), (20.0, 80.0, 240.0, 380.0, 600.0, 1600.0)
"""Distribution of a trial's run time in minutes: levels, and the quantile at each level; the minimum is an assumption."""

TYPICAL_MIN, TYPICAL_SPREAD = 240.0, 0.35
"""An app prefers gang sizes that bring its mean trial near the first number (minutes); the second is the standard
deviation of the logarithm."""

MEDIAN_WORK_H, WORK_SIGMA, MAX_WORK_H = 250.0, 0.7, 730.0
"""An app's GPU-hours, log-normal, with the paper's median and maximum."""

GANGS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisOptions:
    """Size and shape of the workload.

    Parameters
    ----------
    apps
        Number of apps.
    gap_min
        Mean minutes between two arrivals, exponential.
    network_share
        Share of the apps whose training is bound by the network instead of computation.
    alignment
        Correlation between an app's number of trials and its GPU-hours.
    gang
        GPUs of every trial; 0 to draw each app's size from 1, 2, 4 and 8.

    Raises
    ------
    InvalidOptionError
        If an option is out of its range.
    """

    apps: int = 100
    gap_min: float = 20.0
    network_share: float = 0.4
    alignment: float = 0.8
    gang: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[1, 100000]", self, "apps")
        check_in("[0, 1e6]", self, "gap_min")
        check_in("[0, 1]", self, "network_share", "alignment")
        check_in("[0, 1024]", self, "gang")
        if not isinstance(self.gang, int):
            raise InvalidOptionError(f"gang must be an integer, got {self.gang}")


def draw_apps(options: ThemisOptions, seed: int) -> Workload:
    """Generate apps and their trials; an app submits all of its trials at its arrival.

    Each trial gets a part of its app's GPU-hours, in proportion to a draw from the quantiles of run times.

    Parameters
    ----------
    options
        Size and shape.
    seed
        Equal options and seeds give equal workloads.

    Notes
    -----
    The paper's three distributions are incompatible with independent draws: half of the apps have more than 80 trials
    of 280 minutes on average, and thus 373 GPU-hours, but the median app has 250. Apps with more trials therefore have
    more GPU-hours (`alignment`). The trials are still shorter than published (median 165 minutes instead of 240); the
    numbers of trials and the GPU-hours per app match the paper.

    References
    ----------
    Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020, figures 2-4.

    Examples
    --------
    >>> draw_apps(ThemisOptions(apps=3), seed=0).app.max()
    np.int64(2)
    """
    arrival_rng, size_rng, trial_rng, kind_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(4))
    gaps = arrival_rng.exponential(options.gap_min, options.apps)
    arrival_min = np.cumsum(gaps) - gaps[0]
    trials, work_h = _sizes(options, size_rng)
    gang = _gangs(options, trials, work_h, size_rng)
    app = np.repeat(np.arange(options.apps), trials)
    drawn = np.exp(np.interp(trial_rng.random(len(app)), TASK_SHARE, np.log(TASK_MIN)))
    of_app = np.bincount(app, weights=drawn)
    duration_min = np.minimum(drawn * (work_h * HOUR_MIN / gang / of_app)[app], TASK_MIN[-1])
    is_network = kind_rng.random(options.apps) < options.network_share
    slowdowns = np.array([levels_ppm(COMPUTE_BOUND), levels_ppm(NETWORK_BOUND)])
    number = np.arange(len(app)) - np.repeat(np.cumsum(trials) - trials, trials)
    return Workload(
        submit_us=np.rint(arrival_min * MINUTE_US).astype(np.int64)[app],
        gpus=gang[app],
        duration_us=np.maximum(1, np.rint(duration_min * MINUTE_US)).astype(np.int64),
        slowdown_ppm=slowdowns[is_network.astype(np.int64)][app],
        app=app,
        ids=tuple(f"a{a}.{n}" for a, n in zip(app.tolist(), number.tolist(), strict=True)),
    )


def levels_ppm(slowdown: Slowdown) -> list[int]:
    """Return the slowdowns of a gang that fits one machine, one rack, or only the cluster, in parts per million."""
    return [round(PPM * value / slowdown.slot) for value in (slowdown.slot, slowdown.rack, slowdown.cluster)]


def _sizes(options: ThemisOptions, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Return the number of trials and the GPU-hours of each app."""
    common, own = rng.standard_normal((2, options.apps))
    rank = (np.argsort(np.argsort(common)) + rng.random(options.apps)) / options.apps
    trials = np.interp(rank, TRIALS_SHARE, TRIALS_LEAST).astype(np.int64)
    score = options.alignment * common + np.sqrt(1 - options.alignment**2) * own
    return trials, np.minimum(MEDIAN_WORK_H * np.exp(WORK_SIGMA * score), MAX_WORK_H)


def _gangs(options: ThemisOptions, trials: IntArray, work_h: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw each app's gang size; a size is the likelier, the nearer it brings the mean run time of a trial to `TYPICAL_MIN`."""
    if options.gang:
        return np.full(options.apps, options.gang, np.int64)
    minutes = work_h[:, None] * HOUR_MIN / trials[:, None] / np.array(GANGS)
    weight = np.exp(-(np.log(minutes / TYPICAL_MIN) ** 2) / (2 * TYPICAL_SPREAD**2)) + 1e-12
    chance = np.cumsum(weight, axis=1) / weight.sum(axis=1, keepdims=True)
    chosen: IntArray = (rng.random(options.apps)[:, None] > chance[:, :-1]).sum(axis=1)
    return np.asarray(np.array(GANGS, np.int64)[chosen])
