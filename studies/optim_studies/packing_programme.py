"""The packing programmes (14)-(18) over explicit schedules in Pyomo, and all schedules of tiny instances.

A *schedule* of one job gives its numbers of workers and PSs by place and slot, as if it were alone on the
cluster. Places are either single servers or classes of equal servers (`Level`). A class of m servers
has m times the capacity of one server, and fits as many units of a job as m servers together. The packing LP has the
same optimum on both levels. On classes, the packing ILP only gives an upper bound, since the jobs that fit into a class
may not fit on its single servers.

Only *minimal* schedules are listed: no slot after the work is done, in each slot the fewest workers
that make its progress (in the last one: that finish), and Z(Y) PSs for Y workers. Any other schedule
can be reduced to a minimal one. The reduction does not increase its use of any row, keeps its progress before each
slot (hence its demand segments), and does not delay its completion. Utilities don't increase with delay and prices aren't
negative. So in all packing programmes, primal or dual, integer or not, the minimal schedule replaces the other one.

Every constraint is a named component, `one_schedule_17` for row (17), whose `doc` states it. Quantities
are in units of their resource, so the dual's prices are utility units per unit.

Stated in docs/mathematics/admission.md, (A.14) to (A.21), under the paper's numbers.

Notation: schedule l of job i has utility v_il and uses y^l, z^l; places h and k are single servers or classes,
depending on the level. On shared servers every row is a worker row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.data import MICRO, ServerClasses
from optim.models.admission.decision import Side
from optim.models.admission.instance import AdmissionInstance
from optim.models.programmes import Model, add_rows
from optim.models.pyomo import pyo

Pair = tuple[int, int]
"""Numbers of workers and of PSs."""

Placement = tuple[Pair, ...]
"""Numbers of workers and PSs of a job at each place in one slot."""


class SlotOptions:
    """The ways to place Y workers and Z PSs of one job in one slot.

    Parameters
    ----------
    options
        For each place the pairs that fit on it.
    most
        Maximum number of workers, and of PSs, to consider.
    """

    def __init__(self, options: Sequence[Sequence[Pair]], most: Pair) -> None:
        self._options = options
        self._sums: list[set[Pair]] = [{(0, 0)}]
        for pairs in reversed(options):
            self._sums.append(_added(self._sums[-1], pairs, most))
        self._sums.reverse()

    def can_hold(self, pair: Pair) -> bool:
        """Return whether a pair fits on all places together."""
        return pair in self._sums[0]

    def placements(self, pair: Pair, place: int = 0) -> Iterator[Placement]:
        """Yield all ways to place a pair on the places from `place` on."""
        if pair not in self._sums[place]:
            return
        if place == len(self._options):
            yield ()
            return
        for option in self._options[place]:
            rest = (pair[0] - option[0], pair[1] - option[1])
            for placement in self.placements(rest, place + 1):
                yield option, *placement


def server_pairs(instance: AdmissionInstance, segment: int, server_class: int, slot: int) -> list[Pair]:
    """Return the pairs (workers, PSs) of one job that fit on one empty shared server.

    Either within the cap on a job's share of each resource, or a single worker, or a single PS.
    """
    jobs = instance.jobs
    capacity = instance.worker_servers.capacity[server_class, slot].tolist()
    share = instance.max_share_per_server
    demands = list(zip(jobs.worker_demand[segment].tolist(), jobs.ps_demand[segment].tolist(), capacity, strict=True))

    def fits(y: int, z: int) -> bool:
        if any(w * y + s * z > c for w, s, c in demands):
            return False
        return (
            share is None
            or y + z <= 1
            or all((w * y + s * z) * share.denominator <= share.numerator * c for w, s, c in demands)
        )

    max_workers = int(instance.workers_per_server[segment, server_class, slot])
    max_ps = int(instance.ps_per_server[segment, server_class, slot])
    return [(y, z) for y in range(max_workers + 1) for z in range(max_ps + 1) if fits(y, z)]


def sum_of_pairs(pairs: Sequence[Pair], number: int, most: Pair) -> tuple[Pair, ...]:
    """Return the pairs that fit on `number` equal shared servers together: sums of `number` pairs, up to `most`."""
    sums = {(0, 0)}
    for _ in range(number):
        sums = _added(sums, pairs, most)
    return tuple(sorted(sums))


def _added(sums: set[Pair], pairs: Sequence[Pair], most: Pair) -> set[Pair]:
    return {(y + a, z + b) for y, z in sums for a, b in pairs if y + a <= most[0] and z + b <= most[1]}


class Level(StrEnum):
    """Type of the places of a schedule."""

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
    """Schedule of one job up to its completion.

    Parameters
    ----------
    job, completion, value
        The job, its completion slot and its utility.
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
        Type of the schedules' places.
    schedules
        The schedules, by job, then in a fixed order.
    capacity
        Capacity of every row in 1e-6 units of its resource.
    """

    level: Level
    schedules: tuple[Schedule, ...]
    capacity: dict[Row, int]

    @cached_property
    def by_job(self) -> dict[int, list[int]]:
        """Positions of each job's schedules; jobs without schedules are absent."""
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
        Maximum number of schedules of all jobs together.
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
    """Enumeration of one job's schedules."""

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
    def _max_left(self) -> list[int]:
        """Upper bound on the progress from the k-th slot on."""
        max_progress = [0]
        for slot in reversed(self._slots):
            options = [self._slot_options(number, slot) for number in range(len(self._starts))]
            gains = (
                gain
                for workers, gain in enumerate(self._gain)
                if any(option.can_hold(self._pair(workers)) for option in options)
            )
            max_progress.append(max_progress[-1] + max(gains, default=0))
        return max_progress[::-1]

    def _completing(self, k: int, done: int) -> Iterator[dict[int, tuple[int, Placement]]]:
        """Yield the ways to finish from `done` in the k-th slot or later: (segment, placement) by slot."""
        if done + self._max_left[k] < self._target:
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
        """Return the ways to place the job in a slot; slots with equal options share one object."""
        if (number, slot) not in self._options:
            pairs = self._place_pairs(self._first_segment + number, slot)
            if pairs not in self._known:
                self._known[pairs] = SlotOptions(pairs, self._most)
            self._options[number, slot] = self._known[pairs]
        return self._options[number, slot]

    def _place_pairs(self, segment: int, slot: int) -> tuple[tuple[Pair, ...], ...]:
        """Return for each place the pairs of the job that fit on it."""
        instance, (max_workers, max_ps) = self._instance, self._most
        if instance.has_shared_servers:
            one = [server_pairs(instance, segment, c, slot) for c in range(instance.worker_servers.num_classes)]
            return tuple(sum_of_pairs(one[c], number, self._most) for c, number in self._worker_places)
        workers_per_server = instance.workers_per_server[segment, :, slot].tolist()
        ps_per_server = instance.ps_per_server[segment, :, slot].tolist()
        workers = [min(number * workers_per_server[c], max_workers) for c, number in self._worker_places]
        ps = [min(number * ps_per_server[c], max_ps) for c, number in self._ps_places]
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


