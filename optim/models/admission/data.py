"""The data of an admission problem: jobs, server classes, utilities and speed-ups, with their validation.

Without a speed-up table, a job with Y workers is Y times as fast as with one worker, as in the paper. With a
table, row (2) counts progress in twentieths of a worker-slot: ``sum_t p_i(Y_i(t)) >= ceil(20 E N M kappa)
x_i`` (docs/mathematics/admission.md, (A.2s)). Here p_i(Y) is the table's entry for Y workers; the last entry holds
for more workers.

Notation (docs/mathematics/admission.md; Bao, Peng, Wu, Li, INFOCOM 2018): job ``i``, slot ``t``, worker
server ``h``, parameter server (PS) host ``k``, resource ``r``. All resource quantities are integer multiples
of 1e-6 units, so that feasibility is decided exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from optim.core.arrays import ComparesByValue, FloatArray, IntArray, derived, freeze_arrays, read_only, whole_numbers
from optim.core.errors import InvalidProblemError

TWENTIETHS = 20
"""Resolution of speed-ups: a table's entries are multiples of 1/20 = 0.05."""

MAX_SPEEDUP = 10**6


def progress_by_workers(speedup: Sequence[int], most: int) -> IntArray:
    """Return the progress of Y = 0, ..., `most` workers in one slot, in twentieths of one worker's progress.

    Parameters
    ----------
    speedup
        Speed of 1, 2, ... workers in twentieths of one worker's speed, at least one entry.
    most
        Maximum number of workers.
    """
    listed = np.array([0, *speedup], dtype=np.int64)
    return listed[np.minimum(np.arange(most + 1), len(speedup))]


def curve_of(jobs: "Jobs", job: int) -> tuple[int, ...]:
    """Return a job's speed-up table, empty if its speed is linear in the number of workers."""
    return jobs.speedup[job] if jobs.speedup else ()


def validate_speedups(jobs: "Jobs") -> None:
    """Raise an error unless every table begins with speed 1 and is non-decreasing.

    Raises
    ------
    InvalidProblemError
        If a table is invalid; the message names the job, the entry and the remedy.
    """
    if jobs.speedup and len(jobs.speedup) != len(jobs):
        raise InvalidProblemError(f"jobs.speedup must hold one table per job or none, got {len(jobs.speedup)}")
    for i, table in enumerate(jobs.speedup):
        for fault in _faults(table):
            raise InvalidProblemError(f"jobs[{i}].speedup {fault}")


def _faults(table: Sequence[int]) -> Iterator[str]:
    if not table:
        return
    if table[0] != TWENTIETHS:
        yield f"must begin with 1, the speed of one worker, got {table[0] / TWENTIETHS:g}; divide all entries by it"
    for k in range(1, len(table)):
        if table[k] < table[k - 1]:
            yield (
                f"must not fall, got {table[k] / TWENTIETHS:g} after {table[k - 1] / TWENTIETHS:g} for {k + 1} workers; "
                "repeat the previous entry: workers may be idle"
            )
    if table[-1] > MAX_SPEEDUP * TWENTIETHS:
        yield f"must be at most {MAX_SPEEDUP}, got {table[-1] / TWENTIETHS:g}"


