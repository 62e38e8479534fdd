"""Phases from training series: what is held out, how many clusters there are, and in which order they come."""

import warnings
from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import ContainerSeries, FloatArray, Resource
from optim.phases.clustering import CountRow, assign, choose_count, cluster_order, fit_clusters
from optim.phases.coding import Coding
from optim.phases.windows import split_containers

HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSplit:
    """Series on the grid, for a fit.

    Attributes
    ----------
    training
        What scaling, encoder and clusters are fitted to.
    held
        What decides on the number of phases and the order of changes, and calibrates.
    every
        Both, in their order.
    """

    training: ContainerSeries
    held: ContainerSeries
    every: ContainerSeries


def split_grid(grid: ContainerSeries, interval_s: float, delays: int, rng: np.random.Generator) -> TrainingSplit:
    """Hold out a fifth of the containers; where one alone is long enough, both sides are all of them.

    Parameters
    ----------
    grid
        On a grid of `interval_s`.
    delays
        Samples of history that a container needs to tell anything.

    Raises
    ------
    InvalidProblemError
        If no segment has more samples than that.
    """
    if grid.lengths.max() <= delays:
        raise InvalidProblemError(
            f"no series has more than {delays} samples at {interval_s:g} s without a gap; "
            "give longer series, a shorter interval or fewer delays"
        )
    training, held = (grid.select(part) for part in split_containers(grid, HELD_OUT_SHARE, rng, delays + 1))
    return TrainingSplit(training=training, held=held, every=grid)


def find_clusters(
    coding: Coding, split: TrainingSplit, num_phases: int | None, resources: tuple[Resource, ...], seed: int
) -> tuple[FloatArray, FloatArray, tuple[CountRow, ...]]:
    """Cluster the training codes and order the clusters by what all containers consume in them.

    Parameters
    ----------
    coding
        Fitted to the training side.
    num_phases
        K; None for what `choose_count` finds, with a warning where no number gains and is stable.
    resources
        Of the series.
    seed
        Of the clusters' first centres.

    Returns
    -------
    tuple
        Centres, shape (K, width); training codes of each, shape (K,); what the rule for their number saw, empty where
        the number was given.
    """
    codes, rows = coding.codes(split.training)
    owner = split.training.owner[rows]
    number = num_phases
    count_rows: tuple[CountRow, ...] = ()
    if number is None:
        held_codes, _ = coding.codes(split.held)
        number, count_rows = choose_count(codes, owner, held_codes, seed)
        if not any(row.passes for row in count_rows):
            warnings.warn(
                "no number of phases gains and is stable; 2 are used: give num_phases, or another encoder",
                stacklevel=3,
            )
    centres = fit_clusters(codes, number, seed)
    every, where = coding.codes(split.every)
    centres = centres[cluster_order(split.every.values[where], assign(every, centres), number, resources)]
    weights = np.bincount(assign(codes, centres), minlength=number).astype(np.float64)
    return centres, weights, count_rows
