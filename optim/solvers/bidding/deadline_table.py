"""The minimal mean cost of a deadline job in one zone with age-dependent spells, and the policy that attains it.

Both are computed by backward recursion over states: the tick, the idle time so far, the lease and its age, and the
present spell with its age. See (B.18) of docs/mathematics/bidding.md.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.compiled import compiled
from optim.core.arrays import ComparesByValue, FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.prices import HOUR_S, MINUTE_S
from optim.models.bidding.market.spells import SpellHazards

WAIT, SPOT, ON_DEMAND = 0, 1, 2
"""Actions at a tick: the two lowest bits of a table's entry."""

OTHERWISE, KEPT = 4, 3
"""`OTHERWISE` is the bit of an entry that is set if a job that releases spot machines launches on demand instead of
waiting. `KEPT` is the position of the first of the bits that mark, for each type and age of lease, whether to renew it."""

MAX_ENTRIES = 2**25
"""Maximal number of entries of a table; larger tables get a longer time unit, and set-ups are rounded up to units."""

MAX_LEASES, SMALL = 29, 5
"""Maximal number of lease ages that an entry's bits can represent, and the number that fits in one byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineJob:
    """A deadline job in one zone, the input of a table; times are integral seconds.

    Parameters
    ----------
    work_s, deadline_s
        Work, and the time allowed for it.
    setup_s
        Time from a launch, spot or on demand, to the first work. On-demand machines must be ready within this time.
    spot_usd, on_demand_usd
        Prices of all machines together, dollars per hour.
    tick_s
        Seconds between decisions.
    billing
        The billing rule.
    keeps_tick
        Whether spot machines are launched only if an idle tick still leaves time for an on-demand launch, for
        environments that enforce this.

    Raises
    ------
    InvalidOptionError
        If a number is out of its range, or the deadline can't be met even on demand.
    """

    work_s: int
    deadline_s: int
    setup_s: int
    spot_usd: float
    on_demand_usd: float
    tick_s: int = 600
    billing: Billing = Billing.PER_SECOND
    keeps_tick: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.keeps_tick, bool):
            raise InvalidOptionError(f"keeps_tick must be True or False, got {self.keeps_tick!r}")
        for name, least in (("work_s", 1), ("deadline_s", 1), ("setup_s", 0), ("tick_s", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidOptionError(
                    f"{name} must be an integer number of seconds, at least {least}, got {value!r}"
                )
        for name in ("spot_usd", "on_demand_usd"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 < value < 1e9:
                raise InvalidOptionError(f"{name} must be dollars per hour above 0, got {value!r}")
        if self.deadline_s < self.work_s + self.setup_s:
            raise InvalidOptionError(
                f"the deadline of {self.deadline_s} s can't be met even on demand: launch and work take "
                f"{self.work_s + self.setup_s} s"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leases:
    """Leases by type and age, with the cost and idle time of one more tick; the last two entries are launches.

    All fields have shape (leases + 2,).

    Parameters
    ----------
    is_spot
        Whether the machines are spot machines.
    idle, rest
        Units of set-up in the coming tick, and in all coming ticks.
    after
        State after the tick: 1 + index of the lease that is one tick older.
    charge
        Dollars of the coming tick.
    end_rate
        Dollars per second of the tick in which the job ends; 0 if `charge` is due then as well.
    refund
        Dollars refunded if the lease is lost at this age.
    """

    is_spot: NDArray[np.bool_]
    idle: IntArray
    rest: IntArray
    after: IntArray
    charge: FloatArray
    end_rate: FloatArray
    refund: FloatArray


def make_leases(job: DeadlineJob, unit_s: int) -> Leases:
    """Return a job's leases: a row for each type and each age during set-up or with an effect on the bill."""
    per_tick = job.tick_s // unit_s
    setup = -(-job.setup_s // unit_s)
    hour = -(-HOUR_S // job.tick_s)
    is_hourly, is_free_hour = job.billing is Billing.AWS_2009, job.billing is Billing.AWS_2017
    up = max(1, -(-setup // per_tick))
    rows: list[tuple[bool, int]] = []
    starts, ages = {}, {}
    for is_spot in (True, False):
        own = up
        if is_hourly:
            own = up + hour - 1  # a lease beyond the last age is billed like one that is an hour younger
        elif is_spot and is_free_hour:
            own = max(up, hour)
        starts[is_spot], ages[is_spot] = len(rows), own
        rows += [(is_spot, age) for age in range(1, own + 1)]
    rows += [(True, 0), (False, 0)]
    if len(rows) - 2 > MAX_LEASES:
        raise InvalidOptionError(
            f"the table of leases is too large: {len(rows) - 2} ages, at most {MAX_LEASES} are allowed (billing {job.billing.value}, "
            f"ticks of {job.tick_s} s, set-ups of {job.setup_s} s); choose longer ticks, or --billing per-second"
        )
    size = len(rows)
    is_there = np.array([row[0] for row in rows])
    idle, rest, after = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    charge, end_rate, refund = np.zeros(size), np.zeros(size), np.zeros(size)
    for r, (is_spot, age) in enumerate(rows):
        a_second = (job.spot_usd if is_spot else job.on_demand_usd) / HOUR_S
        rest[r] = max(0, setup - age * per_tick)
        idle[r] = min(per_tick, rest[r])
        older = age + 1
        if older > ages[is_spot]:
            older = ages[is_spot] - hour + 1 if is_hourly else ages[is_spot]
        after[r] = starts[is_spot] + older
        charge[r] = a_second * job.tick_s
        if job.billing in (Billing.PER_SECOND, Billing.AWS_2017):
            end_rate[r] = a_second
        if is_hourly:
            charge[r] = a_second * HOUR_S if age % hour == 0 else 0.0
            refund[r] = a_second * HOUR_S if is_spot and age % hour and age else 0.0
        elif is_free_hour and is_spot and age * job.tick_s < HOUR_S:
            refund[r] = a_second * job.tick_s * age
    return Leases(is_spot=is_there, idle=idle, rest=rest, after=after, charge=charge, end_rate=end_rate, refund=refund)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeadlineTable(ComparesByValue):
    """The policy of a job in every state, and the minimal mean cost.

    Parameters
    ----------
    job, hazards
        The job and the hazards of the table.
    unit_s
        Seconds per unit of idle time; a tick is an integral number of units.
    begin
        Shape (ticks + 1,): the rows of tick t in `entries` are ``begin[t]`` to ``begin[t + 1] - 1``.
    low
        Shape (ticks,): these rows are for ``low[t], low[t] + 1, ...`` units of idle time before the tick.
    entries
        Shape (rows, 2 ages + 2): the action (see `WAIT`) and the leases to renew, by spell. The spells are absences by
        age, then the absence at the job's start, whose age is unknown; then spells of availability in the same order.
    mean_usd
        Shape (2,): minimal mean cost of a job that finds no machines, or some, at its start.
    """

    job: DeadlineJob
    hazards: SpellHazards
    unit_s: int
    begin: IntArray
    low: IntArray
    entries: NDArray[Any]
    mean_usd: FloatArray
    leases: Leases = field(compare=False)

    @property
    def is_exact(self) -> bool:
        """Whether bills and set-ups are exact.

        Set-ups must be integral numbers of units and, with ``aws-2009``, hours must be integral numbers of ticks.
        """
        job = self.job
        is_hourly = job.billing is Billing.AWS_2009
        return job.setup_s % self.unit_s == 0 and (not is_hourly or HOUR_S % job.tick_s == 0)

    @property
    def least_mean_usd(self) -> float | None:
        """Minimal mean dollars of any rule that decides tick by tick, knows the hazards and misses no deadline.

        None if the table only approximates the job's bills, see `is_exact`.
        """
        if not self.is_exact:
            return None
        share = self.hazards.share
        means = [(1.0 - share, float(self.mean_usd[0])), (share, float(self.mean_usd[1]))]
        return sum(chance * mean for chance, mean in means if chance > 0)


def unit_of(job: DeadlineJob, ages: int) -> int:
    """Return the seconds per unit: the greatest common divisor of tick and set-up, or more if the table is too large."""
    columns, exact = 2 * ages + 2, int(np.gcd(job.tick_s, job.setup_s))
    slack = job.deadline_s - job.work_s
    rows = -(-job.work_s // job.tick_s)
    for unit in (u for u in range(exact, job.tick_s + 1) if job.tick_s % u == 0):
        if rows * (slack // unit + 1) * columns <= MAX_ENTRIES:
            return unit
    raise InvalidOptionError(
        f"a table of {rows} ticks of {job.tick_s} s with {slack // job.tick_s} ticks of slack has too many entries; choose "
        "longer ticks, or an earlier deadline"
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableShape:
    """Units of time, and rows of a table.

    Parameters
    ----------
    unit_s
        Seconds per unit.
    per_tick, setup, steps
        Units of a tick, of a set-up, and of the slack.
    begin, low
        As in `DeadlineTable`.
    """

    unit_s: int
    per_tick: int
    setup: int
    steps: int
    begin: IntArray
    low: IntArray


def shape_of(job: DeadlineJob, unit_s: int) -> TableShape:
    """Return the shape of a job's table for a unit length."""
    per_tick, setup = job.tick_s // unit_s, -(-job.setup_s // unit_s)
    # If the set-up, rounded up to units, exceeds the slack, only an immediate on-demand launch is safe.
    steps = max(setup, (job.deadline_s - job.work_s) // unit_s)
    t = np.arange(-(-(job.work_s + steps * unit_s) // job.tick_s))
    low = np.maximum(0, (t * job.tick_s - job.work_s) // unit_s + 1)
    size = np.minimum(t * per_tick, steps) - low + 1
    begin = np.concatenate([[0], np.cumsum(np.maximum(0, size))])
    return TableShape(unit_s=unit_s, per_tick=per_tick, setup=setup, steps=steps, begin=begin, low=low)


def solve_table(job: DeadlineJob, hazards: SpellHazards) -> DeadlineTable:
    """Return the table of a job: the policy of minimal mean cost, given the hazards, that misses no deadline.

    Parameters
    ----------
    job
        The job.
    hazards
        Hazards of spells, in ticks of the job's length.

    Raises
    ------
    InvalidProblemError
        If the hazards' ticks have another length.
    InvalidOptionError
        If the table is too large even in units of a tick.

    Notes
    -----
    The deadline is met for any spells. Call a state safe if the idle time so far plus an on-demand launch, or the
    remainder of one, fits into the slack. An action is allowed only if the next state is safe even if machines are lost
    at once; an on-demand launch loses only its set-up. A safe state always has an allowed action, on demand, so by
    induction the job is never late. The proof doesn't use the hazards.

    If the job needs longer units (`unit_of`), set-ups are rounded up: the job is still never late, at a slightly higher
    cost. Time and memory grow with work / tick x slack / unit x ages.
    """
    if hazards.tick_s != job.tick_s:
        raise InvalidProblemError(
            f"the hazards have ticks of {hazards.tick_s} s, but the job decides every {job.tick_s} s; resample them with "
            "`SpellHazards.every`"
        )
    unit = unit_of(job, hazards.num_ages)
    leases, shape = make_leases(job, unit), shape_of(job, unit)
    ticks, begin, low = len(shape.low), shape.begin, shape.low
    held = len(leases.idle) - 2
    entries = np.empty((int(begin[-1]), 2 * hazards.num_ages + 2), np.uint8 if held <= SMALL else np.uint32)
    mean_usd = np.empty(2)
    _solve(
        hazards.hazard,
        hazards.first_hazard(ticks),
        (shape.per_tick, unit, shape.setup, job.work_s, shape.steps),
        job.keeps_tick,
        MINUTE_S if job.billing is Billing.AWS_2017 else 0,
        (leases.is_spot, leases.idle, leases.rest, leases.after, leases.charge, leases.end_rate, leases.refund),
        begin,
        low,
        entries,
        mean_usd,
    )
    return DeadlineTable(
        job=job, hazards=hazards, unit_s=unit, begin=begin, low=low, entries=entries, mean_usd=mean_usd, leases=leases
    )


@compiled
def _solve(
    hazard: FloatArray,
    first: FloatArray,
    times: tuple[int, int, int, int, int],
    keeps_tick: bool,
    launch_s: int,
    leases: tuple[NDArray[np.bool_], IntArray, IntArray, IntArray, FloatArray, FloatArray, FloatArray],
    begin: IntArray,
    low: IntArray,
    entries: NDArray[Any],
    mean_usd: FloatArray,
) -> None:
    """Fill a table, the last tick first.

    `times` has the units per tick, the seconds per unit, the set-up in units, the seconds of work, and the maximal idle
    units. A launch that ends the job
    within its tick is charged at least `launch_s`. `later[lost, lease, spell]` is the mean cost from the next tick on,
    given the idle units and the lease (0: none) at the next tick, and the spell at the present tick.
    """
    per_tick, unit, setup, work, steps = times
    is_spot, idle, rest, after, charge, end_rate, refund = leases
    tick_s, ages, ticks = per_tick * unit, hazard.shape[1], len(low)
    there, spells, held = ages + 1, 2 * ages + 2, len(idle) - 2
    later = np.zeros((steps + 1, held + 1, spells))
    now = np.zeros((held + 1, spells))
    best, other, value = np.empty(spells), np.empty(spells), np.empty(spells)
    launch_of = np.empty(spells, np.uint32)
    keeps = np.empty(spells, np.uint32)
    for t in range(ticks - 1, -1, -1):
        for lost in range(low[t], low[t] + begin[t + 1] - begin[t]):
            left = work - t * tick_s + lost * unit
            if lost + per_tick + setup <= steps:
                best[:] = later[lost + per_tick, 0]
                launch_of[:] = 0
            else:
                best[:] = np.inf
                launch_of[:] = 2  # on demand, even if that is too late
            for r in range(held + 1, held - 1, -1):
                if r == held:  # a job that releases spot machines doesn't launch spot machines at once
                    other[:] = best
                    for c in range(spells):
                        keeps[c] = launch_of[c] << np.uint32(1) & np.uint32(OTHERWISE)
                then, from_spell = lost + idle[r], there if is_spot[r] else 0
                ends = idle[r] * unit + left <= tick_s
                # Safe: an on-demand launch fits, now or, if the lease may be lost by then, at the next tick.
                need = lost + setup
                if is_spot[r]:
                    need = need + per_tick if keeps_tick else then + (0 if ends else setup)
                if need > steps:
                    continue
                end_s = max(idle[r] * unit + left, launch_s)
                price = end_rate[r] * end_s if ends and end_rate[r] > 0.0 else charge[r]
                kind = np.uint32(r - held + 1)
                for c in range(from_spell, spells):
                    cost = price if ends else price + later[then, after[r], c]
                    if cost < best[c]:
                        best[c] = cost
                        launch_of[c] = kind
            if t == 0:
                mean_usd[0] = best[ages]
                mean_usd[1] = best[spells - 1]
            for s in range(held, -1, -1):
                r = s - 1
                loses = s > 0 and is_spot[r]
                value[:] = other if loses else best
                if s > 0:
                    then, from_spell = lost + idle[r], there if loses else 0
                    ends = idle[r] * unit + left <= tick_s
                    if (then + (0 if ends else setup) if loses else lost + rest[r]) <= steps:
                        price = end_rate[r] * (idle[r] * unit + left) if ends and end_rate[r] > 0.0 else charge[r]
                        bit = np.uint32(1) << np.uint32(s + KEPT - 1)
                        for c in range(from_spell, spells):
                            cost = price if ends else price + later[then, after[r], c]
                            if cost <= value[c]:
                                value[c] = cost
                                keeps[c] = keeps[c] | bit
                if t == 0:
                    continue
                gone = best[0] - refund[r] if loses else value[0]
                for k in range(ages):
                    older, chance = min(k + 1, ages - 1), hazard[1, k]
                    now[s, there + k] = (1.0 - chance) * value[there + older] + chance * gone
                chance = first[t - 1, 1]
                now[s, spells - 1] = (1.0 - chance) * value[spells - 1] + chance * gone
                if loses:
                    continue
                for k in range(ages):
                    older, chance = min(k + 1, ages - 1), hazard[0, k]
                    now[s, k] = (1.0 - chance) * value[older] + chance * value[there]
                chance = first[t - 1, 0]
                now[s, ages] = (1.0 - chance) * value[ages] + chance * value[there]
            later[lost] = now  # assigned last: a working lease reads `later` at the same idle time
            row = begin[t] + lost - low[t]
            for c in range(spells):
                entries[row, c] = launch_of[c] | keeps[c]


def check_table(table: DeadlineTable) -> list[str]:
    """Return the errors of a table: a wrong shape, or an entry that may be late or is impossible.

    The function doesn't check that the entries are the cheapest: a table for other hazards passes.
    """
    job, leases, ages = table.job, table.leases, table.hazards.num_ages
    if table.unit_s < 1 or job.tick_s % table.unit_s or table.hazards.tick_s != job.tick_s:
        return [f"units of {table.unit_s} s don't divide ticks of {job.tick_s} s, or the hazards' ticks differ"]
    try:
        least_s = unit_of(job, ages)
    except InvalidOptionError as error:
        return [str(error)]
    if table.unit_s < least_s:
        return [f"units of {table.unit_s} s are shorter than the job's, {least_s} s"]
    shape = shape_of(job, table.unit_s)
    wanted = (int(shape.begin[-1]), 2 * ages + 2)
    if not (np.array_equal(table.begin, shape.begin) and np.array_equal(table.low, shape.low)):
        return ["the rows don't match the job"]
    if table.entries.shape != wanted or table.entries.dtype not in (np.uint8, np.uint32):
        return [f"entries must be integers of shape {wanted}, got {table.entries.shape} of {table.entries.dtype}"]
    if table.mean_usd.shape != (2,) or not ((table.mean_usd >= 0) & (table.mean_usd < np.inf)).all():
        return ["mean costs must be two finite numbers, at least 0"]
    for tick in range(len(shape.low)):
        rows = slice(int(shape.begin[tick]), int(shape.begin[tick + 1]))
        lost = int(shape.low[tick]) + np.arange(rows.stop - rows.start)
        ends_s = job.work_s - (tick + 1) * job.tick_s + lost * table.unit_s
        problem = _unsafe(table.entries[rows], lost, ends_s, shape, leases, ages, keeps_tick=job.keeps_tick)
        if problem:
            return [f"tick {tick}: {problem}"]
    return []


def _unsafe(
    entries: NDArray[Any],
    lost: IntArray,
    ends_s: IntArray,
    shape: TableShape,
    leases: Leases,
    ages: int,
    *,
    keeps_tick: bool,
) -> str:
    """Return an error in a tick's entries, "" if all are safe; `ends_s` is the work left after a full tick of work."""
    launch, held = entries & 3, len(leases.idle) - 2
    if (launch > ON_DEMAND).any() or (entries.astype(np.int64) >> (held + KEPT)).any():
        return "an entry has an unknown action or lease"
    is_late = lost + shape.setup > shape.steps
    waits = (launch == WAIT) | (entries & OTHERWISE == 0)
    has_no_tick = (lost + shape.per_tick + shape.setup > shape.steps)[:, None]
    if (has_no_tick & waits).any():
        return "an entry waits although a launch at the next tick is too late"
    if keeps_tick and (has_no_tick & (launch == SPOT)).any():
        return "spot machines are launched although the environment forces an on-demand launch"
    for r in range(held + 1):
        asks = launch == SPOT if r == held else entries >> (r + KEPT) & 1 == 1
        then = lost + leases.idle[r]
        if leases.is_spot[r]:
            ends = leases.idle[r] * shape.unit_s + ends_s <= 0
            if asks[:, : ages + 1].any():
                return "spot machines are renewed although none are available"
            if ((then + np.where(ends, 0, shape.setup) > shape.steps)[:, None] & asks).any():
                return "spot machines are renewed although a launch after their loss is too late"
        elif ((is_late & (lost + leases.rest[r] <= shape.steps))[:, None] & ~asks).any():
            return "on-demand machines are released although a new launch is too late"
    return ""
