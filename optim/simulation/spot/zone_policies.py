"""Policies for jobs with a deadline in one zone or several."""

import math
from collections.abc import Sequence
from typing import ClassVar

from optim.core.policies import policy
from optim.models.bidding.market.prices import HOUR_S
from optim.simulation.spot.zones import IN_ONE_ZONE, DeadlineGuard, Offer, ZoneFacts, ZoneView

PRIOR_H = 6.0
"""Prior lifetime of machines in hours; it has the same weight as one loss observed in this time."""


class ZoneMemory:
    """Estimate of each zone's availability by a two-state chain that is observed at some ticks only.

    A loss is counted if the first of two consecutive observations found machines and the second did not. The lifetime
    is the observed time divided by the losses; the prior adds `PRIOR_H` hours to the time, and one loss.

    Parameters
    ----------
    facts
        Information known before the run.
    """

    def __init__(self, facts: ZoneFacts) -> None:
        size = len(facts.zones)
        self._tick_s = facts.tick_s
        self._last: list[tuple[int, bool] | None] = [None] * size
        self._lost, self._watched = [0] * size, [0] * size

    def note(self, view: ZoneView) -> None:
        """Record the observations since the last call."""
        for zone, seen in enumerate(view.seen):
            if seen is not None and seen != self._last[zone]:
                self.see(zone, *seen)

    def see(self, zone: int, tick: int, is_there: bool) -> None:
        """Record one observation of a zone."""
        last = self._last[zone]
        if last is not None and last[1]:
            self._watched[zone] += tick - last[0]
            self._lost[zone] += not is_there
        self._last[zone] = tick, is_there

    def lifetime_s(self, zone: int) -> float:
        """Return the expected lifetime of a zone's machines in seconds."""
        return (PRIOR_H * HOUR_S + self._watched[zone] * self._tick_s) / (1 + self._lost[zone])

    def is_stale(self, zone: int, tick: int, ticks: int) -> bool:
        """Return whether a zone was not observed for `ticks` ticks."""
        last = self._last[zone]
        return last is None or tick - last[0] >= ticks

    def was_there(self, zone: int) -> bool:
        """Return whether a zone had machines at its last observation."""
        last = self._last[zone]
        return last is not None and last[1]


@policy("cheapest-zone", world="zones", summary="Zone with the lowest present spot price.", is_default=True)
class CheapestZone(DeadlineGuard):
    """Use the cheapest zone with spot machines and stay until evicted; wait if no zone has machines."""

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return the present machines, or all zones by price."""
        if view.held is not None:
            return (view.held,)
        order = sorted(range(len(self.facts.zones)), key=lambda zone: (view.spot_micro[zone], zone))
        return tuple(Offer(zone, True) for zone in order)


@policy(
    "greedy-spot",
    world="zones",
    summary="First zone with spot machines.",
    is_default=True,
    traits=[IN_ONE_ZONE],
)
class GreedySpotZones(DeadlineGuard):
    """Use the first zone with spot machines and stay until evicted; wait if no zone has machines."""

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return the held machines if there are any, otherwise spot machines of all zones in order."""
        if view.held is not None:
            return (view.held,)
        return tuple(Offer(zone, True) for zone in range(len(self.facts.zones)))


@policy(
    "on-demand",
    world="zones",
    summary="On-demand machines throughout.",
    is_default=True,
    traits=[IN_ONE_ZONE],
)
class OnDemandZones(DeadlineGuard):
    """Use on-demand machines in the cheapest zone throughout."""

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return the present machines, or the on-demand machines with the lowest cost."""
        return (self.on_demand(view),) if view.held is None else (view.held,)


@policy(
    "uniform-progress-zones",
    world="zones",
    summary="As `uniform-progress`, but the deadline guard reserves time for one launch and a tick, which is enough.",
    source="Wu et al., Can't Be Late, NSDI 2024",
    is_default=True,
)
class UniformProgressZones(DeadlineGuard):
    """Keep up with a straight line of progress: spot in the first available zone, on demand if behind.

    A job on spot machines stays until evicted. A job on demand stays until it is two launches ahead of the line and a
    zone has spot machines. Zones are tried in the given order.

    References
    ----------
    Wu, Chiang, Mao, Yang, Friedman, Shenker, Stoica, "Can't Be Late: Optimizing Spot Instance Savings under Deadlines",
    NSDI 2024. Its rule for one zone is applied here to an ordered list of zones.
    """

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return the offers to use while there is time."""
        held = view.held
        if held is not None and held.is_spot:
            return (held,)
        spots = self.order(view)
        if held is not None:
            launch_s = int(self.facts.job.setup_s[view.state].min())
            return (*spots, held) if self.is_ahead(view, 2 * launch_s) else (held,)
        return spots if self.is_ahead(view, 0) else (*spots, self.on_demand(view))

    def order(self, view: ZoneView) -> tuple[Offer, ...]:
        """Return the spot offers to request, in order."""
        del view
        return tuple(Offer(zone, True) for zone in range(len(self.facts.zones)))

    def is_ahead(self, view: ZoneView, seconds: int) -> bool:
        """Return whether the work done is at least the straight line's value in `seconds` seconds, computed in integers."""
        job = self.facts.job
        due = min(view.elapsed_s + seconds, job.deadline_s) * job.work_s
        return (job.work_s - view.work_left_s) * job.deadline_s >= due


