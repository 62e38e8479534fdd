"""When to run on spot machines, on demand, or not at all: a table by time, work left, what is held, and the spell's age.

The same object decides in back-tests and in your own launcher: `optim.deadlines`.
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
        Since its launch, by which some bills go; where None it is taken to be as young as its set-up says.
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


TIME_TOL = 1e-6
"""Times that differ by less, in ticks or units, are the same."""


LEVEL, MAX_LEVEL = 8.0, 1
"""Hazards in a run are those from elsewhere times a power of this, at most so high or low."""

DOUBT = 4.5
"""By how much, as a logarithm, a power of one is less likely than none before anything is seen.

Of 1, 2, 4.5, 7 and 12 the least that costs at most 0.1 % more than the best where hazards are right. That is 4.5 on the
campaign of 2022 (learned from 2023) and on that of 2023 (learned from 2022), so that each confirms the other's choice: 3.7 % and
5.9 % less than `uniform-progress`. With hazards ten times too low it is 2.0 % more instead of 4.3 % with 12, in 2022.
"""

MIN_CHANCE = 1e-3
"""A tick is taken to end a spell, or not to, with this probability at least: hazards of 0 and 1 may be wrong."""

LAST, WAS_THERE, BEGAN = range(3)
"""What `SpellWatch` remembers: when it last looked, what it saw, when that began; NaN for not at all, before the start."""


@lru_cache(maxsize=64)
def log_lasting(hazards: SpellHazards) -> FloatArray:
    """Return the logarithms of the probabilities that a spell lasts another tick, by power of `LEVEL`.

    Returns
    -------
    FloatArray
        Shape (powers, 2, 2, ages): by power, whether the spell is the one that was found, kind and age.
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
    """Take up one sight: what is remembered, and how likely it is by kind and power."""
    last_s, began_s = seen[LAST], seen[BEGAN]
    if not math.isnan(last_s):
        kind, is_found = int(seen[WAS_THERE]), math.isnan(began_s)
        age = int((last_s - (0.0 if is_found else began_s)) / tick_s + TIME_TOL)
        age = min(age, lasting.shape[3] - 1)
        for row in range(len(lasting)):
            lasts = lasting[row, 1 if is_found else 0, kind, age] * (now_s - last_s) / tick_s
            if kind == is_there:
                log_weight[kind, row] += lasts
            elif lasts < 0.0:  # or no time has passed
                log_weight[kind, row] += math.log(-math.expm1(lasts))
        if kind != is_there:
            seen[BEGAN] = now_s
    seen[LAST], seen[WAS_THERE] = now_s, 1.0 if is_there else 0.0


@compiled
def likeliest(log_weight: FloatArray, kind: int) -> int:
    """Return the likeliest power of `LEVEL` of a kind of spells, of several the least."""
    return int(np.argmax(log_weight[kind])) - len(log_weight[kind]) // 2


@compiled
def lasted(seen: FloatArray, now_s: float, is_there: bool) -> float:
    """Return for how long there would be machines, or none, if that is so at a time; NaN since before the start."""
    if math.isnan(seen[LAST]) or seen[WAS_THERE] == is_there:
        return now_s - float(seen[BEGAN])
    return 0.0


class SpellWatch:
    """What a run has seen of its zone: how long the present spell has lasted, and whether spells end sooner than expected.

    Parameters
    ----------
    hazards
        How spells were expected to end.

    Notes
    -----
    Hazards of a kind are those expected times a power of `LEVEL`, which is likeliest by Bayes' rule: every tick that a spell
    was seen to last, or not to, is as likely as that power's hazard at its age says. Powers are far apart, and others than
    none are doubted: it is an insurance against hazards that are wrong by much.
    """

    def __init__(self, hazards: SpellHazards) -> None:
        self._tick_s = float(hazards.tick_s)
        self._lasting = log_lasting(hazards)
        self._seen, self._log_weight = new_memory()

    def see(self, now_s: float, *, is_available: bool) -> None:
        """Take up whether there are machines at a time, not before the last."""
        take_up(self._seen, self._log_weight, self._lasting, self._tick_s, float(now_s), bool(is_available))

    def lasted_s(self, now_s: float, *, is_available: bool) -> float | None:
        """Return for how long there would be machines, or none, if that is so at a time; None since before the start."""
        found_s = float(lasted(self._seen, float(now_s), bool(is_available)))
        return None if math.isnan(found_s) else found_s

    @property
    def is_there(self) -> bool:
        """Whether there were machines when it was last looked."""
        return bool(self._seen[WAS_THERE])

    @property
    def levels(self) -> tuple[int, int]:
        """Powers of `LEVEL` that hazards of absence and of availability are to be multiplied by."""
        return likeliest(self._log_weight, ABSENT), likeliest(self._log_weight, PRESENT)


