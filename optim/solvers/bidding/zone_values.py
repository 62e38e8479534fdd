"""Expected remaining cost of a deadline job over several zones, by backward recursion over groups of similar zones.

A table over the ages of all spells would be too large. A situation contains only the age of the allocated machines, or
for how long no wanted machines were available; the other ages are assumed: (B.20) of docs/mathematics/bidding.md. The
values are estimates. They compare zones, waiting and on-demand machines, but don't ensure that the deadline is met.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import by_reference, compiled
from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.spells import ABSENT, PRESENT, SpellHazards

FAR = 1e18
"""Value, in dollars, of situations in which the deadline can't be met."""

MAX_VALUES = 2**22
"""Maximal number of values of a table (32 MiB); ticks are made longer until the table has at most this number."""

PARTS = 3
"""Steps of idle time per tick of the table, if the table isn't too large."""

PLACE_TOL = 1e-9
"""Grid positions with smaller differences count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneGroup:
    """Similar zones of one region, with the same price and hazards of spells.

    Parameters
    ----------
    num_zones
        Number of zones.
    price_usd
        Dollars per hour of all machines.
    hazards
        Hazards of the zones' spells.
    """

    num_zones: int
    price_usd: float
    hazards: SpellHazards


@dataclass(frozen=True, kw_only=True, eq=False)
class ZoneProblem:
    """A job over groups of zones. A row is a location of the job's saved state; the first row is a job without one.

    Parameters
    ----------
    work_s, deadline_s
        Work, and the time allowed for it.
    groups
        The groups; their hazards have the same tick length.
    row_of
        Shape (groups,): row of the saved state after work in a group.
    setup_s, move_usd
        Shape (rows, groups): seconds from a launch to the first work, and cost of the state's transfer.
    sure_usd, sure_setup_s, sure_move_usd, sure_row
        Shape (rows,): for the cheapest on-demand machines, dollars per hour, seconds of set-up, dollars of the state's
        transfer, and row of the saved state after work.
    is_whole
        Whether started ticks are charged in full.

    Raises
    ------
    InvalidProblemError
        If shapes don't fit, or hazards differ in tick length.
    """

    work_s: int
    deadline_s: int
    groups: tuple[ZoneGroup, ...]
    row_of: IntArray
    setup_s: FloatArray
    move_usd: FloatArray
    sure_usd: FloatArray
    sure_setup_s: FloatArray
    sure_move_usd: FloatArray
    sure_row: IntArray
    is_whole: bool = False

    def __post_init__(self) -> None:
        shape = len(self.sure_usd), len(self.groups)
        if self.setup_s.shape != shape or self.move_usd.shape != shape or self.row_of.shape != shape[1:]:
            raise InvalidProblemError(
                f"setup_s and move_usd must have shape (rows, groups) = {shape}, and row_of must have shape (groups,)"
            )
        if len({(group.hazards.tick_s, group.hazards.num_ages) for group in self.groups}) != 1:
            raise InvalidProblemError(
                "the hazards of all groups must have the same tick length; resample them with `SpellHazards.every`"
            )


@by_reference
class Chances(NamedTuple):
    """Probabilities of groups of zones, per tick.

    Parameters
    ----------
    hazard
        Shape (groups, 2, ages): a spell of absence or presence ends at this age.
    drawn
        Shape (groups,): in the long run, a zone of the group has machines.
    other
        Shape (groups,): after a loss, another zone of the group has machines.
    met
        Shape (groups, ages): a spell of presence, seen at a random time, has this age.
    back
        Shape (groups, ages): machines return after an absence of this age.
    back_mean
        Shape (groups,): machines return after an absence that is seen at a random time.
    """

    hazard: FloatArray
    drawn: FloatArray
    other: FloatArray
    met: FloatArray
    back: FloatArray
    back_mean: FloatArray


@by_reference
class Costs(NamedTuple):
    """The costs of a `ZoneProblem`, with prices in dollars per tick of the table; `sure` is the on-demand price."""

    price: FloatArray
    setup_s: FloatArray
    move: FloatArray
    row_of: IntArray
    sure: FloatArray
    sure_setup_s: FloatArray
    sure_move: FloatArray
    sure_row: IntArray


@by_reference
class Values(NamedTuple):
    """Mean remaining dollars; the first two indices of each array are the tick and the grid position of the idle time.

    Parameters
    ----------
    held
        By group and age: the group's machines are allocated and set up.
    lost
        By group: the group's machines were just lost.
    idle, sure
        By row and age in ticks: the job has no machines, or on-demand machines, and no wanted machines have been available
        for this time.
    starts, stays
        By row and age: whether the job then launches, or keeps, on-demand machines.
    """

    held: FloatArray
    lost: FloatArray
    idle: FloatArray
    sure: FloatArray
    starts: BoolArray
    stays: BoolArray


@by_reference
class Grid(NamedTuple):
    """The grid of ticks and idle times.

    Parameters
    ----------
    tick_s, unit_s
        Seconds per tick, and per step of idle time.
    per_tick
        Steps per tick.
    work_s
        Seconds of work.
    last
        Last grid position of the idle time.
    lost_s
        Idle seconds at position 1.
    ticks
        Number of ticks.
    is_whole
        Whether started ticks are charged in full.
    """

    tick_s: float
    unit_s: float
    per_tick: int
    work_s: float
    last: int
    lost_s: float
    ticks: int
    is_whole: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class ZoneValues:
    """The values of a problem.

    Parameters
    ----------
    problem
        The problem.
    grid, chances, costs, values
        Inputs of the compiled loops.
    residual
        Shape (groups, ages): mean remaining ticks of machines by age.
    """

    problem: ZoneProblem
    grid: Grid
    chances: Chances
    costs: Costs
    values: Values
    residual: FloatArray

    def place(self, elapsed_s: float, work_left_s: float) -> tuple[int, float, float]:
        """Return the tick, the elapsed fraction of it, and the grid position of the idle time."""
        tick, beyond_s = divmod(min(elapsed_s, self.grid.ticks * self.grid.tick_s), self.grid.tick_s)
        lost_s = elapsed_s - (self.problem.work_s - work_left_s)
        return int(tick), beyond_s / self.grid.tick_s, (lost_s - self.grid.lost_s) / self.grid.unit_s + 1.0

    def idle_usd(self, at: tuple[int, float, float], row: int, age: int, *, on_demand: bool = False) -> float:
        """Return the mean remaining dollars without machines, or with on-demand ones, if no wanted machines are available."""
        tick, part, place = at
        array = self.values.sure if on_demand else self.values.idle
        return float(look(array, tick, part, place, self.grid.last, row, age))

    def takes_on_demand(self, at: tuple[int, float, float], row: int, age: int, *, held: bool = False) -> bool:
        """Return whether to launch, or keep, on-demand machines if no wanted machines are available."""
        array = self.values.stays if held else self.values.starts
        return bool(array[at[0], min(self.grid.last, max(0, round(at[2]))), row, age])


def tick_of(tick_s: int, least_s: int, cells: int, work_s: int, slack_s: int) -> tuple[int, int]:
    """Return the seconds per table tick, a multiple of `tick_s`, and the steps per tick.

    They are the finest grid whose table, with `cells` values per grid position, isn't too large.
    """
    times = max(1, least_s // tick_s)
    while True:
        length = times * tick_s
        for parts in (PARTS, 1):
            rows = (-(-(work_s + slack_s) // length) + 2) * (slack_s * parts // length + 3)
            if rows * cells <= MAX_VALUES or (parts == 1 and length > work_s + slack_s):
                return length, parts
        times *= 2


def solve_zones(problem: ZoneProblem, parts: int = PARTS) -> ZoneValues:
    """Return the values of a problem, for decisions every tick of its groups' hazards.

    Parameters
    ----------
    problem
        The problem.
    parts
        Steps of idle time per tick; set-ups between steps are interpolated.

    Notes
    -----
    The square root of a group's number of zones is taken as its number of independent zones. Groups are independent of
    one another, and prices are constant. Time and memory grow with ticks x steps x (groups + rows) x ages, time again
    with groups.
    """
    groups = problem.groups
    tick_s = groups[0].hazards.tick_s
    ages, rows = groups[0].hazards.num_ages, len(problem.sure_usd)
    unit_s, most_s = tick_s / parts, problem.deadline_s - problem.work_s - float(problem.sure_setup_s.max())
    last = max(0, math.ceil(most_s / unit_s - PLACE_TOL)) + 1
    ticks = -(-problem.deadline_s // tick_s)
    grid = Grid(
        tick_s=float(tick_s),
        unit_s=unit_s,
        per_tick=parts,
        work_s=float(problem.work_s),
        last=last,
        lost_s=most_s - (last - 1) * unit_s,
        ticks=ticks,
        is_whole=problem.is_whole,
    )
    alike = np.array([math.sqrt(group.num_zones) for group in groups])
    share = np.array([group.hazards.share for group in groups])
    hazard = np.array([group.hazards.hazard for group in groups])
    absences = np.array([_met(group.hazards) for group in groups])
    chances = Chances(
        hazard=hazard,
        drawn=1.0 - (1.0 - share) ** alike,
        other=1.0 - (1.0 - share) ** (alike - 1.0),
        met=np.array([group.hazards.ages_met for group in groups]),
        back=1.0 - (1.0 - hazard[:, ABSENT]) ** alike[:, None],
        back_mean=1.0 - (1.0 - (absences * hazard[:, ABSENT]).sum(axis=1)) ** alike,
    )
    hours = tick_s / 3600.0
    costs = Costs(
        price=hours * np.array([group.price_usd for group in groups]),
        setup_s=problem.setup_s,
        move=problem.move_usd,
        row_of=problem.row_of,
        sure=hours * problem.sure_usd,
        sure_setup_s=problem.sure_setup_s,
        sure_move=problem.sure_move_usd,
        sure_row=problem.sure_row,
    )
    shape = ticks + 2, last + 1
    values = Values(
        held=np.full((*shape, len(groups), ages), FAR),
        lost=np.full((*shape, len(groups)), FAR),
        idle=np.full((*shape, rows, ages), FAR),
        sure=np.full((*shape, rows, ages), FAR),
        starts=np.ones((*shape, rows, ages), dtype=bool),
        stays=np.ones((*shape, rows, ages), dtype=bool),
    )
    _solve(grid, chances, costs, values, _scratch(last + 1, rows, len(groups), ages))
    residual = np.array([group.hazards.residual_ticks for group in groups])
    return ZoneValues(problem=problem, grid=grid, chances=chances, costs=costs, values=values, residual=residual)


def _met(hazards: SpellHazards) -> FloatArray:
    """Return the probabilities of the ages of an absence seen at a random time."""
    turned = SpellHazards(tick_s=hazards.tick_s, hazard=hazards.hazard[::-1])
    return turned.ages_met


@compiled
def _parts_of(seconds: float, unit_s: float) -> tuple[int, float]:
    """Return a time in complete steps, and the remaining fraction of a step."""
    steps = math.floor(seconds / unit_s + PLACE_TOL)
    beyond = seconds / unit_s - steps
    return steps, (beyond if beyond > PLACE_TOL else 0.0)


@compiled
def _between(values: FloatArray, place: int, beyond: float, first: int, second: int) -> float:
    """Return the value at a fraction `beyond` of a step after position `place`; `FAR` after the last position."""
    if place + (beyond > 0.0) >= len(values):
        return FAR
    value: float = values[place, first, second]
    return value if beyond == 0.0 else (1.0 - beyond) * value + beyond * values[place + 1, first, second]


@compiled
def _first_of(order: IntArray, worth: FloatArray, chance: FloatArray, otherwise: float) -> float:
    """Return the mean cost of the cheapest available group, or `otherwise` if none is cheaper; this sorts `order`."""
    mean, rest = 0.0, 1.0
    for i in range(1, len(order)):  # nearly sorted since the last time
        group, j = order[i], i - 1
        while j >= 0 and worth[order[j]] > worth[group]:
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = group
    for group in order:
        if worth[group] >= otherwise:
            break
        mean += rest * chance[group] * worth[group]
        rest *= 1.0 - chance[group]
    return mean + rest * otherwise


@by_reference
class Scratch(NamedTuple):
    """Intermediate mean remaining dollars of one tick; except in the last two, the first index is the grid position.

    Parameters
    ----------
    fresh, met
        By row and group: machines are launched that just became available, or whose age is unknown.
    fresh_later, met_later
        `fresh` and `met` one tick later.
    after
        By group and age: after a tick with allocated machines.
    after_met
        By group: mean of `after` over the ages seen at a random time.
    order
        By row: the groups as last sorted.
    chance, choice
        By group: arguments of `_first_of`.
    """

    fresh: FloatArray
    met: FloatArray
    fresh_later: FloatArray
    met_later: FloatArray
    after: FloatArray
    after_met: FloatArray
    order: IntArray
    chance: FloatArray
    choice: FloatArray


def _scratch(size: int, rows: int, groups: int, ages: int) -> Scratch:
    """Return arrays of intermediate values, initially those of a missed deadline."""
    fresh, met, fresh_later, met_later = (np.full((size, rows, groups), FAR) for _ in range(4))
    order = np.tile(np.arange(groups), (size, rows, 1))
    after = np.full((size, groups, ages), FAR), np.full((size, groups, 1), FAR)
    return Scratch(fresh, met, fresh_later, met_later, *after, order, np.empty(groups), np.empty(groups))


@compiled
def _solve(grid: Grid, chances: Chances, costs: Costs, values: Values, scratch: Scratch) -> None:
    """Fill the values, the last tick first."""
    size = grid.last + 1
    for t in range(grid.ticks + 1, -1, -1):
        top = min((t + 2) * grid.per_tick + 1, grid.last)  # the maximal idle time so far
        for x in range(size):
            if _left_s(grid, t, x) <= 0.0:
                values.held[t, x], values.lost[t, x], values.idle[t, x], values.sure[t, x] = 0.0, 0.0, 0.0, 0.0
                scratch.fresh[x], scratch.met[x] = 0.0, 0.0
        if t < grid.ticks:
            for x in range(min(top + grid.per_tick + 1, grid.last) + 1):
                _hold_all(chances, values, scratch, t, x)
            for x in range(top + 1):
                if _left_s(grid, t, x) > 0.0:
                    _launch_all(grid, chances, costs, values, scratch, t, x)
            for x in range(top + 1):
                if _left_s(grid, t, x) > 0.0:
                    for row in range(len(costs.sure)):
                        _do_without(grid, chances, costs, values, scratch, t, x, row)
                    for group in range(len(costs.price)):
                        _keep_or_leave(grid, chances, costs, values, scratch, t, x, group)
        scratch.fresh_later[:] = scratch.fresh
        scratch.met_later[:] = scratch.met


@compiled
def _left_s(grid: Grid, t: int, x: int) -> float:
    """Return the remaining work at a tick and a grid position."""
    return grid.work_s - t * grid.tick_s + grid.lost_s + (x - 1) * grid.unit_s


@compiled
def _hold_all(chances: Chances, values: Values, scratch: Scratch, t: int, x: int) -> None:
    """Set `after` and `after_met`, the values after a tick with allocated, working machines."""
    held, lost = values.held[t + 1, x], values.lost[t + 1, x]
    groups, ages = held.shape
    for g in range(groups):
        mean = 0.0
        for k in range(ages):
            ends = chances.hazard[g, PRESENT, k]
            scratch.after[x, g, k] = (1.0 - ends) * held[g, min(k + 1, ages - 1)] + ends * lost[g]
            mean += chances.met[g, k] * scratch.after[x, g, k]
        scratch.after_met[x, g, 0] = mean


@compiled
def _launch_all(grid: Grid, chances: Chances, costs: Costs, values: Values, scratch: Scratch, t: int, x: int) -> None:
    """Set `fresh` and `met`, the values of launches."""
    left_s, at = _left_s(grid, t, x), (t, 0.0, float(x))
    rows, groups = costs.setup_s.shape
    for r in range(rows):
        for g in range(groups):
            setup_s, move, price = costs.setup_s[r, g], costs.move[r, g], costs.price[g]
            if grid.tick_s < setup_s + left_s and setup_s <= grid.tick_s:  # same as `hold`, but faster
                steps, beyond = _parts_of(setup_s, grid.unit_s)
                fresh = price + _between(scratch.after, x + steps, beyond, g, 0)
                met = price + _between(scratch.after_met, x + steps, beyond, g, 0)
            else:
                fresh = hold(grid, chances, values, at, g, 0, price, left_s, setup_s, r)
                met = hold(grid, chances, values, at, g, -1, price, left_s, setup_s, r)
            scratch.fresh[x, r, g], scratch.met[x, r, g] = move + fresh, move + met


@compiled
def _do_without(
    grid: Grid, chances: Chances, costs: Costs, values: Values, scratch: Scratch, t: int, x: int, row: int
) -> None:
    """Set `idle`, `sure`, `starts` and `stays`: the values and decisions if no wanted machines are available."""
    groups, ages, left_s, price = len(costs.price), chances.back.shape[1], _left_s(grid, t, x), costs.sure[row]
    setup_s, to = costs.sure_setup_s[row], costs.sure_row[row]
    steps, beyond = _parts_of(setup_s, grid.unit_s)
    num_ticks = max(1, math.ceil(setup_s / grid.tick_s - PLACE_TOL))
    all_ticks = (setup_s + left_s) / grid.tick_s
    to_the_end = price * (math.ceil(all_ticks) if grid.is_whole else all_ticks)
    y = x + grid.per_tick
    for k in range(ages):
        back, older = chances.back[:, k], min(k + 1, ages - 1)
        launch = to_the_end
        if all_ticks > 1.0 and t + num_ticks <= grid.ticks:
            then = _between(values.sure[t + num_ticks], x + steps, beyond, to, min(k + num_ticks, ages - 1))
            if num_ticks == 1 and then < FAR:
                for g in range(groups):
                    scratch.choice[g] = _between(scratch.fresh_later, x + steps, beyond, to, g)
                then = _first_of(scratch.order[x, to], scratch.choice, back, then)
            launch = min(launch, price * num_ticks + then)
        launch += costs.sure_move[row]
        wait = FAR
        if y <= grid.last:
            # Computed as if all groups were wanted, then again with long-run availability of the unwanted groups.
            otherwise, order = values.idle[t + 1, y, row, older], scratch.order[y, row]
            wait = _first_of(order, scratch.fresh_later[y, row], back, otherwise)
            least = min(wait, launch)
            for g in range(groups):
                is_wanted = scratch.fresh[x, row, g] < least
                scratch.choice[g] = scratch.fresh_later[y, row, g] if is_wanted else scratch.met_later[y, row, g]
                scratch.chance[g] = back[g] if is_wanted else chances.drawn[g]
            wait = _first_of(order, scratch.choice, scratch.chance, otherwise)
        values.idle[t, x, row, k], values.starts[t, x, row, k] = min(wait, launch), launch <= wait
        if left_s <= grid.tick_s:
            keep = price if grid.is_whole else price * left_s / grid.tick_s
        else:
            otherwise = values.sure[t + 1, x, row, older]
            keep = price + _first_of(scratch.order[x, row], scratch.fresh_later[x, row], back, otherwise)
        values.sure[t, x, row, k], values.stays[t, x, row, k] = min(keep, wait), keep <= wait


@compiled
def _keep_or_leave(
    grid: Grid, chances: Chances, costs: Costs, values: Values, scratch: Scratch, t: int, x: int, group: int
) -> None:
    """Set `held` and `lost`: the values of a group's working machines, and of machines that were just lost."""
    ages, row, price, left_s = chances.back.shape[1], costs.row_of[group], costs.price[group], _left_s(grid, t, x)
    fresh, order, chance, without = scratch.fresh[x, row], scratch.order[x, row], scratch.chance, values.idle[t, x, row]
    typical = price + scratch.after[x, group, ages // 2]
    for g in range(len(fresh)):
        chance[g] = chances.back_mean[g] if fresh[g] < typical else chances.drawn[g]
    chance[group] = chances.other[group]
    values.lost[t, x, group] = _first_of(order, scratch.met[x, row], chance, without[0])
    chance[:] = chances.back_mean
    chance[group] = 0.0
    for k in range(ages):
        stay = price + scratch.after[x, group, k]
        if left_s <= grid.tick_s:
            stay = price if grid.is_whole else price * left_s / grid.tick_s
        values.held[t, x, group, k] = _first_of(order, fresh, chance, min(stay, without[ages - 1]))


@compiled
def look(values: NDArray[Any], tick: int, part: float, place: float, last: int, first: int, second: int) -> float:
    """Return a value interpolated between two ticks and two grid positions; `FAR` beyond the last position."""
    x = math.floor(place + PLACE_TOL)
    beyond = place - x
    if x < 0:
        x, beyond = 0, 0.0
    if beyond < PLACE_TOL:
        beyond = 0.0
    if x + (beyond > 0.0) > last:
        return FAR
    value: float = _between(values[tick], x, beyond, first, second)
    if part > 0.0:
        value = (1.0 - part) * value + part * _between(values[tick + 1], x, beyond, first, second)
    return value


@compiled
def hold(
    grid: Grid,
    chances: Chances,
    values: Values,
    at: tuple[int, float, float],
    group: int,
    age: int,
    price: float,
    left_s: float,
    setup_s: float,
    row: int,
) -> float:
    """Return the mean remaining dollars of keeping a group's machines for a table tick, or until they are set up.

    Parameters
    ----------
    at
        Tick, elapsed fraction of it, and grid position.
    group, age
        The group, and the age of its machines in ticks; negative if unknown.
    price
        Dollars per tick.
    left_s, setup_s, row
        Remaining seconds of work, remaining seconds of set-up before the work continues, and the row (see
        `ZoneProblem`) of the location of the job's saved state.
    """
    tick, part, place = at
    if setup_s + left_s <= grid.tick_s:
        return price if grid.is_whole else price * (setup_s + left_s) / grid.tick_s
    num_ticks = max(1, math.ceil(setup_s / grid.tick_s - PLACE_TOL))
    then = place + setup_s / grid.unit_s
    if tick + num_ticks > grid.ticks or then > grid.last + PLACE_TOL:
        return FAR
    hazard, ages = chances.hazard[group, PRESENT], chances.hazard.shape[2]
    lost = values.lost.reshape((*values.lost.shape, 1))
    mean = 0.0
    for k in range(ages):
        weight = chances.met[group, k] if age < 0 else 1.0 if k == age else 0.0
        if weight == 0.0:
            continue
        lasts, usd = 1.0, 0.0
        for j in range(1, num_ticks + 1):
            ends = hazard[min(k + j - 1, ages - 1)]
            usd += lasts * price
            if j < num_ticks:
                usd += lasts * ends * look(values.idle, tick + j, part, place + j * grid.per_tick, grid.last, row, 0)
            else:
                usd += lasts * ends * look(lost, tick + j, part, then, grid.last, group, 0)
            lasts *= 1.0 - ends
        mean += weight * (
            usd
            + lasts * look(values.held, tick + num_ticks, part, then, grid.last, group, min(k + num_ticks, ages - 1))
        )
    return mean


@compiled
def worth(
    grid: Grid,
    chances: Chances,
    costs: Costs,
    values: Values,
    residual: FloatArray,
    at: tuple[int, float, float],
    left_s: float,
    row: int,
    group: IntArray,
    age: IntArray,
    price: FloatArray,
    setup_s: FloatArray,
    move: FloatArray,
    found: FloatArray,
) -> None:
    """Set `found` to the mean remaining dollars by zone, if its available machines are launched or kept now.

    A price that differs from the price of the zone's group is paid for the machines' expected remaining time.
    """
    for zone in range(len(group)):
        g, k = group[zone], age[zone]
        usd = price[zone] * grid.tick_s / 3600.0
        stays = min(residual[g, k if k >= 0 else residual.shape[1] // 2], left_s / grid.tick_s) - 1.0
        value = hold(grid, chances, values, at, g, k, usd, left_s, setup_s[zone], row)
        found[zone] = move[zone] + value + (usd - costs.price[g]) * max(0.0, stays)
