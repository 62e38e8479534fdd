"""The data of an admission problem, as exact integers in arrays over jobs and server classes.

Notation (docs/mathematics/admission.md; Bao, Peng, Wu, Li, INFOCOM 2018): job ``i``, slot ``t``, worker server
``h``, parameter server (PS) host ``k``, resource ``r``. All resource quantities are integers of 1e-6
units, so that feasibility is decided without rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optim.models.admission.speedup import TWENTIETHS, curve_of, progress_by_workers
from optim.models.admission.utility import Utility

MICRO = 1_000_000
"""Resource quantities are integers of 1/MICRO units."""

MAX_QUANTITY = 10**9
"""Largest quantity in a file, in its own unit: keeps every product within 64 bits."""

MEGABITS_THERE_AND_BACK = 16
"""Megabits moved a mini-batch per megabyte of gradient: pushed and pulled, 8 bits a byte."""

FAR_TOO_MUCH = 2**62
"""Work beyond any horizon; larger amounts are cut to it so that they fit 64 bits."""

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerClasses:
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

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.types)

    @cached_property
    def class_of_server(self) -> IntArray:
        """Class of each single server, in the order that plans number servers."""
        return np.repeat(np.arange(self.num_classes), self.count)

    @property
    def num_servers(self) -> int:
        """Number of single servers over all classes."""
        return int(self.count.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Jobs:
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

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True, eq=False)
class AdmissionInstance:
    """An admission problem: which jobs to train, with how many workers and PSs, where and when.

    Parameters
    ----------
    name
        Name of the instance, for records.
    horizon
        Number of slots T; slots are 0, ..., T-1.
    slot_micro_s
        Length of a slot in 1e-6 seconds.
    resources
        Names of the R resource types.
    jobs
        The jobs.
    worker_servers, ps_servers
        Hosts of workers and hosts of PSs; the same object where servers are shared.
    min_utility_share
        A completion that earns less than this share of f(0) earns nothing (default 1 %).
    max_share_per_server
        If set, a job's workers on one server use at most this share of each resource, one worker at
        least; likewise its PSs. On shared servers the share bounds workers and PSs together.
    chunk_integral
        Whether a slot's workers finish whole data chunks within the slot.

    Raises
    ------
    InvalidProblemError
        If any field contradicts the definitions; the text names field, value and remedy.
    """

    name: str
    horizon: int
    slot_micro_s: int
    resources: tuple[str, ...]
    jobs: Jobs
    worker_servers: ServerClasses
    ps_servers: ServerClasses
    min_utility_share: Fraction = field(default=Fraction(1, 100))
    max_share_per_server: Fraction | None = None
    chunk_integral: bool = False

    def __post_init__(self) -> None:
        from optim.models.admission.validation import validate

        validate(self)

    @property
    def num_jobs(self) -> int:
        """Number of jobs I."""
        return len(self.jobs)

    @property
    def num_resources(self) -> int:
        """Number of resource types R."""
        return len(self.resources)

    @property
    def has_shared_servers(self) -> bool:
        """Whether workers and PSs live on the same servers."""
        return self.worker_servers is self.ps_servers

    @property
    def has_segments(self) -> bool:
        """Whether any job's demands change with the work done."""
        return len(self.jobs.segment_start) > self.num_jobs

    @cached_property
    def has_steps(self) -> bool:
        """Whether any job's progress is a table by its workers, and not their number."""
        return self.chunk_integral or any(self.jobs.speedup)

    @cached_property
    def segment_job(self) -> IntArray:
        """Job of each demand segment, shape (segments,)."""
        return np.repeat(np.arange(self.num_jobs), np.diff(self.jobs.segment_offset))

    @cached_property
    def chunk_slots(self) -> tuple[Fraction, ...]:
        """Worker-slots that one data chunk takes, M kappa with kappa = (tau + 2 e / b), exactly."""
        jobs = self.jobs
        slot = Fraction(self.slot_micro_s, MICRO)
        result = []
        for minibatches, tau, gradient, rate in zip(
            jobs.minibatches.tolist(),
            jobs.minibatch_micro_s.tolist(),
            jobs.gradient_micro_mb.tolist(),
            jobs.worker_micro_mbps.tolist(),
            strict=True,
        ):
            seconds = Fraction(tau, MICRO) + Fraction(MEGABITS_THERE_AND_BACK * gradient, rate)
            result.append(minibatches * seconds / slot)
        return tuple(result)

    @cached_property
    def work(self) -> IntArray:
        """W_i = ceil(E N M kappa), the worker-slots that job i needs (row (2)), at least 1; shape (jobs,)."""
        pairs = zip(self.jobs.epochs.tolist(), self.jobs.chunks.tolist(), self.chunk_slots, strict=True)
        needed = (max(1, -((-e * n * chunk) // 1)) for e, n, chunk in pairs)
        return np.array([min(amount, FAR_TOO_MUCH) for amount in needed], dtype=np.int64)

    @cached_property
    def target(self) -> IntArray:
        """Units of progress that complete a job, shape (jobs,).

        Worker-slots W_i; chunks E_i N_i if `chunk_integral`; else twentieths of worker-slots where there is a speed-up.
        """
        if not self.chunk_integral:
            result = self.work.copy()
            for i in self._curved:
                amount = TWENTIETHS * int(self.jobs.epochs[i]) * int(self.jobs.chunks[i]) * self.chunk_slots[i]
                result[i] = min(max(1, -(-amount // 1)), FAR_TOO_MUCH)
            return result
        pairs = zip(self.jobs.epochs.tolist(), self.jobs.chunks.tolist(), strict=True)
        return np.array([min(epochs * chunks, FAR_TOO_MUCH) for epochs, chunks in pairs], dtype=np.int64)

    @cached_property
    def max_workers(self) -> IntArray:
        """Most workers that job i ever runs at once, min(N_i, W_i) (N_i where progress is a table); shape (jobs,)."""
        result = self.jobs.chunks.copy() if self.chunk_integral else np.minimum(self.jobs.chunks, self.work)
        result[self._curved] = self.jobs.chunks[self._curved]
        return result

    @cached_property
    def _curved(self) -> list[int]:
        """Jobs with a table of speed-ups."""
        return [i for i, table in enumerate(self.jobs.speedup) if table]

    @cached_property
    def progress(self) -> tuple[IntArray, ...]:
        """For each job the progress made in one slot by Y = 0, ..., max_workers workers (row (2))."""
        tables = []
        for i, (most, chunk) in enumerate(zip(self.max_workers.tolist(), self.chunk_slots, strict=True)):
            table, unit = np.arange(most + 1, dtype=np.int64), 1
            if curve := curve_of(self.jobs, i):
                table, unit = progress_by_workers(curve, most), TWENTIETHS
            if self.chunk_integral and chunk > 0:
                table = np.array([int(speed / (unit * chunk)) for speed in table.tolist()], dtype=np.int64)
            elif self.chunk_integral:
                table = np.where(np.arange(most + 1) > 0, np.iinfo(np.int32).max, 0).astype(np.int64)
            tables.append(table)
        return tuple(tables)

    @cached_property
    def ps_needed(self) -> tuple[IntArray, ...]:
        """For each job Z(Y) = ceil(Y b / B), the PSs that Y = 0, ..., max_workers workers need (row (6))."""
        tables = []
        rates = zip(
            self.max_workers.tolist(),
            self.jobs.worker_micro_mbps.tolist(),
            self.jobs.ps_micro_mbps.tolist(),
            strict=True,
        )
        for most, worker_rate, ps_rate in rates:
            tables.append(np.array([-((-y * worker_rate) // ps_rate) for y in range(most + 1)], dtype=np.int64))
        return tuple(tables)

    @cached_property
    def value(self) -> FloatArray:
        """What completing job i in slot t earns, shape (jobs, slots).

        Zero before arrival, and from the first slot on in which the utility falls below its minimum.
        """
        table = np.zeros((self.num_jobs, self.horizon))
        for i, (arrival, utility) in enumerate(zip(self.jobs.arrival.tolist(), self.jobs.utilities, strict=True)):
            worth = utility.values(self.horizon - arrival)
            floor = self.jobs.min_utility[i]
            if np.isnan(floor):
                floor = float(self.min_utility_share) * worth[0]
            table[i, arrival:] = np.where(worth >= floor, worth, 0.0)
        return table

    @cached_property
    def deadline(self) -> IntArray:
        """Last slot in which completing job i earns anything, -1 if none; shape (jobs,)."""
        earns = self.value > 0
        last = self.horizon - 1 - np.argmax(earns[:, ::-1], axis=1)
        return np.where(earns.any(axis=1), last, -1).astype(np.int64)

    @cached_property
    def workers_per_server(self) -> IntArray:
        """n: most workers of a job's segment on ONE server of a class, shape (segments, classes, slots).

        Whole numbers of demands in the empty capacity, capped by N_i and `max_share_per_server`.
        """
        most = self.max_workers[self.segment_job]
        return units_per_server(self.jobs.worker_demand, self.worker_servers.capacity, most, self.max_share_per_server)

    @cached_property
    def ps_per_server(self) -> IntArray:
        """m: most PSs of a job's segment on ONE server of a class, shape (segments, classes, slots)."""
        most = np.array([table[-1] for table in self.ps_needed], dtype=np.int64)[self.segment_job]
        return units_per_server(self.jobs.ps_demand, self.ps_servers.capacity, most, self.max_share_per_server)


def units_per_server(demand: IntArray, capacity: IntArray, most: IntArray, share: Fraction | None) -> IntArray:
    """Return how many units of each demand one server of each class holds in each slot, exactly."""
    num_segments, num_resources = demand.shape
    result = np.repeat(
        np.broadcast_to(most[:, None], (num_segments, capacity.shape[0]))[:, :, None], capacity.shape[1], axis=2
    ).copy()
    allowed = result.copy()
    for r in range(num_resources):
        unit = demand[:, r]
        uses = unit > 0
        if not uses.any():
            continue
        divisor = unit[uses][:, None, None]
        result[uses] = np.minimum(result[uses], capacity[None, :, :, r] // divisor)
        if share is not None:
            part = _share_of(capacity[:, :, r], share)
            allowed[uses] = np.minimum(allowed[uses], part[None] // divisor)
    if share is not None:
        result = np.minimum(result, np.maximum(1, allowed))
    return result


def _share_of(capacity: IntArray, share: Fraction) -> IntArray:
    """Return floor(share * capacity) exactly: demands are whole, so the floor loses nothing."""
    flat = [quantity * share.numerator // share.denominator for quantity in capacity.ravel().tolist()]
    return np.array(flat, dtype=np.int64).reshape(capacity.shape)


def as_int_array(values: Sequence[int] | Sequence[Sequence[int]]) -> IntArray:
    """Return a read-only int64 array."""
    array = np.array(values, dtype=np.int64)
    array.setflags(write=False)
    return array
