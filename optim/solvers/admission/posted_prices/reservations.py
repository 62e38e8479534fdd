"""Promises and reservations of a day, replanning, and best effort for rejected jobs.

A promise is a completion slot. A job's future slots are reservations that may be moved; past slots are fixed. The
remaining work of a job is treated as a new job: it arrives in the present slot and is due at the promised slot.

A move removes one or a few reservations and finds each job's best schedule again, in random order. Half of the moves use
prices with noise. A move is accepted if the new schedules have at least the same total payoff at the posted prices.
Otherwise, or if a job finds no schedule that keeps its promise, the move is undone. So every promise is kept.

Source: Shaw, "Using constraint programming and local search methods to solve vehicle routing problems", 1998,
DOI 10.1007/3-540-49481-2_30; the promises are (L.1) of docs/mathematics/learned-prices.md.

A rejection at posted prices only means that later jobs probably value the capacity more; capacity that they don't use is
lost with the slot. So a rejected job may wait. In each slot, after all decisions, the waiting jobs are placed into
unreserved capacity, those with the largest payoff per cost first. They release all later slots before the next decision.
Standby changes neither decisions nor reservations (docs/mathematics/learned-prices.md, section 3). A waiting job that
completes earns the value of its completion slot; any other earns 0.

Source: the best-effort tier of Verma et al., "Large-scale cluster
management at Google with Borg", 2015, DOI 10.1145/2741948.2741964, runs jobs on idle capacity until it is wanted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import MICRO
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.pricing.servers import (
    COUNT,
    SEGMENT,
    SLOT,
    ClusterState,
    FoundSchedule,
    ResidualSearch,
    Use,
    uses,
)

VALUE_TOL = 1e-12
"""Relative rounding allowed when a utility is compared with its promised share."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reserved schedule, and its resource use on the workers' and on the PSs' servers."""

    schedule: FoundSchedule
    uses: tuple[Use, ...]


class Reservations:
    """All reservations of a day, on a cluster whose residual capacity they reduce.

    Parameters
    ----------
    instance
        The cluster and the jobs; only jobs passed to the methods are read.
    state
        Residuals and prices; both are modified in place.
    tables
        The pricing tables. From a job's admission on, its entries describe its remaining work.
    """

    def __init__(self, instance: AdmissionInstance, state: ClusterState, tables: JobTables) -> None:
        self.instance, self.state = instance, state
        self._tables = replace(
            tables,
            **{name: getattr(tables, name).copy() for name in ("arrival", "deadline", "target", "segment_start")},
        )
        self._finder = ResidualSearch(instance, tables=self._tables)
        self.by_job: dict[int, Reservation] = {}
        """Reservations of jobs that are admitted and not complete, in order of admission."""
        self.promised: dict[int, int] = {}
        """Promised completion slot of every admitted job."""
        self._rows: tuple[list[list[int]], list[list[int]]] = ([], [])

    def find(self, job: int, floor: float = 0.0) -> FoundSchedule | None:
        """Return the best schedule of a job's remaining work in the free capacity; None if no payoff is above `floor`."""
        return self._finder.find(job, self.state, floor)

    def hold(self, schedule: FoundSchedule) -> None:
        """Reserve a schedule's resources."""
        resource_use = uses(self.instance, schedule)
        self._shift(resource_use, -1.0)
        self.by_job[schedule.job] = Reservation(schedule, resource_use)

    def release(self, job: int) -> Reservation:
        """Free a job's resources; return its reservation."""
        reservation = self.by_job.pop(job)
        self._shift(reservation.uses, 1.0)
        return reservation

    def put_back(self, reservation: Reservation) -> None:
        """Restore a released reservation."""
        self._shift(reservation.uses, -1.0)
        self.by_job[reservation.schedule.job] = reservation

    def free(self, schedule: FoundSchedule) -> None:
        """Free the resources of a schedule that will not run."""
        self._shift(uses(self.instance, schedule), 1.0)

    def promise(self, schedule: FoundSchedule, min_value: float) -> None:
        """Admit a job: reserve its schedule, and promise the last slot that still earns `min_value`, or its completion."""
        self.hold(schedule)
        job, value = schedule.job, self._tables.value[schedule.job]
        later = value[schedule.completion :]
        is_enough = (later > 0) & (later >= min_value * (1 - VALUE_TOL))
        slack = len(later) if is_enough.all() else int(np.argmin(is_enough))
        self.promised[job] = schedule.completion + max(0, slack - 1)
        self._tables.deadline[job] = self.promised[job]

    def take(self, resource_use: tuple[Use, ...]) -> None:
        """Subtract resources from the free capacity."""
        self._shift(resource_use, -1.0)

    def fix(self, schedule: FoundSchedule) -> None:
        """Admit a job on servers outside the free capacity, such as the guard's: its schedule never moves."""
        self.promised[schedule.job] = schedule.completion
        self.record(schedule.job, (schedule.workers, schedule.ps))

    def value_at_prices(self, reservation: Reservation) -> float:
        """Return a schedule's value minus its cost at the posted prices."""
        return reservation.schedule.value - priced(reservation.uses, [side.price for side in self.state.sides])

    def may_earn(self, job: int, slot: int) -> bool:
        """Return whether completing a job in a slot or later has a positive value."""
        return bool(self._tables.value[job, slot:].max(initial=0.0) > 0)

    def run_slot(self, slot: int) -> None:
        """Run a slot's reservations and fix them."""
        for job, reservation in list(self.by_job.items()):
            schedule = reservation.schedule
            self.record(job, [part[part[:, SLOT] == slot] for part in (schedule.workers, schedule.ps)])
            if schedule.completion == slot:
                del self.by_job[job]
                continue
            now = schedule.workers[:, SLOT] == slot
            self.make_progress(job, slot, int(schedule.workers[now, COUNT].sum()))
            later = replace(schedule, workers=schedule.workers[~now], ps=schedule.ps[schedule.ps[:, SLOT] != slot])
            self.by_job[job] = Reservation(later, uses(self.instance, later)) if now.any() else reservation

    def plan(self) -> AdmissionPlan:
        """Return the executed plan."""
        return AdmissionPlan.from_rows(*self._rows)

    def record(self, job: int, parts: Sequence[IntArray]) -> None:
        """Add rows of workers and of PSs to the executed plan."""
        for rows, part in zip(self._rows, parts, strict=True):
            rows += [[job, *row[:SEGMENT]] for row in part.tolist()]

    def make_progress(self, job: int, slot: int, workers: int) -> None:
        """Subtract the work of a slot's workers; the remaining job arrives in the next slot."""
        tables, jobs = self._tables, self.instance.jobs
        done = int(self.instance.progress[job][workers])
        self.postpone(job, slot)
        tables.target[job] -= done
        tables.segment_start[jobs.segment_offset[job] : jobs.segment_offset[job + 1]] -= done

    def postpone(self, job: int, slot: int) -> None:
        """Set a job's arrival to the slot after this one."""
        self._tables.arrival[job] = slot + 1

    def _shift(self, resource_use: tuple[Use, ...], sign: float) -> None:
        for side, use in zip(self.state.sides, resource_use, strict=True):
            side.residual[use.slot, :, use.server] += sign * use.amount


