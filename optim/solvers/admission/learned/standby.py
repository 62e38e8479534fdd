"""Standby: refused jobs run on room that nobody holds, without a promise.

A refusal at posted prices says that room is likely to be worth more to others, not that it will be: what the others leave
is lost with the slot. So a refused job may wait. In each slot, after all decisions, the waiting jobs are laid into the room
that no reservation holds, the densest first; what they would hold beyond the slot is open again before the next decision.
Nobody who was promised anything notices: decisions and reservations are those of a day without standby
(docs/mathematics/learned-prices.md, section 4). A job that gets to its end earns what its completion slot is worth; one
that doesn't has run for nothing.

Source: jobs that run on idle room until it is wanted are the best-effort tier of Verma et al., "Large-scale cluster
management at Google with Borg", 2015, DOI 10.1145/2741948.2741964.
"""

from collections.abc import Sequence

import numpy as np

from optim.models.admission.instance import FloatArray, IntArray
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.learned.reservations import Reservations, priced
from optim.solvers.admission.pricing.server_arrays import COUNT, SLOT
from optim.solvers.admission.pricing.server_search import FoundSchedule, uses

PATIENCE = 1 / 3
"""Share of the day over which jobs still to come are taken to want 1 - 1/e of a slot's room."""

LEAST_COST = 1e-12
"""Utils that a schedule counts as costing at least, where room is free."""


class Standby:
    """The jobs that were refused and may still run.

    Parameters
    ----------
    reservations
        What is held; standby takes room only within `run_slot`.
    most
        Most jobs that wait; the least dense ones give up first.
    """

    def __init__(self, reservations: Reservations, most: int) -> None:
        self._reservations, self._most = reservations, most
        self._waiting: list[int] = []
        self._ran: dict[int, tuple[list[IntArray], list[IntArray]]] = {}
        self.completed: dict[int, int] = {}
        """Completion slot of every job that got to its end."""

    @property
    def waiting(self) -> tuple[int, ...]:
        """The jobs that wait."""
        return tuple(self._waiting)

    def add(self, job: int) -> None:
        """Let a refused job wait."""
        self._waiting.append(job)
        self._ran[job] = ([], [])

    def run_slot(self, slot: int, posted: Sequence[FloatArray]) -> float:
        """Run waiting jobs in what is left of a slot; return what the jobs that are complete by it earn.

        Schedules are found at the state's present prices, a job's density is what it earns an util of room at `posted`
        prices, shape (slots, resources, servers) a side.
        """
        held = self._reservations
        self._waiting = [job for job in self._waiting if held.may_earn(job, slot)]
        placed = self._lay(posted)
        earned = 0.0
        for job in self.waiting:
            if job not in placed:
                held.postpone(job, slot)
                continue
            schedule = placed[job]
            parts = [part[part[:, SLOT] == slot] for part in (schedule.workers, schedule.ps)]
            for rows, part in zip(self._ran[job], parts, strict=True):
                rows.append(part)
            if schedule.completion == slot:
                held.record(job, [np.concatenate(rows) for rows in self._ran.pop(job)])
                self._waiting.remove(job)
                self.completed[job] = slot
                earned += schedule.value
            else:
                held.make_progress(job, slot, int(parts[0][:, COUNT].sum()))
        return earned

    def unfinished(self) -> AdmissionPlan:
        """Return what ran of jobs that aren't complete: no plan of the problem, for it earns nothing."""
        rows: tuple[list[list[int]], list[list[int]]] = ([], [])
        for job, parts in self._ran.items():
            for side, part in zip(rows, parts, strict=True):
                side += [[job, *row[: COUNT + 1]] for rows_of_slot in part for row in rows_of_slot.tolist()]
        return AdmissionPlan.from_rows(*rows)

    def _lay(self, posted: Sequence[FloatArray]) -> dict[int, FoundSchedule]:
        """Lay jobs into what is left, the densest first, and open that room again."""
        held = self._reservations
        # As it would be if it came first: what was dense among others in the last slot needn't be now.
        density = {}
        for job in self._waiting:
            alone = held.find(job)
            if alone is not None:
                cost = priced(uses(held.instance, alone), posted)
                density[job] = alone.payoff / max(cost, LEAST_COST)
        self._give_up(density)
        placed: dict[int, FoundSchedule] = {}
        for job in sorted(self._waiting, key=lambda job: -density.get(job, 0.0)):
            schedule = held.find(job)
            if schedule is not None:
                held.take(uses(held.instance, schedule))
                placed[job] = schedule
        for schedule in placed.values():
            held.free(schedule)
        return placed

    def _give_up(self, density: dict[int, float]) -> None:
        """Keep as many as may wait."""
        if len(self._waiting) > self._most:
            kept = set(sorted(self._waiting, key=lambda job: -density.get(job, 0.0))[: self._most])
            self._waiting = [job for job in self._waiting if job in kept]
