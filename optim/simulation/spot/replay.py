"""Runs in one zone as a compiled loop, with the same decisions and bill as `run_zones`, hundreds of times faster.

Every rule is implemented here a second time, in integers: each policy's choice, the guard, and the engine's tick. Tests
compare both implementations, second by second and unit by unit. Runs that need more (several zones, Amazon's bills,
user policies) use the engine: see `Replay.can`.
"""

import math
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import by_reference, compiled
from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.prices import HOUR_S
from optim.models.bidding.market.spells import ABSENT, PRESENT, SpellHazards, decision_s
from optim.models.bidding.market.zones import Allocation, ZoneJob, ZoneMarket
from optim.simulation.spot.deadline_policy import (
    TIME_TOL,
    DeadlinePolicy,
    lasted,
    likeliest,
    log_lasting,
    new_memory,
    take_up,
)
from optim.simulation.spot.deadline_zones import PRICE_STEP, deadline_job, known_hazards
from optim.simulation.spot.zone_policies import PRIOR_H
from optim.simulation.spot.zones import ZoneRun, facts_of
from optim.solvers.bidding.deadline_table import KEPT, ON_DEMAND, OTHERWISE, SPOT, WAIT

GREEDY, STEADY, UNIFORM, PRICED, TABLE = range(5)
"""Policy rules of the loop."""

RULES = MappingProxyType(
    {
        "greedy-spot": GREEDY,
        "on-demand": STEADY,
        "uniform-progress": UNIFORM,
        "skynomad": PRICED,
        "deadline-dp": TABLE,
    }
)
"""Rule of each policy, by name."""

BOTH = SPOT | ON_DEMAND
"""Use spot machines if available, otherwise on-demand machines; `SPOT` alone waits if there are none."""

MAX_EXACT = 2**53
"""Up to this limit, products of seconds are exact in floating point, as they are in the engine's integers."""


@by_reference
class Times(NamedTuple):
    """Numbers of a job and its bill, in integer seconds and micro-dollars.

    Parameters
    ----------
    tick_s, work_s, deadline_s
        Length of a tick, work, and deadline.
    launch_s
        Time that the guard reserves for a launch.
    setup_s, move_micro
        Shape (2,): set-up time and price of the move, without and with a stored state.
    machines, on_demand_micro, probe_s
        Number of machines, on-demand price of a machine, and seconds charged for a successful probe.
    is_whole
        Whether started ticks are billed in full.
    decide_s
        Seconds between decisions by a table.
    """

    tick_s: int
    work_s: int
    deadline_s: int
    launch_s: int
    setup_s: IntArray
    move_micro: IntArray
    machines: int
    on_demand_micro: int
    probe_s: int
    is_whole: bool
    decide_s: int


@by_reference
class Look(NamedTuple):
    """A table in the form that the loop reads, see `DeadlineTable`.

    `rest_spot` and `rest_on_demand` are the remaining units of set-up, by age of the lease. `recurs_spot` and
    `recurs_on_demand` are the periods with which ages beyond the last tabulated age recur.
    """

    entries: NDArray[Any]
    low: IntArray
    begin: IntArray
    unit_s: int
    rest_spot: IntArray
    rest_on_demand: IntArray
    recurs_spot: int
    recurs_on_demand: int


RUN = np.dtype(
    [
        *(
            (name, np.int64)
            for name in ("tick", "now_s", "worked_s", "held", "begun_s", "begun_tick", "setup_left_s", "state")
        ),
        *((name, np.int64) for name in ("is_locked", "units", "probe_units", "probes", "evictions", "num_stays")),
        # Engine's last observation, the policy's last observation, and the losses and ticks that `skynomad` counts.
        *((name, np.int64) for name in ("seen_tick", "seen_flag", "told_tick", "told_flag", "losses", "watched")),
        # State of a table policy: lease at its last decision, lease begin, and whether this tick's observations are
        # recorded.
        *(
            (name, np.int64)
            for name in ("kept", "was_held", "was_at_s", "since_s", "is_fed", "step", "absent", "present")
        ),
    ]
)
"""State of a run, which the loop keeps while it asks for another table."""


