"""The policy `deadline-dp`: what to do by backward recursion, if spells of availability end as they did in other traces."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.policies import policy
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.prices import HOUR_S, MICRO
from optim.models.bidding.market.spells import ABSENT, PRESENT, SpellHazards, decision_s, prior_hazards
from optim.simulation.spot.deadline_policy import (
    CHOICES,
    LEVEL,
    MAX_LEVEL,
    DeadlinePolicy,
    DeadlineView,
    Machines,
    SpellWatch,
    likeliest,
    new_memory,
    table_of,
)
from optim.simulation.spot.zones import IN_ONE_ZONE, DeadlineGuard, Offer, ZoneFacts, ZoneView
from optim.solvers.bidding.deadline_table import DeadlineJob
from optim.solvers.bidding.zone_values import ZoneGroup, ZoneProblem, ZoneValues, solve_zones, tick_of, worth

PRICE_STEP = 0.1
"""Logarithms of spot prices are rounded to the first one's and multiples of this from there: they share a table."""

OLD_S = 1e9
"""Older than any age that is told apart."""

TABLE_TICK_S = 1200
"""Ticks of a table of several zones last so long, or one decision: finer ones cost the same in the mean (24 starts)."""

ALIKE, NEW_PRICES = 0.005, 0.02
"""Zones whose prices differ by less, as a logarithm, are of one group; values are made anew when a price moves by more."""

PACE, MAX_PACE, PACE_ENDS = 2.0, 1, 5.0
"""A zone's hazards are those from elsewhere times a power of this, at most so high or low; these count for so many spells
beside those that were seen to end."""


@policy(
    "deadline-dp",
    world="zones",
    summary="The cheapest in the mean, and never late, if spells end by age as they did in the traces of `--history`; without "
    "it by a prior. By backward recursion over time, work left, what is held and the spell's age; over several zones with "
    "their prices and transfers.",
    is_default=True,
    traits=[IN_ONE_ZONE],
)
class DeadlineProgramme(DeadlineGuard):
    """Do what a backward recursion says: `DeadlinePolicy` in one zone, `solve_zones` in several.

    Never late: the guard of the base class overrules values, however wrong they are.
    """

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self._rule: _OneZone | _SeveralZones = (_OneZone if len(facts.zones) == 1 else _SeveralZones)(facts, self)

    def may_lose_s(self, view: ZoneView, wanted: Sequence[Offer]) -> int:
        """Return the longest set-up of the places, if the last has machines for sure: on demand, or those that are held.

        A tick, too, where the environment forces machines on demand so early.
        """
        keeps_tick = self.facts.keeps_tick and (view.held is None or not view.held.is_spot)
        if keeps_tick or not wanted or (wanted[-1].is_spot and wanted[-1] != view.held):
            return self.facts.tick_s
        setups = self.facts.job.setup_s[view.state]
        lost = (view.setup_left_s if place == view.held else int(setups[place.zone]) for place in wanted)
        return min(self.facts.tick_s, max(lost))

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return what the recursion says."""
        return self._rule.choose(view)


class _OneZone:
    """The table of `DeadlinePolicy`.

    Where ticks are shorter than ten minutes it decides every ten or so, and whenever something was lost; what is left of
    ten minutes then counts as lost, too. Machines are asked for where the table would take them. Where it would not, but
    does another thing if there are some, the zone is probed.
    """

    def __init__(self, facts: ZoneFacts, guard: DeadlineGuard) -> None:
        self._facts, self._guard = facts, guard
        self._tick_s = decision_s(facts.tick_s)
        self._kept: Offer | None = None
        self._held: Offer | None = None
        self._held_at_s = self._since_s = 0
        self._seen: tuple[int, bool] | None = None
        self._policies: dict[int, DeadlinePolicy] = {}
        self._first_micro: int | None = None
        self._hazards = known_hazards(facts)
        self._watch = SpellWatch(self._hazards)

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return what the table says if there are machines and, after it, if there are none."""
        for tick, is_available in new_sights(view, 0, self._seen):
            self._watch.see(tick * self._facts.tick_s, is_available=is_available)
        self._seen = view.seen[0]
        if view.held != self._held:  # launched when it was last asked
            self._since_s = self._held_at_s
        self._held, self._held_at_s = view.held, view.elapsed_s
        is_due = view.elapsed_s % self._tick_s == 0 or view.held is None
        if not is_due and view.held == self._kept:
            return (view.held,)  # type: ignore[return-value]  # not None, or it were due
        wanted = self._decided(view)
        self._kept = wanted[0] if wanted else None
        return wanted

    def _decided(self, view: ZoneView) -> tuple[Offer, ...]:
        held, spot = view.held, Offer(0, True)
        if held is not None and held.is_spot:
            return self._places(view, is_available=True)
        there = self._places(view, is_available=True)
        absent = self._places(view, is_available=False)
        if there and there[0].is_spot:
            return (spot, *absent)
        # How old a spell is only those know who look: worth a probe where some age would be taken.
        if there == absent and self._places(view, is_available=True, lasted_s=OLD_S)[:1] != (spot,):
            return absent
        return there if view.probe(0) else absent

    def _places(self, view: ZoneView, *, is_available: bool, lasted_s: float | None = None) -> tuple[Offer, ...]:
        held = CHOICES[0 if view.held is None else 1 if view.held.is_spot else 2]
        if lasted_s is None:
            lasted_s = self._watch.lasted_s(view.elapsed_s, is_available=is_available)
        seen = DeadlineView(
            elapsed_s=view.elapsed_s,
            work_left_s=view.work_left_s,
            is_available=is_available,
            held=held,
            setup_left_s=0 if held is Machines.NONE else view.setup_left_s,
            held_s=view.elapsed_s - self._since_s,
            spell_s=lasted_s,
        )
        chosen = self._policy(view).updated(self._watch).decide(seen)
        if chosen is Machines.NONE:
            return ()
        if chosen is held and view.held is not None:
            return (view.held,)
        return (Offer(0, True),) if chosen is Machines.SPOT else (self._guard.on_demand(view),)

    def _policy(self, view: ZoneView) -> DeadlinePolicy:
        """Return the policy at the present price."""
        price = view.spot_micro[0]
        if self._first_micro is None:
            self._first_micro = price
        step = round(math.log(price / self._first_micro) / PRICE_STEP)
        if step not in self._policies:
            job = deadline_job(self._facts, self._first_micro * math.exp(step * PRICE_STEP))
            self._policies[step] = DeadlinePolicy.of(job, self._hazards)
        return self._policies[step]


