"""The policy `deadline-dp`: a backward recursion, with hazards of spells of availability learned from other traces."""

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
"""Step to which the logarithm of a spot price over the first price is rounded; prices with equal rounded values share a
table."""

OLD_S = 1e9
"""Age in seconds above every age that the hazards distinguish."""

TABLE_TICK_S = 1200
"""Minimum tick, in seconds, of the table for several zones: finer ticks had the same mean cost over 24 starts."""

ALIKE, NEW_PRICES = 0.005, 0.02
"""Zones whose log prices differ by less than `ALIKE` form one group. Values are recomputed if a price moves by more
than the share `NEW_PRICES`."""

PACE, MAX_PACE, PACE_ENDS = 2.0, 1, 5.0
"""In each zone, the hazards common to all zones are multiplied by ``PACE ** k`` with ``abs(k) <= MAX_PACE``; the prior
has the weight of `PACE_ENDS` observed ends."""


@policy(
    "deadline-dp",
    world="zones",
    summary="Minimum mean cost with the deadline always met, by backward recursion over time, work left, machines in "
    "use and age of the spell. Spells are assumed to end as in the traces of `--history`, or by a prior. Over several "
    "zones it includes their prices and transfers.",
    is_default=True,
    traits=[IN_ONE_ZONE],
)
class DeadlineProgramme(DeadlineGuard):
    """Follow a backward recursion: `DeadlinePolicy` in one zone, `solve_zones` in several.

    The deadline is always met: the guard of the base class overrides the recursion, even if its values are wrong.

    Hazards of spells of availability are learned from a history. The zones of the run are omitted from the history
    unless it ends before the run's traces begin. Without a history, a spell of k ticks of 600 s ends in the next tick
    with probability 0.3 / k^0.75. Ticks are resampled to the interval of decisions: ten minutes, or the next lower
    multiple of a tick.

    Over several zones the policy compares at every tick the expected remaining cost of each zone, of on demand and of
    waiting. The policy requests the cheapest zones first, and never probes. All hazards are scaled by 1/8, 1 or 8,
    whichever factor the observed spells make most likely. The spells observed in a zone may also halve or double that
    zone's hazards. The expected costs treat hourly bills as bills by the second.
    """

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self._rule: _OneZone | _SeveralZones = (_OneZone if len(facts.zones) == 1 else _SeveralZones)(facts, self)

    def may_lose_s(self, view: ZoneView, wanted: Sequence[Offer]) -> int:
        """Return the longest set-up of the offers if the last offer certainly has machines (on demand, or in use).

        Return a full tick if the last offer is uncertain, or if the environment forces on-demand machines a tick early.
        """
        keeps_tick = self.facts.keeps_tick and (view.held is None or not view.held.is_spot)
        if keeps_tick or not wanted or (wanted[-1].is_spot and wanted[-1] != view.held):
            return self.facts.tick_s
        setups = self.facts.job.setup_s[view.state]
        lost = (view.setup_left_s if place == view.held else int(setups[place.zone]) for place in wanted)
        return min(self.facts.tick_s, max(lost))

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return the choice of the recursion."""
        return self._rule.choose(view)


class _OneZone:
    """Decide by the table of `DeadlinePolicy`.

    With ticks shorter than ten minutes the policy decides about every ten minutes, and after every loss; the rest of the
    interval then counts as lost. The policy requests spot machines if the table would use them. If the table would not
    use them, but its choice depends on availability, the policy probes the zone.
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
        """Return the table's choice if spot machines are available, followed by its choice if none are."""
        for tick, is_available in new_sights(view, 0, self._seen):
            self._watch.see(tick * self._facts.tick_s, is_available=is_available)
        self._seen = view.seen[0]
        if view.held != self._held:  # launched at the previous decision
            self._since_s = self._held_at_s
        self._held, self._held_at_s = view.held, view.elapsed_s
        is_due = view.elapsed_s % self._tick_s == 0 or view.held is None
        if not is_due and view.held == self._kept:
            return (view.held,)  # type: ignore[return-value]  # without machines, a decision would be due
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
        # A probe reveals the age of the spell. It is worth its price if spot machines would be chosen at some age.
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
    """Observations of one of several zones.

    Corrections have smaller steps than in `SpellWatch`, because zones are compared with each other.

    The factor by which a state's hazards differ in this zone has a gamma prior with mean 1 and shape `PACE_ENDS`. After
    n observed ends, where x ends were expected, the factor's posterior mean is ``(PACE_ENDS + n) / (PACE_ENDS + x)``.
    The number x depends on the power of `LEVEL` common to all zones.
    """

    def __init__(self, hazards: SpellHazards) -> None:
        super().__init__(hazards)
        self._sight: tuple[float, bool] | None = None
        self._due, self._log_ends = np.zeros((2, 2 * MAX_LEVEL + 1)), np.zeros((2, 2 * MAX_LEVEL + 1))
        self._ends = [0, 0]

    def see(self, now_s: float, *, is_available: bool) -> None:
        """Record whether there are machines at `now_s`, which must not precede the last observation."""
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
        """Return the log likelihood of the observations by power of `LEVEL`, up to a constant: shape (powers,).

        Ends form a Poisson process whose rate is the hazard times the zone's factor. The mean over the factor has a
        closed form: the product of the rates at n ends times ``(PACE_ENDS + x) ** -(PACE_ENDS + n)``.
        """
        ends = PACE_ENDS + self._ends[kind]
        return np.asarray(self._log_ends[kind] - ends * np.log1p(self._due[kind] / PACE_ENDS))

    def factor(self, kind: int, level: int) -> float:
        """Return the multiplier of a state's hazards: ``LEVEL ** level`` times a power of `PACE`."""
        pace = (PACE_ENDS + self._ends[kind]) / (PACE_ENDS + self._due[kind, MAX_LEVEL + level])
        return LEVEL**level * PACE ** max(-MAX_PACE, min(MAX_PACE, round(math.log(pace, PACE))))


