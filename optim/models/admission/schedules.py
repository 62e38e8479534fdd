"""All schedules of the jobs of a tiny instance: the sets L_i over which the packing programmes run.

A *schedule* of one job says how many workers and PSs it has where and when, as if the cluster were its
own. Places are either single servers or whole classes of equal servers (`Level`): a class of m servers
has m times the capacity of one, and holds of a job what m servers hold together. The packing LP has the
same optimum on both levels; the packing ILP only bounds the real one on classes, since several jobs
may not split onto the servers.

Only *minimal* schedules are listed: no slot after the work is done, in each slot the fewest workers
that make its progress (in the last one: that finish), and Z(Y) PSs for Y workers. Any other schedule
can be stripped down to a minimal one: that lowers its use of every row, leaves its progress before each
slot (hence its demand segments) as it was, and can only bring its completion forward. Utilities don't
increase and prices aren't negative, so in the packing programmes, primal or dual, integer or not, the
minimal schedule replaces the other one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.instance import AdmissionInstance, ServerClasses
from optim.models.admission.placements import Pair, Placement, SlotOptions, server_pairs, sum_of_pairs
from optim.models.admission.proof import Side


class Level(StrEnum):
    """What a place is."""

    SERVERS = "servers"
    CLASSES = "classes"


class Row(NamedTuple):
    """A capacity row; on shared servers every row is a worker row."""

    side: Side
    place: int
    slot: int
    resource: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One job's way to completion.

    Parameters
    ----------
    job, completion, value
        The job, its completion slot and what it earns, in utils.
    workers, ps
        (slot, place, count) with positive counts, sorted.
    use
        Use of each capacity row in 1e-6 units of its resource; rows that aren't used are absent.
    """

    job: int
    completion: int
    value: float
    workers: tuple[tuple[int, int, int], ...]
    ps: tuple[tuple[int, int, int], ...]
    use: dict[Row, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class ScheduleSet:
    """Schedules of all jobs on one level.

    Parameters
    ----------
    level
        What the schedules' places are.
    schedules
        By job, then in a fixed order.
    capacity
        Capacity of every row in 1e-6 units of its resource.
    """

    level: Level
    schedules: tuple[Schedule, ...]
    capacity: dict[Row, int]

    @cached_property
    def by_job(self) -> dict[int, list[int]]:
        """Positions of each job's schedules; jobs without any are absent."""
        result: dict[int, list[int]] = {}
        for position, schedule in enumerate(self.schedules):
            result.setdefault(schedule.job, []).append(position)
        return result


def enumerate_schedules(
    instance: AdmissionInstance, *, limit: int = 10_000, level: Level = Level.SERVERS
) -> ScheduleSet:
    """List all minimal schedules of every job.

    Parameters
    ----------
    instance
        A tiny instance: the number of schedules is exponential in slots and servers.
    limit
        Most schedules, all jobs together.
    level
        Whether places are single servers or classes.

    Raises
    ------
    UnsupportedProblemError
        If there are more than `limit` schedules.
    """
    schedules: list[Schedule] = []
    for job in range(instance.num_jobs):
        for schedule in _Enumeration(instance, job, level).schedules():
            if len(schedules) == limit:
                raise UnsupportedProblemError(
                    f"instance {instance.name!r} has more than {limit} schedules (reached at job "
                    f"{instance.jobs.ids[job]!r}); raise limit, or generate columns instead"
                )
            schedules.append(schedule)
    return ScheduleSet(level=level, schedules=tuple(schedules), capacity=row_capacity(instance, level))


def row_capacity(instance: AdmissionInstance, level: Level) -> dict[Row, int]:
    """Return the capacity of every row in 1e-6 units of its resource."""
    sides = [(Side.WORKER, instance.worker_servers)]
    if not instance.has_shared_servers:
        sides.append((Side.PS, instance.ps_servers))
    return {
        Row(side, place, slot, r): number * int(servers.capacity[c, slot, r])
        for side, servers in sides
        for place, (c, number) in enumerate(_places(servers, level))
        for slot in range(instance.horizon)
        for r in range(instance.num_resources)
    }


def _places(servers: ServerClasses, level: Level) -> list[tuple[int, int]]:
    """Return class and number of servers of each place."""
    if level is Level.CLASSES:
        return list(enumerate(servers.count.tolist()))
    return [(c, 1) for c in servers.class_of_server.tolist()]


class _Enumeration:
    """The schedules of one job."""

    def __init__(self, instance: AdmissionInstance, job: int, level: Level) -> None:
        self._instance, self._job = instance, job
        self._worker_places = _places(instance.worker_servers, level)
        self._ps_places = [] if instance.has_shared_servers else _places(instance.ps_servers, level)
        first = int(instance.jobs.segment_offset[job])
        self._starts = instance.jobs.segment_start[first : int(instance.jobs.segment_offset[job + 1])].tolist()
        self._first_segment = first
        self._target = int(instance.target[job])
        self._gain = [min(made, self._target) for made in instance.progress[job].tolist()]
        self._slots = range(int(instance.jobs.arrival[job]), int(instance.deadline[job]) + 1)
        self._most: Pair = (len(self._gain) - 1, int(instance.ps_needed[job][-1]))
        self._options: dict[tuple[int, int], SlotOptions] = {}
        self._known: dict[tuple[tuple[Pair, ...], ...], SlotOptions] = {}

    def schedules(self) -> Iterator[Schedule]:
        """Yield all minimal schedules, slot by slot in lexicographic order of their placements."""
        for placements in self._completing(0, 0):
            yield self._schedule(placements)

    @cached_property
    def _most_left(self) -> list[int]:
        """Upper bound on the progress from the k-th slot on."""
        left = [0]
        for slot in reversed(self._slots):
            options = [self._slot_options(number, slot) for number in range(len(self._starts))]
            gains = (
                gain
                for workers, gain in enumerate(self._gain)
                if any(option.can_hold(self._pair(workers)) for option in options)
            )
            left.append(left[-1] + max(gains, default=0))
        return left[::-1]

    def _completing(self, k: int, done: int) -> Iterator[dict[int, tuple[int, Placement]]]:
        """Yield the ways to finish from `done` in the k-th slot or later: (segment, placement) by slot."""
        if done + self._most_left[k] < self._target:
            return
        slot = self._slots[k]
        number = sum(start <= done for start in self._starts) - 1
        options = self._slot_options(number, slot)
        yield from self._completing(k + 1, done)
        for workers in self._steps(self._target - done):
            pair, after = self._pair(workers), done + self._gain[workers]
            if after < self._target and options.can_hold(pair):
                for rest in self._completing(k + 1, after):
                    for placement in options.placements(pair):
                        yield {slot: (number, placement), **rest}
            elif after >= self._target and self._instance.value[self._job, slot] > 0:
                for placement in options.placements(pair):
                    yield {slot: (number, placement)}

    def _steps(self, missing: int) -> Iterator[int]:
        """Yield the worker counts that make more progress than any smaller one, until one finishes."""
        before = 0
        for workers, made in enumerate(self._gain):
            if made > before:
                yield workers
                before = made
            if made >= missing:
                return

    def _pair(self, workers: int) -> Pair:
        return workers, int(self._instance.ps_needed[self._job][workers])

    def _slot_options(self, number: int, slot: int) -> SlotOptions:
        """Return the ways to place the job in a slot; slots of equal options share them."""
        if (number, slot) not in self._options:
            pairs = self._place_pairs(self._first_segment + number, slot)
            if pairs not in self._known:
                self._known[pairs] = SlotOptions(pairs, self._most)
            self._options[number, slot] = self._known[pairs]
        return self._options[number, slot]

    def _place_pairs(self, segment: int, slot: int) -> tuple[tuple[Pair, ...], ...]:
        """Return the pairs that each place holds of the job."""
        instance, (most_workers, most_ps) = self._instance, self._most
        if instance.has_shared_servers:
            one = [server_pairs(instance, segment, c, slot) for c in range(instance.worker_servers.num_classes)]
            return tuple(sum_of_pairs(one[c], number, self._most) for c, number in self._worker_places)
        held = instance.workers_per_server[segment, :, slot].tolist()
        held_ps = instance.ps_per_server[segment, :, slot].tolist()
        workers = [min(number * held[c], most_workers) for c, number in self._worker_places]
        ps = [min(number * held_ps[c], most_ps) for c, number in self._ps_places]
        return (
            *(tuple((y, 0) for y in range(most + 1)) for most in workers),
            *(tuple((0, z) for z in range(most + 1)) for most in ps),
        )

    def _schedule(self, placements: dict[int, tuple[int, Placement]]) -> Schedule:
        completion = max(placements)
        num_worker_places = len(self._worker_places)
        workers, ps = [], []
        use: dict[Row, int] = {}
        for slot, (number, placement) in sorted(placements.items()):
            for position, (y, z) in enumerate(placement):
                is_worker_place = position < num_worker_places
                place = position if is_worker_place else position - num_worker_places
                if y:
                    workers.append((slot, place, y))
                if z:
                    ps.append((slot, place, z))
                side = Side.WORKER if is_worker_place else Side.PS
                for r, amount in enumerate(self._amounts(self._first_segment + number, (y, z))):
                    if amount:
                        use[Row(side, place, slot, r)] = amount
        return Schedule(
            job=self._job,
            completion=completion,
            value=float(self._instance.value[self._job, completion]),
            workers=tuple(workers),
            ps=tuple(ps),
            use=use,
        )

    def _amounts(self, segment: int, pair: Pair) -> list[int]:
        jobs = self._instance.jobs
        amounts: list[int] = (jobs.worker_demand[segment] * pair[0] + jobs.ps_demand[segment] * pair[1]).tolist()
        return amounts
