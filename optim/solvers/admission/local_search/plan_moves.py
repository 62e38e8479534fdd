"""A plan on real servers that `search` improves move by move, and diving with re-pricing.

Diving works in stages. A stage inserts the waiting jobs with the largest payoffs at the present prices, each with its
best schedule in the residual capacity of the single servers. Then a few subgradient steps price the classes' residual
capacity for the jobs that still wait, so that the prices of the next stage include the effect of the inserted jobs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import Monitor
from optim.core.stopping import never
from optim.models.admission.decision import COUNT, JOB, SERVER, SLOT, AdmissionPlan
from optim.solvers.admission.cuts.cut_table import CutTable
from optim.solvers.admission.local_search.insertion import (
    class_limits,
    copy_plan,
    empty_state,
    fill_shared,
    insert_all,
    make_scratch,
    make_search_data,
    place,
    shift,
    take_out,
    write_shared,
)
from optim.solvers.admission.local_search.moves import search_moves
from optim.solvers.admission.local_search.unit_moves import (
    MAX_SWAPS,
    NUM_PIECES,
    PIECE_WORK,
    SWAPS,
    make_units,
    move_units,
)
from optim.solvers.admission.packing.capacity_rows import (
    CapacityRows,
    plan_schedules,
    plan_usage,
    segments_by_slot,
    segments_of,
)
from optim.solvers.admission.packing.column_pool import ColumnPool, Schedule
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.packing.subgradient import PriceSearch, SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables, unit_costs

MOVES_A_CHECK = 200
"""Compiled moves between two checks of the stopping rule; Python handles signals such as Ctrl-C only at these checks."""

LIKELY_WEIGHT, LIKELY_FACTOR = 0.01, 5
"""A job whose weight in the LP exceeds `LIKELY_WEIGHT` appears `LIKELY_FACTOR` additional times among the candidates."""


class Neighbourhood:
    """The present plan and the best plan, in arrays that compiled moves modify in place.

    Parameters
    ----------
    tables, rows
        The instance as pricing tables and capacity rows.
    point
        Prices that guide insertions, usually the packing LP's.
    seed
        Seed of the moves.
    weight
        Shape (jobs,): share of each job that the LP admits. Jobs with a share above `LIKELY_WEIGHT` are tried more often
        than the others; without weights all are tried equally often.
    """

    def __init__(
        self,
        tables: JobTables,
        rows: CapacityRows,
        point: DualPoint,
        seed: int | np.random.SeedSequence,
        weight: FloatArray | None = None,
    ) -> None:
        self._tables, self.instance = tables, tables.instance
        self.data = make_search_data(tables, rows, point)
        if weight is not None:
            all_jobs = self.data.candidates
            likely = all_jobs[weight[all_jobs] > LIKELY_WEIGHT]
            self.data = self.data._replace(candidates=np.concatenate([all_jobs, np.tile(likely, LIKELY_FACTOR)]))
        self.state, self.best, self._backup = (empty_state(self.instance, self.data) for _ in range(3))
        self.scratch = make_scratch(self.instance, self.data, seed)
        self.value = 0.0
        self.incumbent_value = 0.0

    def construct(self, order: IntArray, scale: float) -> None:
        """Insert jobs in order into the residual capacity, each if its payoff at scaled prices is positive."""
        waiting = np.array([i for i in order.tolist() if self.state.completion[i] < 0], dtype=np.int64)
        self.value += insert_all(self.data, self.state, waiting, scale, True, self.scratch)
        self._remember()

    def fill_up(self, payoff: FloatArray, scales: Sequence[float]) -> None:
        """Insert all jobs by decreasing payoff, shape (jobs,), at one price scale after the other."""
        order = np.argsort(-payoff, kind="stable")
        for scale in scales:
            self.construct(order, scale)

    def reprice(self, tables: JobTables, rows: CapacityRows, row_prices: FloatArray) -> None:
        """Set the prices that guide later insertions."""
        worker_cost, ps_cost = unit_costs(tables, rows.prices(row_prices))
        data = self.data
        workers, ps = data.workers._replace(cost=worker_cost), data.ps._replace(cost=ps_cost)
        self.data = data._replace(workers=workers, ps=ps)

    def try_schedule(self, schedule: Schedule) -> bool:
        """Place a schedule over server classes on single servers if it fits; return whether it does."""
        i, data, state = schedule.job, self.data, self.state
        if data.is_shared:
            return self._try_shared(schedule)
        total = np.zeros(self.instance.horizon, dtype=np.int64)
        np.add.at(total, schedule.workers[:, 1], schedule.workers[:, 2])
        segments = segments_by_slot(self.instance, i, total)
        sides = ((schedule.workers, data.workers, state.workers), (schedule.ps, data.ps, state.ps))
        for entries, side, side_state in sides:
            limit = np.zeros(len(side.first) - 1, dtype=np.int64)
            for c, t, count in entries.tolist():
                s = segments[t]
                class_limits(side_state.residual[t], side.demand[s], side.unit_capacity, s, t, side.first, limit)
                if limit[c] < count:
                    return False
        job_rows = slice(data.row_offset[i], data.row_offset[i + 1])
        for entries, side, side_state in sides:
            used = 0
            for c, t, count in entries.tolist():
                s = segments[t]
                used = place(
                    count, c, t, s, side_state.residual[t], side.demand[s], side.unit_capacity, side.first, side_state.rows[job_rows], used, True,
                    self.scratch.unit_capacity, self.scratch.server_order,
                )  # fmt: skip
            side_state.used[i] = used
        self._admit(i, schedule.completion)
        return True

    def _try_shared(self, schedule: Schedule) -> bool:
        """Do the same as `try_schedule` on servers that workers and PSs share; may miss a feasible placement."""
        i, data, state, shared = schedule.job, self.data, self.state, self.scratch.shared
        counts: dict[tuple[int, int], list[int]] = {}
        for side, entries in enumerate((schedule.workers, schedule.ps)):
            for c, t, units in entries.tolist():
                counts.setdefault((t, c), [0, 0])[side] = units
        total = np.zeros(self.instance.horizon, dtype=np.int64)
        np.add.at(total, schedule.workers[:, 1], schedule.workers[:, 2])
        segments = segments_by_slot(self.instance, i, total)
        free = np.zeros(len(data.workers.first) - 1)
        state.workers.used[i] = state.ps.used[i] = 0
        for (t, c), (workers, ps) in sorted(counts.items()):
            needed = np.zeros(workers + 1, dtype=np.int64)
            needed[-1] = ps
            only, s = np.array([c]), int(segments[t])
            num_placed = fill_shared(
                s, t, workers, needed, 1.0, state.workers.residual[t], data.workers, data.ps, shared, only, only, True,
                free, free, np.empty(workers + 1),
            )  # fmt: skip
            if num_placed < workers:
                shift(i, 1.0, data, state)
                return False
            class_servers = slice(int(data.workers.first[c]), int(data.workers.first[c + 1]))
            for units in (shared.workers, shared.ps):
                units[: class_servers.start] = units[class_servers.stop :] = 0
            write_shared(i, s, t, shared.workers, data.row_offset, data.workers, state.workers)
            write_shared(i, s, t, shared.ps, data.row_offset, data.ps, state.ps)
        self._admit(i, schedule.completion)
        return True

    def _admit(self, i: int, completion: int) -> None:
        self.state.completion[i] = completion
        self.value += float(self.data.jobs.value[i, completion])
        self._remember()

    def run(
        self, num_moves: int, temperature: float, max_destroyed: int, should_stop: Callable[[], bool] | None = None
    ) -> None:
        """Run moves at an acceptance temperature, in utility units; `should_stop` is called every `MOVES_A_CHECK` moves."""
        for done in range(0, num_moves, MOVES_A_CHECK):
            if should_stop is not None and should_stop():
                return
            num_now = min(MOVES_A_CHECK, num_moves - done)
            self.value, self.incumbent_value = search_moves(
                self.data, self.state, self.best, self._backup, self.scratch, num_now, temperature, self.value, self.incumbent_value,
                max_destroyed,
            )  # fmt: skip

    def run_at(self, temperature: float, num_moves: int, max_destroyed: int) -> None:
        """Run moves at a temperature given as a share of the mean value of a job in the best plan."""
        unit = self.incumbent_value / max(1, int((self.best.completion >= 0).sum()))
        self.run(num_moves, max(temperature * unit, 1e-12), max_destroyed)

    def polish(self, should_stop: Callable[[], bool] = never, num_pieces: int = NUM_PIECES) -> None:
        """Improve the best plan by moves of single units; `should_stop` is called before each piece."""
        units = make_units(self.instance, self.data)
        self.return_to_best()
        if units is None:
            return
        cursor = np.zeros(3, dtype=np.int64)
        for _ in range(num_pieces):
            if cursor[SWAPS] > MAX_SWAPS or should_stop():
                break
            move_units(self.data, self.state, self.scratch.shared, units, cursor, PIECE_WORK)
            admitted = np.flatnonzero(self.state.completion >= 0)
            self.value = float(self.data.jobs.value[admitted, self.state.completion[admitted]].sum())
            self._remember()

    def clear(self) -> None:
        """Remove all jobs from the present plan; the best plan doesn't change."""
        for i in np.flatnonzero(self.state.completion >= 0):
            take_out(i, self.data, self.state)
        self.value = 0.0

    def return_to_best(self) -> None:
        """Make the best plan the present plan."""
        self.clear()
        copy_plan(self.best, self.state, self.data)
        for i in np.flatnonzero(self.state.completion >= 0):
            shift(i, -1.0, self.data, self.state)
        self.value = self.incumbent_value

    def adopt(self, plan: AdmissionPlan) -> None:
        """Make a feasible plan the present plan."""
        self.clear()
        schedules = plan_schedules(self._tables, plan)
        segments = dict(zip(schedules.jobs.tolist(), segments_of(self._tables, schedules), strict=True))
        for side, table in ((self.state.workers, plan.workers), (self.state.ps, plan.ps)):
            side.used[:] = 0
            for i, t, server, count in table[:, [JOB, SLOT, SERVER, COUNT]].tolist():
                side.rows[self.data.row_offset[i] + side.used[i]] = (t, server, count, segments[i][t])
                side.used[i] += 1
        self.state.completion[plan.admitted] = plan.completion
        for i in plan.admitted:
            shift(i, -1.0, self.data, self.state)
        self.value = plan.objective(self.instance)
        self._remember()

    def best_plan(self) -> AdmissionPlan:
        """Return the best plan found."""
        parts = []
        for side in (self.best.workers, self.best.ps):
            rows: list[tuple[int, ...]] = []
            for i in np.flatnonzero(self.best.completion >= 0).tolist():
                first = self.data.row_offset[i]
                rows += [(i, t, h, n) for t, h, n, _ in side.rows[first : first + side.used[i]].tolist()]
            parts.append(rows)
        return AdmissionPlan.from_rows(parts[0], parts[1])

    def _remember(self) -> None:
        if self.value > self.incumbent_value:
            self.incumbent_value = self.value
            copy_plan(self.state, self.best, self.data)


