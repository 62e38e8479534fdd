"""Series divided into the cycles at whose starts policies decide, and their split into training, calibration and test."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_in
from optim.models.containers.series import UNKNOWN_PHASE, ContainerSeries, Resource
from optim.phases import ENCODERS, PhaseModel
from optim.phases.model import DEFAULT_ENCODER
from optim.phases.preprocessing import split_containers, to_grid

CYCLE_S = 600.0
"""Ten minutes between decisions, as in HotCloud 2020, section 4."""

POOLED_LEVEL = 0.95
"""Level of the quantile of all training samples that containers are allocated in the first cycle."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseLabels:
    """Phases of the simulated containers and of the training containers.

    A label may depend only on its sample and earlier samples. Labels can come from any source: a generator's true
    phases, a fitted model, or a rule.

    Attributes
    ----------
    labels
        Shape (T,): phase of each simulated sample, -1 where unknown.
    training
        Shape (T',): phase of each training sample, -1 where unknown.
    num_phases
        Number of phases.
    """

    labels: IntArray
    training: IntArray
    num_phases: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """Containers in cycles, sorted by decreasing length, so that the running containers are always the first ones.

    Attributes
    ----------
    resources
        The R resources.
    values
        Shape (C, K n, R): demand of C containers, with K the maximum number of cycles and n the number of samples per
        cycle; 0 after a container's end. Demand above a container's limit is capped at the limit, since no policy can
        allocate more.
    lengths
        Shape (C,): number of samples of each container, decreasing.
    group
        Shape (C,): index of each series' unit. All series of a container (it has several if it has gaps) and all
        containers of a pod belong to one unit.
    limit
        Shape (C, R): maximum allocation, infinite if unknown.
    first
        Shape (R,): allocation in the first cycle.
    cycle_samples
        Number n of samples per cycle.
    interval_s
        Seconds between samples.
    training
        Other containers, whose complete series are known to policies.
    phase
        Shape (C, K n): phase of each sample, -1 where unknown; None where no phases are known.
    training_phase
        Shape (T',): phase of each training sample; None where no phases are known.
    num_phases
        Number of phases, 0 where none are known.
    """

    resources: tuple[Resource, ...]
    values: FloatArray
    lengths: IntArray
    group: IntArray
    limit: FloatArray
    first: FloatArray
    cycle_samples: int
    interval_s: float
    training: ContainerSeries
    phase: IntArray | None = None
    training_phase: IntArray | None = None
    num_phases: int = 0

    @property
    def is_level(self) -> NDArray[np.bool_]:
        """Whether each resource is incompressible, as memory is, shape (R,)."""
        return np.array([resource.is_level for resource in self.resources])

    @property
    def num_containers(self) -> int:
        """C, the number of series."""
        return len(self.lengths)

    @property
    def num_units(self) -> int:
        """G, the number of units."""
        return int(self.group.max()) + 1

    @property
    def num_cycles(self) -> int:
        """Maximum number of cycles of a container."""
        return int(self.values.shape[1]) // self.cycle_samples

    @property
    def running(self) -> IntArray:
        """Number of running containers in each cycle, shape (K,)."""
        begins = np.arange(self.num_cycles) * self.cycle_samples
        return np.asarray((self.lengths[None, :] > begins[:, None]).sum(axis=1), dtype=np.int64)

    @property
    def samples(self) -> IntArray:
        """Number of samples of each container in each cycle, shape (C, K)."""
        begins = np.arange(self.num_cycles) * self.cycle_samples
        return np.asarray(np.clip(self.lengths[:, None] - begins, 0, self.cycle_samples), dtype=np.int64)

    @property
    def is_sample(self) -> NDArray[np.bool_]:
        """Whether the container still runs at this sample, shape (C, K, n)."""
        return np.arange(self.cycle_samples) < self.samples[:, :, None]

    @property
    def by_cycle(self) -> FloatArray:
        """Demand, shape (C, K, n, R)."""
        return self.values.reshape(self.num_containers, self.num_cycles, self.cycle_samples, -1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationTestSplit:
    """Calibration containers to tune multipliers on, and test containers; both worlds have the same training containers.

    Attributes
    ----------
    calibration, test
        Worlds of different containers, or of earlier and later times of the same containers.
    is_by_time
        Whether both worlds have the same containers, at different times, so that tuning has no guarantee.
    """

    calibration: World
    test: World
    is_by_time: bool = False


def make_world(
    series: ContainerSeries,
    training: ContainerSeries,
    phases: PhaseLabels | None = None,
    *,
    cycle_s: float = CYCLE_S,
) -> World:
    """Return a world for simulation: series divided into cycles, at whose starts policies decide.

    Parameters
    ----------
    series, training
        Containers to simulate, and training containers, on the same grid with the same resources.
    phases
        Phases of both, if any policy needs them.
    cycle_s
        Seconds between decisions.

    Raises
    ------
    InvalidProblemError
        If series and training containers aren't on one grid or differ in resources, or a cycle is shorter than an
        interval.
    """
    interval_s = series.interval_s
    if interval_s is None or training.interval_s != interval_s:
        raise InvalidProblemError(
            f"series must lie on one grid, got intervals of {interval_s} and {training.interval_s} s; resample them first"
        )
    if series.names != training.names:
        raise InvalidProblemError(f"training has resources {training.names}, the series have {series.names}")
    width = round(cycle_s / interval_s)
    if width < 1:
        raise InvalidProblemError(f"cycle_s must be at least the interval of {interval_s:g} s, got {cycle_s:g}")
    order = np.argsort(-series.lengths, kind="stable")
    longest = int(series.lengths.max())
    shape = (series.num_segments, -(-longest // width) * width)
    values = np.zeros((*shape, len(series.resources)))
    phase = np.full(shape, UNKNOWN_PHASE, dtype=np.int64)
    for place, segment in enumerate(order.tolist()):
        rows = series.rows(segment)
        values[place, : rows.stop - rows.start] = series.values[rows]
        if phases is not None:
            phase[place, : rows.stop - rows.start] = phases.labels[rows]
    limit = np.full(values[:, 0].shape, np.inf)
    if series.limit is not None:
        limit = np.where(np.isfinite(series.limit), series.limit, np.inf)[order]
    return World(
        resources=series.resources,
        values=np.minimum(values, limit[:, None]),
        lengths=series.lengths[order],
        group=series.unit_index[order],
        limit=limit,
        first=np.quantile(training.values, POOLED_LEVEL, axis=0),
        cycle_samples=width,
        interval_s=interval_s,
        training=training,
        phase=None if phases is None else phase,
        training_phase=None if phases is None else phases.training,
        num_phases=0 if phases is None else phases.num_phases,
    )


TRUTH = "truth"
"""Name of the encoder that returns the true phases of generated series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """Options of a world.

    Attributes
    ----------
    encoder
        Encoder of the phase model, or ``truth`` for the true phases of generated series.
    num_phases
        Number of phases; None to let the model choose it.
    test_share
        Fraction of containers for testing.
    calibration_share
        Fraction of the other containers for tuning multipliers; the rest is for training.
    is_by_time
        Whether to split each series by time, for a single long series: parts of its first half alternate between training and
        calibration, and its second half is for testing. Parts of one series aren't exchangeable, so there is no guarantee.
    interval_s, max_gap_s
        Seconds between grid points, and the longest gap over which a sample is repeated.
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


MIN_UNITS = 3
"""Minimum number of units: one each for training, calibration and test."""

PART_CYCLES = 6
"""Cycles per part of a series that is split by time."""

Parts = tuple[ContainerSeries, ContainerSeries, ContainerSeries]


def split_series(series: ContainerSeries, options: WorldOptions, seed: int) -> Parts:
    """Return training, calibration and test containers on the grid.

    Raises
    ------
    InvalidProblemError
        If there are fewer than three units, since training, calibration and test must not share units.
    """
    grid = to_grid(series, options.interval_s, options.max_gap_s).series
    if options.is_by_time:
        return _split_by_time(grid, options)
    if grid.unit_index.max() + 1 < MIN_UNITS:
        raise InvalidProblemError(
            "at least three containers of different pods are needed, for training, calibration and test; if there are fewer, "
            "split long series by time (--by-time)"
        )
    rng = np.random.default_rng(seed)
    known, held_out = split_containers(grid, options.test_share, rng)
    others = grid.select(known)
    learned, tuned = split_containers(others, options.calibration_share, rng)
    return others.select(learned), others.select(tuned), grid.select(held_out)


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
            f"no series has {2 * PART_CYCLES} cycles in the half for training; use longer series, or shorter cycles"
        )
    learned, tuned, held_out = (_cut(grid, part) for part in pieces)
    return learned, tuned, held_out


def _cut(grid: ContainerSeries, pieces: list[slice]) -> ContainerSeries:
    """Return pieces of series as separate containers."""
    rows = np.concatenate([np.arange(piece.start, piece.stop) for piece in pieces])
    segment = grid.segment[[piece.start for piece in pieces]]
    return replace(
        grid,
        containers=tuple(
            f"{grid.containers[owner]} from {piece.start}" for owner, piece in zip(segment, pieces, strict=True)
        ),
        lengths=np.array([piece.stop - piece.start for piece in pieces], dtype=np.int64),
        values=grid.values[rows],
        time_s=grid.time_s[rows],
        phase=None if grid.phase is None else grid.phase[rows],
        limit=None if grid.limit is None else grid.limit[segment],
        kills=None if grid.kills is None else grid.kills[rows],
        units={},
    )


def prepare_split(
    series: ContainerSeries, options: WorldOptions, seed: int, *, has_phases: bool = True
) -> CalibrationTestSplit:
    """Split series, and create worlds of the calibration and of the test containers.

    Parameters
    ----------
    series
        Any containers.
    options
        Options of the split and of the worlds.
    seed
        Seed of the split and of the phase model.
    has_phases
        Whether any policy needs phases; if not, no model is fitted.

    Raises
    ------
    InvalidProblemError
        If true phases are requested but unknown, or there are too few containers.
    """
    training, tuned, test = split_series(series, options, seed)
    phases = find_phases(training, (tuned, test), options, seed) if has_phases else (None, None)
    worlds = [
        make_world(part, training, labels, cycle_s=options.cycle_s)
        for part, labels in zip((tuned, test), phases, strict=True)
    ]
    return CalibrationTestSplit(calibration=worlds[0], test=worlds[1], is_by_time=options.is_by_time)


def find_phases(
    training: ContainerSeries, parts: Sequence[ContainerSeries], options: WorldOptions, seed: int
) -> tuple[PhaseLabels, ...]:
    """Return the phases of each of `parts` and of the training series, from a model fitted on the training series only."""
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
        raise InvalidProblemError("the true phases of the series are unknown; choose another encoder")
    return series.phase