class Utility(Protocol):
    """A non-negative, non-increasing function of the delay `d = completion slot - arrival slot`.

    The checker implements each built-in utility again (`optim.models.admission.check.exact_instance`). The
    checker evaluates a custom utility through this class.
    """

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return f(0), ..., f(num_delays - 1)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SigmoidUtility:
    """f(d) = theta1 / (1 + exp(theta2 (d - theta3))), with priority theta1, urgency theta2 and target delay theta3.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters",
    INFOCOM 2018, DOI 10.1109/INFOCOM.2018.8486422, evaluation section.
    """

    theta1: float
    theta2: float
    theta3: float

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return f at delays 0 to num_delays - 1; `expit` can't overflow."""
        delays = np.arange(num_delays, dtype=np.float64)
        values: NDArray[np.float64] = self.theta1 * expit(-self.theta2 * (delays - self.theta3))
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantUtility:
    """f(d) = value: the completion has the same value at every delay."""

    value: float

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return the constant `num_delays` times."""
        return np.full(num_delays, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUtility:
    """f(d) = value up to a delay of `max_delay` slots after the arrival (included), late_value afterwards."""

    value: float
    max_delay: int
    late_value: float = 0.0

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return `value` for delays up to `max_delay`, then `late_value`."""
        return np.where(np.arange(num_delays) <= self.max_delay, self.value, self.late_value).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUtility:
    """f(d) = table[d]; delays beyond the table earn nothing."""

    table: tuple[float, ...]

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return the table, cut or filled with zeros."""
        result = np.zeros(num_delays)
        known = min(num_delays, len(self.table))
        result[:known] = self.table[:known]
        return result


MICRO = 1_000_000
"""Resource quantities are integers of 1/MICRO units."""

MAX_QUANTITY = 10**9
"""Largest quantity in a file, in the unit of the field: every product then fits 64 bits."""


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
        Shape (classes,): number of servers in each class.
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
        """Class of each server, in the numbering of servers in plans; shape (servers,)."""
        return np.repeat(np.arange(self.num_classes), self.count)

    @property
    def num_servers(self) -> int:
        """Number of servers over all classes."""
        return int(self.count.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Jobs(ComparesByValue):
    """All jobs, one array per field.

    Parameters
    ----------
    ids
        Unique names.
    arrival
        Slot of arrival; a job may start in it. Shape (jobs,).
    epochs, chunks, minibatches
        E epochs, N data chunks (also the maximum number of concurrent workers), M mini-batches per chunk.
        Shape (jobs,).
    minibatch_micro_s, gradient_micro_mb, worker_micro_mbps, ps_micro_mbps
        Time of a mini-batch tau (1e-6 seconds), size of the gradients e (1e-6 megabytes), and bandwidths of a worker
        b and of a PS B (1e-6 megabits per second). Shape (jobs,).
    segment_offset
        Shape (jobs + 1,): the demand segments of job i are ``segment_offset[i]:segment_offset[i+1]``.
    segment_start
        Shape (segments,): progress from which a segment's demands hold; 0 for the first segment of a job.
    worker_demand, ps_demand
        Shape (segments, resources), 1e-6 units per worker and per PS.
    utilities
        One function of the delay per job.
    min_utility
        Shape (jobs,): smallest accepted utility, in utility units; completions below it earn nothing. NaN if
        the instance's default (a share of f(0)) applies.
    speedup
        One table per job: speed of 1, 2, ... workers in twentieths of one worker's speed. An empty table
        means linear speed; an empty tuple means linear speed of all jobs.
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


MEGABITS_THERE_AND_BACK = 16
"""Megabits transferred per mini-batch and megabyte of gradient: push and pull, 8 bits per byte."""