def packing_model(instance: AdmissionInstance, schedules: ScheduleSet, *, is_integer: bool = False) -> Model:
    """Build the packing programme (14)-(18): which schedule, if any, each job follows.

    Parameters
    ----------
    instance
        The instance.
    schedules
        Its schedules; with all of them the ILP's optimum is the best plan's value (on single servers).
    is_integer
        Whether to build the ILP, with the integer choices of (18), instead of its LP relaxation.

    Returns
    -------
    pyomo.environ.ConcreteModel
        With variables `chosen` x_il, numbered by the position of the schedule in its set, and a suffix
        `dual` that a solver may fill; its attribute `schedules` holds the set.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, programme (14)-(18).
    """
    model: Model = pyo.ConcreteModel(name=f"packing-{instance.name}")
    _add_sets(model, schedules)
    domain = pyo.Binary if is_integer else pyo.NonNegativeReals
    model.chosen = pyo.Var(model.SCHEDULES, domain=domain, doc="(18) x_il in {0, 1}; x_il >= 0 in the LP")
    model.total_value_14 = pyo.Objective(rule=total_value_14, sense=pyo.maximize, doc=total_value_14.__doc__)
    add_rows(model, worker_capacity_15, model.WORKER_ROWS)
    add_rows(model, ps_capacity_16, model.PS_ROWS)
    add_rows(model, one_schedule_17, model.JOBS)
    model.dual = pyo.Suffix(direction=pyo.Suffix.IMPORT)
    return model