def priced(resource_use: tuple[Use, ...], prices: Sequence[FloatArray]) -> float:
    """Return the cost of resources at prices of the workers' and the PSs' servers, shape (slots, resources, servers) each."""
    return sum(
        float(np.sum(price[use.slot, :, use.server] * use.amount)) / MICRO
        for price, use in zip(prices, resource_use, strict=True)
    )


def left_by_class(state: ClusterState) -> tuple[FloatArray, ...]:
    """Return the free capacity of workers' and PSs' classes in units, shape (classes, slots, resources) each."""
    return tuple(
        np.add.reduceat(
            side.residual, np.concatenate([[0], np.cumsum(side.servers.count)[:-1]]).astype(np.int64), axis=2
        ).transpose(2, 0, 1)
        / MICRO
        for side in state.sides
    )


LARGEST = 4
"""Maximal number of jobs that a move removes."""

NOISE = 0.5
"""Maximal relative noise on the prices of a slot, and on the prices of a server class."""

KEPT_TOL = 1e-9
"""Relative decrease of the moved schedules' payoff that counts as a rounding error."""


def improve(
    reservations: Reservations,
    num_moves: int,
    rng: np.random.Generator,
    should_stop: Callable[[], bool] | None = None,
) -> float:
    """Make up to `num_moves` moves until the run should stop; return the increase of the reservations' total payoff."""
    gained = 0.0
    jobs = np.array(list(reservations.by_job), dtype=np.int64)
    if len(jobs) == 0:
        return gained
    for _ in range(num_moves):
        if should_stop is not None and should_stop():
            break
        # Small moves are cheap and often good, so the square favours them.
        size = 1 + int(rng.random() ** 2 * min(LARGEST, len(jobs)))
        chosen = rng.choice(jobs, size=size, replace=False)
        noise = _noise(reservations, rng) if rng.random() < 0.5 else None
        gained += _move(reservations, chosen.tolist(), noise)
    return gained


def _move(reservations: Reservations, chosen: list[int], noise: list[FloatArray] | None) -> float:
    """Remove jobs and insert them again in the given order; return the gain, 0 if the move is undone."""
    before = [reservations.release(job) for job in chosen]
    old = sum(reservations.value_at_prices(one) for one in before)
    posted = [side.price for side in reservations.state.sides]
    if noise is not None:
        _post(reservations, [price * factor for price, factor in zip(posted, noise, strict=True)])
    inserted = all(_insert(reservations, job) for job in chosen)
    _post(reservations, posted)
    after = [reservations.by_job[job] for job in chosen if job in reservations.by_job]
    new = sum(reservations.value_at_prices(one) for one in after)
    if inserted and new >= old - KEPT_TOL * abs(old):
        return new - old
    _undo(reservations, before)
    return 0.0


def _insert(reservations: Reservations, job: int) -> bool:
    schedule = reservations.find(job, floor=-np.inf)
    if schedule is None:
        return False
    reservations.hold(schedule)
    return True