class _PacedWatch(SpellWatch):
    """A watch of a zone among several, whose pace follows by smaller steps: zones are compared with one another.

    With a gamma distribution of mean 1 and `PACE_ENDS` for the factor by which a kind's hazards differ here, the mean of
    what is known after n ends where x were expected is ``(PACE_ENDS + n) / (PACE_ENDS + x)``. What was expected depends on
    the power of `LEVEL` that is common to all zones.
    """

    def __init__(self, hazards: SpellHazards) -> None:
        super().__init__(hazards)
        self._sight: tuple[float, bool] | None = None
        self._due, self._log_ends = np.zeros((2, 2 * MAX_LEVEL + 1)), np.zeros((2, 2 * MAX_LEVEL + 1))
        self._ends = [0, 0]

    def see(self, now_s: float, *, is_available: bool) -> None:
        """Take up whether there are machines at a time, not before the last."""
        if self._sight is not None:
            then_s, kind = self._sight[0], int(self._sight[1])
            lasted_s = self.lasted_s(then_s, is_available=bool(kind))
            lasting = self._lasting[:, 1 if lasted_s is None else 0, kind]
            age = int((then_s if lasted_s is None else lasted_s) / self._tick_s)
            rate = -lasting[:, min(age, lasting.shape[1] - 1)]
            self._due[kind] += rate * ((now_s - then_s) / self._tick_s)
            if kind != is_available:
                self._ends[kind] += 1
                self._log_ends[kind] += np.log(rate)
        super().see(now_s, is_available=is_available)
        self._sight = now_s, is_available

    def log_likelihood(self, kind: int) -> FloatArray:
        """Return by power of `LEVEL` how likely what was seen is, the pace being drawn: shape (powers,), up to a constant.

        Ends are those of a Poisson process whose rate is the hazard's times the pace, so that the mean over the pace is in
        closed form: the product of rates at n ends times ``(PACE_ENDS + x) ** -(PACE_ENDS + n)``.
        """
        ends = PACE_ENDS + self._ends[kind]
        return np.asarray(self._log_ends[kind] - ends * np.log1p(self._due[kind] / PACE_ENDS))

    def factor(self, kind: int, level: int) -> float:
        """Return by what hazards of a kind are to be multiplied: a power of `LEVEL`, and of `PACE` beside it."""
        pace = (PACE_ENDS + self._ends[kind]) / (PACE_ENDS + self._due[kind, MAX_LEVEL + level])
        return LEVEL**level * PACE ** max(-MAX_PACE, min(MAX_PACE, round(math.log(pace, PACE))))


