"""Table policy for one zone: choose spot machines, on-demand machines or waiting.

The table is indexed by time, work left, current lease and age of the spell. Back-tests and a user's launcher share the
same object: `optim.deadlines`.
"""

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple, Self
from zipfile import BadZipFile, ZipFile

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import FloatArray
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.files import write_bytes
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.lifetimes import AvailabilityTrace
from optim.models.bidding.market.spells import ABSENT, PRESENT, SpellHazards, fit_traces, prior_hazards
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
    """Type of the machines that a job uses or that a policy chooses."""

    NONE = "none"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


CHOICES = (Machines.NONE, Machines.SPOT, Machines.ON_DEMAND)
"""Choices in the order of the values of a table entry, see `optim.solvers.bidding.deadline_table.WAIT`."""


class DeadlineView(NamedTuple):
    """Information available at a decision; times are in seconds.

    Parameters
    ----------
    elapsed_s, work_left_s
        Time since the start, and remaining work.
    is_available
        Whether spot machines are in use or could be obtained.
    held
        Machines in use.
    setup_left_s
        Remaining set-up time, during which the machines do no work.
    held_s
        Time since the launch of the machines, for bills that depend on it. If it is None, the policy assumes the lowest
        age that agrees with `setup_left_s`.
    spell_s
        Duration so far of the present spell of availability or absence. None if the spell began before the start, so
        that its age is unknown.
    """

    elapsed_s: float
    work_left_s: float
    is_available: bool
    held: Machines = Machines.NONE
    setup_left_s: float = 0.0
    held_s: float | None = None
    spell_s: float | None = None


TIME_TOL = 1e-6
"""Times that differ by less than this, in ticks or units, are considered equal."""


LEVEL, MAX_LEVEL = 8.0, 1
"""During a run, learned hazards are multiplied by ``LEVEL ** k`` with ``abs(k) <= MAX_LEVEL``."""

DOUBT = 4.5
"""Prior penalty, in the logarithm of the weight, for each step of the power away from 0.

Of the penalties tested, it is the smallest whose cost is at most 0.1 % above the best cost if the hazards are right. With
hazards ten times too low, the cost was 2.0 % above that of `uniform-progress`; with a penalty of 12 it was 4.3 % above.
"""

MIN_CHANCE = 1e-3
"""Lower bound on the probability that a spell ends, or continues, at a tick: learned hazards of 0 and 1 may be
wrong."""

LAST, WAS_THERE, BEGAN = range(3)
"""Positions in the memory of `SpellWatch`: time of the last observation, its result, and begin of the spell. The time
is NaN before the first observation; the begin is NaN if the spell began before the start."""


@lru_cache(maxsize=64)
def log_lasting(hazards: SpellHazards) -> FloatArray:
    """Return the logarithms of the probabilities that a spell lasts another tick, by power of `LEVEL`.

    Returns
    -------
    FloatArray
        Shape (powers, 2, 2, ages), indexed by the power, whether the spell began before the start, the state (absent or
        present) and the age.
    """
    found = np.empty((2 * MAX_LEVEL + 1, 2, 2, hazards.num_ages))
    for row, power in enumerate(range(-MAX_LEVEL, MAX_LEVEL + 1)):
        scaled = hazards.scaled(LEVEL**power, LEVEL**power)
        found[row, 0], found[row, 1] = scaled.hazard, scaled.first_hazard(hazards.num_ages).T
    return np.asarray(np.log1p(-np.clip(found, MIN_CHANCE, 1.0 - MIN_CHANCE)))


@compiled
def take_up(
    seen: FloatArray, log_weight: FloatArray, lasting: FloatArray, tick_s: float, now_s: float, is_there: bool
) -> None:
    """Update the memory and the log weights of the powers, by state, with one observation."""
    last_s, began_s = seen[LAST], seen[BEGAN]
    if not math.isnan(last_s):
        kind, is_found = int(seen[WAS_THERE]), math.isnan(began_s)
        age = int((last_s - (0.0 if is_found else began_s)) / tick_s + TIME_TOL)
        age = min(age, lasting.shape[3] - 1)
        for row in range(len(lasting)):
            lasts = lasting[row, 1 if is_found else 0, kind, age] * (now_s - last_s) / tick_s
            if kind == is_there:
                log_weight[kind, row] += lasts
            elif lasts < 0.0:  # otherwise no time has passed
                log_weight[kind, row] += math.log(-math.expm1(lasts))
        if kind != is_there:
            seen[BEGAN] = now_s
    seen[LAST], seen[WAS_THERE] = now_s, 1.0 if is_there else 0.0