def _undo(reservations: Reservations, before: list[Reservation]) -> None:
    for reservation in before:
        if reservation.schedule.job in reservations.by_job:
            reservations.release(reservation.schedule.job)
    for reservation in before:
        reservations.put_back(reservation)


def _post(reservations: Reservations, prices: list[FloatArray]) -> None:
    for side, price in zip(reservations.state.sides, prices, strict=True):
        side.price = price


def _noise(reservations: Reservations, rng: np.random.Generator) -> list[FloatArray]:
    """Return price factors per slot and class with a random strength, so that the same job finds other schedules."""
    strength = NOISE * rng.random()
    factors = []
    for side in reservations.state.sides:
        slot = 1 + strength * rng.uniform(-1, 1, side.price.shape[0])
        kind = 1 + strength * rng.uniform(-1, 1, side.servers.num_classes)
        factors.append(np.asarray(slot)[:, None, None] * np.asarray(kind)[side.servers.class_of_server])
    return factors


PATIENCE = 1 / 3
"""Share of the day after which future jobs are expected to take 1 - 1/e of a slot's capacity (see `discounted`)."""

MIN_COST = 1e-12
"""Lower limit, in utility units, of a schedule's cost in a quotient, since the cost may be 0."""


class BestEffortQueue:
    """The rejected jobs that may still run.

    Parameters
    ----------
    reservations
        All reservations; standby takes resources only within `run_slot`.
    most
        Maximal number of waiting jobs; those with the lowest density (see `run_slot`) are dropped first.
    """

    def __init__(self, reservations: Reservations, most: int) -> None:
        self._reservations, self._most = reservations, most
        self._waiting: list[int] = []
        self._ran: dict[int, tuple[list[IntArray], list[IntArray]]] = {}
        self.completed: dict[int, int] = {}
        """Completion slot of every standby job that completed."""

    @property
    def waiting(self) -> tuple[int, ...]:
        """The waiting jobs."""
        return tuple(self._waiting)

    def add(self, job: int) -> None:
        """Add a rejected job."""
        self._waiting.append(job)
        self._ran[job] = ([], [])

    def run_slot(self, slot: int, posted: Sequence[FloatArray]) -> float:
        """Run waiting jobs in a slot's free capacity; return the value of those that complete in it.

        Schedules are found at the state's present prices. A job's density is its payoff at these prices, divided by its
        cost at the `posted` prices of workers' and PSs' servers, shape (slots, resources, servers) each.
        """
        reservations = self._reservations
        self._waiting = [job for job in self._waiting if reservations.may_earn(job, slot)]
        placed = self._lay(posted)
        earned = 0.0
        for job in self.waiting:
            if job not in placed:
                reservations.postpone(job, slot)
                continue
            schedule = placed[job]
            parts = [part[part[:, SLOT] == slot] for part in (schedule.workers, schedule.ps)]
            for rows, part in zip(self._ran[job], parts, strict=True):
                rows.append(part)
            if schedule.completion == slot:
                reservations.record(job, [np.concatenate(rows) for rows in self._ran.pop(job)])
                self._waiting.remove(job)
                self.completed[job] = slot
                earned += schedule.value
            else:
                reservations.make_progress(job, slot, int(parts[0][:, COUNT].sum()))
        return earned

    def unfinished(self) -> AdmissionPlan:
        """Return the executed work of jobs that didn't complete; it earns 0 and isn't a plan of the problem."""
        rows: tuple[list[list[int]], list[list[int]]] = ([], [])
        for job, parts in self._ran.items():
            for side, part in zip(rows, parts, strict=True):
                side += [[job, *row[: COUNT + 1]] for rows_of_slot in part for row in rows_of_slot.tolist()]
        return AdmissionPlan.from_rows(*rows)

    def _lay(self, posted: Sequence[FloatArray]) -> dict[int, FoundSchedule]:
        """Find schedules in the free capacity, for the jobs with the highest density first; the capacity stays free."""
        reservations = self._reservations
        # The free capacity has changed, so compute the densities again, as if each job were placed first.
        density = {}
        for job in self._waiting:
            alone = reservations.find(job)
            if alone is not None:
                cost = priced(uses(reservations.instance, alone), posted)
                density[job] = alone.payoff / max(cost, MIN_COST)
        self._give_up(density)
        placed: dict[int, FoundSchedule] = {}
        for job in sorted(self._waiting, key=lambda job: -density.get(job, 0.0)):
            schedule = reservations.find(job)
            if schedule is not None:
                reservations.take(uses(reservations.instance, schedule))
                placed[job] = schedule
        for schedule in placed.values():
            reservations.free(schedule)
        return placed

    def _give_up(self, density: dict[int, float]) -> None:
        """Drop the jobs with the lowest density beyond the maximal number."""
        if len(self._waiting) > self._most:
            densest = set(sorted(self._waiting, key=lambda job: -density.get(job, 0.0))[: self._most])
            self._waiting = [job for job in self._waiting if job in densest]