def new_memory() -> tuple[FloatArray, FloatArray]:
    """Return what a run remembers before it has seen anything: see `LAST`, and the logarithms of the powers' weights by kind."""
    powers = np.arange(-MAX_LEVEL, MAX_LEVEL + 1)
    return np.array([np.nan, 0.0, np.nan]), np.tile(-DOUBT * np.abs(powers), (2, 1))


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
        for name, value in (("spare_s", spare_s), ("deadline_s", deadline_s)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidOptionError(f"{name} must be a whole number of seconds, 0 at least, got {value!r}")
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
        """Make the table of a job, whose deadline is before the true one by `spare_s`."""
        return cls(job=job, hazards=hazards, table=table_of(job, hazards), spare_s=spare_s)

    @property
    def least_mean_usd(self) -> float | None:
        """The least mean dollars of any rule that decides tick by tick and is never late, if spells end as the hazards say.

        None where bills are by the hour and ticks don't divide it, or set-ups had to be rounded.
        """
        return self.table.least_mean_usd

    def updated(self, watch: SpellWatch) -> Self:
        """Return the policy of hazards as a run has seen them so far; as safe at every moment, made once a pair of levels."""
        return self.of_levels(watch.levels)

    def of_levels(self, levels: tuple[int, int]) -> Self:
        """Return the policy of hazards times powers of `LEVEL`, of absence and of availability."""
        if levels not in self._variants:
            absent, present = (LEVEL**level for level in levels)
            self._variants[levels] = type(self).of(self.job, self.hazards.scaled(absent, present), spare_s=self.spare_s)
        return self._variants[levels]

    @cached_property
    def _variants(self) -> dict[tuple[int, int], Self]:
        """Policies by level; this one is that of level 0."""
        return {(0, 0): self}

    @cached_property
    def _looked_up(self) -> tuple[int, int, int, int, list[int], list[int], memoryview, int]:
        """Numbers of the table as Python's own, which are read faster than one of an array."""
        job, table = self.job, self.table
        entries, spells = table.entries.reshape(-1).data, table.entries.shape[1]
        return (
            *(job.tick_s, job.work_s, table.unit_s, self.hazards.num_ages),
            *(table.low.tolist(), table.begin.tolist(), entries, spells),
        )

    @cached_property
    def _leases(self) -> dict[Machines, tuple[int, list[int], int]]:
        """By kind the situation of the youngest lease, the units of set-up left by age, and how many ages recur after the last."""
        leases = self.table.leases
        found = {}
        for kind, is_spot in ((Machines.SPOT, True), (Machines.ON_DEMAND, False)):
            rows = np.flatnonzero(leases.is_spot[:-2] == is_spot)
            recur = int(rows[-1]) + 2 - int(leases.after[rows[-1]])
            found[kind] = int(rows[0]) + 1, leases.rest[rows].tolist(), recur
        return found

    def decide(self, view: DeadlineView) -> Machines:
        """Return what to hold until the next tick; what is held already is kept if it is that.

        Parameters
        ----------
        view
            What is known. At times that aren't ticks, the time until the next tick counts as lost.
        """
        elapsed_s, work_left_s, is_available, held, setup_left_s, held_s, spell_s = view
        tick_s, work_s, unit_s, ages, low, begin, entries, spells = self._looked_up
        tick = math.ceil(elapsed_s / tick_s - TIME_TOL)
        entry = ON_DEMAND  # where there is none: too late
        if tick < len(low):
            lost = math.ceil((work_left_s - work_s + tick * tick_s) / unit_s - TIME_TOL)
            row = begin[tick] + max(0, lost - low[tick])
            if row < begin[tick + 1]:
                spell = ages if spell_s is None else min(ages - 1, int(spell_s / tick_s + TIME_TOL))
                entry = entries[row * spells + spell + (ages + 1) * is_available]
        if held is Machines.NONE:
            return CHOICES[entry & (SPOT | ON_DEMAND)]
        # The oldest lease that is no older, and needs as much of its set-up; one that is later than any is as good as new.
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
            unit_s, spare_s, tick_s = (_seconds(head, name) for name in ("unit_s", "spare_s", "tick_s"))
            for name, kinds in KINDS.items():
                if parts[name].dtype.kind not in kinds:
                    raise ValueError(f"{name} is of {parts[name].dtype}")
            hazards = SpellHazards(tick_s=tick_s, hazard=parts["hazard"], source=str(head["source"]))
            # Of a unit that divides the tick, or the table is refused.
            leases = make_leases(job, math.gcd(unit_s, job.tick_s))
        except UNREADABLE as error:
            raise InvalidProblemError(
                f"{path}: not the file of a policy: {error}; save one with DeadlinePolicy.save"
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
            raise InvalidProblemError(f"{path}: the table can't be trusted: {problems[0]}; make it anew")
        return cls(job=job, hazards=hazards, table=table, spare_s=spare_s)


def _seconds(head: dict[str, Any], name: str) -> int:
    """Return whole seconds of a file's head."""
    value = head[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_SECONDS:
        raise ValueError(f"{name} must be whole seconds, 0 at least, got {str(value)[:40]!r}")
    return value


PARTS = ("head", "hazard", "begin", "low", "entries", "mean_usd")
"""Arrays of a file."""

KINDS = {"hazard": "f", "begin": "i", "low": "i", "mean_usd": "f"}
"""Which numbers they hold: floats, or whole ones."""

UNREADABLE = (
    *(OSError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError),
    *(BadZipFile, EOFError, zlib.error, SyntaxError, TokenError, MemoryError, InvalidOptionError),
)
"""What comes up in a file that isn't a policy's."""

MAX_SECONDS = 2**53
"""Times of a file are below."""

MAX_BYTES = 8 * MAX_ENTRIES
"""Of a file, unpacked."""


@lru_cache(maxsize=24)
def table_of(job: DeadlineJob, hazards: SpellHazards) -> DeadlineTable:
    """Return the table of a job, made once as long as it is in use."""
    return solve_table(job, hazards)