@compiled
def likeliest(log_weight: FloatArray, kind: int) -> int:
    """Return the most likely power of `LEVEL` for spells of one state; the smallest if several are equally likely."""
    return int(np.argmax(log_weight[kind])) - len(log_weight[kind]) // 2


@compiled
def lasted(seen: FloatArray, now_s: float, is_there: bool) -> float:
    """Return the age of the present spell if the state at `now_s` is `is_there`; NaN if it began before the start."""
    if math.isnan(seen[LAST]) or seen[WAS_THERE] == is_there:
        return now_s - float(seen[BEGAN])
    return 0.0


class SpellWatch:
    """Observations of a zone during a run.

    The observations determine the age of the present spell, and whether spells end sooner or later than expected.

    Parameters
    ----------
    hazards
        Learned hazards of the ends of spells.

    Notes
    -----
    The learned hazards of each state are multiplied by a power of `LEVEL`. Bayes' rule selects the most likely power:
    each observed tick has the likelihood given by that power's hazard at the age of the spell. The powers are far
    apart, and the prior `DOUBT` favours power 0. The correction therefore only protects against hazards that are wrong
    by a large factor.
    """

    def __init__(self, hazards: SpellHazards) -> None:
        self._tick_s = float(hazards.tick_s)
        self._lasting = log_lasting(hazards)
        self._seen, self._log_weight = new_memory()

    def see(self, now_s: float, *, is_available: bool) -> None:
        """Record whether there are machines at `now_s`, which must not precede the last observation."""
        take_up(self._seen, self._log_weight, self._lasting, self._tick_s, float(now_s), bool(is_available))

    def lasted_s(self, now_s: float, *, is_available: bool) -> float | None:
        """Return the age of the present spell if the state at `now_s` is `is_available`.

        None if it began before the start.
        """
        found_s = float(lasted(self._seen, float(now_s), bool(is_available)))
        return None if math.isnan(found_s) else found_s

    @property
    def is_there(self) -> bool:
        """Whether there were machines at the last observation."""
        return bool(self._seen[WAS_THERE])

    @property
    def levels(self) -> tuple[int, int]:
        """Most likely powers of `LEVEL` for the hazards of absence and of availability."""
        return likeliest(self._log_weight, ABSENT), likeliest(self._log_weight, PRESENT)


def new_memory() -> tuple[FloatArray, FloatArray]:
    """Return the memory of a run before any observation (see `LAST`), and the log weights of the powers by state."""
    powers = np.arange(-MAX_LEVEL, MAX_LEVEL + 1)
    return np.array([np.nan, 0.0, np.nan]), np.tile(-DOUBT * np.abs(powers), (2, 1))


FORMAT = "optim-deadline-policy-1"
"""Format identifier in the file of a policy."""


