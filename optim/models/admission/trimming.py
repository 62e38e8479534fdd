"""From counts that a programme or a heuristic gives to a plan: nothing superfluous, every row exact."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from optim.models.admission.instance import AdmissionInstance, IntArray
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.proof import Side

Counts = dict[tuple[int, int, int], int]
"""Units by (job, slot, server)."""


def trimmed_plan(instance: AdmissionInstance, *, workers: Counts, ps: Counts) -> AdmissionPlan:
    """Return a valid plan made of given counts.

    Of each job only what it needs is kept: no slot after its work is done, in each slot the fewest
    workers that make the same progress, and Z(Y) PSs for Y workers. That frees resources and never
    delays a completion. Jobs are then taken by falling value, and one that breaks a row (work, a
    server's room for one job, capacities; all in integers) is dropped.

    Parameters
    ----------
    instance
        The instance.
    workers, ps
        Counts >= 0 on single servers.
    """
    by_job = _by_job(instance, workers), _by_job(instance, ps)
    needs = [_needs(instance, i, *sides) for i, sides in enumerate(zip(*by_job, strict=True))]
    complete = [need for need in needs if need is not None]
    complete.sort(key=lambda need: (-instance.value[need.job, need.completion], need.job))
    room = _Room(instance)
    kept = [need for need in complete if room.take(need)]
    return AdmissionPlan.from_rows(
        workers=[row for need in kept for row in need.rows(Side.WORKER)],
        ps=[row for need in kept for row in need.rows(Side.PS)],
    )


@dataclass(slots=True, kw_only=True)
class _Need:
    """What one job needs to complete: by slot its demand segment, and units by server."""

    job: int
    completion: int = -1
    segment: dict[int, int] = field(default_factory=dict)
    units: dict[tuple[Side, int], dict[int, int]] = field(default_factory=dict)

    def rows(self, side: Side) -> Iterator[tuple[int, int, int, int]]:
        """Yield the rows of a plan."""
        for (on, slot), by_server in self.units.items():
            if on is side:
                yield from ((self.job, slot, server, count) for server, count in by_server.items())


BySlot = dict[int, dict[int, int]]
"""One job's units by slot and server."""


def _by_job(instance: AdmissionInstance, counts: Counts) -> list[BySlot]:
    result: list[BySlot] = [{} for _ in range(instance.num_jobs)]
    for (job, slot, server), count in sorted(counts.items()):
        if count > 0:
            result[job].setdefault(slot, {})[server] = count
    return result


def _needs(instance: AdmissionInstance, i: int, workers: BySlot, ps: BySlot) -> _Need | None:
    """Walk through a job's slots and keep what makes progress; None if its work isn't done in time."""
    target, progress = int(instance.target[i]), instance.progress[i]
    first, last = int(instance.jobs.segment_offset[i]), int(instance.jobs.segment_offset[i + 1])
    starts = instance.jobs.segment_start[first:last]
    need = _Need(job=i)
    done = 0
    for slot in sorted(workers):
        if slot < instance.jobs.arrival[i]:
            continue
        given = min(sum(workers[slot].values()), len(progress) - 1)
        gain = min(int(progress[given]), target - done)
        count = int(np.searchsorted(progress, gain))
        if count == 0:
            continue
        num_ps = int(instance.ps_needed[i][count])
        if sum(ps.get(slot, {}).values()) < num_ps:
            return None
        need.segment[slot] = first + int(np.searchsorted(starts, done, side="right")) - 1
        need.units[Side.WORKER, slot] = _first_units(workers[slot], count)
        need.units[Side.PS, slot] = _first_units(ps[slot], num_ps)
        done += gain
        if done == target:
            need.completion = slot
            return need if instance.value[i, slot] > 0 else None
    return None


def _first_units(by_server: dict[int, int], number: int) -> dict[int, int]:
    """Keep `number` units, those on the first servers."""
    kept = {}
    for server, count in by_server.items():
        kept[server] = min(count, number)
        number -= kept[server]
        if number == 0:
            break
    return kept


class _Room:
    """What is left on every server in every slot."""

    def __init__(self, instance: AdmissionInstance) -> None:
        self._instance = instance
        self._left: dict[tuple[Side, int, int], IntArray] = {}

    def take(self, need: _Need) -> bool:
        """Take what a job needs, or nothing if it doesn't fit; return whether it does."""
        loads: dict[tuple[Side, int, int], IntArray] = {}
        for slot, segment in need.segment.items():
            held = need.units[Side.WORKER, slot], need.units[Side.PS, slot]
            if not self._is_within_limits(segment, slot, *held):
                return False
            for side, by_server in zip((Side.WORKER, Side.PS), held, strict=True):
                for server, count in by_server.items():
                    place = (self._host(side), server, slot)
                    load = self._demand(side)[segment] * count
                    loads[place] = loads[place] + load if place in loads else load
        left = {place: self._left_at(place) - load for place, load in loads.items()}
        if any((rest < 0).any() for rest in left.values()):
            return False
        self._left.update(left)
        return True

    def _host(self, side: Side) -> Side:
        return Side.WORKER if self._instance.has_shared_servers else side

    def _demand(self, side: Side) -> IntArray:
        jobs = self._instance.jobs
        return jobs.worker_demand if side is Side.WORKER else jobs.ps_demand

    def _left_at(self, place: tuple[Side, int, int]) -> IntArray:
        side, server, slot = place
        servers = self._instance.worker_servers if side is Side.WORKER else self._instance.ps_servers
        capacity: IntArray = servers.capacity[servers.class_of_server[server], slot]
        return self._left.get(place, capacity)

    def _is_within_limits(self, segment: int, slot: int, workers: dict[int, int], ps: dict[int, int]) -> bool:
        """Tell whether one job's units keep to what an empty server holds of it, share included."""
        instance = self._instance
        sides = (
            (workers, instance.workers_per_server, instance.worker_servers),
            (ps, instance.ps_per_server, instance.ps_servers),
        )
        for held, most, servers in sides:
            for server, count in held.items():
                if count > most[segment, servers.class_of_server[server], slot]:
                    return False
        share = instance.max_share_per_server
        if share is None or not instance.has_shared_servers:
            return True
        for server in workers.keys() & ps.keys():
            use = self._demand(Side.WORKER)[segment] * workers[server]
            use = use + self._demand(Side.PS)[segment] * ps[server]
            capacity = instance.worker_servers.capacity[instance.worker_servers.class_of_server[server], slot]
            if any(
                int(amount) * share.denominator > share.numerator * int(limit)
                for amount, limit in zip(use, capacity, strict=True)
            ):
                return False
        return True