WORK_CAP = 2**62
"""Amount of work beyond any horizon; larger amounts are clipped to it so that they fit 64 bits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AdmissionData(ComparesByValue):
    """The fields of an admission problem and the tables derived from them; the base of `AdmissionInstance`.

    Parameters
    ----------
    name
        Name of the instance.
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
        If set, a job's workers on one server use at most this share of each resource, but one worker is
        always allowed; likewise its PSs. On shared servers the share bounds workers and PSs together.
    chunk_integral
        Whether workers process only complete data chunks within a slot.

    Raises
    ------
    InvalidProblemError
        If a field is invalid; the message names field, value and remedy.
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
        """Whether workers and PSs run on the same servers."""
        return self.worker_servers is self.ps_servers

    @property
    def has_segments(self) -> bool:
        """Whether any job's demands change with the work done."""
        return len(self.jobs.segment_start) > self.num_jobs

    @derived
    def has_steps(self) -> bool:
        """Whether any job's progress per slot is a table over its number of workers."""
        return self.chunk_integral or any(self.jobs.speedup)

    @derived
    def segment_job(self) -> IntArray:
        """Job of each demand segment, shape (segments,)."""
        return np.repeat(np.arange(self.num_jobs), np.diff(self.jobs.segment_offset))

    @derived
    def chunk_slots(self) -> tuple[Fraction, ...]:
        """Worker-slots of one data chunk of each job, exactly: M kappa, where kappa is tau + 2 e / b in slots."""
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

    @derived
    def work(self) -> IntArray:
        """W_i = ceil(E N M kappa), the worker-slots that job i needs (row (2)), at least 1; shape (jobs,)."""
        pairs = zip(self.jobs.epochs.tolist(), self.jobs.chunks.tolist(), self.chunk_slots, strict=True)
        needed = (max(1, -((-e * n * chunk) // 1)) for e, n, chunk in pairs)
        return np.array([min(amount, WORK_CAP) for amount in needed], dtype=np.int64)

    @derived
    def target(self) -> IntArray:
        """Units of progress that complete a job, shape (jobs,).

        The unit is a chunk if `chunk_integral` (the target is then E_i N_i), else a twentieth of a worker-slot for a job
        with a speed-up table, else a worker-slot (the target is then W_i).
        """
        if not self.chunk_integral:
            result = self.work.copy()
            for i in self._curved:
                amount = TWENTIETHS * int(self.jobs.epochs[i]) * int(self.jobs.chunks[i]) * self.chunk_slots[i]
                result[i] = min(max(1, -(-amount // 1)), WORK_CAP)
            return result
        pairs = zip(self.jobs.epochs.tolist(), self.jobs.chunks.tolist(), strict=True)
        return np.array([min(epochs * chunks, WORK_CAP) for epochs, chunks in pairs], dtype=np.int64)

    @derived
    def max_workers(self) -> IntArray:
        """Maximum number of concurrent workers, min(N_i, W_i) (N_i if progress is a table); shape (jobs,)."""
        result = self.jobs.chunks.copy() if self.chunk_integral else np.minimum(self.jobs.chunks, self.work)
        result[self._curved] = self.jobs.chunks[self._curved]
        return result

    @derived
    def _curved(self) -> list[int]:
        """Jobs with a table of speed-ups."""
        return [i for i, table in enumerate(self.jobs.speedup) if table]

    @derived
    def progress(self) -> tuple[IntArray, ...]:
        """For each job the progress of Y = 0, ..., max_workers workers in one slot (row (2))."""
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

    @derived
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

    @derived
    def value(self) -> FloatArray:
        """Utility of completing job i in slot t, shape (jobs, slots).

        Zero before arrival, and from the first slot on in which the utility falls below its minimum.
        """
        table = np.zeros((self.num_jobs, self.horizon))
        for i, (arrival, utility) in enumerate(zip(self.jobs.arrival.tolist(), self.jobs.utilities, strict=True)):
            values = utility.values(self.horizon - arrival)
            floor = self.jobs.min_utility[i]
            if np.isnan(floor):
                floor = float(self.min_utility_share) * values[0]
            table[i, arrival:] = np.where(values >= floor, values, 0.0)
        return table

    @derived
    def deadline(self) -> IntArray:
        """Last slot in which completing job i earns anything, -1 if none; shape (jobs,)."""
        earns = self.value > 0
        last = self.horizon - 1 - np.argmax(earns[:, ::-1], axis=1)
        return np.where(earns.any(axis=1), last, -1).astype(np.int64)

    @derived
    def workers_per_server(self) -> IntArray:
        """n: maximum number of workers of a job's segment on ONE server of a class, shape (segments, classes, slots).

        The number of units that fit the empty server, capped by N_i and `max_share_per_server`.
        """
        most = self.max_workers[self.segment_job]
        return units_per_server(self.jobs.worker_demand, self.worker_servers.capacity, most, self.max_share_per_server)

    @derived
    def ps_per_server(self) -> IntArray:
        """m: maximum number of PSs of a job's segment on ONE server of a class, shape (segments, classes, slots)."""
        most = np.array([table[-1] for table in self.ps_needed], dtype=np.int64)[self.segment_job]
        return units_per_server(self.jobs.ps_demand, self.ps_servers.capacity, most, self.max_share_per_server)


def units_per_server(demand: IntArray, capacity: IntArray, most: IntArray, share: Fraction | None) -> IntArray:
    """Return the number of units of each demand that fit one server of each class in each slot, exactly."""
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
            part = share_of(capacity[:, :, r], share)
            allowed[uses] = np.minimum(allowed[uses], part[None] // divisor)
    if share is not None:
        result = np.minimum(result, np.maximum(1, allowed))
    return result


def share_of(capacity: IntArray, share: Fraction | None) -> IntArray:
    """Return floor(share * capacity), or the capacity if share is None; demands are integers, so the floor is exact."""
    if share is None:
        return capacity
    flat = [quantity * share.numerator // share.denominator for quantity in capacity.ravel().tolist()]
    return np.array(flat, dtype=np.int64).reshape(capacity.shape)


MONOTONE_TOL = 1e-12
"""Tolerated rise of a utility through rounding, relative to its first value."""


def validate(instance: AdmissionData) -> None:
    """Raise an error if the instance violates the definitions of the problem.

    Raises
    ------
    InvalidProblemError
        If a field is invalid; the message names the path of the first such field, its value and the remedy.
    """
    if instance.horizon < 1:
        raise InvalidProblemError(f"horizon must be at least 1 slot, got {instance.horizon}")
    if instance.slot_micro_s < 1:
        raise InvalidProblemError(f"slot_s must be positive, got {instance.slot_micro_s / MICRO}")
    if not instance.resources or len(set(instance.resources)) != len(instance.resources):
        raise InvalidProblemError(f"resources must be distinct names, at least one, got {list(instance.resources)}")
    if not 0 <= instance.min_utility_share <= 1:
        raise InvalidProblemError(
            f"min_utility must be in [0, 1] (a share of the utility f(0) at delay 0), got {float(instance.min_utility_share)}"
        )
    share = instance.max_share_per_server
    if share is not None and not 0 < share <= 1:
        raise InvalidProblemError(f"max_share_per_server must be in (0, 1], got {float(share)}")
    sides = (
        {"shared_servers": instance.worker_servers}
        if instance.has_shared_servers
        else {"worker_servers": instance.worker_servers, "ps_servers": instance.ps_servers}
    )
    for side, servers in sides.items():
        _validate_servers(side, servers, instance)
    _validate_jobs(instance.jobs, instance)


def _validate_servers(side: str, servers: ServerClasses, instance: AdmissionData) -> None:
    shape = (servers.num_classes, instance.horizon, instance.num_resources)
    if servers.capacity.shape != shape:
        raise InvalidProblemError(
            f"{side}: capacity must have shape (classes, slots, resources) = {shape}, got {servers.capacity.shape}"
        )
    if servers.count.shape != (servers.num_classes,):
        raise InvalidProblemError(f"{side}: count must hold one number per class, got shape {servers.count.shape}")
    for c in range(servers.num_classes):
        if servers.count[c] < 1:
            raise InvalidProblemError(
                f"{side}[{c}].count must be at least 1, got {servers.count[c]}; leave empty classes out"
            )
        low, high = int(servers.capacity[c].min()), int(servers.capacity[c].max())
        if low < 0:
            raise InvalidProblemError(
                f"{side}[{c}].capacity must not be negative, got {low / MICRO}; use 0 for a missing resource"
            )
        if high > MAX_QUANTITY * MICRO:
            raise InvalidProblemError(
                f"{side}[{c}].capacity must be at most {MAX_QUANTITY}, got {high / MICRO}; choose a larger unit"
            )


def _validate_jobs(jobs: Jobs, instance: AdmissionData) -> None:
    if len(set(jobs.ids)) != len(jobs.ids):
        twice = next(name for name in jobs.ids if jobs.ids.count(name) > 1)
        raise InvalidProblemError(f"jobs: id {twice!r} is used twice; give every job a unique id")
    minima = {
        "arrival": (jobs.arrival, 0),
        "epochs": (jobs.epochs, 1),
        "chunks": (jobs.chunks, 1),
        "minibatches": (jobs.minibatches, 1),
        "minibatch_s": (jobs.minibatch_micro_s, 0),
        "gradient_mb": (jobs.gradient_micro_mb, 0),
        "worker_mbps": (jobs.worker_micro_mbps, 1),
        "ps_mbps": (jobs.ps_micro_mbps, 1),
    }
    for name, (array, least) in minima.items():
        if array.shape != (len(jobs),):
            raise InvalidProblemError(f"jobs.{name} must hold one number per job, got shape {array.shape}")
        for i in np.flatnonzero(array < least).tolist():
            raise InvalidProblemError(
                f"jobs[{i}].{name} must be {'positive' if least else 'at least 0'}, got {array[i]}"
            )
        for i in np.flatnonzero(array > MAX_QUANTITY * MICRO).tolist():
            raise InvalidProblemError(f"jobs[{i}].{name} must be at most {MAX_QUANTITY}; choose another unit")
    for i in np.flatnonzero(jobs.arrival >= instance.horizon).tolist():
        raise InvalidProblemError(
            f"jobs[{i}].arrival must be before the horizon of {instance.horizon} slots, got {jobs.arrival[i]}; leave the job out or lengthen the horizon"
        )
    for i in np.flatnonzero(jobs.worker_micro_mbps > jobs.ps_micro_mbps).tolist():
        raise InvalidProblemError(
            f"jobs[{i}].worker_mbps (b = {jobs.worker_micro_mbps[i] / MICRO:g}) must not exceed ps_mbps (B = {jobs.ps_micro_mbps[i] / MICRO:g}): "
            "rows (6) and (7) then forbid any worker; lower worker_mbps or raise ps_mbps"
        )
    validate_speedups(jobs)
    _validate_segments(jobs, instance)
    for i in range(len(jobs)):
        _validate_utility(i, jobs.utilities[i], instance.horizon)
        if jobs.min_utility[i] < 0:
            raise InvalidProblemError(f"jobs[{i}].min_utility must be at least 0, got {jobs.min_utility[i]}")


def _validate_segments(jobs: Jobs, instance: AdmissionData) -> None:
    for name, demand in (("worker", jobs.worker_demand), ("ps", jobs.ps_demand)):
        if demand.shape != (len(jobs.segment_start), instance.num_resources):
            raise InvalidProblemError(
                f"jobs: {name} demands must list {instance.num_resources} resources each, got shape {demand.shape}"
            )
        for s in np.flatnonzero((demand < 0).any(axis=1)).tolist():
            raise InvalidProblemError(
                f"jobs[{instance.segment_job[s]}].{name} must not be negative, got {(demand[s] / MICRO).tolist()}"
            )
        if demand.size and demand.max() > MAX_QUANTITY * MICRO:
            raise InvalidProblemError(f"jobs: {name} demands must be at most {MAX_QUANTITY}; choose a larger unit")
    for i in range(len(jobs)):
        starts = jobs.segment_start[jobs.segment_offset[i] : jobs.segment_offset[i + 1]]
        if len(starts) == 0 or starts[0] != 0 or (np.diff(starts) <= 0).any():
            raise InvalidProblemError(f"jobs[{i}].segments must start at 0 and rise strictly, got {starts.tolist()}")


def _validate_utility(i: int, utility: Utility, horizon: int) -> None:
    with np.errstate(all="ignore"):
        values = utility.values(horizon + 1)
    if not np.isfinite(values).all():
        raise InvalidProblemError(f"jobs[{i}].utility must be finite at every delay up to the horizon, got {utility}")
    if (values < 0).any():
        raise InvalidProblemError(
            f"jobs[{i}].utility must not be negative, got {values.min():g} at delay {int(values.argmin())}"
        )
    rises = np.flatnonzero(np.diff(values) > MONOTONE_TOL * max(values[0], 1e-300))
    if rises.size:
        raise InvalidProblemError(
            f"jobs[{i}].utility must not increase with the delay, but rises after delay {int(rises[0])}; "
            "give values that fall or stay (for a sigmoid: theta2 >= 0)"
        )