class _SeveralZones:
    """Take what the job then costs least in the mean: spot machines of some zone, on demand, or nothing.

    Every tick each zone is weighed as if its machines were there now: price, transfer and set-up, how long they may last by
    age, and what can be done after. Those that are worth more than doing without are asked for, the best first: asking
    costs nothing, so that no zone is probed.
    """

    def __init__(self, facts: ZoneFacts, guard: DeadlineGuard) -> None:
        self._facts, self._guard = facts, guard
        size, job = len(facts.zones), facts.job
        self._watches = [_PacedWatch(known_hazards(facts)) for _ in range(size)]
        self._seen: Sequence[tuple[int, bool] | None] = [None] * size
        self._rows = job.state_class
        self._move_usd = job.move_micro / MICRO
        self._setup_s = job.setup_s.astype(np.float64)
        self._prices: tuple[int, ...] = ()
        self._factors: tuple[tuple[float, float], ...] = ()
        self._values: ZoneValues | None = None
        self._group = np.zeros(size, dtype=np.int64)
        self._last_s = self._priced_s = 0
        self._found = np.empty(size)
        self._order = list(range(size))

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return the zones that are worth it, the best first, and what to do if none has machines."""
        now_s, held, job = view.elapsed_s, view.held, self._facts.job
        for zone, watch in enumerate(self._watches):
            for tick, is_available in new_sights(view, zone, self._seen[zone]):
                watch.see(tick * self._facts.tick_s, is_available=is_available)
        self._seen = tuple(view.seen)
        if held is not None and held.is_spot:
            self._last_s = now_s
        values, row = self._values_now(view), int(self._rows[view.state])
        at, left_s = values.place(now_s, view.work_left_s), float(view.work_left_s)
        last = values.residual.shape[1] - 1
        setups, moves = self._setup_s[view.state].copy(), self._move_usd[view.state].copy()
        if held is not None and held.is_spot:
            setups[held.zone], moves[held.zone] = view.setup_left_s, 0.0
        prices = np.array(view.spot_micro) * (job.machines / MICRO)
        ages = np.array([self._age(zone, now_s, values.grid.tick_s, last) for zone in self._order], dtype=np.int64)
        worth(
            *(values.grid, values.chances, values.costs, values.values, values.residual),
            *(at, left_s, row, self._group, ages, prices, setups, moves, self._found),
        )
        absent = min(last, int((now_s - self._last_s) / values.grid.tick_s))
        otherwise: tuple[Offer, ...]
        if held is not None and held.is_spot:
            least, otherwise = float(self._found[held.zone]), (held,)
        elif held is not None:
            least = values.idle_usd(at, row, absent, on_demand=True)
            keeps = view.setup_left_s > 0 or values.takes_on_demand(at, row, absent, held=True)
            otherwise = (held,) if keeps else ()
        else:
            least = values.idle_usd(at, row, absent)
            otherwise = (self._guard.on_demand(view),) if values.takes_on_demand(at, row, absent) else ()
        found = self._found.tolist()
        better = [zone for zone in self._order if found[zone] < least and Offer(zone, True) != held]
        return (*(Offer(zone, True) for zone in sorted(better, key=found.__getitem__)), *otherwise)

    def _age(self, zone: int, now_s: int, tick_s: float, last: int) -> int:
        """Return for how many ticks of the values machines of a zone would have been there, if they are; -1 if nobody knows."""
        lasted_s = self._watches[zone].lasted_s(now_s, is_available=True)
        return -1 if lasted_s is None else min(last, int(lasted_s / tick_s))

    def _values_now(self, view: ZoneView) -> ZoneValues:
        """Return the values at the present prices, and of zones' spells as they have been seen."""
        prices, factors = self._prices, self._factors_now()
        is_due = view.elapsed_s - self._priced_s >= TABLE_TICK_S
        if not prices or (
            is_due and any(abs(a - b) > NEW_PRICES * b for a, b in zip(view.spot_micro, prices, strict=True))
        ):
            prices, self._priced_s = tuple(view.spot_micro), view.elapsed_s
        if self._values is None or prices != self._prices or factors != self._factors:
            self._prices, self._factors = prices, factors
            self._values, self._group = _values_of(_Known(self._facts), prices, factors)
        return self._values

    def _factors_now(self) -> tuple[tuple[float, float], ...]:
        """Return by zone what hazards of absence and of availability are to be multiplied by.

        Hazards that are wrong by much are so everywhere: the spells of all zones tell the likeliest power of `LEVEL`. Zones
        differ for longer than a job lasts, and run out together: what all saw weighs as much as one zone's mean sight.
        """
        weights = new_memory()[1]
        for kind in (ABSENT, PRESENT):
            likelihoods = [watch.log_likelihood(kind) for watch in self._watches]
            weights[kind] += np.mean(likelihoods, axis=0)
        absent, present = likeliest(weights, ABSENT), likeliest(weights, PRESENT)
        return tuple((watch.factor(ABSENT, absent), watch.factor(PRESENT, present)) for watch in self._watches)