class _SeveralZones:
    """Minimise the expected cost of the remaining job over spot machines of all zones, on demand, and waiting.

    At every tick each zone is valued as if its machines were available now. The value includes price, transfer, set-up,
    expected lifetime at the age of the spell, and expected cost afterwards. Zones that cost less than the alternative
    are requested, lowest cost first. Requests are free, so no zone is probed.
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
        """Return the zones that reduce the expected cost, lowest first, followed by the choice if none has machines."""
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
        """Return the age of a zone's spell of availability, in ticks of `ZoneValues`, if the zone has machines now.

        The age is -1 if it is unknown.
        """
        lasted_s = self._watches[zone].lasted_s(now_s, is_available=True)
        return -1 if lasted_s is None else min(last, int(lasted_s / tick_s))

    def _values_now(self, view: ZoneView) -> ZoneValues:
        """Return the values at present prices and with the hazards as corrected by observations."""
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
        """Return the multipliers of the hazards of absence and of availability, by zone.

        A large error of the hazards affects all zones, so the spells of all zones determine the most likely power of
        `LEVEL`. The zones' log likelihoods are averaged instead of added, because shortages coincide and differences
        between zones outlast a job.
        """
        weights = new_memory()[1]
        for kind in (ABSENT, PRESENT):
            likelihoods = [watch.log_likelihood(kind) for watch in self._watches]
            weights[kind] += np.mean(likelihoods, axis=0)
        absent, present = likeliest(weights, ABSENT), likeliest(weights, PRESENT)
        return tuple((watch.factor(ABSENT, absent), watch.factor(PRESENT, present)) for watch in self._watches)


class _Known:
    """Hashable key of zone facts: facts with equal content are equal keys."""

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
    """Return the values at the zones' prices and scaled hazards, and each zone's group."""
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
    """Return the observations of a zone since `last`, the last observation processed.

    An observation at the present tick before any request comes from machines in use since the previous tick, so
    machines were available then as well.
    """
    seen = view.seen[zone]
    if seen is None or seen == last:
        return []
    launched = view.tick - 1, True
    return [launched, seen] if seen[0] == view.tick and last != launched else [seen]


def known_hazards(facts: ZoneFacts) -> SpellHazards:
    """Return the known hazards of spells (or the prior), for ticks as long as the interval between decisions."""
    every_s = decision_s(facts.tick_s)
    return prior_hazards(every_s) if facts.hazards is None else facts.hazards.every(every_s)


def deadline_job(facts: ZoneFacts, spot_micro: float) -> DeadlineJob:
    """Return the job for a table at a spot price, with the longest launch as set-up and the lowest on-demand price."""
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
    """Return the minimum mean cost in dollars of any rule in one zone at a spot price; None with several zones.

    The minimum is over rules that decide as often as `deadline-dp`, know the hazards, observe availability for free,
    and always meet the deadline.
    """
    if len(facts.zones) > 1:
        return None
    return table_of(deadline_job(facts, spot_micro), known_hazards(facts)).least_mean_usd