@dataclass(frozen=True, kw_only=True)
class DeadlinePolicy:
    """Table policy: choose spot machines, on-demand machines or waiting.

    The table minimises the mean cost and always meets the deadline.

    The guarantee requires decisions at every tick, and on-demand machines that start to work at most `setup_s` seconds
    after their launch. `spare_s` must cover any unforeseen loss: one tick, if spot machines may be lost within a tick.

    Parameters
    ----------
    job
        Work, deadline, set-up times, prices and billing rule.
    hazards
        Probability per tick that a spell ends, by age.
    table
        Choice for every tick, remaining work, current lease and age of the spell.
    spare_s
        Seconds by which the table's deadline precedes the true one.

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
        """Learn the hazards of spells from traces of other zones or earlier times, and build the table.

        Parameters
        ----------
        traces
            Recorded availability; without traces the prior is used: `prior_hazards`.
        work_s, deadline_s, setup_s, spot_usd, on_demand_usd, tick_s, billing
            The job: see `DeadlineJob`.
        spare_s
            Seconds before the deadline by which the job must be complete.

        Raises
        ------
        InvalidOptionError
            If a number is out of range, or on-demand machines alone cannot meet the deadline.
        """
        for name, value in (("spare_s", spare_s), ("deadline_s", deadline_s)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidOptionError(f"{name} must be an integer number of seconds >= 0, got {value!r}")
        if billing not in list(Billing):
            raise InvalidOptionError(f"billing must be one of {', '.join(Billing)}, got {billing!r}")
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
        """Build the table of a job, with a deadline `spare_s` seconds before the true one."""
        return cls(job=job, hazards=hazards, table=table_of(job, hazards), spare_s=spare_s)

    @property
    def least_mean_usd(self) -> float | None:
        """Minimum mean cost in dollars, given the hazards, of rules that decide at every tick and always meet the deadline.

        None if bills are by the hour and the tick does not divide an hour, or if set-up times were rounded.
        """
        return self.table.least_mean_usd

    def updated(self, watch: SpellWatch) -> Self:
        """Return the policy for the hazards as corrected by a run's observations.

        The returned policy also meets the deadline; it is computed once per pair of levels.
        """
        return self.of_levels(watch.levels)

    def of_levels(self, levels: tuple[int, int]) -> Self:
        """Return the policy for the hazards of absence and of availability times the given powers of `LEVEL`."""
        if levels not in self._variants:
            absent, present = (LEVEL**level for level in levels)
            self._variants[levels] = type(self).of(self.job, self.hazards.scaled(absent, present), spare_s=self.spare_s)
        return self._variants[levels]

    @cached_property
    def _variants(self) -> dict[tuple[int, int], Self]:
        """Policies by pair of levels; this one has the levels (0, 0)."""
        return {(0, 0): self}

    @cached_property
    def _looked_up(self) -> tuple[int, int, int, int, list[int], list[int], memoryview, int]:
        """Values of the table as Python numbers and lists, which are faster to read one by one than arrays."""
        job, table = self.job, self.table
        entries, spells = table.entries.reshape(-1).data, table.entries.shape[1]
        return (
            *(job.tick_s, job.work_s, table.unit_s, self.hazards.num_ages),
            *(table.low.tolist(), table.begin.tolist(), entries, spells),
        )

    @cached_property
    def _leases(self) -> dict[Machines, tuple[int, list[int], int]]:
        """For each machine type: index of the youngest lease, remaining set-up units by age, and period of recurrent ages."""
        leases = self.table.leases
        found = {}
        for kind, is_spot in ((Machines.SPOT, True), (Machines.ON_DEMAND, False)):
            rows = np.flatnonzero(leases.is_spot[:-2] == is_spot)
            recur = int(rows[-1]) + 2 - int(leases.after[rows[-1]])
            found[kind] = int(rows[0]) + 1, leases.rest[rows].tolist(), recur
        return found

    def decide(self, view: DeadlineView) -> Machines:
        """Return the machines to use until the next tick; a choice of the type in use keeps the present machines.

        Parameters
        ----------
        view
            Information available now. Between ticks, the time until the next tick counts as lost.
        """
        elapsed_s, work_left_s, is_available, held, setup_left_s, held_s, spell_s = view
        tick_s, work_s, unit_s, ages, low, begin, entries, spells = self._looked_up
        tick = math.ceil(elapsed_s / tick_s - TIME_TOL)
        entry = ON_DEMAND  # without an entry, it is too late for anything else
        if tick < len(low):
            lost = math.ceil((work_left_s - work_s + tick * tick_s) / unit_s - TIME_TOL)
            row = begin[tick] + max(0, lost - low[tick])
            if row < begin[tick + 1]:
                spell = ages if spell_s is None else min(ages - 1, int(spell_s / tick_s + TIME_TOL))
                entry = entries[row * spells + spell + (ages + 1) * is_available]
        if held is Machines.NONE:
            return CHOICES[entry & (SPOT | ON_DEMAND)]
        # Find the oldest tabulated lease that is at most as old as this lease and needs at least as much set-up. If
        # there is none, this lease counts as new.
        first, rests, recur = self._leases[held]
        age = len(rests) if held_s is None else int(held_s / tick_s + TIME_TOL)
        if age > len(rests):
            age = len(rests) - (len(rests) - age) % recur
        need = setup_left_s / unit_s - TIME_TOL
        while age > 0 and rests[age - 1] < need:
            age -= 1
        while held_s is None and age > 1 and rests[age - 2] == rests[age - 1]:
            age -= 1
        if age > 0:
            if entry >> (first + age + KEPT - 2) & 1:
                return held
            if held is Machines.SPOT:
                return Machines.ON_DEMAND if entry & OTHERWISE else Machines.NONE
        return CHOICES[entry & (SPOT | ON_DEMAND)]

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
            If the file is unreadable or not a policy file, if its hazards are not probabilities, or if its table
            belongs to another job or misses the deadline.
        """
        try:
            with ZipFile(path) as archive:
                size = sum(part.file_size for part in archive.infolist())
                if size > MAX_BYTES:
                    raise InvalidProblemError(
                        f"{path}: {size} bytes unpacked exceed the limit of {MAX_BYTES} for a policy file"
                    )
            with np.load(path, allow_pickle=False) as file:
                parts: dict[str, Any] = {name: file[name] for name in PARTS}
            head = json.loads(str(parts["head"]))
            if head["format"] != FORMAT:
                raise InvalidProblemError(
                    f"{path}: not a policy file of this version; create it again with DeadlinePolicy.save"
                )
            job = DeadlineJob(**(head["job"] | {"billing": Billing(head["job"]["billing"])}))
            unit_s, spare_s, tick_s = (_seconds(head, name) for name in ("unit_s", "spare_s", "tick_s"))
            for name, kinds in KINDS.items():
                if parts[name].dtype.kind not in kinds:
                    raise ValueError(f"{name} has type {parts[name].dtype}")
            hazards = SpellHazards(tick_s=tick_s, hazard=parts["hazard"], source=str(head["source"]))
            # The unit must divide the tick; otherwise the table is rejected.
            leases = make_leases(job, math.gcd(unit_s, job.tick_s))
        except UNREADABLE as error:
            raise InvalidProblemError(
                f"{path}: not a policy file: {error}; create one with DeadlinePolicy.save"
            ) from None
        table = DeadlineTable(
            job=job,
            hazards=hazards,
            unit_s=unit_s,
            begin=parts["begin"],
            low=parts["low"],
            entries=parts["entries"],
            mean_usd=parts["mean_usd"],
            leases=leases,
        )
        problems = check_table(table)
        if problems:
            raise InvalidProblemError(
                f"{path}: the table failed its check: {problems[0]}; create the policy again with DeadlinePolicy.fit"
            )
        return cls(job=job, hazards=hazards, table=table, spare_s=spare_s)


def _seconds(head: dict[str, Any], name: str) -> int:
    """Return an integer number of seconds from the header of a file."""
    value = head[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_SECONDS:
        raise ValueError(f"{name} must be an integer number of seconds >= 0, got {str(value)[:40]!r}")
    return value


PARTS = ("head", "hazard", "begin", "low", "entries", "mean_usd")
"""Arrays in a policy file."""

KINDS = {"hazard": "f", "begin": "i", "low": "i", "mean_usd": "f"}
"""NumPy type codes of the arrays: float or integer."""

UNREADABLE = (
    *(OSError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError),
    *(BadZipFile, EOFError, zlib.error, SyntaxError, TokenError, MemoryError, InvalidOptionError),
)
"""Exceptions raised while reading a file that is not a policy file."""

MAX_SECONDS = 2**53
"""Upper limit on times in a file."""

MAX_BYTES = 8 * MAX_ENTRIES
"""Size limit of an unpacked file."""


@lru_cache(maxsize=24)
def table_of(job: DeadlineJob, hazards: SpellHazards) -> DeadlineTable:
    """Return the table of a job; the tables last used are cached."""
    return solve_table(job, hazards)
