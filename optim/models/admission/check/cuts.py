"""Check the validity of server cuts, count cuts and slot cuts over all integer packings.

A server cut concerns one server; on shared servers its packings consist of (workers, PSs) pairs of jobs. A
count cut concerns a class of servers. The check merges the class into one large server with the sum of the
capacities, which is a relaxation. A cut valid for the merged server is valid for the class. A count cut that
is valid only for the single servers is rejected. For count cuts on shared servers, a job's workers and PSs
are treated as independent items, which is another relaxation. A slot cut concerns all servers in a slot. Its
knapsack rows replace the packings on single servers, which is a relaxation as well.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import le
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.solution import Violation, violation
from optim.models.admission.check import placement
from optim.models.admission.check.exact_instance import (
    Demand,
    ExactInstance,
    ExactJob,
    ServerFacts,
    ps_beside_on_one,
    smallest_demand,
    units_on_server,
)
from optim.models.admission.check.placement import in_class
from optim.models.admission.decision import CountCut, Cut, ServerCut, Side, SlotCut

STATE_LIMIT = 50_000
"""Largest number of partial packings in memory; a cut that needs more is rejected as unproven."""

FEW_STATES = 500
"""Number of partial packings above which a linear programme is solved for better weights of the relaxation."""

USE_LIMIT = 2_000_000
"""Largest number of options times rows of a slot cut; a cut that needs more is rejected as unproven."""

MAX_ROWS = 1_000
"""Largest number of rows of a slot cut; with more, the cut is rejected as unproven, since the check's memory is quadratic in it."""

MAX_BITS = 62
"""Capacities of more bits are rounded down to this number, so that their arithmetic fits 64 bits."""

MAX_GAIN = 2**50
"""Largest left-hand side: sums of gains stay exact in 64 bits and in doubles."""

ROUNDING = 1e-9
"""Relative amount by which the bounds of relaxations are raised, far above their rounding error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The numbers of units that a job (or its workers or PSs alone) may have on a cut's servers.

    `gains` and `uses` contain the gain and the use of each row's capacity for each of these numbers.
    """

    gains: tuple[int, ...]
    uses: tuple[tuple[int, ...], ...]


PREFIX: dict[type[Cut], str] = {ServerCut: "", CountCut: "count ", SlotCut: "slot cut "}
"""Text in front of a cut's number in violations, by form."""


