"""An instance in exact Python integers, derived from its raw fields with outward rounding.

The class `AdmissionInstance` derives tables such as work, deadlines and units per server. The checker never
reads these tables and derives all of them again, so that the two derivations check each other.

On separate servers, a job has a maximum number of units per server. On shared servers, it has a set of feasible
pairs (workers, PSs) per server; a class of n shared servers can host every sum of n such pairs.
"""

import math
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import IntArray
from optim.models.admission.data import (
    MEGABITS_THERE_AND_BACK,
    MICRO,
    ConstantUtility,
    ServerClasses,
    SigmoidUtility,
    StepUtility,
    TableUtility,
    Utility,
)
from optim.models.admission.decision import Side
from optim.models.admission.instance import AdmissionInstance

UNIT_ROUNDOFF = 2.0**-53
"""Largest relative error of one rounded operation on doubles."""

_SMALLEST_EXPONENT = 1074
"""Every finite double is an integer multiple of 2**-1074."""


class ExactSum:
    """A sum of products double x integer, without any rounding."""

    def __init__(self) -> None:
        self._units = 0

    def add(self, value: float, factor: int = 1) -> None:
        """Add ``value * factor``; the value must be finite."""
        numerator, denominator = float(value).as_integer_ratio()
        # A double's denominator is a power of two, so a shift brings all terms to one unit.
        self._units += numerator * factor << (_SMALLEST_EXPONENT + 1 - denominator.bit_length())

    @property
    def total(self) -> Fraction:
        """The sum."""
        return Fraction(self._units, 1 << _SMALLEST_EXPONENT)