def packing_dual(instance: AdmissionInstance, schedules: ScheduleSet) -> Model:
    """Build the dual (19)-(21) of the packing LP: prices of resources and payoffs of jobs.

    Parameters
    ----------
    instance, schedules
        As for `packing_model`.

    Returns
    -------
    pyomo.environ.ConcreteModel
        With variables `worker_price` p and `ps_price` q by (place, slot, resource), in utility units per unit, and
        `payoff` mu by job.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, programme (19)-(21).
    """
    model: Model = pyo.ConcreteModel(name=f"packing-dual-{instance.name}")
    _add_sets(model, schedules)
    model.worker_price = pyo.Var(model.WORKER_ROWS, domain=pyo.NonNegativeReals, doc="(21) p_h^r(t) >= 0")
    model.ps_price = pyo.Var(model.PS_ROWS, domain=pyo.NonNegativeReals, doc="(21) q_k^r(t) >= 0")
    model.payoff = pyo.Var(model.JOBS, domain=pyo.NonNegativeReals, doc="(21) mu_i >= 0")
    model.total_price_19 = pyo.Objective(rule=total_price_19, sense=pyo.minimize, doc=total_price_19.__doc__)
    add_rows(model, payoff_20, model.SCHEDULES)
    return model


def total_value_14(m: Model) -> Any:
    """(14) max sum_i sum_l v_il x_il."""
    return pyo.quicksum(schedule.value * m.chosen[l] for l, schedule in enumerate(m.schedules.schedules))


def worker_capacity_15(m: Model, h: int, t: int, r: int) -> Any:
    """(15) sum_i sum_l w_i^r y^l_ih(t) x_il <= c_h^r(t); on shared servers with s_i^r z^l_ih(t) added."""
    return _capacity(m, Row(Side.WORKER, h, t, r))


def ps_capacity_16(m: Model, k: int, t: int, r: int) -> Any:
    """(16) sum_i sum_l s_i^r z^l_ik(t) x_il <= c_k^r(t)."""
    return _capacity(m, Row(Side.PS, k, t, r))


def one_schedule_17(m: Model, i: int) -> Any:
    """(17) sum_l x_il <= 1."""
    return pyo.quicksum(m.chosen[l] for l in m.schedules.by_job[i]) <= 1


def total_price_19(m: Model) -> Any:
    """(19) min sum_i mu_i + sum_{t,h,r} p_h^r(t) c_h^r(t) + sum_{t,k,r} q_k^r(t) c_k^r(t)."""
    rows = m.schedules.capacity.items()
    spent = pyo.quicksum(capacity / MICRO * _price(m, row) for row, capacity in rows if row in m.used_rows)
    return spent + pyo.quicksum(m.payoff[i] for i in m.JOBS)


def payoff_20(m: Model, l: int) -> Any:
    """(20) mu_i >= v_il - sum_{t,h,r} p_h^r(t) w_i^r y^l_ih(t) - sum_{t,k,r} q_k^r(t) s_i^r z^l_ik(t)."""
    schedule: Schedule = m.schedules.schedules[l]
    cost = pyo.quicksum(amount / MICRO * _price(m, row) for row, amount in schedule.use.items())
    return m.payoff[schedule.job] + cost >= schedule.value


def _price(m: Model, row: Row) -> Any:
    price = m.worker_price if row.side is Side.WORKER else m.ps_price
    return price[row.place, row.slot, row.resource]


def _capacity(m: Model, row: Row) -> Any:
    use = pyo.quicksum(amount / MICRO * m.chosen[l] for l, amount in m.used_rows[row])
    return use <= m.schedules.capacity[row] / MICRO


def _add_sets(model: Model, schedules: ScheduleSet) -> None:
    """Add index sets; rows that no schedule uses are left out, their price is 0."""
    model.schedules = schedules
    model.used_rows = {}
    for l, schedule in enumerate(schedules.schedules):
        for row, amount in schedule.use.items():
            model.used_rows.setdefault(row, []).append((l, amount))
    rows = [row for row in schedules.capacity if row in model.used_rows]
    model.JOBS = pyo.Set(initialize=list(schedules.by_job), doc="jobs that have a schedule")
    model.SCHEDULES = pyo.Set(initialize=range(len(schedules.schedules)), doc="positions in the set")
    model.WORKER_ROWS = pyo.Set(
        initialize=[row[1:] for row in rows if row.side is Side.WORKER],
        dimen=3,
        doc="(place, slot, resource)",
    )
    model.PS_ROWS = pyo.Set(
        initialize=[row[1:] for row in rows if row.side is Side.PS], dimen=3, doc="(place, slot, resource)"
    )
