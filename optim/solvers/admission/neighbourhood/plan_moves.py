"""Neighbourhood search on real servers: a plan that `search` improves move by move."""

import numpy as np

from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray, ServerClasses
from optim.models.admission.plan import COUNT, JOB, SERVER, SLOT, AdmissionPlan
from optim.solvers.admission.neighbourhood.move_loop import (
    Ground,
    Scratch,
    State,
    class_limits,
    insert_all,
    place,
    search_moves,
    shift,
)
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.class_pricing import unit_costs
from optim.solvers.admission.pricing.column_pool import Schedule
from optim.solvers.admission.pricing.dual_points import PricePoint
from optim.solvers.admission.pricing.job_tables import JobTables

LIKELY_WEIGHT, LIKELY_FACTOR = 0.01, 5
"""Jobs with at least this much weight in the LP are tried that many times more often."""


class Neighbourhood:
    """A present plan and the best one found, over arrays that compiled moves change in place.

    Parameters
    ----------
    tables, rows
        The instance as laid out for pricing. Workers and PSs must live on different servers.
    point
        Prices that guide insertions, usually the packing LP's.
    seed
        Seed of the moves.
    weight
        Shape (jobs,): how much of each job the LP admits. Jobs that it admits at least a little are tried
        more often than the others; without weights all are tried alike.
    """

    def __init__(
        self,
        tables: JobTables,
        rows: CapacityRows,
        point: PricePoint,
        seed: int | np.random.SeedSequence,
        weight: FloatArray | None = None,
    ) -> None:
        self.instance = tables.instance
        self.ground = _ground(tables, rows, point)
        if weight is not None:
            all_jobs = self.ground.candidates
            likely = all_jobs[weight[all_jobs] > LIKELY_WEIGHT]
            self.ground = self.ground._replace(candidates=np.concatenate([all_jobs, np.tile(likely, LIKELY_FACTOR)]))
        self.state = _empty_state(self.instance, self.ground)
        self.best = _empty_state(self.instance, self.ground)
        self.scratch = _scratch(self.ground, seed)
        self.value = 0.0
        self.record = 0.0

    def construct(self, order: IntArray, scale: float) -> None:
        """Insert jobs in order on what is left, each where its payoff at scaled prices is positive."""
        waiting = np.array([i for i in order.tolist() if self.state.completion[i] < 0], dtype=np.int64)
        self.value += insert_all(self.ground, self.state, waiting, len(waiting), scale, True, self.scratch)
        self._remember()

    def price_anew(self, tables: JobTables, rows: CapacityRows, row_prices: FloatArray) -> None:
        """Guide insertions by other prices from now on."""
        worker_cost, ps_cost = unit_costs(tables, rows.prices(row_prices))
        self.ground = self.ground._replace(worker_cost=worker_cost, ps_cost=ps_cost)

    def try_schedule(self, schedule: Schedule) -> bool:
        """Put a schedule over server classes on single servers if they hold it; tell whether they do."""
        i = schedule.job
        segments = _segments_of_schedule(self.instance, schedule)
        ground, state = self.ground, self.state
        sides = (
            (schedule.workers, state.worker_left, ground.worker_demand, ground.worker_room, ground.worker_first),
            (schedule.ps, state.ps_left, ground.ps_demand, ground.ps_room, ground.ps_first),
        )
        for entries, left, demand, room, first in sides:
            limit = np.zeros(len(first) - 1, dtype=np.int64)
            for c, t, count in entries.tolist():
                s = segments[t]
                class_limits(left[t], demand[s], room, s, t, first, limit)
                if limit[c] < count:
                    return False
        counts = []
        offset, stop = ground.row_offset[i], ground.row_offset[i + 1]
        for (entries, left, demand, room, first), rows in zip(sides, (state.worker_rows, state.ps_rows), strict=True):
            used = 0
            for c, t, count in entries.tolist():
                s = segments[t]
                used = place(
                    count, c, t, s, left[t], demand[s], room, first, rows[offset:stop], used, True,
                    self.scratch.room, self.scratch.server_order,
                )  # fmt: skip
            counts.append(used)
        state.worker_count[i], state.ps_count[i] = counts
        state.completion[i] = schedule.completion
        self.value += float(ground.value[i, schedule.completion])
        self._remember()
        return True

    def run(self, num_moves: int, heat: float, largest_ruin: int) -> None:
        """Run moves at an acceptance temperature, in utils."""
        self.value, self.record = search_moves(
            self.ground, self.state, self.best, self.scratch, num_moves, heat, self.value, self.record, largest_ruin
        )

    def run_at(self, heat: float, num_moves: int, largest_ruin: int) -> None:
        """Run moves at a temperature given as a share of the mean value of a job that the best plan admits."""
        unit = self.record / max(1, int((self.best.completion >= 0).sum()))
        self.run(num_moves, max(heat * unit, 1e-12), largest_ruin)

    def clear(self) -> None:
        """Empty the present plan; the best one stays."""
        for i in np.flatnonzero(self.state.completion >= 0):
            shift(i, 1.0, self.ground, self.state)
        self.state.completion[:] = -1
        self.value = 0.0

    def return_to_best(self) -> None:
        """Make the best plan the present one."""
        self.clear()
        _copy(self.best, self.state)
        for i in np.flatnonzero(self.state.completion >= 0):
            shift(i, -1.0, self.ground, self.state)
        self.value = self.record

    def adopt(self, plan: AdmissionPlan) -> None:
        """Make a feasible plan the present one (it must fit the residual arithmetic: counts on single servers)."""
        self.clear()
        segments = _segments_of(self.instance, plan)
        for rows, counts, table in (
            (self.state.worker_rows, self.state.worker_count, plan.workers),
            (self.state.ps_rows, self.state.ps_count, plan.ps),
        ):
            counts[:] = 0
            for i, t, server, count in table[:, [JOB, SLOT, SERVER, COUNT]].tolist():
                rows[self.ground.row_offset[i] + counts[i]] = (t, server, count, segments[i, t])
                counts[i] += 1
        self.state.completion[plan.admitted] = plan.completion
        for i in plan.admitted:
            shift(i, -1.0, self.ground, self.state)
        self.value = plan.objective(self.instance)
        self._remember()

    def best_plan(self) -> AdmissionPlan:
        """Return the best plan found."""
        return _plan_of(self.best, self.ground)

    def _remember(self) -> None:
        if self.value > self.record:
            self.record = self.value
            _copy(self.state, self.best)


