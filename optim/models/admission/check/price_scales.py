"""U, the lower scale and the competitive ratio of an `online` run, recomputed from the instance and the run's options.

U is the price of a row at full use; the lower scale (lambda for the zero-start price, L for the exponential price) is the
other constant of its price curve. docs/mathematics/admission.md, section 5, states the curves and conditions C1 to C6. The
scales, eps and conditions C1, C2, C3 and C5 are derived from the instance without the solver's code.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray
from optim.models.admission.check.exact_instance import ExactInstance, ExactJob, values_of
from optim.models.admission.check.ratio import EXPONENTIAL, ZERO_START, ratio_of
from optim.models.admission.check.schedules import earliest_completion, max_share
from optim.models.admission.data import MICRO
from optim.models.admission.decision import Side

RECOMPUTED_BOUNDS = ("oracle", "first", "paper")
"""Values of the option `bounds` with which U and the lower scale follow from the instance."""

STATED_BOUNDS = ("history", "estimated")
"""Values of `bounds` with which the certificate states ln(U / lower scale): U comes from other files or a random sample."""

LEAST_RISE = 1e-9
"""Minimum of ln(U / lower scale) in every row."""

SLACK = 1e-9
"""Tolerance of conditions, for rounding."""


class RatioRefusedError(Exception):
    """The theorem proves no ratio for these options, or the ratio can't be recomputed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _JobFigures:
    """One schedulable job: values at its earliest and last completion, maximum worker-slots, smallest and largest demands."""

    most: float
    least: float
    worker_slots: int
    smallest: Mapping[Side, FloatArray]
    largest: Mapping[Side, FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Capacity rows of one side: logarithms of U (by resource) and of the lower scale (classes, slots, resources)."""

    capacity: FloatArray
    count: FloatArray
    log_lower: FloatArray
    log_upper: FloatArray

    @property
    def rise(self) -> FloatArray:
        """ln(U / lower scale) of the rows that jobs use."""
        is_used = np.isfinite(self.log_lower)
        return np.broadcast_to(self.log_upper, self.log_lower.shape)[is_used] - self.log_lower[is_used]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputedRatio:
    """A competitive ratio, and the numbers of two of its conditions.

    Parameters
    ----------
    ratio
        ``A + max(1, A)`` (A.29) or ``2 A`` (A.28); infinite if it exceeds the largest double.
    upper
        C2: smallest quotient, over all rows, of U and the largest value of a job over its smallest use of the row.
    start
        C5: largest quotient of ``sum_j lambda_j a_j`` and the job's value (zero start); or D_0, the value of all
        servers at the lower scale, and the best single job's value (exponential).
    """

    ratio: float
    upper: float
    start: tuple[float, ...]


def recompute_ratio(exact: ExactInstance, theorem: str, options: Mapping[str, Any]) -> RecomputedRatio:
    """Return the ratio that the theorem proves for a run of `online`, and the numbers of its conditions.

    Parameters
    ----------
    exact
        The instance.
    theorem
        `ZERO_START` or `EXPONENTIAL`.
    options
        The run's options; missing ones have their defaults.

    Raises
    ------
    RatioRefusedError
        If a condition fails, or the options don't determine U and the lower scale.
    """
    bounds, given = str(options.get("bounds", "oracle")), option_numbers(options)
    if bounds not in RECOMPUTED_BOUNDS:
        raise RatioRefusedError(f"U and the lower scale of bounds={bounds} can't be recomputed from the instance")
    factors, share = (math.log(given["upper_scale"]), math.log(given["lower_scale"])), given["sample_share"]
    eps = max_share(exact)
    full = 1.0 - given.get("eps", float(eps)) if options.get("strict", False) else 1.0
    if eps >= 1:
        raise RatioRefusedError("C1 fails: one job can take an entire server")
    if not 0.0 < full <= (1.0 - float(eps)) * (1.0 + SLACK):
        raise RatioRefusedError(
            f"C3 fails: with the run's options, U is reached at {full:.6g} of the capacity, but eps is {eps}"
        )
    figures = {job.index: _figures(exact, job) for job in exact.jobs}
    known = [figure for figure in figures.values() if figure is not None]
    chosen = known
    if bounds == "first":
        order = sorted(exact.jobs, key=lambda job: job.arrival)
        first = order[: max(1, round(share * len(order)))]
        chosen = [
            figure for job in sorted(first, key=lambda job: job.index) if (figure := figures[job.index]) is not None
        ]
    elif bounds == "paper":
        chosen = [
            _paper_figures(exact, job, figure) for job in exact.jobs if (figure := figures[job.index]) is not None
        ]
    scale = bounds if bounds == "paper" else "unit-free" if options.get("unit_free", True) else "simple"
    rows = {side: _rows(exact, side, chosen, theorem, scale, factors) for side in _sides(exact)}
    upper = _check_upper(exact, rows, known)
    start = (_check_scale if theorem == ZERO_START else _check_start)(rows, known)
    rise = np.concatenate([side.rise for side in rows.values()])
    return RecomputedRatio(
        ratio=ratio_of(theorem, eps, full, float(rise.max(initial=-np.inf))), upper=upper, start=start
    )


def option_numbers(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers among the options of a run of `online`; `eps` only if it is given.

    Raises
    ------
    RatioRefusedError
        If an option is not a number, or is out of its range.
    """
    usual = {"upper_scale": 1.0, "lower_scale": 1.0, "sample_share": 0.1, "eps": None}
    stated = {name: options.get(name, value) for name, value in usual.items()}
    try:
        numbers = {name: float(value) for name, value in stated.items() if value is not None}
    except (TypeError, ValueError) as error:
        raise RatioRefusedError(f"the run's options are not numbers: {error}") from error
    for name, number in numbers.items():
        is_valid = 0.0 <= number < 1.0 if name == "eps" else 0.0 < number < math.inf
        if not is_valid or (name == "sample_share" and number > 1.0):
            raise RatioRefusedError(f"an option of the run is out of its range: {name} is {number}")
    if not {"upper_scale", "lower_scale", "sample_share"} <= numbers.keys():
        raise RatioRefusedError("the run's options are not numbers: one of them is null")
    return numbers


def least_spread(exact: ExactInstance, theorem: str) -> float:
    """Return the smallest spread ln(U / lower scale) with which conditions C2 and C5 hold for all jobs.

    By C2, U of row j is at least d_j, the largest value of a job over its smallest use of row j. Let s be the largest
    U / lower scale of a row. For the zero-start price, C5 is ``sum_j lambda_j a_j <= v`` for each job with largest use a_j
    and least value v, and lambda_j is the lower scale, so that ``s >= sum_j d_j a_j / v``. For the exponential price, C5 is
    ``sum_j L_j c_j <= v / 2`` for lower scales L_j, capacities c_j and the best job's value v: ``s >= 2 sum_j d_j c_j / v``.
    """
    known = [figure for job in exact.jobs if (figure := _figures(exact, job)) is not None]
    rows = {side: _rows(exact, side, known, EXPONENTIAL, "simple") for side in _sides(exact)}
    highest = {
        side: replace(row, log_lower=np.where(np.isfinite(row.log_lower), row.log_upper, -np.inf))
        for side, row in rows.items()
    }
    if theorem == EXPONENTIAL:
        most = max((job.most for job in known), default=0.0)
        least = 2 * _start(highest) / most if most > 0 else 0.0
    else:
        least = _largest_scale(highest, known)
    return math.log(least) if least > 0 else -math.inf


def _sides(exact: ExactInstance) -> tuple[Side, ...]:
    return (Side.WORKER,) if exact.is_shared else (Side.WORKER, Side.PS)


def _figures(exact: ExactInstance, job: ExactJob) -> _JobFigures | None:
    """Return the numbers of a job, None if it can't complete alone in time."""
    earliest = earliest_completion(exact, job)
    if earliest is None:
        return None
    demands = {side: np.array([demand.of(side) for demand in job.demands]) / MICRO for side in (Side.WORKER, Side.PS)}
    return _JobFigures(
        most=job.value[earliest],
        least=job.value[job.deadline],
        worker_slots=_worker_slots(job),
        smallest={side: np.where(table > 0, table, np.inf).min(axis=0) for side, table in demands.items()},
        largest={side: table.max(axis=0) for side, table in demands.items()},
    )


def _worker_slots(job: ExactJob) -> int:
    """Return an upper bound on the worker-slots of the job's schedules without superfluous workers."""
    window = max(1, job.deadline - job.arrival + 1)
    if job.is_chunk_integral:
        slots = min(job.target, window)
        whole = job.target * math.ceil(job.chunk_slots), math.floor(job.target * job.chunk_slots + slots)
        return max(1, min(*whole, slots * job.max_workers))
    if not job.speedup:
        return job.target
    progress = [job.progress(workers) for workers in range(job.max_workers + 1)]
    gains = [after - before for before, after in pairwise(progress)]
    useful = [workers for workers, gain in enumerate(gains, start=1) if gain > 0]
    slowest = max(Fraction(workers, progress[workers]) for workers in useful)
    return max(1, min(math.floor(slowest * (job.target - 1 + max(gains))), window * useful[-1]))


def _paper_figures(exact: ExactInstance, job: ExactJob, figure: _JobFigures) -> _JobFigures:
    """Return a job's numbers with the paper's values: at the fastest completion with N workers, and in the last slot."""
    if job.is_chunk_integral:
        fastest = math.ceil(Fraction(max(1, math.ceil(job.target * job.chunk_slots)), job.chunks))
    else:
        fastest = math.ceil(Fraction(job.target, job.progress(job.chunks)))
    left = exact.horizon - job.arrival
    values = values_of(job.utility, max(fastest, left))
    least = values[left - 1] if values[left - 1] > 0 else figure.least
    return _JobFigures(
        most=values[fastest - 1],
        least=least,
        worker_slots=figure.worker_slots,
        smallest=figure.smallest,
        largest=figure.largest,
    )


def _rows(
    exact: ExactInstance,
    side: Side,
    jobs: Sequence[_JobFigures],
    theorem: str,
    scale: str,
    factors: tuple[float, float] = (0.0, 0.0),
) -> _Rows:
    """Return a side's rows; `factors` are the logarithms of the factors applied to U and to the lower scale."""
    servers = exact.servers(side)
    capacity, count = servers.capacity / MICRO, np.array(servers.count, dtype=np.float64)
    if not jobs:
        nothing = np.full(capacity.shape, -np.inf)
        return _Rows(capacity=capacity, count=count, log_lower=nothing, log_upper=nothing)
    if exact.is_shared:
        smallest = np.array([np.minimum(job.smallest[Side.WORKER], job.smallest[Side.PS]) for job in jobs])
        largest = np.array([job.largest[Side.WORKER] + job.largest[Side.PS] for job in jobs])
    else:
        smallest, largest = (np.array([demand[side] for demand in table]) for table in
                             ([job.smallest for job in jobs], [job.largest for job in jobs]))  # fmt: skip
    most = np.array([job.most for job in jobs])
    least, slots = np.array([job.least for job in jobs]), np.array([float(job.worker_slots) for job in jobs])
    num_sides = 1.0 if exact.is_shared else 2.0
    total = float((capacity.sum(axis=(1, 2)) * count).sum())
    needed = slots[:, None] * largest
    with np.errstate(divide="ignore"):
        upper = np.log((most[:, None] / smallest).max(axis=0))
        if theorem == ZERO_START and scale == "unit-free":
            lower = np.log((least[:, None] / (num_sides * len(exact.resources) * needed)).min(axis=0))
        elif theorem == ZERO_START:
            lower = np.log((least / (num_sides * needed.sum(axis=1))).min())
        elif scale == "unit-free":
            lower = np.log(least.min() / (2.0 * _num_rows(exact) * capacity))
        elif scale == "simple":
            lower = np.log(least.min() / (4.0 * total))
        else:
            need = needed.sum(axis=1)
            has_need = need > 0
            lower = np.log(least[has_need] / need[has_need]).min(initial=np.inf)
            lower = lower + np.log(need[has_need].min() / (4.0 * total)) if has_need.any() else -np.inf
    is_used = (largest > 0).any(axis=0) & (capacity > 0)
    log_lower = np.where(is_used, lower, -np.inf)
    log_upper = np.where(is_used, np.maximum(upper, log_lower + LEAST_RISE), -np.inf)
    log_lower = log_lower + factors[1]
    return _Rows(
        capacity=capacity,
        count=count,
        log_lower=log_lower,
        log_upper=np.maximum(log_upper + factors[0], log_lower + LEAST_RISE),
    )


def _num_rows(exact: ExactInstance) -> int:
    """Return the number of rows (server, slot, resource) with positive capacity, over all single servers."""
    tables = [(exact.servers(side).capacity, exact.servers(side).count) for side in _sides(exact)]
    return sum(int((capacity > 0).sum(axis=(1, 2)) @ np.array(count, dtype=np.int64)) for capacity, count in tables)


def _check_upper(exact: ExactInstance, rows: Mapping[Side, _Rows], known: Sequence[_JobFigures]) -> float:
    """Check C2 (U is at least every job's value per smallest unit demand); return the smallest ratio of the two."""
    least = math.inf
    for side, stated in rows.items():
        needed = _rows(exact, side, known, EXPONENTIAL, "simple")
        is_used = np.isfinite(needed.log_lower)
        least = min(least, float((stated.log_upper[is_used] - needed.log_upper[is_used]).min(initial=np.inf)))
    if least < -SLACK:
        raise RatioRefusedError("C2 fails: with the run's options, U is below a job's value per unit")
    return 1.0 if least == math.inf else math.exp(least)


def _check_scale(rows: Mapping[Side, _Rows], known: Sequence[_JobFigures]) -> tuple[float]:
    """Check C5 of the zero-start price: lambda times a job's use is at most its value; return the largest quotient."""
    share = _largest_scale(rows, known)
    if share > 1 + SLACK:
        raise RatioRefusedError(
            "C5 fails: with the run's options, the sum of lambda times a job's use exceeds the job's value"
        )
    return (share,)


def _largest_scale(rows: Mapping[Side, _Rows], known: Sequence[_JobFigures]) -> float:
    """Return the largest quotient, over all jobs, of lambda times a job's use and the job's value."""
    scale = {side: np.exp(row.log_lower.max(axis=(0, 1), initial=-np.inf)) for side, row in rows.items()}
    scale.setdefault(Side.PS, scale[Side.WORKER])
    return max(
        (job.worker_slots * sum(float(job.largest[side] @ scale[side]) for side in scale) / job.least for job in known),
        default=0.0,
    )


def _check_start(rows: Mapping[Side, _Rows], known: Sequence[_JobFigures]) -> tuple[float, float]:
    """Check C5 of the exponential price: D_0 is at most half of the best single job's value; return both numbers."""
    initial, most = _start(rows), max((job.most for job in known), default=0.0)
    if 2 * initial > most * (1 + SLACK):
        raise RatioRefusedError("C5 fails: with the run's options, D_0 exceeds half of the best job's value")
    return initial, most


def _start(rows: Mapping[Side, _Rows]) -> float:
    """Return D_0, the value of all servers at the lower scale."""
    return sum(float((np.exp(row.log_lower) * row.capacity).sum(axis=(1, 2)) @ row.count) for row in rows.values())