class CutCheck:
    """Check cuts of all forms; each distinct cut is checked once, since trees repeat cuts at many leaves."""

    def __init__(self, exact: ExactInstance) -> None:
        self._exact = exact
        self._known: dict[Any, str | None] = {}
        self._valid: set[Any] = set()

    def violations(self, cut: Any, number: int, leaf: str, form: type[Cut] = ServerCut) -> list[Violation]:
        """Return the violations of a cut of the given form, an empty list if it is valid."""
        identity = _identity(cut) if isinstance(cut, form) else None
        if identity in self._valid and _malformed_multiplier(cut) is None:
            return []
        cause = self._malformed(cut, form)
        where = f"{PREFIX[form]}{number}{leaf}"
        if cause is None:
            where = f"{PREFIX[form]}{number}, {self._place(cut)}{leaf}"
            key = (*self._packings(cut), int(cut.right_hand_side))
            if key not in self._known:
                self._known[key] = find_violation(*key)
            cause = self._known[key]
        if cause is None and identity is not None:
            self._valid.add(identity)
        return [] if cause is None else [violation(placement.CUT, cause, where=where)]

    def _place(self, cut: Cut) -> str:
        if isinstance(cut, SlotCut):
            return f"slot {cut.slot}"
        return in_class(self._exact, cut.side, cut.server_class, cut.slot)

    def _packings(self, cut: Cut) -> tuple[tuple[Choice, ...], tuple[int, ...]]:
        """Return the jobs' choices and the capacities that limit them together."""
        if isinstance(cut, SlotCut):
            hosts = (Side.WORKER,) if self._exact.is_shared else (Side.WORKER, Side.PS)
            limits = (limit for side in hosts for limit in _row_limits(self._exact.servers(side), cut))
            return tuple(self._choices_of_numbers(cut)), tuple(limits)
        servers = self._exact.servers(cut.side)
        capacity = servers.capacity_at(cut.server_class, cut.slot)
        if isinstance(cut, ServerCut):
            return tuple(self._choices_of_units(cut)), capacity
        count = servers.count[cut.server_class]
        return tuple(self._choices_of_counts(cut)), tuple(count * amount for amount in capacity)

    def _malformed(self, cut: Any, form: type[Cut]) -> str | None:
        if not isinstance(cut, form):
            what = f"{PREFIX[form].removesuffix('cut ')}cut"
            return f"a {what} must be a {form.__name__}, got {type(cut).__name__}"
        cause = self._malformed_rows(cut) if isinstance(cut, SlotCut) else self._malformed_place(cut)
        cause = cause or self._malformed_gains(cut)
        if cause is not None:
            return cause
        if not isinstance(cut.right_hand_side, int | np.integer) or cut.right_hand_side < 0:
            return f"the right-hand side must be a whole number >= 0, got {cut.right_hand_side}"
        return _malformed_multiplier(cut)

    def _malformed_place(self, cut: ServerCut | CountCut) -> str | None:
        exact = self._exact
        if not isinstance(cut.side, Side) or (exact.is_shared and cut.side is not Side.WORKER):
            return f"side {cut.side!r} does not exist in the instance"
        if not _is_index(cut.server_class, len(exact.servers(cut.side).count)) or not _is_index(
            cut.slot, exact.horizon
        ):
            return f"class {cut.server_class} or slot {cut.slot} is outside the instance"
        return None

    def _malformed_rows(self, cut: SlotCut) -> str | None:
        if not _is_index(cut.slot, self._exact.horizon):
            return f"slot {cut.slot} is outside the instance"
        arrays = [np.asarray(array) for array in (cut.resource, cut.divisor)]
        if any(array.ndim != 1 or (array.size and array.dtype.kind != "i") for array in arrays) or (
            len(arrays[0]) != len(arrays[1])
        ):
            return "the rows of a slot cut must be whole numbers, one resource and one divisor per row"
        if len(arrays[0]) > MAX_ROWS:
            return f"the check accepts at most {MAX_ROWS} rows, got {len(arrays[0])}"
        resources, divisors = (array.tolist() for array in arrays)
        if not all(0 <= resource < len(self._exact.resources) for resource in resources):
            return "the resource of a row is outside the instance"
        if not all(divisor >= 1 for divisor in divisors):
            return f"divisors must be at least 1, got {min(divisors)}"
        return None

    def _malformed_gains(self, cut: Cut) -> str | None:
        is_shared, sides, dimensions = self._exact.is_shared, sides_of(cut), 1 if isinstance(cut, ServerCut) else 2
        if isinstance(cut, CountCut) and (cut.ps_gain is not None) != is_shared:
            return "ps_gain is required on shared servers and must be None on separate servers"
        jobs, arrays = np.asarray(cut.jobs), [np.asarray(array) for _, array in sides]
        if (
            jobs.ndim != 1
            or any(array.ndim != dimensions or len(array) != len(jobs) for array in arrays)
            or any(array.size and array.dtype.kind != "i" for array in (jobs, *arrays))
        ):
            each = "one row of gains" if dimensions == 2 else "one worker and one PS coefficient"
            return f"jobs and their gains must be whole numbers, {each} per job"
        numbers = jobs.tolist()
        if numbers != sorted(set(numbers)) or not all(0 <= job < len(self._exact.jobs) for job in numbers):
            return "jobs must be different, ascending jobs of the instance"
        if any(bool((array < 0).any()) for array in arrays):
            return f"{'gains' if dimensions == 2 else 'coefficients'} must not be negative"
        if any(bool((np.diff(array, axis=1) < 0).any()) for array in arrays if array.ndim == 2):
            return "gains must not decrease as the number of units increases"
        if (
            isinstance(cut, ServerCut)
            and not is_shared
            and any(array.any() for side, array in zip(sides, arrays, strict=True) if side[0] != cut.side)
        ):
            return "on separate servers, a cut on worker servers must have PS coefficients 0, and one on PS servers worker coefficients 0"
        if isinstance(cut, SlotCut):
            num_options = np.count_nonzero(np.diff(arrays[0], axis=1, prepend=0))
            if num_options * len(cut.resource) > USE_LIMIT:
                return (
                    f"the check of {num_options} gains in {len(cut.resource)} rows needs more than {USE_LIMIT} numbers"
                )
        return None

    def _present(self, cut: Cut) -> Iterator[tuple[int, ExactJob, Demand]]:
        """Yield the jobs that can run in a cut's slot, each with its row in the cut and its smallest demand."""
        for row, index in enumerate(np.asarray(cut.jobs).tolist()):
            job = self._exact.jobs[index]
            if job.arrival <= cut.slot <= job.deadline:
                yield row, job, smallest_demand(job.demands)

    def _choices_of_units(self, cut: ServerCut) -> Iterator[Choice]:
        """Yield the options of each job on one server; on shared servers workers and PSs form pairs."""
        share, capacity = self._exact.share, self._exact.servers(cut.side).capacity_at(cut.server_class, cut.slot)
        for row, job, demand in self._present(cut):
            gain, ps_gain = int(cut.worker_coefficient[row]), int(cut.ps_coefficient[row])
            most = (job.max_workers, job.ps_needed(job.max_workers))
            if self._exact.is_shared:
                beside = (ps_beside_on_one(demand, capacity, share, y, most[1]) for y in range(most[0] + 1))
                max_ps = list(takewhile(lambda z: z >= 0, beside))
            elif cut.side is Side.WORKER:
                max_ps = [0] * (1 + units_on_server(demand.worker, capacity, share, most[0]))
            else:
                max_ps = [units_on_server(demand.ps, capacity, share, most[1])]
            options = {
                (y * gain + z * ps_gain, tuple(y * w + z * s for w, s in zip(demand.worker, demand.ps, strict=True)))
                for y, limit in enumerate(max_ps if gain else max_ps[:1])
                for z in range(limit + 1 if ps_gain else 1)
            }
            yield from _choice(options)

    def _choices_of_counts(self, cut: CountCut) -> Iterator[Choice]:
        """Yield the options of each job on a class; on shared servers workers and PSs are separate items."""
        servers = self._exact.servers(cut.side)
        capacity, count = servers.capacity_at(cut.server_class, cut.slot), servers.count[cut.server_class]
        for side, gains in sides_of(cut):
            for row, job, demand in self._present(cut):
                gain, unit = np.asarray(gains)[row].tolist(), demand.of(side)
                most = job.max_workers if side is Side.WORKER else job.ps_needed(job.max_workers)
                units = min(most, count * units_on_server(unit, capacity, self._exact.share, most)) if gain else 0
                yield from _choice(
                    {(gain[min(n, len(gain)) - 1], tuple(n * u for u in unit)) for n in range(1, units + 1)}
                )

    def _choices_of_numbers(self, cut: SlotCut) -> Iterator[Choice]:
        """Yield the options of each job on all servers: its numbers of workers, each with the PSs that it needs."""
        rows = _rows_of(cut)
        for row, job, demand in self._present(cut):
            gain = np.asarray(cut.gain)[row].tolist()
            most, most_ps = (self._most_units(job, demand, side, cut.slot) for side in (Side.WORKER, Side.PS))
            worker, ps = ([demand.of(side)[r] // divisor for r, divisor in rows] for side in (Side.WORKER, Side.PS))
            # Of the numbers with equal gain the smallest has the least use.
            numbers = (y for y in range(1, min(most, len(gain)) + 1) if gain[y - 1] > (gain[y - 2] if y > 1 else 0))
            options: set[tuple[int, tuple[int, ...]]] = set()
            for y in numbers:
                z = job.ps_needed(y)
                if z > most_ps:
                    break
                uses = [y * unit for unit in worker], [z * unit for unit in ps]
                use = map(sum, zip(*uses, strict=True)) if self._exact.is_shared else (*uses[0], *uses[1])
                options.add((gain[y - 1], tuple(use)))
            yield from _choice(options)

    def _most_units(self, job: ExactJob, demand: Demand, side: Side, slot: int) -> int:
        """Return the maximum number of a job's workers or PSs that fit all servers of a slot without other units."""
        servers = self._exact.servers(side)
        most = job.max_workers if side is Side.WORKER else job.ps_needed(job.max_workers)
        units = sum(
            count * units_on_server(demand.of(side), servers.capacity_at(c, slot), self._exact.share, most)
            for c, count in enumerate(servers.count)
        )
        return min(most, units)


def _is_index(number: Any, size: int) -> bool:
    return isinstance(number, int | np.integer) and 0 <= int(number) < size


def _rows_of(cut: SlotCut) -> list[tuple[int, int]]:
    """Return the resource and the divisor of each row of a slot cut."""
    return list(zip(np.asarray(cut.resource).tolist(), np.asarray(cut.divisor).tolist(), strict=True))


def _row_limits(servers: ServerFacts, cut: SlotCut) -> Iterator[int]:
    """Yield the capacity of each row of a slot cut, summed over all servers of one side."""
    capacity = [servers.capacity_at(c, cut.slot) for c in range(len(servers.count))]
    for r, divisor in _rows_of(cut):
        yield sum(count * (limit[r] // divisor) for count, limit in zip(servers.count, capacity, strict=True))


def _malformed_multiplier(cut: Any) -> str | None:
    if isinstance(cut.multiplier, float | int) and 0 <= cut.multiplier <= sys.float_info.max:
        return None
    return f"the multiplier must be a finite number >= 0, got {cut.multiplier}"


def _identity(cut: Cut) -> tuple[Any, ...] | None:
    """Return a key of all fields but the multiplier; None if one of them has another type than it should."""
    place = () if isinstance(cut, SlotCut) else (cut.side, cut.server_class)
    numbers = (*place[1:], cut.slot, cut.right_hand_side)
    rows = (cut.resource, cut.divisor) if isinstance(cut, SlotCut) else ()
    arrays = (cut.jobs, *(gains for _, gains in sides_of(cut)), *rows)
    if not (
        all(isinstance(side, Side) for side in place[:1])
        and all(isinstance(number, int | np.integer) for number in numbers)
        and all(isinstance(array, np.ndarray) and array.dtype == np.int64 for array in arrays)
    ):
        return None
    return (type(cut), *place, *numbers[-2:], *((array.shape, array.tobytes()) for array in arrays))


def sides_of(cut: Cut) -> list[tuple[Side, IntArray]]:
    """Return the sides with units in the cut, each with its table of gains."""
    if isinstance(cut, ServerCut):
        return [(Side.WORKER, cut.worker_coefficient), (Side.PS, cut.ps_coefficient)]
    if isinstance(cut, SlotCut):
        return [(Side.WORKER, cut.gain)]
    return [(cut.side, cut.gain), *([] if cut.ps_gain is None else [(Side.PS, cut.ps_gain)])]


def _choice(options: Iterable[tuple[int, tuple[int, ...]]]) -> Iterator[Choice]:
    """Yield the choice of all options with a gain, if any; dominated options of equal gain are dropped."""
    useful: list[tuple[int, tuple[int, ...]]] = []
    for gain, use in sorted(options):
        if gain > 0 and not (useful and useful[-1][0] == gain and all(map(le, useful[-1][1], use))):
            useful.append((gain, use))
    if useful:
        yield Choice(gains=tuple(gain for gain, _ in useful), uses=tuple(use for _, use in useful))


def find_violation(choices: Sequence[Choice], limits: tuple[int, ...], right_hand_side: int) -> str | None:
    """Return why a packing may exceed the right-hand side, None if no packing exceeds it.

    The search extends all partial packings by one job at a time. Among packings with equal free capacity only
    the one of largest gain remains. A packing is dropped if the fractional relaxation of the remaining jobs
    cannot exceed the right-hand side. The relaxation considers one resource at a time, and a weighted sum of
    the resources; it is valid for all non-negative weights. Equal weights usually suffice; otherwise the dual
    of the fractional packing problem gives better ones. Free capacities and gains are exact; the relaxation
    is rounded outward. A capacity of more than `MAX_BITS` bits and its uses are divided by a power of two and
    rounded down; every packing still fits.
    """
    total = sum(max(choice.gains) for choice in choices)
    if total > MAX_GAIN:
        return f"the left-hand side may exceed {MAX_GAIN}, the limit of the check; scale the cut down"
    # Rows that all jobs together cannot exhaust are ignored.
    most = [sum(max(use[r] for use in one.uses) for one in choices) for r in range(len(limits))]
    binding = [(r, max(0, most[r].bit_length() - MAX_BITS)) for r, limit in enumerate(limits) if most[r] > limit]
    gains = [np.array(choice.gains, dtype=np.int64) for choice in choices]
    uses = [
        np.array([[use[r] >> shift for r, shift in binding] for use in one.uses], dtype=np.int64).reshape(
            len(one.uses), len(binding)
        )
        for one in choices
    ]
    capacity = np.array([limits[r] >> shift for r, shift in binding], dtype=np.int64)
    shares = 1.0 / np.maximum(capacity, 1.0)
    exceeds = _can_exceed(gains, uses, capacity, shares, right_hand_side, min(FEW_STATES, STATE_LIMIT))
    if exceeds is None:
        weights = _dual_weights(gains, uses, capacity, shares)
        exceeds = _can_exceed(gains, uses, capacity, weights, right_hand_side, STATE_LIMIT)
    if exceeds is None:
        return f"the check of the right-hand side {right_hand_side} needs more than {STATE_LIMIT} packings"
    return f"a packing of the possible units exceeds the right-hand side {right_hand_side}" if exceeds else None


def _can_exceed(
    gains: Sequence[IntArray],
    uses: Sequence[IntArray],
    capacity: IntArray,
    weights: FloatArray,
    right_hand_side: int,
    limit: int,
) -> bool | None:
    """Return whether a packing exceeds the right-hand side; None if the search needs more than `limit` packings.

    The relaxation considers one resource at a time, and the sum of the resources with `weights`.
    """
    weightings = np.vstack([np.eye(len(capacity)), weights])
    slopes = [_slopes(gain, use, weightings) for gain, use in zip(gains, uses, strict=True)]
    order = sorted(range(len(gains)), key=lambda index: (-slopes[index][-1], index))
    margin = ROUNDING * (1 + sum(int(gain[-1]) for gain in gains))
    rest, gained = capacity.reshape(1, -1), np.zeros(1, dtype=np.int64)
    for place, index in enumerate(order):
        rest, gained = _with_job(gains[index], uses[index], rest, gained)
        if bool((gained > right_hand_side).any()):
            return True
        reach = (
            gained
            + _outlook([(gains[k], slopes[k]) for k in order[place + 1 :]], rest.astype(np.float64) @ weightings.T)
            + margin
        )
        keeps = reach >= right_hand_side + 1
        rest, gained = _without_repeats(rest[keeps], gained[keeps])
        if len(gained) > limit:
            return None
    return False


def _dual_weights(
    gains: Sequence[IntArray], uses: Sequence[IntArray], capacity: IntArray, shares: FloatArray
) -> FloatArray:
    """Return the dual prices of the fractional packing problem; equal weights if the LP has no solution."""
    from scipy.optimize import linprog

    if len(capacity) < 2:
        return shares
    gain, use = np.concatenate(gains), np.concatenate(uses)
    once = np.repeat(np.arange(len(gains)), [len(each) for each in gains]) == np.arange(len(gains))[:, None]
    result = linprog(
        -gain.astype(np.float64),
        A_ub=np.vstack([use.T * shares[:, None], once]),
        b_ub=np.concatenate([capacity * shares, np.ones(len(gains))]),
        method="highs",
    )
    if not result.success:
        return shares
    weights: FloatArray = np.maximum(-result.ineqlin.marginals[: len(capacity)], 0.0) * shares
    return weights if weights.any() else shares


def _slopes(gain: IntArray, use: IntArray, weights: FloatArray) -> FloatArray:
    """Return a job's best gain per unit of weighted use for each row of `weights`; infinite if the job uses nothing."""
    with np.errstate(divide="ignore"):
        slopes: FloatArray = (gain[:, None] / (use @ weights.T)).max(axis=0)
    return slopes


def _with_job(gain: IntArray, use: IntArray, rest: IntArray, gained: IntArray) -> tuple[IntArray, IntArray]:
    """Return all packings extended by one more job: without it, and with each of its options."""
    rests, gains = [rest], [gained]
    for more, option_use in zip(gain, use, strict=True):
        residual = rest - option_use
        fits = (residual >= 0).all(axis=1)
        rests.append(residual[fits])
        gains.append(gained[fits] + more)
    return np.concatenate(rests), np.concatenate(gains)


def _outlook(jobs: Sequence[tuple[IntArray, FloatArray]], residual: FloatArray) -> FloatArray:
    """Return an upper bound on the remaining jobs' gain in each packing's free capacity, shape (packings,).

    `residual` has one column per weighting of the resources. For each weighting, jobs gain at their best rates per
    weighted use, up to their largest gains; the smallest of these bounds is returned.
    """
    max_gain = np.array([gain[-1] for gain, _ in jobs], dtype=np.float64)
    most = np.full(len(residual), max_gain.sum())
    for column in range(residual.shape[1]):
        slope = np.array([slopes[column] for _, slopes in jobs])
        order = np.argsort(-slope, kind="stable")
        ends = np.cumsum(np.concatenate([[0.0], max_gain[order] / slope[order]]))
        reach = np.cumsum(np.concatenate([[0.0], max_gain[order]]))
        # Of equal ends (from jobs that use nothing), the last one is kept.
        last = np.append(np.diff(ends) > 0, True)
        most = np.minimum(most, np.interp(residual[:, column] * (1 + ROUNDING), ends[last], reach[last]))
    return most


def _without_repeats(rest: IntArray, gain: IntArray) -> tuple[IntArray, IntArray]:
    """Among packings with equal free capacity return only the one of largest gain."""
    order = np.lexsort((-gain, *rest.T))
    rest, gain = rest[order], gain[order]
    is_new = np.ones(len(gain), dtype=bool)
    is_new[1:] = (rest[1:] != rest[:-1]).any(axis=1)
    return rest[is_new], gain[is_new]