def _copy(source: State, goal: State) -> None:
    for field in ("completion", "worker_rows", "worker_count", "ps_rows", "ps_count"):
        getattr(goal, field)[:] = getattr(source, field)


def _plan_of(state: State, ground: Ground) -> AdmissionPlan:
    workers, ps = [], []
    for i in np.flatnonzero(state.completion >= 0).tolist():
        a = ground.row_offset[i]
        workers += [(i, t, h, n) for t, h, n, _ in state.worker_rows[a : a + state.worker_count[i]].tolist()]
        ps += [(i, t, h, n) for t, h, n, _ in state.ps_rows[a : a + state.ps_count[i]].tolist()]
    return AdmissionPlan.from_rows(workers, ps)


def _segments_of_schedule(instance: AdmissionInstance, schedule: Schedule) -> IntArray:
    """Return the demand segment in which each slot of one schedule starts, shape (slots,)."""
    total = np.zeros(instance.horizon, dtype=np.int64)
    np.add.at(total, schedule.workers[:, 1], schedule.workers[:, 2])
    return _segments_by_slot(instance, schedule.job, total)


def _segments_by_slot(instance: AdmissionInstance, i: int, total: IntArray) -> IntArray:
    """Return the demand segment in which each slot starts, given the workers of job i in each slot."""
    offset = instance.jobs.segment_offset
    starts = instance.jobs.segment_start[offset[i] : offset[i + 1]]
    done = np.concatenate([[0], np.cumsum(instance.progress[i][total])[:-1]])
    segment: IntArray = offset[i] + np.searchsorted(starts, done, side="right") - 1
    return segment


def _segments_of(instance: AdmissionInstance, plan: AdmissionPlan) -> IntArray:
    """Return the demand segment in which each slot of each job's schedule starts, shape (jobs, slots)."""
    total = np.zeros((instance.num_jobs, instance.horizon), dtype=np.int64)
    np.add.at(total, (plan.workers[:, JOB], plan.workers[:, SLOT]), plan.workers[:, COUNT])
    offset = instance.jobs.segment_offset
    segment = np.repeat(offset[:-1, None], instance.horizon, axis=1)
    for i in np.flatnonzero(np.diff(offset) > 1).tolist():
        segment[i] = _segments_by_slot(instance, i, total[i])
    return segment


