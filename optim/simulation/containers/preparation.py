"""From series to a world: split the containers, find phases on one part, label the other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.ranges import check_in
from optim.models.containers.series import ContainerSeries, IntArray
from optim.phases import ENCODERS, PhaseModel
from optim.phases.estimator import DEFAULT_ENCODER
from optim.phases.grid import to_grid
from optim.phases.windows import split_containers
from optim.simulation.containers.world import CYCLE_S, PhaseLabels, Trial, make_world

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
        Share of containers that policies run on.
    calibration_share
        Share of the others that multipliers are tuned on; phases and statistics are learned on the rest.
    is_by_time
        Whether the first half of each series is learned from and tuned on instead, in parts that take turns, and policies
        run on the second half: for a single long series. Parts of one series aren't exchangeable: nothing is guaranteed.
    interval_s, max_gap_s
        Grid, and the longest gap that is bridged.
    cycle_s
        Seconds between decisions.
    """

    encoder: str = DEFAULT_ENCODER
    num_phases: int | None = None
    test_share: float = 0.2
    calibration_share: float = 0.5
    is_by_time: bool = False
    interval_s: float = 15.0
    max_gap_s: float = 60.0
    cycle_s: float = CYCLE_S

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.encoder != TRUTH and self.encoder not in ENCODERS:
            known = ", ".join((*ENCODERS, TRUTH))
            raise InvalidOptionError(f"encoder must be one of {known}, got {self.encoder!r}")
        check_in("(0, 1)", self, "test_share", "calibration_share")
        check_in("(0, inf)", self, "cycle_s")


LEAST_UNITS = 3
"""One to learn from, one to tune on, one to test on."""

PART_CYCLES = 6
"""Cycles of a part of a series that is split by time."""

Parts = tuple[ContainerSeries, ContainerSeries, ContainerSeries]


def split_series(series: ContainerSeries, options: WorldOptions, seed: int) -> Parts:
    """Return containers on the grid to learn from, to tune on and to test on.

    Raises
    ------
    InvalidProblemError
        If there are fewer than three units: what is tuned or tested must not be learned from.
    """
    grid = to_grid(series, options.interval_s, options.max_gap_s).series
    if options.is_by_time:
        return _split_by_time(grid, options)
    if grid.unit_index.max() + 1 < LEAST_UNITS:
        raise InvalidProblemError(
            "at least three containers of different pods are needed, to learn from, to tune on and to test on; for fewer, "
            "long ones split by time (--by-time)"
        )
    rng = np.random.default_rng(seed)
    known, held = split_containers(grid, options.test_share, rng)
    others = grid.select(known)
    learned, tuned = split_containers(others, options.calibration_share, rng)
    return others.select(learned), others.select(tuned), grid.select(held)


def _split_by_time(grid: ContainerSeries, options: WorldOptions) -> Parts:
    width = max(1, round(options.cycle_s / options.interval_s)) * PART_CYCLES
    pieces: tuple[list[slice], list[slice], list[slice]] = ([], [], [])
    for rows in grid.segments():
        half = rows.start + (rows.stop - rows.start) // 2
        for place, start in enumerate(range(rows.start, half, width)):
            pieces[place % 2].append(slice(start, min(start + width, half)))
        pieces[2].append(slice(half, rows.stop))
    if not pieces[1]:
        raise InvalidProblemError(
            f"half of no series has {2 * PART_CYCLES} cycles to learn from; give longer ones, or shorter cycles"
        )
    learned, tuned, held = (_cut(grid, own) for own in pieces)
    return learned, tuned, held


def _cut(grid: ContainerSeries, pieces: list[slice]) -> ContainerSeries:
    """Return pieces of series as containers of their own."""
    rows = np.concatenate([np.arange(piece.start, piece.stop) for piece in pieces])
    segment = grid.segment[[piece.start for piece in pieces]]
    return replace(
        grid,
        containers=tuple(
            f"{grid.containers[own]} from {piece.start}" for own, piece in zip(segment, pieces, strict=True)
        ),
        lengths=np.array([piece.stop - piece.start for piece in pieces], dtype=np.int64),
        values=grid.values[rows],
        time_s=grid.time_s[rows],
        phase=None if grid.phase is None else grid.phase[rows],
        limit=None if grid.limit is None else grid.limit[segment],
        units={},
    )


def prepare_trial(series: ContainerSeries, options: WorldOptions, seed: int, *, has_phases: bool = True) -> Trial:
    """Split series, and make worlds of the containers to tune and to test on.

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
    training, tuned, test = split_series(series, options, seed)
    phases = find_phases(training, (tuned, test), options, seed) if has_phases else (None, None)
    worlds = [
        make_world(part, training, own, cycle_s=options.cycle_s)
        for part, own in zip((tuned, test), phases, strict=True)
    ]
    return Trial(calibration=worlds[0], test=worlds[1], is_by_time=options.is_by_time)


def find_phases(
    training: ContainerSeries, parts: Sequence[ContainerSeries], options: WorldOptions, seed: int
) -> tuple[PhaseLabels, ...]:
    """Return phases of each of some parts and of the training part, from a model that has seen the training part only."""
    if options.encoder == TRUTH:
        number = len(training.phase_names)
        return tuple(PhaseLabels(labels=_truth(part), training=_truth(training), num_phases=number) for part in parts)
    model = PhaseModel(
        encoder=options.encoder,
        num_phases=options.num_phases,
        interval_s=options.interval_s,
        max_gap_s=options.max_gap_s,
        seed=seed,
    ).fit(training)
    known, number = model.predict(training), model.num_phases_
    return tuple(PhaseLabels(labels=model.predict(part), training=known, num_phases=number) for part in parts)


def _truth(series: ContainerSeries) -> IntArray:
    if series.phase is None:
        raise InvalidProblemError("the series don't know their true phases; choose another encoder")
    return series.phase
