"""Whether server cuts and count cuts hold, over all integer packings.

A server cut is about one server: on shared servers it holds pairs of workers and PSs of a job. A count cut is about a class,
whose servers are looked at as one large one that holds the sum of their capacities. It holds whatever they do, so that a cut
that is shown for it is shown for them; a count cut that holds for the single servers only is refused. Here a job's workers and
PSs are looked at as two that have nothing to do with each other, which holds whatever both may be.
"""

import math
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
    ps_beside_on_one,
    smallest_demand,
    units_on_server,
)
from optim.models.admission.check.placement import in_class
from optim.models.admission.decision import CountCut, ServerCut, Side

STATE_LIMIT = 50_000
"""Partial packings kept at once in a search; a cut that needs more is refused as not shown."""

FEW_STATES = 500
"""Partial packings from which it pays to find better weights for the relaxation by a linear programme."""

MAX_GAIN = 2**50
"""Largest left-hand side: sums of gains stay exact in 64 bits and in doubles."""

ROUNDING = 1e-9
"""Far more than the relative rounding error of the relaxations, which are raised by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a job, or its workers or PSs alone, may have in a cut's place, nothing apart: what that gains and uses."""

    gains: tuple[int, ...]
    uses: tuple[tuple[int, ...], ...]


class CutCheck:
    """Check cuts of both forms, each distinct one once: trees repeat the same cuts at many leaves."""

    def __init__(self, exact: ExactInstance) -> None:
        self._exact = exact
        self._known: dict[Any, str | None] = {}

    def violations(
        self, cut: Any, number: int, leaf: str, form: type[ServerCut] | type[CountCut] = ServerCut
    ) -> list[Violation]:
        """Return what is wrong with a cut that should have a form, nothing if it is valid."""
        prefix = "count " if form is CountCut else ""
        cause = self._malformed(cut, form, f"a {prefix}cut")
        where = f"{prefix}{number}{leaf}"
        if cause is None:
            where = f"{prefix}{number}, {in_class(self._exact, cut.side, cut.server_class, cut.slot)}{leaf}"
            servers = self._exact.servers(cut.side)
            count = servers.count[cut.server_class] if form is CountCut else 1
            capacity = tuple(count * amount for amount in servers.capacity_at(cut.server_class, cut.slot))
            choices = tuple(self._choices_of_counts(cut) if form is CountCut else self._choices_of_units(cut))
            key = (choices, capacity, int(cut.right_hand_side))
            if key not in self._known:
                self._known[key] = find_violation(*key)
            cause = self._known[key]
        return [] if cause is None else [violation(placement.CUT, cause, where=where)]

    def _malformed(self, cut: Any, form: type[Any], what: str) -> str | None:
        if not isinstance(cut, form):
            return f"{what} must be a {form.__name__}, got {type(cut).__name__}"
        exact = self._exact
        if not isinstance(cut.side, Side) or (exact.is_shared and cut.side is not Side.WORKER):
            return f"side {cut.side!r} isn't one of the instance's"
        places = ((cut.server_class, len(exact.servers(cut.side).count)), (cut.slot, exact.horizon))
        if not all(isinstance(at, int | np.integer) and 0 <= at < size for at, size in places):
            return f"class {cut.server_class} or slot {cut.slot} is outside the instance"
        cause = self._malformed_gains(cut)
        if cause is not None:
            return cause
        if not isinstance(cut.right_hand_side, int | np.integer) or cut.right_hand_side < 0:
            return f"the right-hand side must be a whole number >= 0, got {cut.right_hand_side}"
        if not (isinstance(cut.multiplier, float | int) and math.isfinite(cut.multiplier) and cut.multiplier >= 0):
            return f"the multiplier must be a finite number >= 0, got {cut.multiplier}"
        return None

    def _malformed_gains(self, cut: ServerCut | CountCut) -> str | None:
        is_shared, sides, dimensions = self._exact.is_shared, sides_of(cut), 1
        if isinstance(cut, CountCut):
            dimensions = 2
            if (cut.ps_gain is not None) != is_shared:
                return "PSs have gains beside the workers' where both share servers, and nowhere else"
        jobs, arrays = np.asarray(cut.jobs), [np.asarray(array) for _, array in sides]
        if (
            jobs.ndim != 1
            or any(array.ndim != dimensions or len(array) != len(jobs) for array in arrays)
            or any(array.size and array.dtype.kind != "i" for array in (jobs, *arrays))
        ):
            each = "one row of gains" if dimensions == 2 else "one coefficient of either side"
            return f"jobs and what they gain must be whole numbers, {each} a job"
        numbers = jobs.tolist()
        if numbers != sorted(set(numbers)) or not all(0 <= job < len(self._exact.jobs) for job in numbers):
            return "jobs must be different, ascending jobs of the instance"
        if any(bool((array < 0).any()) for array in arrays):
            return f"{'gains' if dimensions == 2 else 'coefficients'} must not be negative"
        if any(bool((np.diff(array, axis=1) < 0).any()) for array in arrays if array.ndim == 2):
            return "gains must not fall with the number of units"
        if not is_shared and any(array.any() for side, array in zip(sides, arrays, strict=True) if side[0] != cut.side):
            return "coefficients of the other side's units must be 0 on separate servers"
        return None

    def _present(self, cut: ServerCut | CountCut) -> Iterator[tuple[int, ExactJob, Demand]]:
        """Yield the jobs that can be there in the slot at all, each with its row in the cut and its smallest demand."""
        for row, index in enumerate(np.asarray(cut.jobs).tolist()):
            job = self._exact.jobs[index]
            if job.arrival <= cut.slot <= job.deadline:
                yield row, job, smallest_demand(job.demands)

    def _choices_of_units(self, cut: ServerCut) -> Iterator[Choice]:
        """Yield what one server holds of each job: its workers and PSs together where servers are shared."""
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
        """Yield what a class holds of each job; where servers are shared workers and PSs apart."""
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


