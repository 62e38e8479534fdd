"""Policies for jobs with a deadline in one zone or several."""

import math
from collections.abc import Sequence
from typing import ClassVar

from optim.core.policies import policy
from optim.models.bidding.market.prices import HOUR_S
from optim.simulation.spot.zones import IN_ONE_ZONE, DeadlineGuard, Offer, ZoneFacts, ZoneView

PRIOR_H = 6.0
"""Hours that machines are taken to last before any were seen to be lost: as much as one loss in so long a watch."""


class ZoneMemory:
    """Availability as a chain of two states a zone, seen now and then.

    Losses are counted over the time between two sightings of which the first found machines; without any sighting a zone
    lasts `PRIOR_H`, which counts as one loss.

    Parameters
    ----------
    facts
        What is known before the run.
    """

    def __init__(self, facts: ZoneFacts) -> None:
        size = len(facts.zones)
        self._tick_s = facts.tick_s
        self._last: list[tuple[int, bool] | None] = [None] * size
        self._lost, self._watched = [0] * size, [0] * size

    def note(self, view: ZoneView) -> None:
        """Take up what was seen since."""
        for zone, seen in enumerate(view.seen):
            if seen is not None and seen != self._last[zone]:
                self.see(zone, *seen)

    def see(self, zone: int, tick: int, is_there: bool) -> None:
        """Take up one sight of a zone."""
        last = self._last[zone]
        if last is not None and last[1]:
            self._watched[zone] += tick - last[0]
            self._lost[zone] += not is_there
        self._last[zone] = tick, is_there

    def lifetime_s(self, zone: int) -> float:
        """Return the seconds that machines of a zone are expected to last."""
        return (PRIOR_H * HOUR_S + self._watched[zone] * self._tick_s) / (1 + self._lost[zone])

    def is_stale(self, zone: int, tick: int, ticks: int) -> bool:
        """Tell whether a zone wasn't seen for so many ticks."""
        last = self._last[zone]
        return last is None or tick - last[0] >= ticks

    def was_there(self, zone: int) -> bool:
        """Tell whether a zone had machines when it was last seen."""
        last = self._last[zone]
        return last is not None and last[1]


@policy("cheapest-zone", world="zones", summary="The zone whose spot price is lowest now.", is_default=True)
class CheapestZone(DeadlineGuard):
    """Take the cheapest zone that has spot machines, and stay until they are taken away; wait where none has."""

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return what is held, or all zones by price."""
        if view.held is not None:
            return (view.held,)
        order = sorted(range(len(self.facts.zones)), key=lambda zone: (view.spot_micro[zone], zone))
        return tuple(Offer(zone, True) for zone in order)


@policy(
    "greedy-spot",
    world="zones",
    summary="The first zone that has spot machines.",
    is_default=True,
    traits=[IN_ONE_ZONE],
)
class GreedySpotZones(DeadlineGuard):
    """Take the first zone that has spot machines, and stay until they are taken away; wait where none has."""

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return what is held, or all zones in order."""
        if view.held is not None:
            return (view.held,)
        return tuple(Offer(zone, True) for zone in range(len(self.facts.zones)))


@policy(
    "on-demand",
    world="zones",
    summary="On demand throughout.",
    is_default=True,
    traits=[IN_ONE_ZONE],
)
class OnDemandZones(DeadlineGuard):
    """Run on demand in the cheapest zone throughout."""

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return what is held, or the machines on demand that cost least."""
        return (self.on_demand(view),) if view.held is None else (view.held,)


@policy(
    "uniform-progress-zones",
    world="zones",
    summary="As `uniform-progress`; its safety net keeps time for one launch and a tick, which is enough.",
    source="Wu et al., Can't Be Late, NSDI 2024",
    is_default=True,
)
class UniformProgressZones(DeadlineGuard):
    """Keep up with a straight line of progress: spot in the first zone that has any, on demand where behind.

    On spot machines the job stays until they are taken away; on demand until it is ahead by two launches and a zone has
    spot machines. The order is the one in which the zones are given.

    References
    ----------
    Wu, Chiang, Mao, Yang, Friedman, Shenker, Stoica, "Can't Be Late: Optimizing Spot Instance Savings under
    Deadlines", NSDI 2024: its rule for one zone, here over an order of zones.
    """

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return where to run while there is time."""
        held = view.held
        if held is not None and held.is_spot:
            return (held,)
        spots = self.order(view)
        if held is not None:
            launch_s = int(self.facts.job.setup_s[view.state].min())
            return (*spots, held) if self.is_ahead(view, 2 * launch_s) else (held,)
        return spots if self.is_ahead(view, 0) else (*spots, self.on_demand(view))

    def order(self, view: ZoneView) -> tuple[Offer, ...]:
        """Return the spot machines to ask for, in order."""
        del view
        return tuple(Offer(zone, True) for zone in range(len(self.facts.zones)))

    def is_ahead(self, view: ZoneView, seconds: int) -> bool:
        """Tell whether the work done is at least what the straight line asks for in so many seconds: in whole numbers."""
        job = self.facts.job
        due = min(view.elapsed_s + seconds, job.deadline_s) * job.work_s
        return (job.work_s - view.work_left_s) * job.deadline_s >= due


@policy(
    "uniform-progress",
    world="zones",
    summary="Can't Be Late's rule in the first of an order of zones: spot while it is ahead of even progress; its safety net keeps time for two launches and a tick.",
    source="Wu et al., Can't Be Late, NSDI 2024",
    traits=[IN_ONE_ZONE],
)
class UniformProgress(UniformProgressZones):
    """The published rule with its own safety net, over any number of zones.

    While no spot machines are held, machines on demand are taken to the end as soon as two launches and a tick are all the
    time that is left beside the work. `uniform-progress-zones` keeps time for one launch and a tick, which is enough.
    """

    launches: ClassVar[int] = 2


