"""The policy `deadline-dp`: a table by time, work left, what is held and the age of spells, learned from other traces."""

import math
from collections.abc import Sequence

from optim.core.policies import policy
from optim.models.bidding.market.prices import HOUR_S, MICRO
from optim.models.bidding.market.spells import SpellHazards, decision_s, prior_hazards
from optim.simulation.spot.deadline_policy import (
    CHOICES,
    LEVEL,
    DeadlinePolicy,
    DeadlineView,
    Machines,
    SpellWatch,
    table_of,
)
from optim.simulation.spot.zone_policies import PROBE_EVERY_H
from optim.simulation.spot.zones import IN_ONE_ZONE, DeadlineGuard, Offer, ZoneFacts, ZoneView
from optim.solvers.bidding.deadline_table import DeadlineJob

PRICE_STEP = 0.1
"""Logarithms of spot prices are rounded to the first one's and multiples of this from there: they share a table."""

OLD_S = 1e9
"""Older than any age that is told apart."""


@policy(
    "deadline-dp",
    world="zones",
    summary="The cheapest in the mean, and never late, if spells end by age as they did in the traces of `--history`; without "
    "it by a prior. By backward recursion over time, work left, what is held and the spell's age.",
    is_default=True,
    traits=[IN_ONE_ZONE],
)
class DeadlineProgramme(DeadlineGuard):
    """Do what the table of `DeadlinePolicy` says; in several zones that of the cheapest, whose machines are asked for by price.

    Where ticks are shorter than ten minutes it decides every ten or so, and whenever something was lost; what is left of
    ten minutes then counts as lost, too.

    Machines are asked for where the table would take them. Where it would not, but does another thing if there are some,
    the zone is probed.
    """

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self._tick_s = decision_s(facts.tick_s)
        hazards = known_hazards(facts)
        self._kept: Offer | None = None
        self._held: Offer | None = None
        self._held_at_s = self._since_s = 0
        self._watches = [SpellWatch(hazards) for _ in facts.zones]
        self._seen: Sequence[tuple[int, bool] | None] = [None] * len(facts.zones)
        self._policies: dict[int, DeadlinePolicy] = {}
        self._first_micro: int | None = None
        self._pool = pooled_hazards(facts)
        self._residual_s = (hazards.residual_ticks * self._tick_s).tolist()

    def may_lose_s(self, view: ZoneView, wanted: Sequence[Offer]) -> int:
        """Return the longest set-up of the places, where machines on demand are the last: then some are there for sure."""
        if not wanted or wanted[-1].is_spot:
            return self.facts.tick_s
        setups = self.facts.job.setup_s[view.state]
        return min(self.facts.tick_s, max(int(setups[place.zone]) for place in wanted))

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return what the table says, for a zone that may have machines and, after it, for one that has none."""
        for zone, (watch, seen) in enumerate(zip(self._watches, view.seen, strict=True)):
            if seen is not None and seen != self._seen[zone]:
                watch.see(seen[0] * self.facts.tick_s, is_available=seen[1])
        self._seen = tuple(view.seen)
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
        """Return what is wanted, for a best zone that may have machines and, after it, for none that has."""
        held = view.held
        self._look(view)
        order = sorted(range(len(self.facts.zones)), key=lambda zone: (self._cost_of(view, zone), zone))
        best = order[0]
        if held is not None and held.is_spot:
            wanted = self._places(view, held.zone, is_available=True)
            return (Offer(best, True), *wanted) if wanted == (held,) and self._pays(view, best) else wanted
        there = self._places(view, best, is_available=True)
        absent = self._places(view, best, is_available=False)
        if there and there[0].is_spot:
            return (*self._worth_it(view, order), *absent)
        # How old a spell is only those know who look: worth a probe where some age would be taken.
        if there == absent and self._places(view, best, is_available=True, lasted_s=OLD_S)[:1] != (Offer(best, True),):
            return absent
        return there if view.probe(best) else absent

    def _worth_it(self, view: ZoneView, order: Sequence[int]) -> tuple[Offer, ...]:
        """Return the spot machines to ask for in order, without those that cost more than machines on demand."""
        most = min(self.facts.on_demand_micro)
        return tuple(Offer(zone, True) for zone in order if zone == order[0] or self._cost_of(view, zone) < most)

    def _look(self, view: ZoneView) -> None:
        """Probe the cheaper zones that weren't seen for long, while spot machines are held; otherwise asking is free."""
        held = view.held
        if held is None or not held.is_spot:
            return
        stale = view.tick - round(PROBE_EVERY_H * HOUR_S / self.facts.tick_s)
        for zone, price in enumerate(view.spot_micro):
            seen = view.seen[zone]
            if price < view.spot_micro[held.zone] and (seen is None or seen[0] <= stale):
                self._watches[zone].see(view.elapsed_s, is_available=view.probe(zone))

    def _life_s(self, view: ZoneView, zone: int) -> float:
        """Return the seconds that machines of a zone are expected to be held, if there are any: no longer than there is work."""
        watch = self._watches[zone]
        lasted_s = watch.lasted_s(view.elapsed_s, is_available=True)
        residual = self._residual_s
        age = len(residual) - 1 if lasted_s is None else min(len(residual) - 1, int(lasted_s / self._tick_s))
        expected_s = float(residual[age]) / float(LEVEL ** watch.levels[1])
        return max(float(self._tick_s), min(expected_s, float(view.work_left_s)))

    def _cost_of(self, view: ZoneView, zone: int) -> float:
        """Return the micro-dollars an hour that work on a zone's spot machines is expected to cost, launch and move included."""
        job, price = self.facts.job, float(view.spot_micro[zone])
        if len(self.facts.zones) == 1 or view.held == Offer(zone, True):
            return price
        life_s, setup_s = self._life_s(view, zone), int(job.setup_s[view.state, zone])
        move = int(job.move_micro[view.state, zone]) * HOUR_S / job.machines
        return (price * life_s + move) / (life_s - setup_s) if life_s > setup_s else math.inf

    def _pays(self, view: ZoneView, best: int) -> bool:
        """Tell whether leaving spot machines for those of a zone that had some pays for the launch and the move."""
        held, watch = view.held, self._watches[best]
        if held is None or best == held.zone or view.setup_left_s or not watch.is_there:
            return False
        if self._places(view, best, is_available=True, held=Machines.NONE)[:1] != (Offer(best, True),):
            return False
        return self._cost_of(view, best) < view.spot_micro[held.zone]

    def _places(
        self,
        view: ZoneView,
        zone: int,
        *,
        is_available: bool,
        lasted_s: float | None = None,
        held: Machines | None = None,
    ) -> tuple[Offer, ...]:
        watch = self._watches[zone]
        if held is None:
            held = CHOICES[0 if view.held is None else 1 if view.held.is_spot else 2]
        if lasted_s is None:
            lasted_s = watch.lasted_s(view.elapsed_s, is_available=is_available)
        seen = DeadlineView(
            elapsed_s=view.elapsed_s,
            work_left_s=view.work_left_s,
            is_available=is_available,
            held=held,
            setup_left_s=0 if held is Machines.NONE else view.setup_left_s,
            held_s=view.elapsed_s - self._since_s,
            spell_s=lasted_s,
        )
        chosen = self._policy(view, zone).updated(watch).decide(seen)
        if chosen is Machines.NONE:
            return ()
        if chosen is held and view.held is not None:
            return (view.held,)
        return (Offer(zone, True),) if chosen is Machines.SPOT else (self.on_demand(view),)

    def _policy(self, view: ZoneView, zone: int) -> DeadlinePolicy:
        """Return the policy at the zone's present price."""
        price = view.spot_micro[zone]
        if self._first_micro is None:
            self._first_micro = price
        step = round(math.log(price / self._first_micro) / PRICE_STEP)
        if step not in self._policies:
            job = deadline_job(self.facts, self._first_micro * math.exp(step * PRICE_STEP))
            self._policies[step] = DeadlinePolicy.of(job, self._pool)
        return self._policies[step]


def known_hazards(facts: ZoneFacts) -> SpellHazards:
    """Return how spells end as far as is known, for ticks of as many seconds as there are between decisions."""
    every_s = decision_s(facts.tick_s)
    return prior_hazards(every_s) if facts.hazards is None else facts.hazards.every(every_s)


def pooled_hazards(facts: ZoneFacts) -> SpellHazards:
    """Return them of all zones together, which run out together: as many as the square root of their number are independent."""
    return known_hazards(facts).over_zones(math.sqrt(len(facts.zones)))


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
    )


def least_mean_usd(facts: ZoneFacts, spot_micro: int) -> float | None:
    """Return the least mean cost of any rule in one zone at a spot price, if spells end as is known; None over several zones.

    Of rules that decide as often as `deadline-dp`, know the hazards, see for nothing whether machines are there, and are
    never late.
    """
    if len(facts.zones) > 1:
        return None
    return table_of(deadline_job(facts, spot_micro), pooled_hazards(facts)).least_mean_usd
