"""Series of many containers in one ragged array without padding."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError

UNKNOWN_PHASE = -1
"""Label of a sample without a phase, for lack of history or of a true phase."""

MAX_VALUE = 1e100
"""Largest sample; squares of larger ones could overflow."""


AT_LIMIT = 0.95
"""Share of the limit from which on memory counts as at the limit, since samples rarely show the peak before a kill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A measured resource.

    Attributes
    ----------
    name
        Name in commands and tables: ``cpu``, ``memory``, ``network``.
    unit
        Unit: ``cores``, ``GiB``, ``MB/s``.
    is_level
        Whether the resource is incompressible, such as memory, instead of a rate, such as CPU or network.
    """

    name: str
    unit: str = ""
    is_level: bool = False


CPU = Resource(name="cpu", unit="cores")

MEMORY = Resource(name="memory", unit="GiB", is_level=True)

NETWORK = Resource(name="network", unit="MB/s")

KNOWN_RESOURCES: Mapping[str, Resource] = MappingProxyType(
    {resource.name: resource for resource in (CPU, MEMORY, NETWORK)}
)


class Segmented:
    """Rows of consecutive segments; subclasses have these two fields.

    Attributes
    ----------
    values
        Shape (T, R): one row per sample, one column per resource.
    lengths
        Shape (S,): number of rows of each segment.
    """

    __slots__ = ()
    values: FloatArray
    lengths: IntArray

    @property
    def starts(self) -> IntArray:
        """First row of each segment, shape (S,)."""
        return np.asarray(np.cumsum(self.lengths) - self.lengths, dtype=np.int64)

    @property
    def segment(self) -> IntArray:
        """Segment of each row, shape (T,)."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def place(self) -> IntArray:
        """Number of rows before each row in its segment, shape (T,)."""
        return np.asarray(np.arange(len(self.values)) - self.starts[self.segment], dtype=np.int64)

    def ends(self, num_delays: int) -> IntArray:
        """Return the rows with at least `num_delays` earlier rows in their segment, increasing."""
        return np.flatnonzero(self.place >= num_delays)

    def windows(self, num_delays: int) -> FloatArray:
        """Return the windows that end at `ends`, oldest row first, shape (n, num_delays + 1, R)."""
        rows = self.ends(num_delays)[:, None] + np.arange(-num_delays, 1)
        return np.asarray(self.values[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContainerSeries(Segmented):
    """Consumption of many containers over time, in consecutive segments.

    A container has one segment, or several if its series has gaps.

    Attributes
    ----------
    resources
        The R resources, in the order of the columns of `values`.
    containers
        Name of each segment's container, S names; segments of a container are adjacent.
    lengths
        Shape (S,): number of samples of each segment, at least one.
    values
        Shape (T, R): consumption, T the sum of all lengths; not negative, at most 1e100.
    time_s
        Shape (T,): time stamps in seconds, increasing within a segment. A sample's value holds for the interval that
        begins at its time stamp.
    interval_s
        Seconds between samples on a grid; None for irregular time stamps.
    phase
        Shape (T,): true phase of each sample, -1 for unknown; None without true phases.
    phase_names
        Names of the true phases 0, 1, ...; empty without true phases.
    limit
        Shape (S, R): limit of each container, NaN for unknown; None if all are unknown.
    kills
        Shape (T, R): kills for lack of an incompressible resource between a sample and the next, NaN for unknown; None if all
        are unknown.
    units
        Unit (pod) of each container by name; other containers are separate units. Splits of the data keep units
        together.
    remarks
        Remarks of the function that read the data, on omitted data and ambiguities.

    Raises
    ------
    InvalidProblemError
        If shapes don't match, or a value is negative, not finite or above 1e100.
    """

    resources: tuple[Resource, ...]
    containers: tuple[str, ...]
    lengths: IntArray
    values: FloatArray
    time_s: FloatArray
    interval_s: float | None = None
    phase: IntArray | None = None
    phase_names: tuple[str, ...] = ()
    limit: FloatArray | None = None
    kills: FloatArray | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check shapes and values of the arrays."""
        total, width = int(self.lengths.sum()), len(self.resources)
        shapes = {"values": (self.values.shape, (total, width)), "time_s": (self.time_s.shape, (total,))}
        if self.phase is not None:
            shapes["phase"] = (self.phase.shape, (total,))
        if self.kills is not None:
            shapes["kills"] = (self.kills.shape, (total, width))
        if self.limit is not None:
            shapes["limit"] = (self.limit.shape, (len(self.containers), width))
        shapes["lengths"] = (self.lengths.shape, (len(self.containers),))
        for name, (shape, expected) in shapes.items():
            if shape != expected:
                raise InvalidProblemError(f"{name} must have shape {expected}, got {shape}")
        if len({resource.name for resource in self.resources}) != width or width == 0:
            raise InvalidProblemError("series need at least one resource, and resources need distinct names")
        if (self.lengths < 1).any():
            raise InvalidProblemError("a segment must have at least one sample; leave empty containers out")
        self._check_samples()

    def _check_samples(self) -> None:
        bad = ~(self.values <= MAX_VALUE) | (self.values < 0)
        for row, column in np.argwhere(bad)[:1]:
            name, value = self.resources[column].name, self.values[row, column]
            raise InvalidProblemError(
                f"{name} of container {self.containers[self.segment[row]]!r} must be finite, at most {MAX_VALUE:g} and not "
                f"negative, got {value:g}; give it in a larger unit, or leave the sample out"
            )
        step = np.diff(self.time_s) <= 0
        step[self.starts[1:] - 1] = False
        for row in np.flatnonzero(step)[:1]:
            raise InvalidProblemError(
                f"time stamps of container {self.containers[self.segment[row]]!r} must increase, got "
                f"{self.time_s[row]:.17g} before {self.time_s[row + 1]:.17g}; sort the samples and drop duplicates"
            )

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, ArrayLike], resources: Sequence[str | Resource], interval_s: float
    ) -> "ContainerSeries":
        """Return series of regular samples.

        Parameters
        ----------
        arrays
            Samples of each container by its name: shape (samples, R), any number of samples.
        resources
            The R resources. ``cpu``, ``memory`` and ``network`` have known units (cores, GiB, MB/s); other names are rates
            without a unit unless given as a `Resource`.
        interval_s
            Seconds between samples.

        Raises
        ------
        InvalidProblemError
            If there is no container, an array has another shape, or a value is negative or not finite.

        Examples
        --------
        >>> made = ContainerSeries.from_arrays({"a": [[0.5, 1.0], [0.7, 1.1]]}, ("cpu", "memory"), interval_s=15.0)
        >>> made.values.shape
        (2, 2)
        """
        known = tuple(
            KNOWN_RESOURCES.get(resource, Resource(name=resource)) if isinstance(resource, str) else resource
            for resource in resources
        )
        parts = {name: np.asarray(values, dtype=np.float64) for name, values in arrays.items()}
        if not parts:
            raise InvalidProblemError("series need at least one container")
        for name, values in parts.items():
            if values.ndim != 2 or values.shape[1] != len(known):
                raise InvalidProblemError(
                    f"container {name!r} must have shape (samples, {len(known)}), one column per resource, got {values.shape}"
                )
        lengths = np.array([len(values) for values in parts.values()], dtype=np.int64)
        return cls(
            resources=known,
            containers=tuple(parts),
            lengths=lengths,
            values=np.concatenate(list(parts.values())),
            time_s=np.concatenate([np.arange(length) * float(interval_s) for length in lengths.tolist()]),
            interval_s=float(interval_s),
        )

    @property
    def num_segments(self) -> int:
        """Number of segments, S."""
        return len(self.containers)

    @property
    def num_samples(self) -> int:
        """Number of samples, T."""
        return int(self.values.shape[0])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the resources."""
        return tuple(resource.name for resource in self.resources)

    @property
    def owner(self) -> IntArray:
        """Index of each row's container, in the numbering of `container_index`; shape (T,)."""
        return np.repeat(self.container_index, self.lengths)

    @property
    def container_index(self) -> IntArray:
        """Index of each segment's container, with containers numbered in order of appearance; shape (S,)."""
        number = {name: place for place, name in enumerate(dict.fromkeys(self.containers))}
        return np.array([number[name] for name in self.containers], dtype=np.int64)

    @property
    def unit_index(self) -> IntArray:
        """Index of the unit of each segment's container, with units numbered in order of appearance; shape (S,)."""
        units = [("unit", self.units[name]) if name in self.units else ("container", name) for name in self.containers]
        number = {unit: place for place, unit in enumerate(dict.fromkeys(units))}
        return np.array([number[unit] for unit in units], dtype=np.int64)

    def rows(self, segment: int) -> slice:
        """Return the rows of a segment."""
        start = int(self.starts[segment])
        return slice(start, start + int(self.lengths[segment]))

    def segments(self) -> Iterator[slice]:
        """Yield the rows of each segment in turn."""
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield slice(start, start + length)

    def select(self, chosen: Sequence[int] | IntArray) -> "ContainerSeries":
        """Return some segments, in the order given."""
        segments_chosen = np.asarray(chosen, dtype=np.int64)
        rows = np.concatenate([np.arange(self.rows(k).start, self.rows(k).stop) for k in segments_chosen.tolist()])
        return replace(
            self,
            containers=tuple(self.containers[k] for k in segments_chosen.tolist()),
            lengths=self.lengths[segments_chosen],
            values=self.values[rows],
            time_s=self.time_s[rows],
            phase=None if self.phase is None else self.phase[rows],
            limit=None if self.limit is None else self.limit[segments_chosen],
            kills=None if self.kills is None else self.kills[rows],
        )

    def select_resources(self, names: Sequence[str]) -> "ContainerSeries":
        """Return the named resources only, in the order given.

        Raises
        ------
        InvalidProblemError
            If a resource is missing.
        """
        for name in names:
            if name not in self.names:
                raise InvalidProblemError(
                    f"the series have no resource {name!r}; choose from their resources: {', '.join(self.names)}"
                )
        columns = [self.names.index(name) for name in names]
        return replace(
            self,
            resources=tuple(self.resources[column] for column in columns),
            values=self.values[:, columns],
            limit=None if self.limit is None else self.limit[:, columns],
            kills=None if self.kills is None else self.kills[:, columns],
        )
