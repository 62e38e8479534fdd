"""The series that policies run on, in cycles, all containers side by side."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import UNKNOWN_PHASE, ContainerSeries, FloatArray, IntArray, Resource

CYCLE_S = 600.0
"""Ten minutes between decisions, as in HotCloud 2020, section 4."""

POOLED_LEVEL = 0.95
"""In the first cycle nothing is known of a container: it gets this quantile of all training samples."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseLabels:
    """Phases of the containers that are simulated, and of those that statistics are taken from.

    A label must follow from its own and earlier samples only. Whoever finds phases can fill this: the truth of a
    generator, a fitted model, a rule.

    Attributes
    ----------
    labels
        Shape (T,): phase of each simulated sample, -1 where unknown.
    training
        Shape (T',): likewise of the training samples.
    num_phases
        K.
    """

    labels: IntArray
    training: IntArray
    num_phases: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """Containers in cycles; the longest container first, so that those still running are always the first ones.

    Attributes
    ----------
    resources
        R resources.
    values
        Shape (C, K n, R): demand, K the most cycles of any container and n the samples of a cycle; 0 after a
        container's end. Demand above a container's limit counts as the limit: what is never given is no policy's harm.
    lengths
        Shape (C,): samples of each container, falling.
    group
        Shape (C,): number of the unit that a series belongs to: its container, which is several series where it has gaps, or the
        pod of several containers.
    limit
        Shape (C, R): most that may be allocated, infinite where unknown.
    first
        Shape (R,): allocation in the first cycle, before anything is known.
    cycle_samples
        n.
    interval_s
        Seconds between samples.
    training
        Other containers, whose whole series are known beforehand.
    phase
        Shape (C, K n): phase of each sample, -1 where unknown; None where no phases are known.
    training_phase
        Shape (T',): phase of each training sample; None likewise.
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
        """Whether each resource is held, as memory is, shape (R,)."""
        return np.array([resource.is_level for resource in self.resources])

    @property
    def num_containers(self) -> int:
        """C."""
        return len(self.lengths)

    @property
    def num_cycles(self) -> int:
        """Most cycles of any container."""
        return int(self.values.shape[1]) // self.cycle_samples

    @property
    def running(self) -> IntArray:
        """Containers that run in each cycle, shape (K,)."""
        begins = np.arange(self.num_cycles) * self.cycle_samples
        return np.asarray((self.lengths[None, :] > begins[:, None]).sum(axis=1), dtype=np.int64)

    @property
    def samples(self) -> IntArray:
        """Samples of each container in each cycle, shape (C, K)."""
        begins = np.arange(self.num_cycles) * self.cycle_samples
        return np.asarray(np.clip(self.lengths[:, None] - begins, 0, self.cycle_samples), dtype=np.int64)

    @property
    def is_sample(self) -> NDArray[np.bool_]:
        """Whether there is a sample, shape (C, K, n)."""
        return np.arange(self.cycle_samples) < self.samples[:, :, None]

    @property
    def by_cycle(self) -> FloatArray:
        """Demand, shape (C, K, n, R)."""
        return self.values.reshape(self.num_containers, self.num_cycles, self.cycle_samples, -1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trial:
    """Containers that multipliers are tuned on, and others that the tuned policies run on; both know the same training.

    Attributes
    ----------
    calibration, test
        Worlds of different containers.
    is_by_time
        Whether they are parts of the same series, so that tuning guarantees nothing.
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
    """Lay series out in cycles.

    Parameters
    ----------
    series, training
        On the same grid, with the same resources; containers that are simulated, and others that are known.
    phases
        Phases of both, if any policy needs them.
    cycle_s
        Seconds between decisions.

    Raises
    ------
    InvalidProblemError
        If series aren't on a grid, differ in resources, or have shorter cycles than intervals.
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