@compiled
def _go(
    rule: int,
    first: int,
    flags: BoolArray,
    spot_micro: IntArray,
    steps: IntArray,
    times: Times,
    table: Look,
    lasting: FloatArray,
    run: NDArray[Any],
    seen: FloatArray,
    weight: FloatArray,
    stays: IntArray,
) -> bool:
    """Run until the job is complete or twice the deadline is reached; return True at the end, False if another table is needed.

    `steps` are price steps by tick. `seen` and `weight` are the memory of `SpellWatch`. Rows of `stays` are the fields
    of `Allocation` without its zone.
    """
    at = run[0]
    tick_s, work_s, deadline_s = times.tick_s, times.work_s, times.deadline_s
    last = min(2 * -(-deadline_s // tick_s), len(flags) - first)
    while at.worked_s < work_s and at.tick < last:
        here = first + at.tick
        if at.held == SPOT and not at.is_fed:
            _see(at, flags[here])
            if not flags[here]:
                at.evictions += 1
                _leave(at, stays, spot_micro, times, first, True)
        wanted = WAIT
        if not at.is_locked:
            if rule == GREEDY:
                wanted = SPOT if at.held != ON_DEMAND else ON_DEMAND
            elif rule == STEADY:
                wanted = ON_DEMAND
            elif rule == UNIFORM:
                wanted = _keep_up(at, times)
            elif rule == PRICED:
                wanted = _worth(at, spot_micro[here], times)
            else:
                if not at.is_fed:
                    if at.seen_tick >= 0 and (at.seen_tick != at.told_tick or at.seen_flag != at.told_flag):
                        if at.seen_tick == at.tick and (at.told_tick != at.tick - 1 or at.told_flag == 0):
                            take_up(seen, weight, lasting, times.decide_s, (at.tick - 1) * tick_s, True)
                        take_up(seen, weight, lasting, times.decide_s, at.seen_tick * tick_s, at.seen_flag)
                    at.told_tick, at.told_flag = at.seen_tick, at.seen_flag
                    if at.held != at.was_held:
                        at.since_s = at.was_at_s
                    at.was_held, at.was_at_s = at.held, at.now_s
                if at.now_s % times.decide_s and at.held != WAIT and at.held == at.kept:
                    wanted = at.held
                else:
                    absent, present = likeliest(weight, ABSENT), likeliest(weight, PRESENT)
                    if steps[here] != at.step or absent != at.absent or present != at.present:
                        at.step, at.absent, at.present, at.is_fed = steps[here], absent, present, 1
                        return False
                    wanted = _by_table(at, flags[here], spot_micro[here], times, table, seen)
                    at.kept = SPOT if wanted & SPOT else wanted
        at.is_fed = 0
        wanted = _guarded(at, wanted, rule, times)
        _move(at, wanted, flags[here], stays, spot_micro, times, first)
        at.tick += 1
        if at.held == WAIT:
            at.now_s += tick_s
            continue
        idle_s = min(at.setup_left_s, tick_s)
        worked_s = min(tick_s - idle_s, work_s - at.worked_s)
        at.worked_s += worked_s
        at.setup_left_s -= idle_s
        at.now_s += tick_s if at.worked_s < work_s else idle_s + worked_s
        if at.setup_left_s == 0:
            at.state = 1
    _leave(at, stays, spot_micro, times, first, False)
    return True


@compiled
def _see(at: Any, flag: bool) -> None:
    """Record an observation."""
    at.seen_tick, at.seen_flag = at.tick, (1 if flag else 0)


@compiled
def _leave(at: Any, stays: IntArray, spot_micro: IntArray, times: Times, first: int, is_lost: bool) -> None:
    """Release or lose the present machines, and bill them."""
    if at.held == WAIT:
        return
    row = at.num_stays
    stays[row, 0], stays[row, 1] = (1 if at.held == SPOT else 0), at.begun_s
    stays[row, 2], stays[row, 3] = at.now_s, 1 if is_lost else 0
    at.num_stays += 1
    begin_s = at.begun_s
    while begin_s < at.now_s:
        held_s = times.tick_s if times.is_whole else min(times.tick_s, at.now_s - begin_s)
        price = spot_micro[first + begin_s // times.tick_s] if at.held == SPOT else times.on_demand_micro
        at.units += held_s * price * times.machines
        begin_s += times.tick_s
    at.held, at.setup_left_s = WAIT, 0


@compiled
def _move(at: Any, wanted: int, flag: bool, stays: IntArray, spot_micro: IntArray, times: Times, first: int) -> None:
    """Use the first wanted type that is already in use or available."""
    then = WAIT
    if wanted & SPOT:
        if at.held == SPOT:
            return
        _see(at, flag)
        then = SPOT if flag else wanted & ON_DEMAND
    elif wanted == ON_DEMAND:
        then = ON_DEMAND
    if then == at.held:
        return
    _leave(at, stays, spot_micro, times, first, False)
    if then != WAIT:
        at.held, at.begun_s, at.begun_tick, at.setup_left_s = then, at.now_s, at.tick, times.setup_s[at.state]
        at.units += HOUR_S * times.move_micro[at.state]


@compiled
def _guarded(at: Any, wanted: int, rule: int, times: Times) -> int:
    """Return the wanted machines if there is time for them: `DeadlineGuard.decide`."""
    if at.is_locked:
        return ON_DEMAND
    is_kept = at.held != WAIT and at.held == (SPOT if wanted & SPOT else wanted)
    if is_kept and at.setup_left_s == 0:
        return wanted
    lost_s = times.tick_s
    if is_kept:
        lost_s = min(at.setup_left_s, times.tick_s)
    elif rule == TABLE and wanted & ON_DEMAND:
        lost_s = min(times.tick_s, times.setup_s[at.state])
    launches = 2 if rule == UNIFORM and at.held != SPOT else 1
    left_s, work_left_s = times.deadline_s - at.now_s, times.work_s - at.worked_s
    if left_s - lost_s < work_left_s + launches * times.launch_s:
        at.is_locked = 1
        return ON_DEMAND
    return wanted


@compiled
def _keep_up(at: Any, times: Times) -> int:
    """Return the choice of `UniformProgressZones.choose`."""
    if at.held == SPOT:
        return SPOT
    later_s = 2 * times.setup_s[at.state] if at.held == ON_DEMAND else 0
    due = min(at.now_s + later_s, times.deadline_s) * times.work_s
    is_ahead = at.worked_s * times.deadline_s >= due
    if at.held == ON_DEMAND:
        return BOTH if is_ahead else ON_DEMAND
    return SPOT if is_ahead else BOTH


@compiled
def _worth(at: Any, spot: int, times: Times) -> int:
    """Return the choice of `SkyNomad.choose`."""
    if at.seen_tick >= 0 and (at.seen_tick != at.told_tick or at.seen_flag != at.told_flag):
        if at.told_tick >= 0 and at.told_flag:
            at.watched += at.seen_tick - at.told_tick
            at.losses += 1 - at.seen_flag
        at.told_tick, at.told_flag = at.seen_tick, at.seen_flag
    work_left_s = times.work_s - at.worked_s
    left_s = max(1, times.deadline_s - at.now_s)
    worth = work_left_s * times.deadline_s / (left_s * times.work_s) * times.on_demand_micro
    life_s = (PRIOR_H * HOUR_S + at.watched * times.tick_s) / (1 + at.losses)
    spot_usd = _priced(at, SPOT, spot, life_s, times)
    on_demand_usd = _priced(at, ON_DEMAND, times.on_demand_micro, math.inf, times)
    takes_spot = spot_usd < worth or at.held == SPOT
    if on_demand_usd < worth or at.held == ON_DEMAND:
        if not takes_spot:
            return ON_DEMAND
        return BOTH if spot_usd <= on_demand_usd else ON_DEMAND
    return SPOT if takes_spot else WAIT


@compiled
def _priced(at: Any, kind: int, price: int, life_s: float, times: Times) -> float:
    """Return the cost of `SkyNomad._cost_of`."""
    if kind == at.held:
        setup_s, move = at.setup_left_s, 0.0
    else:
        setup_s, move = times.setup_s[at.state], times.move_micro[at.state] * HOUR_S / times.machines
    life_s = min(life_s, float(times.work_s - at.worked_s) + setup_s)
    return (price * life_s + move) / (life_s - setup_s) if life_s > setup_s else math.inf


@compiled
def _by_table(at: Any, flag: bool, price: int, times: Times, table: Look, seen: FloatArray) -> int:
    """Return the choice of `DeadlineProgramme` in one zone; probe under the same conditions."""
    ages = table.entries.shape[1] // 2 - 1
    present = _spell(seen, at.now_s, 1, ages, times.decide_s) + ages + 1
    there: int = _entry(at, present, times, table)
    if at.held == SPOT:
        return there
    absent: int = _entry(at, _spell(seen, at.now_s, 0, ages, times.decide_s), times, table)
    if there == SPOT:
        return SPOT | (absent & ON_DEMAND)
    # Availability may matter even if the table ignores it at this age: see `DeadlineProgramme`.
    if there == absent and _entry(at, 2 * ages, times, table) != SPOT:
        return absent
    _see(at, flag)
    at.probes += 1
    if not flag:
        return absent
    at.probe_units += times.probe_s * price * times.machines
    return there


@compiled
def _spell(seen: FloatArray, now_s: float, flag: int, ages: int, tick_s: int) -> int:
    """Return the table column of `SpellWatch.lasted_s`."""
    lasted_s = lasted(seen, now_s, flag)
    return ages if math.isnan(lasted_s) else min(ages - 1, int(lasted_s / tick_s + TIME_TOL))


@compiled
def _entry(at: Any, column: int, times: Times, table: Look) -> int:
    """Return the choice of `DeadlinePolicy.decide`."""
    tick_s = times.decide_s
    tick = math.ceil(at.now_s / tick_s - TIME_TOL)
    held: int = at.held
    entry = ON_DEMAND
    if tick < len(table.low):
        lost = math.ceil((tick * tick_s - at.worked_s) / table.unit_s - TIME_TOL)
        row = table.begin[tick] + max(0, lost - table.low[tick])
        if row < table.begin[tick + 1]:
            entry = int(np.int64(table.entries[row, column]))
    if held == WAIT:
        return entry & BOTH
    rests, recurs, first = table.rest_spot, table.recurs_spot, 1
    if held == ON_DEMAND:
        rests, recurs, first = table.rest_on_demand, table.recurs_on_demand, 1 + len(table.rest_spot)
    age = int((at.now_s - at.since_s) / tick_s + TIME_TOL)
    if age > len(rests):
        age = len(rests) - (len(rests) - age) % recurs
    need = at.setup_left_s / table.unit_s - TIME_TOL
    while age > 0 and rests[age - 1] < need:
        age -= 1
    if age > 0:
        if entry >> (first + age + KEPT - 2) & 1:
            return held
        if held == SPOT:
            return ON_DEMAND if entry & OTHERWISE else WAIT
    return entry & BOTH


class Replay:
    """Runs of policies on one market, equal to the runs of `run_zones`.

    Parameters
    ----------
    market, job, billing, probe_s
        As for `run_zones`.
    hazards
        Hazards of the ends of spells, for policies that use them; None if no hazards were learned.
    """

    def __init__(
        self,
        market: ZoneMarket,
        job: ZoneJob,
        *,
        billing: Billing = Billing.PER_SECOND,
        probe_s: int = 60,
        hazards: SpellHazards | None = None,
    ) -> None:
        self._market, self._job, self._billing = market, job, billing
        self._facts = facts_of(market, job, billing, hazards)
        self._flags = np.ascontiguousarray(market.is_available[:, 0])
        self._micro = np.ascontiguousarray(market.spot_micro[:, 0])
        self._no_steps = np.zeros(len(market), dtype=np.int64)
        self._steps: dict[int, IntArray] = {}
        self._policies: dict[tuple[int, int], DeadlinePolicy] = {}
        self._looks: dict[int, tuple[DeadlinePolicy, Look]] = {}
        self._max_stays = min(len(market), 2 * job.num_ticks(market.tick_s)) + 1
        self._times = Times(
            tick_s=market.tick_s,
            work_s=int(job.work_s),
            deadline_s=int(job.deadline_s),
            launch_s=max(int(row.min()) for row in job.setup_s),
            setup_s=np.ascontiguousarray(job.setup_s[:, 0]),
            move_micro=np.ascontiguousarray(job.move_micro[:, 0]),
            machines=int(job.machines),
            on_demand_micro=int(market.on_demand_micro[0]),
            probe_s=probe_s,
            is_whole=billing is Billing.WHOLE_TICKS,
            decide_s=decision_s(market.tick_s),
        )

    def can(self, name: str) -> bool:
        """Return whether a policy can be replayed.

        A replay requires one zone, bills by time, a policy of `RULES`, and times exact in floating point.
        """
        is_plain = self._billing in (Billing.PER_SECOND, Billing.WHOLE_TICKS) and self._market.num_zones == 1
        return is_plain and name in RULES and int(self._job.deadline_s) ** 2 < MAX_EXACT

    def run(self, name: str, first: int) -> ZoneRun:
        """Return the run of a policy from a tick.

        Parameters
        ----------
        name
            Name of a policy for which `can` is true.
        first
            Tick at which the job starts.
        """
        rule, at = RULES[name], np.zeros(1, dtype=RUN)
        at["seen_tick"] = at["told_tick"] = at["kept"] = -1
        seen, log_weight = new_memory()
        stays = np.empty((self._max_stays, 4), dtype=np.int64)
        steps, lasting, look = self._no_steps, NO_LASTING, NO_TABLE
        if rule == TABLE:
            steps, lasting = self._steps_from(first), self._lasting
            look = self._look(first, at)
        while not _go(
            rule,
            first,
            *(self._flags, self._micro, steps, self._times, look, lasting, at, seen, log_weight, stays),
        ):
            look = self._look(first, at)
        return self._result_of(name, first, at, stays)

    def _result_of(self, name: str, first: int, at: NDArray[Any], stays: IntArray) -> ZoneRun:
        """Return the result of a completed run."""
        run = at[0]
        worked_s, now_s = int(run["worked_s"]), int(run["now_s"])
        is_done = worked_s >= self._job.work_s
        return ZoneRun(
            policy=name,
            first=first,
            units=int(run["units"] + run["probe_units"]),
            probe_units=int(run["probe_units"]),
            end_s=now_s,
            work_done_s=worked_s,
            is_done=is_done,
            deadline_met=is_done and now_s <= self._job.deadline_s,
            evictions=int(run["evictions"]),
            probes=int(run["probes"]),
            free_s=0,
            stays=tuple(
                Allocation(0, is_spot == 1, begin_s, end_s, is_lost == 1)
                for is_spot, begin_s, end_s, is_lost in stays[: int(run["num_stays"])].tolist()
            ),
        )

    def _steps_from(self, first: int) -> IntArray:
        """Return the price steps by tick, relative to the price at a start, as in `DeadlineProgramme`."""
        start = int(self._micro[first])
        if start not in self._steps:
            prices, row = np.unique(self._micro, return_inverse=True)
            steps = [round(math.log(price / start) / PRICE_STEP) for price in prices.tolist()]
            self._steps[start] = np.array(steps, dtype=np.int64)[row.ravel()]
        return self._steps[start]

    def _look(self, first: int, at: NDArray[Any]) -> Look:
        """Return the table that a run needs."""
        run, start = at[0], int(self._micro[first])
        step, levels = int(run["step"]), (int(run["absent"]), int(run["present"]))
        if (start, step) not in self._policies:
            job = deadline_job(self._facts, start * math.exp(step * PRICE_STEP))
            self._policies[start, step] = DeadlinePolicy.of(job, self._hazards)
        policy = self._policies[start, step].of_levels(levels)
        if id(policy) not in self._looks:
            table, leases = policy.table, policy.table.leases
            rows = [np.flatnonzero(leases.is_spot[:-2] == is_spot) for is_spot in (True, False)]
            recurs = [int(row[-1]) + 2 - int(leases.after[row[-1]]) for row in rows]
            look = Look(
                entries=table.entries,
                low=table.low,
                begin=table.begin,
                unit_s=table.unit_s,
                rest_spot=leases.rest[rows[0]],
                rest_on_demand=leases.rest[rows[1]],
                recurs_spot=recurs[0],
                recurs_on_demand=recurs[1],
            )
            self._looks[id(policy)] = policy, look
        return self._looks[id(policy)][1]

    @cached_property
    def _lasting(self) -> FloatArray:
        return log_lasting(self._hazards)

    @cached_property
    def _hazards(self) -> SpellHazards:
        return known_hazards(self._facts)


NO_LASTING = np.zeros((1, 2, 2, 1))
NO_TABLE = Look(
    entries=np.zeros((1, 4), dtype=np.uint8),
    low=np.zeros(1, dtype=np.int64),
    begin=np.zeros(2, dtype=np.int64),
    unit_s=1,
    rest_spot=np.zeros(1, dtype=np.int64),
    rest_on_demand=np.zeros(1, dtype=np.int64),
    recurs_spot=1,
    recurs_on_demand=1,
)
"""Placeholder for policies without a table."""