def _ground(tables: JobTables, rows: CapacityRows, point: PricePoint) -> Ground:
    instance = tables.instance
    worker_cost, ps_cost = unit_costs(tables, rows.prices(point.row_prices))
    span = np.maximum(tables.deadline - tables.arrival + 1, 0)
    most_rows = np.minimum(
        span * tables.most,
        np.maximum(tables.target, span) if not instance.chunk_integral else span * tables.most,
    )
    is_reachable = tables.target <= span * tables.progress[tables.table_offset[1:] - 1]
    return Ground(
        arrival=tables.arrival,
        deadline=np.where(is_reachable, tables.deadline, -1),
        target=tables.target,
        most=tables.most,
        value=tables.value,
        segment_offset=tables.segment_offset,
        segment_start=tables.segment_start,
        table_offset=tables.table_offset,
        progress=tables.progress,
        ps_needed=tables.ps_needed,
        worker_demand=instance.jobs.worker_demand.astype(np.float64),
        ps_demand=instance.jobs.ps_demand.astype(np.float64),
        worker_room=np.ascontiguousarray(instance.workers_per_server),
        ps_room=np.ascontiguousarray(instance.ps_per_server),
        worker_first=_class_starts(instance.worker_servers),
        ps_first=_class_starts(instance.ps_servers),
        worker_cost=worker_cost,
        ps_cost=ps_cost,
        row_offset=np.concatenate([[0], np.cumsum(np.where(is_reachable, most_rows, 0))]).astype(np.int64),
        payoff=point.payoff.copy(),
        candidates=np.flatnonzero(is_reachable & (tables.deadline >= 0)),
    )


def _class_starts(servers: ServerClasses) -> IntArray:
    return np.concatenate([[0], np.cumsum(servers.count)]).astype(np.int64)


def _empty_state(instance: AdmissionInstance, ground: Ground) -> State:
    num_rows = int(ground.row_offset[-1])
    return State(
        worker_left=_residuals(instance.worker_servers),
        ps_left=_residuals(instance.ps_servers),
        completion=np.full(instance.num_jobs, -1, dtype=np.int64),
        worker_rows=np.zeros((num_rows, 4), dtype=np.int64),
        worker_count=np.zeros(instance.num_jobs, dtype=np.int64),
        ps_rows=np.zeros((num_rows, 4), dtype=np.int64),
        ps_count=np.zeros(instance.num_jobs, dtype=np.int64),
    )


def _residuals(servers: ServerClasses) -> FloatArray:
    """Return the full capacity of every single server, shape (slots, servers, resources), in 1e-6 units."""
    return np.ascontiguousarray(servers.capacity[servers.class_of_server].transpose(1, 0, 2), dtype=np.float64)


def _scratch(ground: Ground, seed: int | np.random.SeedSequence) -> Scratch:
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    live = ground.deadline >= 0
    longest = int((ground.deadline - ground.arrival + 1)[live].max(initial=1))
    widest = int(ground.target[live].max(initial=1))
    segments = int(np.diff(ground.segment_offset).max(initial=1))
    worker_classes, ps_classes = ground.worker_cost.shape[1], ground.ps_cost.shape[1]
    most_servers = int(max(np.diff(ground.worker_first).max(initial=1), np.diff(ground.ps_first).max(initial=1)))
    return Scratch(
        states=np.empty((longest + 1, widest + 1)),
        tables=np.empty((longest, segments, int(ground.most.max(initial=0)) + 1)),
        largest=np.full((longest, segments), -1, dtype=np.int64),
        order=np.empty(worker_classes, dtype=np.int64),
        ps_order=np.empty(ps_classes, dtype=np.int64),
        worker_limit=np.zeros((longest, segments, worker_classes), dtype=np.int64),
        ps_limit=np.zeros((longest, segments, ps_classes), dtype=np.int64),
        room=np.zeros(most_servers, dtype=np.int64),
        server_order=np.zeros(most_servers, dtype=np.int64),
        noise=np.ones((ground.value.shape[1], worker_classes + ps_classes)),
        random=np.array([sequence.generate_state(1, dtype=np.uint64)[0]], dtype=np.uint64),
    )