class _Known:
    """Facts, the same ones of which are one key."""

    def __init__(self, facts: ZoneFacts) -> None:
        job = facts.job
        self.facts = facts
        numbers = (job.work_s, job.deadline_s, job.machines, job.setup_s.tobytes(), job.move_micro.tobytes())
        self._key = (numbers, facts.on_demand_micro, facts.tick_s, facts.billing, known_hazards(facts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key[:-1])


@lru_cache(maxsize=8)
def _values_of(
    known: _Known, prices: tuple[int, ...], factors: tuple[tuple[float, float], ...]
) -> tuple[ZoneValues, IntArray]:
    """Return the values at zones' prices, hazards times factors, and by zone its group."""
    facts, job = known.facts, known.facts.job
    rows = job.state_class
    firsts = np.unique(rows, return_index=True)[1]
    alike: dict[tuple[object, int, tuple[float, float]], list[int]] = {}
    for zone, price in enumerate(prices):
        where = job.setup_s[:, zone].tobytes(), job.move_micro[:, zone].tobytes(), int(rows[1 + zone])
        alike.setdefault((where, round(math.log(price / min(prices)) / ALIKE), factors[zone]), []).append(zone)
    known_ages = known_hazards(facts)
    cells = (len(alike) + 2 * len(firsts)) * known_ages.num_ages
    every_s, parts = tick_of(known_ages.tick_s, TABLE_TICK_S, cells, job.work_s, job.slack_s)
    groups, first_zone, group_of = [], [], np.zeros(len(prices), dtype=np.int64)
    for number, ((_, _, factor), zones) in enumerate(alike.items()):
        group_of[zones] = number
        first_zone.append(zones[0])
        mean = sum(prices[zone] for zone in zones) / len(zones)
        hazards = known_ages.scaled(*factor).every(every_s)
        groups.append(ZoneGroup(num_zones=len(zones), price_usd=mean * job.machines / MICRO, hazards=hazards))
    held = (job.work_s + job.setup_s[firsts]) * job.machines * np.array(facts.on_demand_micro)
    sure = np.argmin(held + HOUR_S * job.move_micro[firsts], axis=1)
    each = np.arange(len(firsts))
    problem = ZoneProblem(
        work_s=int(job.work_s),
        deadline_s=int(job.deadline_s),
        groups=tuple(groups),
        row_of=rows[1 + np.array(first_zone)],
        setup_s=job.setup_s[firsts][:, first_zone].astype(np.float64),
        move_usd=job.move_micro[firsts][:, first_zone] / MICRO,
        sure_usd=np.array(facts.on_demand_micro)[sure] * (job.machines / MICRO),
        sure_setup_s=job.setup_s[firsts][each, sure].astype(np.float64),
        sure_move_usd=job.move_micro[firsts][each, sure] / MICRO,
        sure_row=rows[1 + sure],
        is_whole=facts.billing is Billing.WHOLE_TICKS,
    )
    return solve_zones(problem, parts), group_of


def new_sights(view: ZoneView, zone: int, last: tuple[int, bool] | None) -> list[tuple[int, bool]]:
    """Return what was seen of a zone since the last sight that was taken up.

    What is seen at a tick before anything is asked was held since the tick before: there were machines then, too.
    """
    seen = view.seen[zone]
    if seen is None or seen == last:
        return []
    launched = view.tick - 1, True
    return [launched, seen] if seen[0] == view.tick and last != launched else [seen]


def known_hazards(facts: ZoneFacts) -> SpellHazards:
    """Return how spells end as far as is known, for ticks of as many seconds as there are between decisions."""
    every_s = decision_s(facts.tick_s)
    return prior_hazards(every_s) if facts.hazards is None else facts.hazards.every(every_s)


def deadline_job(facts: ZoneFacts, spot_micro: float) -> DeadlineJob:
    """Return the job of a table at a spot price: set-ups as long as the longest launch, on demand where that is cheapest."""
    job = facts.job
    return DeadlineJob(
        work_s=int(job.work_s),
        deadline_s=int(job.deadline_s),
        setup_s=max(int(row.min()) for row in job.setup_s),
        spot_usd=spot_micro * job.machines / MICRO,
        on_demand_usd=min(facts.on_demand_micro) * job.machines / MICRO,
        tick_s=decision_s(facts.tick_s),
        billing=facts.billing,
        keeps_tick=facts.keeps_tick,
    )


def least_mean_usd(facts: ZoneFacts, spot_micro: int) -> float | None:
    """Return the least mean cost of any rule in one zone at a spot price, if spells end as is known; None over several zones.

    Of rules that decide as often as `deadline-dp`, know the hazards, see for nothing whether machines are there, and are
    never late.
    """
    if len(facts.zones) > 1:
        return None
    return table_of(deadline_job(facts, spot_micro), known_hazards(facts)).least_mean_usd
