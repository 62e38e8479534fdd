"""Price functions, and the range of each row's price: U, and L or lambda.

- U, the most that a job pays for a unit: ``max_i fmax_i / w_i``, with ``fmax_i`` the job's value when it
  completes as early as it can alone.
- L, where the exponential price begins: small enough that the empty cluster's dual is at most half the
  optimum.
- lambda, the scale of the zero-start price: small enough that ``sum_j lambda_j a_j <= value`` for every
  schedule with use a.

Only jobs that can complete alone in the empty cluster count. With demand segments U takes a job's smallest
positive demand, L and lambda the largest.

A price function rises from (almost) zero for an empty row to U for a full one. U is the most that any job pays
for a unit, so no schedule through a full row has a positive payoff.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError
from optim.core.user_code import who_answers
from optim.models.admission.data import MICRO, ServerClasses, curve_of
from optim.models.admission.instance import AdmissionInstance

MIN_RATIO = 1e-9
"""U is at least 1 + MIN_RATIO times the lower scale: with tiny jobs, the formulas could give a U below the lower scale."""


class PriceFloorRule(StrEnum):
    """Choice of the lower scale, the counterpart of U.

    In the formulas, fmin_i is job i's value at its deadline, and f_min the smallest of these values. W_i is the job's largest
    number of worker-slots, w_i^r the demand of one of its workers (or PSs) for resource r, and R the number of resources.
    """

    PAPER_L = "paper-l"
    """The paper's L, with its constant eta. It adds up amounts of different resources, so it depends on their units."""
    SIMPLE_L = "simple-l"
    """L = f_min / (4 sum of all capacities of the workers' or the PSs' servers): at least the paper's L, same guarantee."""
    UNIT_FREE_L = "unit-free-l"
    """L of row j = f_min / (2 J c_j) with J rows and capacity c_j: independent of units."""
    SUMMED_LAMBDA = "summed-lambda"
    """lambda = min_i fmin_i / (2 W_i sum_r w_i^r): dependent on units."""
    UNIT_FREE_LAMBDA = "unit-free-lambda"
    """lambda of resource r = min_i fmin_i / (2 R W_i w_i^r): independent of units."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideRanges:
    """Logarithms of the lower scale and of U for the rows of workers' or PSs' servers, shape (classes, slots, resources).

    Rows that no job uses have a lower scale of 0, whose logarithm is minus infinity.
    """

    log_lower: FloatArray
    log_upper: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriceRanges:
    """Price ranges of the workers' and the PSs' servers; on shared servers `ps` is `worker`."""

    worker: SideRanges
    ps: SideRanges

    def scaled(self, *, upper: float = 1.0, lower: float = 1.0) -> "PriceRanges":
        """Return the bounds multiplied by these factors, to study mis-estimated ranges."""
        worker = _scale(self.worker, upper, lower)
        return PriceRanges(worker=worker, ps=worker if self.ps is self.worker else _scale(self.ps, upper, lower))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobValueStats:
    """Values and demands of the schedulable jobs, from which the bounds are derived.

    Parameters
    ----------
    jobs
        Shape (schedulable,): indices of the jobs.
    most, least
        Shape (schedulable,): value at the earliest completion of the job alone, and at its deadline.
    worker_slots
        Shape (schedulable,): largest number of worker-slots of a schedule without superfluous workers.
    smallest_worker, max_worker, smallest_ps, max_ps
        Shape (schedulable, resources): smallest and largest demand over the job's segments, in units; the smallest ignores
        zeros, and is infinite if all are zero.
    """

    jobs: IntArray
    most: FloatArray
    least: FloatArray
    worker_slots: FloatArray
    smallest_worker: FloatArray
    max_worker: FloatArray
    smallest_ps: FloatArray
    max_ps: FloatArray

    def of(self, keep: IntArray) -> "JobValueStats":
        """Return the entries of the jobs in `keep`."""
        return self.take(np.flatnonzero(np.isin(self.jobs, keep)))

    def take(self, places: IntArray) -> "JobValueStats":
        """Return the entries at the given positions."""
        return JobValueStats(**{name: getattr(self, name)[places] for name in self.__slots__})


def job_value_stats(instance: AdmissionInstance) -> JobValueStats:
    """Collect values and demands of the jobs that can complete alone."""
    earliest = instance.earliest_completion
    jobs = np.flatnonzero(earliest >= 0)
    offset = instance.jobs.segment_offset[:-1]
    worker, ps = instance.jobs.worker_demand / MICRO, instance.jobs.ps_demand / MICRO

    def smallest(demand: FloatArray) -> FloatArray:
        positive = np.where(demand > 0, demand, np.inf)
        return np.minimum.reduceat(positive, offset)[jobs] if len(offset) else positive

    def largest(demand: FloatArray) -> FloatArray:
        return np.maximum.reduceat(demand, offset)[jobs] if len(offset) else demand

    return JobValueStats(
        jobs=jobs,
        most=instance.value[jobs, earliest[jobs]],
        least=instance.value[jobs, instance.deadline[jobs]],
        worker_slots=max_worker_slots(instance)[jobs].astype(np.float64),
        smallest_worker=smallest(worker),
        max_worker=largest(worker),
        smallest_ps=smallest(ps),
        max_ps=largest(ps),
    )


def max_worker_slots(instance: AdmissionInstance) -> IntArray:
    """Return the largest number of worker-slots of a schedule without superfluous workers, shape (jobs,).

    The number is W_i. With integral chunks each slot may round up, by less than one worker per slot. With a speed-up curve
    W_i assumes the least productive number of workers.
    """
    if not instance.has_steps:
        return instance.work.copy()
    if not instance.chunk_integral:
        return _max_of_curves(instance)
    result = np.ones(instance.num_jobs, dtype=np.int64)
    window = np.maximum(1, instance.deadline - instance.jobs.arrival + 1)
    for i, chunk in enumerate(instance.chunk_slots):
        chunks = int(instance.target[i])
        slots = min(chunks, int(window[i]))
        result[i] = max(
            1,
            min(chunks * -(-chunk // 1), (chunks * chunk + slots) // 1, slots * int(instance.max_workers[i])),
        )
    return result


def _max_of_curves(instance: AdmissionInstance) -> IntArray:
    """Return W_i of jobs without a speed-up curve, and an upper bound on the worker-slots of the other jobs."""
    result = instance.work.copy()
    window = np.maximum(1, instance.deadline - instance.jobs.arrival + 1)
    for i, table in enumerate(instance.jobs.speedup):
        if not table:
            continue
        progress = instance.progress[i]
        gains = np.diff(progress)
        useful = np.flatnonzero(gains > 0) + 1  # a minimal schedule runs no worker without a gain
        worst = max(Fraction(int(y), int(progress[y])) for y in useful.tolist())
        # Without the gain of its last worker, a schedule is short of the target.
        most = int(worst * (int(instance.target[i]) - 1 + int(gains.max())))
        result[i] = max(1, min(most, int(window[i]) * int(useful[-1])))
    return result


def price_ranges(
    instance: AdmissionInstance,
    lower: PriceFloorRule,
    *,
    stats: JobValueStats | None = None,
    has_paper_values: bool = False,
) -> PriceRanges:
    """Derive U and the lower scale of every row from an instance's jobs.

    Parameters
    ----------
    instance
        The cluster and the jobs. By default U and the lower scale come from all of its jobs.
    lower
        Choice of the lower scale.
    stats
        The jobs to derive from. Default: all schedulable ones, which is clairvoyant. Pass past jobs for an estimate.
    has_paper_values
        Whether to use the paper's values: U from f at the fastest completion with N workers in every slot, and L from
        f(T - a). They ignore the cluster's capacity and the smallest value that counts; see `paper_value_stats`.
    """
    stats = job_value_stats(instance) if stats is None else stats
    if has_paper_values:
        stats = paper_value_stats(instance, stats)
    value = stats.most
    if instance.has_shared_servers:
        smallest = np.minimum(stats.smallest_worker, stats.smallest_ps)
        both = stats.max_worker + stats.max_ps
        side = _side(instance, instance.worker_servers, lower, stats, value, smallest, both)
        return PriceRanges(worker=side, ps=side)
    return PriceRanges(
        worker=_side(
            instance,
            instance.worker_servers,
            lower,
            stats,
            value,
            stats.smallest_worker,
            stats.max_worker,
        ),
        ps=_side(instance, instance.ps_servers, lower, stats, value, stats.smallest_ps, stats.max_ps),
    )


def paper_value_stats(instance: AdmissionInstance, stats: JobValueStats) -> JobValueStats:
    """Return the schedulable jobs with the values of the paper's U and L.

    `most` is f(D - 1) for D = ceil(W / N) slots: a job that starts in its arrival slot is done after D - 1 more. `least` is
    f(T - a), the value of completion in the last slot. If this is 0 (for the paper's sigmoids only by underflow), the
    value at the deadline is used, since L must be positive.
    """
    most, least = stats.most.copy(), stats.least.copy()
    for k, i in enumerate(stats.jobs.tolist()):
        fastest = int(-(-instance.work[i] // instance.jobs.chunks[i]))
        if curve_of(instance.jobs, i) and not instance.chunk_integral:
            fastest = int(-(-instance.target[i] // instance.progress[i][-1]))
        values = instance.jobs.utilities[i].values(max(fastest, instance.horizon - int(instance.jobs.arrival[i])))
        most[k] = values[fastest - 1]
        last = values[instance.horizon - int(instance.jobs.arrival[i]) - 1]
        least[k] = last if last > 0 else least[k]
    return replace(stats, most=most, least=least)


def sample_jobs(instance: AdmissionInstance, share: float, rng: np.random.Generator) -> IntArray:
    """Return a random sample of the jobs, one at least: a history that resembles the future."""
    size = max(1, round(share * instance.num_jobs)) if instance.num_jobs else 0
    return np.sort(rng.choice(instance.num_jobs, size=size, replace=False))


def first_jobs(instance: AdmissionInstance, share: float) -> IntArray:
    """Return the first jobs to arrive, one at least: a history that may differ from the future."""
    size = max(1, round(share * instance.num_jobs)) if instance.num_jobs else 0
    return np.sort(np.argsort(instance.jobs.arrival, kind="stable")[:size])


class SeenRanges:
    """U and the lower scale of the jobs that have arrived so far, for a rule without a history.

    Parameters
    ----------
    instance
        Cluster and jobs; only jobs passed to `see` count.
    lower
        Choice of the lower scale; not the paper's, since its terms come from different jobs.
    stats
        Values and demands of the jobs.
    factors
        Factors that U and the lower scale are multiplied by, as in `PriceRanges.scaled`.
    """

    def __init__(
        self,
        instance: AdmissionInstance,
        lower: PriceFloorRule,
        stats: JobValueStats,
        factors: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        self._instance, self._lower, self._stats, self._factors = instance, lower, stats, factors
        self._place = {job: k for k, job in enumerate(stats.jobs.tolist())}
        self.ranges = price_ranges(instance, lower, stats=stats.take(np.zeros(0, dtype=np.int64)))

    def see(self, job: int) -> bool:
        """Include a job that has just arrived; return whether the bounds have changed."""
        if job not in self._place:
            return False
        job_ranges = price_ranges(self._instance, self._lower, stats=self._stats.take(np.array([self._place[job]])))
        before, self.ranges = (
            self.ranges,
            _joined(self.ranges, job_ranges.scaled(upper=self._factors[0], lower=self._factors[1])),
        )
        return not all(
            np.array_equal(getattr(old, name), getattr(new, name))
            for old, new in ((before.worker, self.ranges.worker), (before.ps, self.ranges.ps))
            for name in ("log_lower", "log_upper")
        )


def _joined(one: PriceRanges, two: PriceRanges) -> PriceRanges:
    """Return the ranges that cover the jobs of both."""
    worker = _joined_side(one.worker, two.worker)
    return PriceRanges(worker=worker, ps=worker if two.ps is two.worker else _joined_side(one.ps, two.ps))


def _joined_side(one: SideRanges, two: SideRanges) -> SideRanges:
    """Return the larger U and the smaller lower scale of each row; a row that jobs of only one range use keeps this range."""
    lower = np.minimum(
        np.where(np.isfinite(one.log_lower), one.log_lower, two.log_lower),
        np.where(np.isfinite(two.log_lower), two.log_lower, one.log_lower),
    )
    return SideRanges(log_lower=lower, log_upper=np.maximum(one.log_upper, two.log_upper))


def _scale(side: SideRanges, upper: float, lower: float) -> SideRanges:
    log_lower = side.log_lower + np.log(lower)
    return SideRanges(log_lower=log_lower, log_upper=np.maximum(side.log_upper + np.log(upper), log_lower + MIN_RATIO))


def _side(
    instance: AdmissionInstance,
    servers: ServerClasses,
    lower: PriceFloorRule,
    stats: JobValueStats,
    value: FloatArray,
    smallest: FloatArray,
    largest: FloatArray,
) -> SideRanges:
    """Return the price ranges of the rows of workers' or PSs' servers."""
    shape = servers.capacity.shape
    if not len(stats.jobs):
        nothing = np.full(shape, -np.inf)
        return SideRanges(log_lower=nothing, log_upper=nothing)
    with np.errstate(divide="ignore"):
        log_upper = np.log((value[:, None] / smallest).max(axis=0))
        log_lower = _log_lower(instance, servers, lower, stats, largest)
    is_used = (largest > 0).any(axis=0) & (servers.capacity > 0)
    log_lower = np.where(is_used, log_lower, -np.inf)
    log_upper = np.where(is_used, np.maximum(log_upper, np.where(is_used, log_lower, 0.0) + MIN_RATIO), -np.inf)
    return SideRanges(log_lower=log_lower, log_upper=log_upper)


def _log_lower(
    instance: AdmissionInstance,
    servers: ServerClasses,
    lower: PriceFloorRule,
    stats: JobValueStats,
    largest: FloatArray,
) -> FloatArray:
    """Return the lower scale's logarithm, broadcastable to (classes, slots, resources)."""
    capacity = servers.capacity / MICRO
    total = float(np.einsum("ctr,c->", capacity, servers.count))
    num_resources = instance.num_resources
    # On shared servers one lambda serves workers and PSs together, and `largest` is the sum of both demands.
    halves = 1.0 if instance.has_shared_servers else 2.0
    with np.errstate(divide="ignore"):
        match lower:
            case PriceFloorRule.PAPER_L:
                need = stats.worker_slots * largest.sum(axis=1)
                if not need.any():
                    return np.array(-np.inf)
                # 1 / eta = min_i W_i sum_r w_i^r / total, over the jobs with a demand on this side. Logarithms first:
                # f(T - a) may underflow.
                return np.asarray(
                    (np.log(stats.least) - np.log(need)).min() + np.log(need[need > 0].min() / (4.0 * total))
                )
            case PriceFloorRule.SIMPLE_L:
                return np.asarray(np.log(stats.least.min() / (4.0 * total)))
            case PriceFloorRule.UNIT_FREE_L:
                return np.asarray(np.log(stats.least.min() / (2.0 * num_rows(instance) * capacity)))
            case PriceFloorRule.SUMMED_LAMBDA:
                each = stats.least / (halves * stats.worker_slots * largest.sum(axis=1))
                return np.asarray(np.log(each.min()))
            case PriceFloorRule.UNIT_FREE_LAMBDA:
                each = stats.least[:, None] / (halves * num_resources * stats.worker_slots[:, None] * largest)
                return np.asarray(np.log(each.min(axis=0)))


def num_rows(instance: AdmissionInstance) -> int:
    """Return the number of capacity rows of single servers that have any capacity."""
    sides = [instance.worker_servers] if instance.has_shared_servers else [instance.worker_servers, instance.ps_servers]
    return int(sum(np.einsum("ctr,c->", side.capacity > 0, side.count) for side in sides))


class RatioTheorem(StrEnum):
    """The competitive-ratio theorems, named by the form of price."""

    EXPONENTIAL = "exponential"
    ZERO_START = "zero-start"


@runtime_checkable
class PriceFunction(Protocol):
    """A non-decreasing price per unit of a row, as a function of the used share of its capacity.

    A class that sets `theorem: ClassVar[RatioTheorem]` claims that the theorem holds for its prices; without it no
    competitive ratio is claimed. Subclasses don't inherit the theorem, since they may override the prices. Only classes
    derived from `ZeroStartPrice` or `ExponentialPrice` can have one; `ratio_claim` compares their prices with its curve.
    """

    def price(self, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
        """Return prices in utility per unit of the resource.

        Parameters
        ----------
        share
            Used share of the capacity, any shape; values are clipped to [0, 1].
        log_lower, log_upper
            Same shape: logarithms of the lower scale and of U. A `log_lower` of minus infinity marks a row that no
            job uses; its price is 0.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialPrice:
    """``L (U / L)^(share / full_at)``: L when empty, U from `full_at` on.

    Parameters
    ----------
    full_at
        Share of the capacity at which the price reaches U, in (0, 1].

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422: the price functions p and q, which have ``full_at = 1``.
    """

    theorem: ClassVar[RatioTheorem] = RatioTheorem.EXPONENTIAL
    unit_free_scale: ClassVar[PriceFloorRule] = PriceFloorRule.UNIT_FREE_L
    simple_scale: ClassVar[PriceFloorRule] = PriceFloorRule.SIMPLE_L
    paper_scale: ClassVar[PriceFloorRule] = PriceFloorRule.PAPER_L

    full_at: float = 1.0

    def __post_init__(self) -> None:
        _check_full_at(self.full_at)

    def price(self, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
        """Return the prices, computed in logarithms since U / L may exceed any float."""
        level = np.clip(share / self.full_at, 0.0, 1.0)
        is_used = np.isfinite(log_lower)
        rise = np.where(is_used, log_upper - np.where(is_used, log_lower, 0.0), 0.0)
        # Exactly U at the full end, without the logarithms' rounding.
        exponent = np.where(level < 1.0, log_lower + level * rise, log_upper)
        return np.where(is_used, np.exp(np.minimum(exponent, log_upper)), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroStartPrice:
    """``lambda ((1 + U / lambda)^(share / full_at) - 1)``: 0 when empty, U from `full_at` on.

    Parameters
    ----------
    full_at
        Share of the capacity at which the price reaches U, in (0, 1].

    Notes
    -----
    The empty cluster costs nothing, so the dual starts at 0. The competitive ratio depends on neither the horizon
    nor the size of the cluster. The lower scale is lambda, not L.
    """

    theorem: ClassVar[RatioTheorem] = RatioTheorem.ZERO_START
    unit_free_scale: ClassVar[PriceFloorRule] = PriceFloorRule.UNIT_FREE_LAMBDA
    simple_scale: ClassVar[PriceFloorRule] = PriceFloorRule.SUMMED_LAMBDA
    paper_scale: ClassVar[PriceFloorRule] = PriceFloorRule.SUMMED_LAMBDA

    full_at: float = 1.0

    def __post_init__(self) -> None:
        _check_full_at(self.full_at)

    def price(self, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
        """Return the prices; `expm1` keeps those of nearly empty rows accurate."""
        level = np.clip(share / self.full_at, 0.0, 1.0)
        is_used = np.isfinite(log_lower)
        start = np.where(is_used, log_lower, 0.0)
        end = np.where(is_used, log_upper, 0.0)
        x = level * np.logaddexp(0.0, end - start)
        # exp(x) - 1 = exp(x) (1 - exp(-x)): overflows only if the price itself does.
        with np.errstate(divide="ignore"):
            exponent = start + x + np.log(-np.expm1(-x))
        exponent = np.where(level < 1.0, np.minimum(exponent, end), end)
        return np.where(is_used, np.exp(exponent), 0.0)


PROVEN = (ExponentialPrice, ZeroStartPrice)
"""The classes whose prices the theorems cover."""


def prices_of(function: PriceFunction, share: FloatArray, log_lower: FloatArray, log_upper: FloatArray) -> FloatArray:
    """Return a function's prices in utility per unit of the resource, checked unless the class belongs to this library.

    Raises
    ------
    InvalidOptionError
        If the prices don't have the shares' shape, or one is not a finite number of at least 0.
    """
    prices = function.price(share, log_lower, log_upper)
    if type(function) in PROVEN:
        return prices
    who = who_answers(function, "price")
    try:
        values = np.asarray(prices, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidOptionError(f"{who}: prices must be numbers, got {type(prices).__name__}") from error
    if values.shape != share.shape:
        raise InvalidOptionError(f"{who}: prices must have the shares' shape {share.shape}, got {values.shape}")
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        at = float(share[wrong][0])
        raise InvalidOptionError(
            f"{who}: prices must be finite numbers of at least 0, got {values[wrong][0]} at a used share of {at:.6g}"
        )
    return values


def where_falling(function: PriceFunction, ranges: PriceRanges) -> str:
    """Return where a custom function's prices fall as the used share grows; "" if nowhere on a grid of shares."""
    if type(function) in PROVEN:
        return ""
    for side in (ranges.worker, ranges.ps):
        ends = np.stack([side.log_lower.ravel(), side.log_upper.ravel()])
        lower, upper = np.unique(ends[:, np.isfinite(ends[0])], axis=1)[:, :, None]
        share = np.broadcast_to(np.linspace(0.0, 1.0, 65), (len(lower), 65))
        lower, upper = np.broadcast_to(lower, share.shape), np.broadcast_to(upper, share.shape)
        prices = prices_of(function, share.copy(), lower.copy(), upper.copy())
        falls = prices[:, 1:] < prices[:, :-1] * (1 - FALL_TOL)
        if falls.any():
            row, k = np.argwhere(falls)[0]
            return (
                f"{who_answers(function, 'price')}: the price falls from {prices[row, k]:.6g} to {prices[row, k + 1]:.6g} where the used "
                f"share grows from {share[row, k]:.3g} to {share[row, k + 1]:.3g}; online assumes prices that rise"
            )
    return ""


FALL_TOL = 1e-9
"""Relative fall of a price that counts as rounding."""


def theorem_of(function: PriceFunction) -> RatioTheorem | None:
    """Return the theorem that a price function's class itself states, or None."""
    theorem: RatioTheorem | None = vars(type(function)).get("theorem")
    return theorem


def _check_full_at(full_at: float) -> None:
    if not 0.0 < full_at <= 1.0:
        raise InvalidOptionError(f"full_at must be in (0, 1], got {full_at}")
