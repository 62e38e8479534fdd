"""The policy `deadline-dp`: a table by time, work left, what is held and the age of spells, learned from other traces."""

import math
from collections.abc import Sequence

from optim.core.policies import policy
from optim.models.bidding.market.prices import MICRO
from optim.models.bidding.market.spells import SpellHazards, decision_s, prior_hazards
from optim.simulation.spot.deadline_policy import DeadlinePolicy, DeadlineView, Machines, SpellWatch
from optim.simulation.spot.zones import IN_ONE_ZONE, DeadlineGuard, Offer, ZoneFacts, ZoneView
from optim.solvers.bidding.deadline_table import DeadlineJob

PRICE_STEP = 0.02
"""Spot prices that differ by less, relatively, share a table."""

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
        known = facts.hazards
        self.hazards: SpellHazards = prior_hazards(self._tick_s) if known is None else known.every(self._tick_s)
        self._kept: Offer | None = None
        self._watches = [SpellWatch(self.hazards) for _ in facts.zones]
        self._seen: Sequence[tuple[int, bool] | None] = [None] * len(facts.zones)
        self._policies: dict[int, DeadlinePolicy] = {}

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return what the table says, for a zone that may have machines and, after it, for one that has none."""
        for zone, (watch, seen) in enumerate(zip(self._watches, view.seen, strict=True)):
            if seen is not None and seen != self._seen[zone]:
                watch.see(seen[0] * self.facts.tick_s, is_available=seen[1])
        self._seen = tuple(view.seen)
        is_due = view.elapsed_s % self._tick_s == 0 or view.held is None
        if not is_due and view.held == self._kept:
            return (view.held,)  # type: ignore[return-value]  # not None, or it were due
        wanted = self._decided(view)
        self._kept = wanted[0] if wanted else None
        return wanted

    def _decided(self, view: ZoneView) -> tuple[Offer, ...]:
        order = sorted(range(len(self.facts.zones)), key=lambda zone: (view.spot_micro[zone], zone))
        zone = view.held.zone if view.held is not None and view.held.is_spot else order[0]
        if view.held is not None and view.held.is_spot:
            return self._places(view, zone, is_available=True)
        there = self._places(view, zone, is_available=True)
        absent = self._places(view, zone, is_available=False)
        if there and there[0].is_spot:
            return (*(Offer(other, True) for other in order), *absent)
        # How old a spell is only those know who look: worth a probe where some age would be taken.
        if there == absent and self._places(view, zone, is_available=True, lasted_s=OLD_S)[:1] != (Offer(zone, True),):
            return absent
        return there if view.probe(zone) else absent

    def _places(
        self, view: ZoneView, zone: int, *, is_available: bool, lasted_s: float | None = None
    ) -> tuple[Offer, ...]:
        watch, held = self._watches[zone], Machines.NONE
        if view.held is not None:
            held = Machines.SPOT if view.held.is_spot else Machines.ON_DEMAND
        if lasted_s is None:
            lasted_s = watch.lasted_s(view.elapsed_s, is_available=is_available)
        seen = DeadlineView(
            elapsed_s=view.elapsed_s,
            work_left_s=view.work_left_s,
            is_available=is_available,
            held=held,
            setup_left_s=view.setup_left_s,
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
        facts, job = self.facts, self.facts.job
        step = round(math.log(view.spot_micro[zone]) / PRICE_STEP)
        if step not in self._policies:
            wanted = DeadlineJob(
                work_s=job.work_s,
                deadline_s=job.deadline_s,
                setup_s=self._launch_s,
                spot_usd=math.exp(step * PRICE_STEP) * job.machines / MICRO,
                on_demand_usd=min(facts.on_demand_micro) * job.machines / MICRO,
                tick_s=self._tick_s,
                billing=facts.billing,
            )
            self._policies[step] = DeadlinePolicy.of(wanted, self.hazards)
        return self._policies[step]
