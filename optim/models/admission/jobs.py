"""What an admission instance is made of: classes of servers, and jobs, as exact integers in arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import ComparesByValue, derived, freeze_arrays, read_only, whole_numbers
from optim.models.admission.utility import Utility

MICRO = 1_000_000
"""Resource quantities are integers of 1/MICRO units."""

MAX_QUANTITY = 10**9
"""Largest quantity in a file, in its own unit: keeps every product within 64 bits."""

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerClasses(ComparesByValue):
    """Classes of identical servers.

    Parameters
    ----------
    types
        Name of each class.
    capacity
        Shape (classes, slots, resources), 1e-6 units of each resource.
    count
        Shape (classes,): how many servers of each class there are.
    """

    types: tuple[str, ...]
    capacity: IntArray
    count: IntArray

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.types)

    @derived
    def class_of_server(self) -> IntArray:
        """Class of each single server, in the order that plans number servers."""
        return np.repeat(np.arange(self.num_classes), self.count)

    @property
    def num_servers(self) -> int:
        """Number of single servers over all classes."""
        return int(self.count.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Jobs(ComparesByValue):
    """All jobs, one array a field.

    Parameters
    ----------
    ids
        Unique names.
    arrival
        Slot of arrival; a job may start in it. Shape (jobs,).
    epochs, chunks, minibatches
        E, N (also the most workers at once) and M (a chunk). Shape (jobs,).
    minibatch_micro_s, gradient_micro_mb, worker_micro_mbps, ps_micro_mbps
        tau, e, b, B in 1e-6 of seconds, megabytes, megabits a second. Shape (jobs,).
    segment_offset
        Shape (jobs + 1,): the demand segments of job i are ``segment_offset[i]:segment_offset[i+1]``.
    segment_start
        Shape (segments,): worker-slots already done from which a segment's demands hold; 0 first.
    worker_demand, ps_demand
        Shape (segments, resources), 1e-6 units a worker and a PS.
    utilities
        One function of the delay a job.
    min_utility
        Shape (jobs,): smallest utility still accepted, in utils; later completions earn nothing.
        NaN where the instance's default (a share of f(0)) holds.
    speedup
        A table a job: how many times as fast as one worker 1, 2, ... of them are, in twentieths; an empty table is linear
        speed, and none at all linear speed of all jobs.
    """

    ids: tuple[str, ...]
    arrival: IntArray
    epochs: IntArray
    chunks: IntArray
    minibatches: IntArray
    minibatch_micro_s: IntArray
    gradient_micro_mb: IntArray
    worker_micro_mbps: IntArray
    ps_micro_mbps: IntArray
    segment_offset: IntArray
    segment_start: IntArray
    worker_demand: IntArray
    ps_demand: IntArray
    utilities: tuple[Utility, ...]
    min_utility: FloatArray
    speedup: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __len__(self) -> int:
        return len(self.ids)


def as_int_array(values: Sequence[int] | Sequence[Sequence[int]]) -> IntArray:
    """Return a read-only int64 array."""
    array: IntArray = read_only(whole_numbers(values, "an instance's counts"))
    return array
