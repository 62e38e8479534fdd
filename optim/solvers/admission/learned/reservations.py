"""What an operator has promised, what of it has run, and what is left to run.

A promise is a completion slot. Until a slot comes, a job's schedule in it is a reservation that may be moved; once it has
come, what ran in it is history. What is left of a job is a job of its own: it arrives in the present slot, lacks the
work that is done, and is due at the promised slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.models.admission.instance import MICRO, AdmissionInstance, FloatArray, IntArray
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.posted_prices.server_state import ClusterState, Use
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.pricing.server_arrays import COUNT, SEGMENT, SLOT
from optim.solvers.admission.pricing.server_search import FoundSchedule, ResidualSearch, uses

VALUE_TOL = 1e-12
"""Relative rounding allowed between a utility and its promised share."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A schedule that is held, and what it takes of each side."""

    schedule: FoundSchedule
    uses: tuple[Use, ...]


class Reservations:
    """All reservations of a day, over a cluster whose residual they are taken from.

    Parameters
    ----------
    instance
        The cluster and the jobs, of which only those asked for are looked at.
    state
        Residuals and prices; both are changed in place.
    tables
        The jobs as pricing reads them. A job's entries change from its admission on: they describe what is left.
    """

    def __init__(self, instance: AdmissionInstance, state: ClusterState, tables: JobTables) -> None:
        self.instance, self.state = instance, state
        self._tables = replace(
            tables,
            **{name: getattr(tables, name).copy() for name in ("arrival", "deadline", "target", "segment_start")},
        )
        self._finder = ResidualSearch(instance, tables=self._tables)
        self.held: dict[int, Reservation] = {}
        """Reservations of jobs that are admitted and not complete, in order of admission."""
        self.promised: dict[int, int] = {}
        """Promised completion slot of every admitted job."""
        self._rows: tuple[list[list[int]], list[list[int]]] = ([], [])

    def find(self, job: int, floor: float = 0.0) -> FoundSchedule | None:
        """Return a job's best schedule in the room that is left (what is left of it, once it is admitted)."""
        return self._finder.find(job, self.state, floor)

    def hold(self, schedule: FoundSchedule) -> None:
        """Take a schedule's room."""
        taken = uses(self.instance, schedule)
        self._shift(taken, -1.0)
        self.held[schedule.job] = Reservation(schedule, taken)

    def release(self, job: int) -> Reservation:
        """Give a job's room back; return what it held."""
        reservation = self.held.pop(job)
        self._shift(reservation.uses, 1.0)
        return reservation

    def put_back(self, reservation: Reservation) -> None:
        """Hold again what was released."""
        self._shift(reservation.uses, -1.0)
        self.held[reservation.schedule.job] = reservation

    def free(self, schedule: FoundSchedule) -> None:
        """Open the room of a schedule that nobody will run."""
        self._shift(uses(self.instance, schedule), 1.0)

    def promise(self, schedule: FoundSchedule, least_value: float) -> None:
        """Admit a job: hold its schedule, and promise the last slot that still earns `least_value`, or its completion."""
        self.hold(schedule)
        job, worth = schedule.job, self._tables.value[schedule.job]
        later = worth[schedule.completion :]
        keeps = (later > 0) & (later >= least_value * (1 - VALUE_TOL))
        slack = len(later) if keeps.all() else int(np.argmin(keeps))
        self.promised[job] = schedule.completion + max(0, slack - 1)
        self._tables.deadline[job] = self.promised[job]

    def take(self, taken: tuple[Use, ...]) -> None:
        """Take room until it is freed."""
        self._shift(taken, -1.0)

    def fix(self, schedule: FoundSchedule) -> None:
        """Admit a job on room that isn't this cluster's: its schedule is never moved."""
        self.promised[schedule.job] = schedule.completion
        self.record(schedule.job, (schedule.workers, schedule.ps))

    def worth(self, reservation: Reservation) -> float:
        """Return a schedule's value less what its room costs at the posted prices."""
        return reservation.schedule.value - priced(reservation.uses, [side.price for side in self.state.sides])

    def may_earn(self, job: int, slot: int) -> bool:
        """Tell whether completing a job in a slot or later is worth anything."""
        return bool(self._tables.value[job, slot:].max(initial=0.0) > 0)

    def run_slot(self, slot: int) -> None:
        """Let a slot pass: what is reserved in it runs, and can't be moved any more."""
        for job, reservation in list(self.held.items()):
            schedule = reservation.schedule
            self.record(job, [part[part[:, SLOT] == slot] for part in (schedule.workers, schedule.ps)])
            if schedule.completion == slot:
                del self.held[job]
                continue
            now = schedule.workers[:, SLOT] == slot
            self.make_progress(job, slot, int(schedule.workers[now, COUNT].sum()))
            later = replace(schedule, workers=schedule.workers[~now], ps=schedule.ps[schedule.ps[:, SLOT] != slot])
            self.held[job] = Reservation(later, uses(self.instance, later)) if now.any() else reservation

    def plan(self) -> AdmissionPlan:
        """Return what has run."""
        return AdmissionPlan.from_rows(*self._rows)

    def record(self, job: int, parts: Sequence[IntArray]) -> None:
        """Enter rows of workers and of PSs into what has run."""
        for rows, part in zip(self._rows, parts, strict=True):
            rows += [[job, *row[:SEGMENT]] for row in part.tolist()]

    def make_progress(self, job: int, slot: int, workers: int) -> None:
        """Note that so many workers ran in a slot: what is left of the job arrives in the next."""
        tables, jobs = self._tables, self.instance.jobs
        done = int(self.instance.progress[job][workers])
        self.postpone(job, slot)
        tables.target[job] -= done
        tables.segment_start[jobs.segment_offset[job] : jobs.segment_offset[job + 1]] -= done

    def postpone(self, job: int, slot: int) -> None:
        """Let what is left of a job arrive in the slot after this one."""
        self._tables.arrival[job] = slot + 1

    def _shift(self, taken: tuple[Use, ...], sign: float) -> None:
        for side, use in zip(self.state.sides, taken, strict=True):
            side.residual[use.slot, :, use.server] += sign * use.amount


def priced(taken: tuple[Use, ...], prices: Sequence[FloatArray]) -> float:
    """Return what room costs at prices of shape (slots, resources, servers) a side."""
    return sum(
        float(np.sum(price[use.slot, :, use.server] * use.amount)) / MICRO
        for price, use in zip(prices, taken, strict=True)
    )


def left_by_class(state: ClusterState) -> tuple[FloatArray, ...]:
    """Return what is left of each class in whole units, shape (classes, slots, resources) a side."""
    return tuple(
        np.add.reduceat(
            side.residual, np.concatenate([[0], np.cumsum(side.servers.count)[:-1]]).astype(np.int64), axis=2
        ).transpose(2, 0, 1)
        / MICRO
        for side in state.sides
    )