STAGE_SHARE = 0.1
"""Share of the LP's admitted jobs that is fixed between two re-pricings."""

STEPS = 30
"""Subgradient steps of one re-pricing."""

LAST_SCALES = (0.7, 0.4, 0.1)
"""Price scales for the final insertions into the residual capacity."""


def dive(
    tables: JobTables,
    rows: CapacityRows,
    point: DualPoint,
    weight: FloatArray,
    monitor: Monitor,
) -> AdmissionPlan:
    """Return a plan found by fixing jobs in stages.

    Parameters
    ----------
    tables, rows
        The instance's pricing tables and capacity rows.
    point
        Prices and payoffs of the packing LP.
    weight
        Shape (jobs,): share of each job that the LP admits.
    monitor
        Polled before each stage; when it ends the run, the last insertions follow at once.
    """
    plan = Neighbourhood(tables, rows, point, 0)
    size = max(1, round(STAGE_SHARE * float(weight.sum())))
    prices, payoff = point.row_prices, point.payoff
    while not monitor.is_over():
        waiting = np.flatnonzero((plan.state.completion < 0) & (payoff > 0))
        # First the jobs that the LP admits in full, the most profitable ones before the others.
        chosen = waiting[np.lexsort((-payoff[waiting], weight[waiting] < 0.5))][:size]
        before = plan.value
        plan.reprice(tables, rows, prices)
        plan.construct(chosen, 1.0)
        if len(chosen) == 0:
            break
        if plan.value == before:
            # The chosen jobs have a payoff over classes, but fit on no single servers: leave them to the last insertions.
            weight = np.where(np.isin(np.arange(tables.num_jobs), chosen), 0.0, weight)
            payoff = np.where(weight > 0, payoff, 0.0)
            continue
        prices, payoff = _price_the_rest(tables, rows, plan, prices, monitor)
    plan.fill_up(point.payoff, LAST_SCALES)
    return plan.best_plan()


def _price_the_rest(
    tables: JobTables, rows: CapacityRows, plan: Neighbourhood, prices: FloatArray, monitor: Monitor
) -> tuple[FloatArray, FloatArray]:
    """Return prices of the residual capacity, and the payoffs of the waiting jobs (0 for others)."""
    is_waiting = plan.state.completion < 0
    rest = replace(tables, value=np.where(is_waiting[:, None], tables.value, 0.0))
    residual = np.maximum(rows.capacity - plan_usage(tables, rows, plan.best_plan()), 0.0)
    remaining = replace(rows, capacity=residual)
    search = PriceSearch(rest, remaining, ColumnPool(rest, remaining), CutTable(tables.instance), monitor)
    # Rows without residual capacity keep their price: the subgradient steps move only rows with capacity.
    search.subgradient_steps(prices, SubgradientOptions(num_steps=STEPS, add_every=STEPS), None)
    return search.best.prices, np.where(is_waiting, search.proven.payoff, 0.0)