PROBE_EVERY_H = 2.0
"""A zone that wasn't seen for so long is asked."""


@policy(
    "adaptive-zones",
    world="zones",
    summary="An order of zones by expected cost, learned from probes.",
    is_default=True,
)
class AdaptiveZones(UniformProgressZones):
    """Keep up with a straight line of progress; zones come in order of dollars an hour of work, and may be left for better.

    Cheaper zones that weren't seen for `PROBE_EVERY_H` are probed, and machines' expected life follows from what was
    seen. Work in a zone costs its price, and its share of the launch and of the move over that life. Machines
    are left for others that are there if what is saved over the shorter of their life and the rest pays for launch and
    move.
    """

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self.memory = ZoneMemory(facts)
        self._probe_ticks = max(1, round(PROBE_EVERY_H * 3600 / facts.tick_s))

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Probe, then keep up, and move where it pays."""
        self.look(view)
        held = view.held
        wanted = super().choose(view)
        if held is None or not held.is_spot or view.setup_left_s:
            return wanted
        best = self.order(view)[0]
        if best == held or not self.memory.was_there(best.zone):
            return (held,)
        life_s = min(self.memory.lifetime_s(best.zone), float(view.work_left_s))
        saved = (view.spot_micro[held.zone] - self._cost(view, best.zone)) * life_s
        return (best, held) if saved > 0 else (held,)

    def look(self, view: ZoneView) -> None:
        """Probe the cheaper zones that weren't seen for long, and remember what was seen.

        Nobody pays to learn what doesn't matter: while nothing is held, or machines on demand, asking for spot machines
        is free and tells as much.
        """
        self.memory.note(view)
        held = view.held
        if held is not None and held.is_spot:
            for zone, price in enumerate(view.spot_micro):
                if price < view.spot_micro[held.zone] and self.memory.is_stale(zone, view.tick, self._probe_ticks):
                    self.memory.see(zone, view.tick, view.probe(zone))

    def order(self, view: ZoneView) -> tuple[Offer, ...]:
        """Return the spot machines by cost of an hour of work, those held as they are."""

        def cost(zone: int) -> tuple[float, int]:
            is_held = view.held == Offer(zone, True)
            return (float(view.spot_micro[zone]) if is_held else self._cost(view, zone)), zone

        return tuple(Offer(zone, True) for zone in sorted(range(len(self.facts.zones)), key=cost))

    def _cost(self, view: ZoneView, zone: int) -> float:
        """Return the micro-dollars an hour that work in a zone costs after a launch."""
        job = self.facts.job
        life_s = max(float(self.facts.tick_s), min(self.memory.lifetime_s(zone), float(view.work_left_s)))
        setup_s = int(job.setup_s[view.state, zone])
        move = int(job.move_micro[view.state, zone]) * HOUR_S / job.machines
        return view.spot_micro[zone] * (1 + setup_s / life_s) + move / life_s


@policy(
    "skynomad",
    world="zones",
    summary="A price of work that rises with the deadline's pressure; the formulas are our completion.",
    source="Li et al., SkyNomad, 2026, arXiv 2601.06520",
    is_default=True,
    traits=[IN_ONE_ZONE],
)
class SkyNomad(AdaptiveZones):
    """Take what work is expected to cost least on, if that is below what it is worth now.

    The paper says that probes, predicted lifetimes, costs of migration and the deadline's pressure go into one cost
    model in dollars; the formulas here are our completion. Machines that last L hours with a set-up of s hours and a
    move of m cost ``(price L + m) / (L - s)`` an hour of work; on demand L is the rest of the work and s. An hour of work is
    worth its price on demand times the pressure: the work left over the time left, over the same at the start. What
    costs more isn't taken, so that ahead of the line the job waits, and behind it machines on demand are worth it. What is
    held is left only for what costs less: another launch would have to be paid for.

    References
    ----------
    Li, Xia, Mao, Zhou, Jackson, Kerney, Wu, Mishra, Xu, Qiao, Shenker, Stoica, "SkyNomad: On Using Multi-Region Spot
    Instances to Minimize AI Batch Job Cost", 2026, arXiv 2601.06520.
    """

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Probe, and return the places that are worth it, the cheapest first."""
        self.look(view)
        job = self.facts.job
        pressure = view.work_left_s * job.deadline_s / (max(1, view.left_s) * job.work_s)
        worth = pressure * min(self.facts.on_demand_micro)
        places = [Offer(zone, is_spot) for zone in range(len(self.facts.zones)) for is_spot in (True, False)]
        costs = [(self._cost_of(view, place), place.zone, not place.is_spot, place) for place in places]
        return [
            place for cost, _, _, place in sorted(costs, key=lambda row: row[:3]) if cost < worth or place == view.held
        ]

    def _cost_of(self, view: ZoneView, place: Offer) -> float:
        """Return the micro-dollars an hour that work at a place is expected to cost."""
        job, rest_s = self.facts.job, float(view.work_left_s)
        if place == view.held:
            setup_s, move = view.setup_left_s, 0.0
        else:
            setup_s = int(job.setup_s[view.state, place.zone])
            move = int(job.move_micro[view.state, place.zone]) * HOUR_S / job.machines
        price = view.spot_micro[place.zone] if place.is_spot else self.facts.on_demand_micro[place.zone]
        life_s = min(self.memory.lifetime_s(place.zone), rest_s + setup_s) if place.is_spot else rest_s + setup_s
        return (price * life_s + move) / (life_s - setup_s) if life_s > setup_s else math.inf
