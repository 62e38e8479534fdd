"""When to run on spot machines, on demand, or not at all: a table by time, work left, what is held, and the spell's age.

The same object decides in back-tests and in a launcher of one's own: `optim.deadlines`.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Self
from zipfile import BadZipFile, ZipFile

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.files import write_bytes
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.lifetimes import AvailabilityTrace
from optim.models.bidding.market.spells import SpellHazards, fit_traces, prior_hazards
from optim.solvers.bidding.deadline_table import (
    KEPT,
    MAX_ENTRIES,
    ON_DEMAND,
    OTHERWISE,
    SPOT,
    DeadlineJob,
    DeadlineTable,
    check_table,
    make_leases,
    solve_table,
)


class Machines(StrEnum):
    """What is held, or to be held."""

    NONE = "none"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


CHOICES = (Machines.NONE, Machines.SPOT, Machines.ON_DEMAND)
"""By what an entry of a table says, see `optim.solvers.bidding.deadline_table.WAIT`."""


class DeadlineView(NamedTuple):
    """What is known when it is decided; times are seconds.

    Parameters
    ----------
    elapsed_s, work_left_s
        Since the start, and work that is left.
    is_available
        Whether spot machines are held, or could be had.
    held
        What is held.
    setup_left_s
        For how long it doesn't work yet.
    held_s
        Since its launch; where None it is taken to be as young as its set-up says.
    spell_s
        For how long machines have been there, or haven't; None where that began before the start, nobody knows when.
    """

    elapsed_s: float
    work_left_s: float
    is_available: bool
    held: Machines = Machines.NONE
    setup_left_s: float = 0.0
    held_s: float | None = None
    spell_s: float | None = None


FORMAT = "optim-deadline-policy-1"
"""What a file of a policy says it is."""


@dataclass(frozen=True, kw_only=True)
class DeadlinePolicy:
    """Decide by a table which of spot machines, machines on demand and waiting is cheapest in the mean, and never late.

    Never late: while ticks are kept and machines on demand work `setup_s` after their launch at the latest. What a tick
    may lose unforeseen belongs into `spare_s`: a tick, if spot machines may be lost within one.

    Parameters
    ----------
    job
        Work, deadline, set-ups, prices and bill.
    hazards
        How likely spells end, by age.
    table
        What to do in every situation.
    spare_s
        By how much the table's deadline is before the true one.

    Examples
    --------
    >>> from optim.deadlines import DeadlinePolicy, DeadlineView
    >>> policy = DeadlinePolicy.fit(
    ...     [], work_s=36_000, deadline_s=43_200, setup_s=600, spot_usd=0.9, on_demand_usd=3.0
    ... )
    >>> str(policy.decide(DeadlineView(elapsed_s=0, work_left_s=36_000, is_available=True)))
    'spot'
    """

    job: DeadlineJob
    hazards: SpellHazards
    table: DeadlineTable
    spare_s: int = 0

    @classmethod
    def fit(
        cls,
        traces: Sequence[AvailabilityTrace],
        *,
        work_s: int,
        deadline_s: int,
        setup_s: int,
        spot_usd: float,
        on_demand_usd: float,
        tick_s: int = 600,
        billing: Billing = Billing.PER_SECOND,
        spare_s: int = 0,
    ) -> Self:
        """Learn how spells end from traces, of other zones or earlier, and make the table.

        Parameters
        ----------
        traces
            Availability as it was; without any the prior is taken: `prior_hazards`.
        work_s, deadline_s, setup_s, spot_usd, on_demand_usd, tick_s, billing
            The job: `DeadlineJob`.
        spare_s
            Seconds before the deadline at which all is to be over.

        Raises
        ------
        InvalidOptionError
            If a number is out of its range, or the deadline can't be met even on demand.
        """
        job = DeadlineJob(
            work_s=work_s,
            deadline_s=deadline_s - spare_s,
            setup_s=setup_s,
            spot_usd=spot_usd,
            on_demand_usd=on_demand_usd,
            tick_s=tick_s,
            billing=Billing(billing),
        )
        return cls.of(job, fit_traces(traces, tick_s) if traces else prior_hazards(tick_s), spare_s=spare_s)

    @classmethod
    def of(cls, job: DeadlineJob, hazards: SpellHazards, *, spare_s: int = 0) -> Self:
        """Make the table of a job, whose deadline is before the true one by `spare_s`."""
        return cls(job=job, hazards=hazards, table=table_of(job, hazards), spare_s=spare_s)

    @property
    def least_mean_usd(self) -> float:
        """The least mean dollars of any rule that decides tick by tick and is never late, if spells end as the hazards say."""
        return self.table.least_mean_usd

    @cached_property
    def _leases(self) -> dict[Machines, tuple[int, list[int]]]:
        """By kind the situation of the youngest lease, and the units of set-up left by age."""
        leases = self.table.leases
        found = {}
        for kind, is_spot in ((Machines.SPOT, True), (Machines.ON_DEMAND, False)):
            rows = np.flatnonzero(leases.is_spot[:-2] == is_spot)
            found[kind] = int(rows[0]) + 1, leases.rest[rows].tolist()
        return found

    def decide(self, view: DeadlineView) -> Machines:
        """Return what to hold until the next tick; what is held already is kept if it is that.

        Parameters
        ----------
        view
            What is known. At times that aren't ticks, the time until the next tick counts as lost.
        """
        job, table = self.job, self.table
        tick = math.ceil(view.elapsed_s / job.tick_s - TIME_TOL)
        lost = math.ceil((view.work_left_s - job.work_s + tick * job.tick_s) / table.unit_s - TIME_TOL)
        ages = self.hazards.num_ages
        spell = ages if view.spell_s is None else min(ages - 1, int(view.spell_s / job.tick_s + TIME_TOL))
        entry = table.entry(tick, lost, spell + (ages + 1) * view.is_available)
        situation = self._situation(view)
        if situation and entry >> (situation + KEPT - 1) & 1:
            return view.held
        if situation and view.held is Machines.SPOT:
            return Machines.ON_DEMAND if entry & OTHERWISE else Machines.NONE
        return CHOICES[entry & (SPOT | ON_DEMAND)]

    def _situation(self, view: DeadlineView) -> int:
        """Return the situation of what is held: the oldest lease that is no older, and needs as much of its set-up."""
        if view.held is Machines.NONE:
            return 0
        first, rests = self._leases[view.held]
        age = len(rests) if view.held_s is None else min(len(rests), int(view.held_s / self.job.tick_s + TIME_TOL))
        need = view.setup_left_s / self.table.unit_s - TIME_TOL
        while age > 0 and rests[age - 1] < need:
            age -= 1
        return first + age - 1 if age > 0 else 0

    def save(self, path: str | Path) -> None:
        """Write job, hazards and table to a file."""
        table, job = self.table, asdict(self.job)
        head = {"format": FORMAT, "job": job, "spare_s": self.spare_s, "unit_s": table.unit_s}
        head |= {"tick_s": self.hazards.tick_s, "source": self.hazards.source}
        buffer = BytesIO()
        np.savez_compressed(
            buffer,
            head=np.array(json.dumps(head)),
            hazard=self.hazards.hazard,
            begin=table.begin,
            low=table.low,
            entries=table.entries,
            mean_usd=table.mean_usd,
        )
        write_bytes(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a policy from its file.

        Raises
        ------
        InvalidProblemError
            If the file can't be read or isn't a policy's, its hazards aren't probabilities, or its table isn't that of the
            job or would be late somewhere.
        """
        try:
            with ZipFile(path) as archive:
                size = sum(part.file_size for part in archive.infolist())
                if size > MAX_BYTES:
                    raise InvalidProblemError(f"{path}: {size} bytes unpacked are more than any policy's, {MAX_BYTES}")
            with np.load(path, allow_pickle=False) as file:
                parts: dict[str, Any] = {name: file[name] for name in PARTS}
            head = json.loads(str(parts["head"]))
            if head["format"] != FORMAT:
                raise InvalidProblemError(f"{path}: no policy of this version; save it again")
            job = DeadlineJob(**(head["job"] | {"billing": Billing(head["job"]["billing"])}))
            unit_s, spare_s, tick_s, source = (head[name] for name in ("unit_s", "spare_s", "tick_s", "source"))
            hazards = SpellHazards(tick_s=int(tick_s), hazard=parts["hazard"], source=str(source))
            leases = make_leases(job, int(unit_s))
        except (OSError, KeyError, TypeError, ValueError, BadZipFile, EOFError, InvalidOptionError) as error:
            raise InvalidProblemError(
                f"{path}: not the file of a policy: {error}; save one with DeadlinePolicy.save"
            ) from None
        table = DeadlineTable(
            job=job,
            hazards=hazards,
            unit_s=int(unit_s),
            begin=parts["begin"],
            low=parts["low"],
            entries=parts["entries"],
            mean_usd=parts["mean_usd"],
            leases=leases,
        )
        problems = check_table(table)
        if problems:
            raise InvalidProblemError(f"{path}: the table can't be trusted: {problems[0]}; make it anew")
        return cls(job=job, hazards=hazards, table=table, spare_s=int(spare_s))


PARTS = ("head", "hazard", "begin", "low", "entries", "mean_usd")
"""Arrays of a file."""

MAX_BYTES = 8 * MAX_ENTRIES
"""Of a file, unpacked."""

TIME_TOL = 1e-6
"""Times that differ by less, in ticks or units, are the same."""


@lru_cache(maxsize=24)
def table_of(job: DeadlineJob, hazards: SpellHazards) -> DeadlineTable:
    """Return the table of a job, made once as long as it is in use."""
    return solve_table(job, hazards)