@policy(
    "uniform-progress",
    world="zones",
    summary="Rule of Can't Be Late in the first available zone: spot while progress is ahead of a straight line. The "
    "deadline guard reserves time for two launches and a tick.",
    source="Wu et al., Can't Be Late, NSDI 2024",
    traits=[IN_ONE_ZONE],
)
class UniformProgress(UniformProgressZones):
    """The published rule with its published deadline guard, over any number of zones.

    Without spot machines, it switches to on-demand machines for the rest of the job once the slack is two launches and
    a tick. `uniform-progress-zones` reserves one launch and a tick, which is enough.
    """

    launches: ClassVar[int] = 2


PROBE_EVERY_H = 2.0
"""Hours without an observation after which a zone is probed."""


@policy(
    "adaptive-zones",
    world="zones",
    summary="Zones in the order of expected cost, with lifetimes learned from probes.",
    is_default=True,
)
class AdaptiveZones(UniformProgressZones):
    """Keep up with a straight line of progress, in zones ordered by expected cost of work; the job may move between them.

    Cheaper zones without an observation for `PROBE_EVERY_H` hours are probed; the expected lifetime follows from the
    observations. The cost of work in a zone is its price plus the launch and the move spread over that lifetime. The
    job moves to available machines if the saving pays for launch and move. The saving is counted over the shorter of
    their lifetime and the rest of the job.
    """

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self.memory = ZoneMemory(facts)
        self._probe_ticks = max(1, round(PROBE_EVERY_H * 3600 / facts.tick_s))

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Probe, then keep up with the line, and move if it pays."""
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
        """Probe the cheaper zones without a recent observation, and record the results.

        There are no probes while no machines or on-demand machines are in use: then a request for spot machines gives
        the same information for free.
        """
        self.memory.note(view)
        held = view.held
        if held is not None and held.is_spot:
            for zone, price in enumerate(view.spot_micro):
                if price < view.spot_micro[held.zone] and self.memory.is_stale(zone, view.tick, self._probe_ticks):
                    self.memory.see(zone, view.tick, view.probe(zone))

    def order(self, view: ZoneView) -> tuple[Offer, ...]:
        """Return the spot offers by cost of an hour of work; present machines count without launch and move."""

        def cost(zone: int) -> tuple[float, int]:
            is_held = view.held == Offer(zone, True)
            return (float(view.spot_micro[zone]) if is_held else self._cost(view, zone)), zone

        return tuple(Offer(zone, True) for zone in sorted(range(len(self.facts.zones)), key=cost))

    def _cost(self, view: ZoneView, zone: int) -> float:
        """Return the micro-dollars per hour of work in a zone after a launch."""
        job = self.facts.job
        life_s = max(float(self.facts.tick_s), min(self.memory.lifetime_s(zone), float(view.work_left_s)))
        setup_s = int(job.setup_s[view.state, zone])
        move = int(job.move_micro[view.state, zone]) * HOUR_S / job.machines
        return view.spot_micro[zone] * (1 + setup_s / life_s) + move / life_s


@policy(
    "skynomad",
    world="zones",
    summary="Lowest expected cost of work, if below a value of work that rises as the deadline nears; formulas that the paper omits are ours.",
    source="Li et al., SkyNomad, 2026, arXiv 2601.06520",
    is_default=True,
    traits=[IN_ONE_ZONE],
)
class SkyNomad(AdaptiveZones):
    """Use the offer with the lowest expected cost of work if it is below the present value of work.

    The paper combines probes, predicted lifetimes, migration costs and deadline pressure in one cost model in dollars. It omits
    some formulas; this class defines them. Let machines last L hours, with a set-up of s hours and a move of m dollars. The
    machines then cost ``(price L + m) / (L - s)`` per hour of work. For on-demand machines L is the rest of the work plus s. An
    hour of work is worth its on-demand price times the pressure. The pressure is the ratio of work left to time left, divided
    by that ratio at the start. Offers above this value are rejected, so the job waits when it is ahead of the line and pays for
    on-demand machines when it is behind. The job moves only to offers of lower cost, because a move pays for another launch.

    References
    ----------
    Li, Xia, Mao, Zhou, Jackson, Kerney, Wu, Mishra, Xu, Qiao, Shenker, Stoica, "SkyNomad: On Using Multi-Region Spot
    Instances to Minimize AI Batch Job Cost", 2026, arXiv 2601.06520.
    """

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Probe, and return the offers below the value of work, lowest cost first."""
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
        """Return the expected micro-dollars per hour of work with an offer."""
        job, rest_s = self.facts.job, float(view.work_left_s)
        if place == view.held:
            setup_s, move = view.setup_left_s, 0.0
        else:
            setup_s = int(job.setup_s[view.state, place.zone])
            move = int(job.move_micro[view.state, place.zone]) * HOUR_S / job.machines
        price = view.spot_micro[place.zone] if place.is_spot else self.facts.on_demand_micro[place.zone]
        life_s = min(self.memory.lifetime_s(place.zone), rest_s + setup_s) if place.is_spot else rest_s + setup_s
        return (price * life_s + move) / (life_s - setup_s) if life_s > setup_s else math.inf
