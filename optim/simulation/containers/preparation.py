"""From series to a world: split the containers, find phases on one part, label the other."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.ranges import check_in
from optim.models.containers.series import ContainerSeries
from optim.phases import ENCODERS, PhaseModel
from optim.phases.estimator import DEFAULT_ENCODER
from optim.phases.grid import to_grid
from optim.phases.windows import split_containers
from optim.simulation.containers.world import CYCLE_S, PhaseLabels, World, make_world

TRUTH = "truth"
"""Stands for the true phases of series that know them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """How a world is made.

    Attributes
    ----------
    encoder
        Encoder of the phase model, or ``truth`` for the true phases of generated series.
    num_phases
        Number of phases; None leaves it to the model.
    test_share
        Share of containers that policies run on; phases and statistics are learned on the others.
    interval_s, max_gap_s
        Grid, and the longest gap that is bridged.
    cycle_s
        Seconds between decisions.
    """

    encoder: str = DEFAULT_ENCODER
    num_phases: int | None = None
    test_share: float = 0.2
    interval_s: float = 15.0
    max_gap_s: float = 60.0
    cycle_s: float = CYCLE_S

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.encoder != TRUTH and self.encoder not in ENCODERS:
            known = ", ".join((*ENCODERS, TRUTH))
            raise InvalidOptionError(f"encoder must be one of {known}, got {self.encoder!r}")
        check_in("(0, 1)", self, "test_share")
        check_in("(0, inf)", self, "cycle_s")


def split_series(series: ContainerSeries, options: WorldOptions, seed: int) -> tuple[ContainerSeries, ContainerSeries]:
    """Return training and test containers on the grid.

    Raises
    ------
    InvalidProblemError
        If all containers are one unit: nothing would be learned on others.
    """
    grid = to_grid(series, options.interval_s, options.max_gap_s).series
    if grid.unit_index.max() < 1:
        raise InvalidProblemError(
            "at least two containers of different pods are needed, one to learn from; the series have one pod or container"
        )
    learned, held = split_containers(grid, options.test_share, np.random.default_rng(seed))
    return grid.select(learned), grid.select(held)


def prepare_world(series: ContainerSeries, options: WorldOptions, seed: int, *, has_phases: bool = True) -> World:
    """Split series and make a world of the test containers.

    Parameters
    ----------
    series
        Any containers.
    options
        How.
    seed
        Of the split and of the phase model.
    has_phases
        Whether any policy needs phases; if not, no model is fitted.

    Raises
    ------
    InvalidProblemError
        If true phases are asked for and unknown, or there are too few containers.
    """
    training, test = split_series(series, options, seed)
    phases = find_phases(training, test, options, seed) if has_phases else None
    return make_world(test, training, phases, cycle_s=options.cycle_s)


def find_phases(training: ContainerSeries, test: ContainerSeries, options: WorldOptions, seed: int) -> PhaseLabels:
    """Return phases of both parts, from a model that has seen the training part only."""
    if options.encoder == TRUTH:
        if training.phase is None or test.phase is None:
            raise InvalidProblemError("the series don't know their true phases; choose another encoder")
        return PhaseLabels(labels=test.phase, training=training.phase, num_phases=len(training.phase_names))
    model = PhaseModel(
        encoder=options.encoder,
        num_phases=options.num_phases,
        interval_s=options.interval_s,
        max_gap_s=options.max_gap_s,
        seed=seed,
    ).fit(training)
    return PhaseLabels(labels=model.predict(test), training=model.predict(training), num_phases=model.num_phases_)
