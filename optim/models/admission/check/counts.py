"""Whether a count cut holds: its largest left-hand side over all counts that a class of servers holds together.

The servers are looked at as one large one that holds the sum of their capacities. It holds whatever they do, so that a cut
that is shown for it is shown for them; a cut that holds for single servers only is refused. On shared servers a job's
workers and PSs are looked at as two that have nothing to do with each other, which holds whatever both may be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.verification import Violation, violation
from optim.models.admission.check import rows
from optim.models.admission.check.cuts import LARGEST_GAIN, STATE_LIMIT
from optim.models.admission.check.facts import Facts, smallest_demand
from optim.models.admission.check.room import units_on_server
from optim.models.admission.check.rows import in_class
from optim.models.admission.instance import IntArray
from optim.models.admission.proof import CountCut, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Workers or PSs of one job in a cut: what 0, 1, ... gain, as many as the class holds, and what one uses."""

    gains: tuple[int, ...]
    unit: tuple[int, ...]


class CountCheck:
    """Check count cuts, each distinct one once."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[Any, str | None] = {}

    def violations(self, cut: Any, number: int, leaf: str) -> list[Violation]:
        """Return what is wrong with a cut, nothing if it is valid."""
        cause = self._malformed(cut)
        where = f"count {number}{leaf}"
        if cause is None:
            where = f"count {number}, {in_class(self._facts, cut.side, cut.server_class, cut.slot)}{leaf}"
            servers = self._facts.servers(cut.side)
            count = servers.count[cut.server_class]
            room = tuple(count * amount for amount in servers.room(cut.server_class, cut.slot))
            key = (self._choices(cut), room, int(cut.right_hand_side))
            if key not in self._known:
                self._known[key] = why_exceeded(*key)
            cause = self._known[key]
        return [] if cause is None else [violation(rows.CUT, cause, where=where)]

    def _malformed(self, cut: Any) -> str | None:
        if not isinstance(cut, CountCut):
            return f"a count cut must be a CountCut, got {type(cut).__name__}"
        facts = self._facts
        if not isinstance(cut.side, Side) or (facts.is_shared and cut.side is not Side.WORKER):
            return f"side {cut.side!r} isn't one of the instance's"
        if (cut.ps_gain is not None) != facts.is_shared:
            return "PSs have gains beside the workers' where both share servers, and nowhere else"
        places = ((cut.server_class, len(facts.servers(cut.side).count)), (cut.slot, facts.horizon))
        if not all(isinstance(at, int | np.integer) and 0 <= at < size for at, size in places):
            return f"class {cut.server_class} or slot {cut.slot} is outside the instance"
        jobs, gains = np.asarray(cut.jobs), [np.asarray(gain) for _, gain in self._sides(cut)]
        if (
            jobs.ndim != 1
            or any(gain.ndim != 2 or len(gain) != len(jobs) for gain in gains)
            or any(a.size and a.dtype.kind != "i" for a in (jobs, *gains))
        ):
            return "jobs and gains must be whole numbers, one row of gains a job"
        if jobs.tolist() != sorted(set(jobs.tolist())) or any(not 0 <= j < len(facts.jobs) for j in jobs.tolist()):
            return "jobs must be different, ascending jobs of the instance"
        if any(bool((gain < 0).any()) or bool((np.diff(gain, axis=1) < 0).any()) for gain in gains):
            return "gains must not be negative, and must not fall with the number of units"
        if not isinstance(cut.right_hand_side, int | np.integer) or cut.right_hand_side < 0:
            return f"the right-hand side must be a whole number >= 0, got {cut.right_hand_side}"
        if not (isinstance(cut.multiplier, float | int) and math.isfinite(cut.multiplier) and cut.multiplier >= 0):
            return f"the multiplier must be a finite number >= 0, got {cut.multiplier}"
        return None

    def _sides(self, cut: CountCut) -> list[tuple[Side, IntArray]]:
        """Return whose units gain what."""
        own = [(cut.side, cut.gain)]
        return own if cut.ps_gain is None else [*own, (Side.PS, cut.ps_gain)]

    def _choices(self, cut: CountCut) -> tuple[Choice, ...]:
        """Return the jobs that can be there in the slot at all, each with as many units as the class holds of it."""
        facts, servers = self._facts, self._facts.servers(cut.side)
        room, count = servers.room(cut.server_class, cut.slot), servers.count[cut.server_class]
        found = []
        for side, gains in self._sides(cut):
            for index, gain in zip(np.asarray(cut.jobs).tolist(), np.asarray(gains).tolist(), strict=True):
                job = facts.jobs[index]
                if not job.arrival <= cut.slot <= job.deadline or not any(gain):
                    continue
                unit = smallest_demand(job.demands).of(side)
                most = job.most_workers if side is Side.WORKER else job.ps_needed(job.most_workers)
                units = min(most, count * units_on_server(unit, room, facts.share, most))
                found.append(Choice(gains=(0, *(gain[min(n, len(gain)) - 1] for n in range(1, units + 1))), unit=unit))
        return tuple(found)


def why_exceeded(choices: Sequence[Choice], room: tuple[int, ...], right_hand_side: int) -> str | None:
    """Return why some counts may exceed the right-hand side, None if none do.

    One job after the other, all counts so far at once. Of counts that leave the same room those that gain most are kept;
    and none that can't exceed it, whatever the jobs to come gain: each at its best gain a unit of a resource, up to its
    largest gain, one resource at a time.
    """
    largest = [max(choice.gains) for choice in choices]
    if sum(largest) > LARGEST_GAIN:
        return f"the left-hand side may exceed {LARGEST_GAIN}, too much to be checked; scale the cut down"
    order = sorted(range(len(choices)), key=lambda index: (-largest[index], index))
    rest, gained = np.array([room], dtype=np.int64).reshape(1, len(room)), np.zeros(1, dtype=np.int64)
    for place, index in enumerate(order):
        rest, gained = _with_job(choices[index], rest, gained)
        if bool((gained > right_hand_side).any()):
            return f"counts that the class may hold exceed the right-hand side {right_hand_side}"
        can_exceed = gained + _outlook([choices[other] for other in order[place + 1 :]], rest) > right_hand_side
        rest, gained = _without_repeats(rest[can_exceed], gained[can_exceed])
        if len(gained) > STATE_LIMIT:
            return f"{STATE_LIMIT} counts don't suffice to show that none exceed {right_hand_side}"
    return None


def _with_job(choice: Choice, rest: IntArray, gained: IntArray) -> tuple[IntArray, IntArray]:
    """Return all states with 0, 1, ... units of one more job."""
    rests, gains = [rest], [gained]
    unit = np.array(choice.unit, dtype=np.int64)
    for units in range(1, len(choice.gains)):
        # As many units as gain no more than fewer are of no use.
        if choice.gains[units] == choice.gains[units - 1]:
            continue
        left = rest - units * unit
        fits = (left >= 0).all(axis=1)
        rests.append(left[fits])
        gains.append(gained[fits] + choice.gains[units])
    return np.concatenate(rests), np.concatenate(gains)


def _outlook(choices: Sequence[Choice], rest: IntArray) -> IntArray:
    """Return the most that the jobs to come may gain in each state's rest, one resource at a time."""
    total = np.full(len(rest), sum(max(choice.gains) for choice in choices), dtype=np.int64)
    for r in range(rest.shape[1]):
        steps = []
        for choice in choices:
            used = [(n * choice.unit[r], gain) for n, gain in enumerate(choice.gains) if gain > 0]
            if used:
                slope = max(gain / need if need else math.inf for need, gain in used)
                steps.append((slope, float(max(choice.gains))))
        steps.sort(key=lambda step: -step[0])
        ends = np.cumsum([0.0, *(gain / slope if slope < math.inf else 0.0 for slope, gain in steps)])
        line = np.cumsum([0.0, *(gain for _, gain in steps)])
        free = sum(gain for slope, gain in steps if slope == math.inf)
        # Doubles are raised by far more than they err; gains are whole.
        reach = np.interp(rest[:, r] * (1 + 1e-9), ends, np.maximum(line, free))
        total = np.minimum(total, np.floor(reach * (1 + 1e-9) + 1e-6).astype(np.int64))
    return total


def _without_repeats(rest: IntArray, gained: IntArray) -> tuple[IntArray, IntArray]:
    """Keep of states with the same rest the one that gained most."""
    order = np.lexsort((-gained, *rest.T))
    rest, gained = rest[order], gained[order]
    is_new = np.ones(len(gained), dtype=bool)
    is_new[1:] = (rest[1:] != rest[:-1]).any(axis=1)
    return rest[is_new], gained[is_new]