def sides_of(cut: ServerCut | CountCut) -> list[tuple[Side, IntArray]]:
    """Return whose units gain what."""
    if isinstance(cut, ServerCut):
        return [(Side.WORKER, cut.worker_coefficient), (Side.PS, cut.ps_coefficient)]
    return [(cut.side, cut.gain), *([] if cut.ps_gain is None else [(Side.PS, cut.ps_gain)])]


def _choice(options: Iterable[tuple[int, tuple[int, ...]]]) -> Iterator[Choice]:
    """Yield the choice of the options that gain, if there is any; more units that gain the same are of no use."""
    useful: list[tuple[int, tuple[int, ...]]] = []
    for gain, use in sorted(options):
        if gain > 0 and not (useful and useful[-1][0] == gain and all(map(le, useful[-1][1], use))):
            useful.append((gain, use))
    if useful:
        yield Choice(gains=tuple(gain for gain, _ in useful), uses=tuple(use for _, use in useful))


def find_violation(choices: Sequence[Choice], limits: tuple[int, ...], right_hand_side: int) -> str | None:
    """Return why some packing may exceed the right-hand side, None if none does.

    One job after the other, all packings so far at once. Of packings that leave the same room the one that gains most is kept,
    and none that can't exceed the right-hand side even with fractions of the jobs to come. That relaxation looks at one
    resource at a time, and at a weighted sum of them: whatever the weights, it holds. Equal shares do as a rule; else the dual
    of the fractional packing problem has better ones. Rooms and gains are exact; the relaxation is rounded outward.
    """
    total = sum(max(choice.gains) for choice in choices)
    if total > MAX_GAIN:
        return f"the left-hand side may exceed {MAX_GAIN}, too much to be checked; scale the cut down"
    # A resource that all jobs together can't exhaust needs no account.
    most = [sum(max(use[r] for use in one.uses) for one in choices) for r in range(len(limits))]
    binding = np.array([r for r, limit in enumerate(limits) if most[r] > limit], dtype=np.int64)
    gains = [np.array(choice.gains, dtype=np.int64) for choice in choices]
    uses = [np.array(one.uses, dtype=np.int64)[:, binding] for one in choices]
    capacity = np.array([limits[r] for r in binding], dtype=np.int64)
    shares = 1.0 / np.maximum(capacity, 1.0)
    exceeds = _can_exceed(gains, uses, capacity, shares, right_hand_side, min(FEW_STATES, STATE_LIMIT))
    if exceeds is None:
        weights = _dual_weights(gains, uses, capacity, shares)
        exceeds = _can_exceed(gains, uses, capacity, weights, right_hand_side, STATE_LIMIT)
    if exceeds is None:
        return f"{STATE_LIMIT} packings don't suffice to show that none exceeds {right_hand_side}"
    return f"a packing of what may be there exceeds the right-hand side {right_hand_side}" if exceeds else None


def _can_exceed(
    gains: Sequence[IntArray],
    uses: Sequence[IntArray],
    capacity: IntArray,
    weights: FloatArray,
    right_hand_side: int,
    limit: int,
) -> bool | None:
    """Tell whether a packing exceeds the right-hand side; None where more than `limit` of them would have to be kept.

    The relaxation looks at one resource at a time, and at their sum with `weights`.
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
    """Return the dual prices of the fractional packing problem; equal shares where there are none."""
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
    """Return a job's best gain per weight of what it uses, shape (weightings,); infinite where it uses nothing."""
    with np.errstate(divide="ignore"):
        slopes: FloatArray = (gain[:, None] / (use @ weights.T)).max(axis=0)
    return slopes


def _with_job(gain: IntArray, use: IntArray, rest: IntArray, gained: IntArray) -> tuple[IntArray, IntArray]:
    """Return all packings without and with each of one more job's options."""
    rests, gains = [rest], [gained]
    for more, option_use in zip(gain, use, strict=True):
        residual = rest - option_use
        fits = (residual >= 0).all(axis=1)
        rests.append(residual[fits])
        gains.append(gained[fits] + more)
    return np.concatenate(rests), np.concatenate(gains)


def _outlook(jobs: Sequence[tuple[IntArray, FloatArray]], residual: FloatArray) -> FloatArray:
    """Return the most that the jobs to come may gain in the room that each packing leaves, shape (packings, weightings).

    Each gains as much per weight as at best, up to its largest gain.
    """
    max_gain = np.array([gain[-1] for gain, _ in jobs], dtype=np.float64)
    most = np.full(len(residual), max_gain.sum())
    for column in range(residual.shape[1]):
        slope = np.array([slopes[column] for _, slopes in jobs])
        order = np.argsort(-slope, kind="stable")
        ends = np.cumsum(np.concatenate([[0.0], max_gain[order] / slope[order]]))
        reach = np.cumsum(np.concatenate([[0.0], max_gain[order]]))
        # Of equal ends, where jobs use nothing, the last counts.
        last = np.append(np.diff(ends) > 0, True)
        most = np.minimum(most, np.interp(residual[:, column] * (1 + ROUNDING), ends[last], reach[last]))
    return most


def _without_repeats(rest: IntArray, gain: IntArray) -> tuple[IntArray, IntArray]:
    """Keep of packings that leave the same room the one that gains most."""
    order = np.lexsort((-gain, *rest.T))
    rest, gain = rest[order], gain[order]
    is_new = np.ones(len(gain), dtype=bool)
    is_new[1:] = (rest[1:] != rest[:-1]).any(axis=1)
    return rest[is_new], gain[is_new]