def round_up(value: Fraction) -> float:
    """Return the smallest double that is at least `value` (infinity beyond the largest)."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def shrink_factor(num_operations: int) -> float:
    """Return a factor that reduces a computed sum of non-negative products to at most its exact value.

    Each of `num_operations` nested rounded operations raises the result by at most a factor ``1 + 2**-53``.
    Twice this error covers the multiplication by the returned factor as well.
    """
    return 1.0 - 2.0 * num_operations * UNIT_ROUNDOFF


FEW_OPERATIONS = 8
"""Rounded operations in one utility; the exponential counts as four."""


def value_by_delay(
    utility: Utility, num_delays: int, *, minimum: float, share: float
) -> tuple[tuple[float, ...], float]:
    """Return f(d) for d = 0, ..., num_delays - 1, zero where it is below the smallest accepted utility.

    Parameters
    ----------
    utility
        The job's utility.
    num_delays
        Number of delays up to the horizon.
    minimum
        The job's smallest accepted utility; NaN if the instance's share of f(0) applies.
    share
        The instance's share of f(0).

    Returns
    -------
    tuple
        The values, and a bound on their relative error.
    """
    values = values_of(utility, num_delays)
    floor = share * values[0] if math.isnan(minimum) else minimum
    return tuple(value if value >= floor else 0.0 for value in values), _relative_error(utility, num_delays)


def values_of(utility: Utility, num_delays: int) -> list[float]:
    """Return f(d) for d = 0, ..., num_delays - 1."""
    match utility:
        case SigmoidUtility():
            return [utility.theta1 * _logistic(utility.theta2 * (d - utility.theta3)) for d in range(num_delays)]
        case ConstantUtility():
            return [float(utility.value)] * num_delays
        case StepUtility():
            return [float(utility.value if d <= utility.max_delay else utility.late_value) for d in range(num_delays)]
        case TableUtility():
            return [float(utility.table[d]) if d < len(utility.table) else 0.0 for d in range(num_delays)]
    # A custom utility has no second implementation in the checker, so its own values are used.
    return [float(value) for value in utility.values(num_delays)]


def _logistic(exponent: float) -> float:
    """Return 1 / (1 + e^x), 0 where e^x overflows."""
    try:
        return 1.0 / (1.0 + math.exp(exponent))
    except OverflowError:
        return 0.0


def _relative_error(utility: Utility, num_delays: int) -> float:
    """Return a bound on the relative error of the values; rounding an exponent x changes e^x by up to |x| roundoffs."""
    if not isinstance(utility, SigmoidUtility):
        return 0.0
    exponent = abs(utility.theta2) * (num_delays + abs(utility.theta3))
    # Beyond 745 the exponential underflows to 0 or overflows, and the value with it.
    return (FEW_OPERATIONS + 4 * min(exponent, 745.0)) * UNIT_ROUNDOFF


UNITS_OF_SPEED = 20
"""Speed-ups are multiples of 1/20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Demands of one worker and one PS from `start` units of progress on, in 1e-6 units of each resource."""

    start: int
    worker: tuple[int, ...]
    ps: tuple[int, ...]

    def of(self, side: Side) -> tuple[int, ...]:
        """Return the demand of one worker or of one PS."""
        return self.worker if side is Side.WORKER else self.ps


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactJob:
    """One job.

    Parameters
    ----------
    index, name, arrival
        As in the instance (`index` is the position among its jobs).
    chunks
        N, the maximum number of concurrent workers (row (3)).
    chunk_slots
        Worker-slots that one chunk takes, M (tau + 2 e / b) / slot, exactly.
    is_chunk_integral
        Whether progress counts chunks finished within a slot instead of worker-slots.
    speedup
        Speed of 1, 2, ... workers in twentieths of one worker's speed; empty if speed is linear.
    target
        Units of progress that complete the job (row (2)).
    max_workers
        Maximum number of concurrent workers in a plan without superfluous workers: min(N, W). It is N if
        chunks are integral or the job has a speed-up table.
    worker_rate, ps_rate
        b and B in 1e-6 megabits per second (row (6)).
    demands
        Demand segments, in order of their starts.
    value
        Utility of completing in slot t, one number per slot; 0 where completion earns nothing.
    value_error
        Bound on the relative error of `value`.
    utility
        The utility itself, without a smallest accepted value.
    deadline
        Last slot whose completion earns anything, -1 if there is none.
    """

    index: int
    name: str
    arrival: int
    chunks: int
    chunk_slots: Fraction
    is_chunk_integral: bool
    speedup: tuple[int, ...]
    target: int
    max_workers: int
    worker_rate: int
    ps_rate: int
    demands: tuple[Demand, ...]
    value: tuple[float, ...]
    value_error: float
    utility: Utility
    deadline: int

    def progress(self, workers: int) -> int:
        """Return the progress that `workers` workers make in one slot."""
        speed, unit = workers, 1
        if self.speedup:
            speed, unit = self.speedup[min(workers, len(self.speedup)) - 1] if workers else 0, UNITS_OF_SPEED
        if not self.is_chunk_integral:
            return speed
        if self.chunk_slots == 0:
            return self.target if workers else 0
        return speed * self.chunk_slots.denominator // (unit * self.chunk_slots.numerator)

    def ps_needed(self, workers: int) -> int:
        """Return Z(Y) = ceil(Y b / B), the minimum number of PSs that row (6) requires for `workers` workers."""
        return -(-workers * self.worker_rate // self.ps_rate)

    def segment_at(self, progress: int) -> int:
        """Return the demand segment of a slot that starts when `progress` units are done."""
        return bisect_right([demand.start for demand in self.demands], progress) - 1


def smallest_demand(demands: Sequence[Demand]) -> Demand:
    """Return the elementwise smallest demand over some segments."""
    return Demand(
        start=0,
        worker=tuple(min(column) for column in zip(*(demand.worker for demand in demands), strict=True)),
        ps=tuple(min(column) for column in zip(*(demand.ps for demand in demands), strict=True)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerFacts:
    """The server classes of one side.

    Parameters
    ----------
    types, count
        Name and number of servers of each class.
    capacity
        Shape (classes, slots, resources), 1e-6 units per server.
    first_after
        For each class the number of the first server after it; servers are numbered class by class.
    """

    types: tuple[str, ...]
    capacity: IntArray
    count: tuple[int, ...]
    first_after: tuple[int, ...]

    @property
    def num_servers(self) -> int:
        """Number of servers over all classes."""
        return self.first_after[-1] if self.first_after else 0

    def class_of(self, server: int) -> int:
        """Return the class of a server, given its number."""
        return bisect_right(self.first_after, server)

    def capacity_at(self, server_class: int, slot: int) -> tuple[int, ...]:
        """Return the capacity of one server of a class in a slot."""
        return tuple(self.capacity[server_class, slot].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactInstance:
    """All data of an instance that the checker uses. On shared servers `ps_servers` is `worker_servers`."""

    name: str
    horizon: int
    resources: tuple[str, ...]
    is_shared: bool
    share: Fraction | None
    jobs: tuple[ExactJob, ...]
    worker_servers: ServerFacts
    ps_servers: ServerFacts

    def servers(self, side: Side) -> ServerFacts:
        """Return the hosts of workers or of PSs."""
        return self.worker_servers if side is Side.WORKER else self.ps_servers


def read_exact_instance(instance: AdmissionInstance) -> ExactInstance:
    """Read the raw fields of an instance and derive everything else from them, exactly."""
    is_shared = instance.worker_servers is instance.ps_servers
    worker_servers = _servers(instance.worker_servers)
    return ExactInstance(
        name=instance.name,
        horizon=instance.horizon,
        resources=instance.resources,
        is_shared=is_shared,
        share=instance.max_share_per_server,
        jobs=tuple(_job(instance, i) for i in range(len(instance.jobs.ids))),
        worker_servers=worker_servers,
        ps_servers=worker_servers if is_shared else _servers(instance.ps_servers),
    )


def _servers(servers: ServerClasses) -> ServerFacts:
    count = tuple(int(number) for number in servers.count)
    return ServerFacts(
        types=servers.types, capacity=servers.capacity, count=count, first_after=tuple(accumulate(count))
    )


def _job(instance: AdmissionInstance, i: int) -> ExactJob:
    jobs = instance.jobs
    epochs, chunks = int(jobs.epochs[i]), int(jobs.chunks[i])
    rate = int(jobs.worker_micro_mbps[i])
    minibatch_s = Fraction(int(jobs.minibatch_micro_s[i]), MICRO) + Fraction(
        MEGABITS_THERE_AND_BACK * int(jobs.gradient_micro_mb[i]), rate
    )
    chunk_slots = int(jobs.minibatches[i]) * minibatch_s * MICRO / instance.slot_micro_s
    total = epochs * chunks * chunk_slots
    speedup = tuple(int(units) for units in jobs.speedup[i]) if jobs.speedup else ()
    work = max(1, math.ceil(total * (UNITS_OF_SPEED if speedup else 1)))
    arrival = int(jobs.arrival[i])
    values, error = value_by_delay(
        jobs.utilities[i],
        instance.horizon - arrival,
        minimum=float(jobs.min_utility[i]),
        share=float(instance.min_utility_share),
    )
    return ExactJob(
        index=i,
        name=jobs.ids[i],
        arrival=arrival,
        chunks=chunks,
        chunk_slots=chunk_slots,
        is_chunk_integral=instance.chunk_integral,
        speedup=speedup,
        target=epochs * chunks if instance.chunk_integral else work,
        max_workers=chunks if instance.chunk_integral or speedup else min(chunks, work),
        worker_rate=rate,
        ps_rate=int(jobs.ps_micro_mbps[i]),
        demands=_demands(instance, i),
        value=(0.0,) * arrival + values,
        value_error=error,
        utility=jobs.utilities[i],
        deadline=max((arrival + delay for delay, value in enumerate(values) if value > 0), default=-1),
    )


def _demands(instance: AdmissionInstance, i: int) -> tuple[Demand, ...]:
    jobs = instance.jobs
    segments: Sequence[int] = range(int(jobs.segment_offset[i]), int(jobs.segment_offset[i + 1]))
    return tuple(
        Demand(
            start=int(jobs.segment_start[s]),
            worker=tuple(jobs.worker_demand[s].tolist()),
            ps=tuple(jobs.ps_demand[s].tolist()),
        )
        for s in segments
    )


IMPOSSIBLE = -(2**40)
"""Table entry for numbers of workers that do not fit even without PSs."""


def units_on_server(demand: tuple[int, ...], capacity: tuple[int, ...], share: Fraction | None, most: int) -> int:
    """Return the number of units of a demand that fit one server under the share cap, at most `most`."""
    units = most
    for unit, limit in zip(demand, capacity, strict=True):
        if unit > 0:
            units = min(units, limit // unit)
    if share is None or units <= 1:
        return units
    allowed = units
    for unit, limit in zip(demand, capacity, strict=True):
        if unit > 0:
            allowed = min(allowed, share.numerator * limit // (share.denominator * unit))
    return max(1, allowed)


def max_in_class(exact: ExactInstance, job: ExactJob, demand: Demand, side: Side, slots: range) -> IntArray:
    """Return the maximum number of a job's workers or PSs in each class and slot, shape (classes, slots).

    The number is `count` times the units of one server, since identical servers are one row of the dual.
    """
    servers = exact.servers(side)
    most = job.max_workers if side is Side.WORKER else job.ps_needed(job.max_workers)
    result = np.zeros((len(servers.count), len(slots)), dtype=np.int64)
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    for c, count in enumerate(servers.count):
        for k, capacity in enumerate(servers.capacity[c, slots.start : slots.stop].tolist()):
            key = (c, tuple(capacity))
            if key not in known:
                known[key] = min(most, count * units_on_server(demand.of(side), key[1], exact.share, most))
            result[c, k] = known[key]
    return result


def max_ps_beside(
    demand: Demand, capacity: tuple[int, ...], share: Fraction | None, count: int, most: tuple[int, int]
) -> NDArray[np.int64]:
    """Return the maximum numbers of PSs that fit `count` equal shared servers together with Y = 0, 1, ... workers.

    Parameters
    ----------
    demand, capacity, share
        The job's demands, the capacity of one server, and the cap on the job's share of one server, respectively.
    count
        Number of servers.
    most
        Largest relevant numbers of workers and of PSs.

    Returns
    -------
    NDArray
        Shape (``most[0]`` + 1,); `IMPOSSIBLE` (or less) where Y workers alone do not fit.
    """
    one = np.full(most[0] + 1, IMPOSSIBLE, dtype=np.int64)
    for y in range(most[0] + 1):
        z = ps_beside_on_one(demand, capacity, share, y, most[1])
        if z < 0:
            break
        one[y] = z
    return _sum_of_equal(one, count, most[1])


def ps_beside_on_one(demand: Demand, capacity: tuple[int, ...], share: Fraction | None, y: int, most: int) -> int:
    """Return the maximum number of PSs that fit one server with y workers, -1 if the workers alone do not fit."""
    z = _units_in_rest(demand, capacity, y, most)
    if z < 0 or share is None:
        return z
    shared = tuple(share.numerator * limit // share.denominator for limit in capacity)
    within_share = _units_in_rest(demand, shared, y, most)
    # A single worker or a single PS may exceed the share.
    alone = min(z, 1) if y == 0 else 0 if y == 1 else -1
    return max(within_share, alone)


def _units_in_rest(demand: Demand, capacity: tuple[int, ...], y: int, most: int) -> int:
    z = most
    for worker, ps, limit in zip(demand.worker, demand.ps, capacity, strict=True):
        rest = limit - worker * y
        if rest < 0:
            return -1
        if ps > 0:
            z = min(z, rest // ps)
    return z


def _sum_of_equal(one: NDArray[np.int64], count: int, most: int) -> NDArray[np.int64]:
    """Return the `count`-fold (max, +) convolution of a table with itself, by repeated squaring."""
    total = np.full_like(one, IMPOSSIBLE)
    total[0] = 0
    power = one
    while count:
        if count & 1:
            total = _convolve(total, power, most)
        count >>= 1
        if count:
            power = _convolve(power, power, most)
    return total


def _convolve(a: NDArray[np.int64], b: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    result = np.full_like(a, IMPOSSIBLE)
    for y in np.flatnonzero(b >= 0).tolist():
        reached = result[y:]
        np.maximum(reached, a[: len(a) - y] + b[y], out=reached)
    result[result < 0] = IMPOSSIBLE
    return np.minimum(result, most)
