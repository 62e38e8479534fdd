"""SkyNomad's idea: one price of work, raised by the deadline's pressure, decides where to run."""

import math
from collections.abc import Sequence
from typing import ClassVar

from optim.models.bidding.zones.market import HOUR_S
from optim.simulation.spot.zones.policies.adaptive_zones import AdaptiveZones
from optim.simulation.spot.zones.policy import Place, ZoneView


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

    name: ClassVar[str] = "skynomad"

    def choose(self, view: ZoneView) -> Sequence[Place]:
        """Probe, and return the places that are worth it, the cheapest first."""
        self.look(view)
        job = self.facts.job
        pressure = view.work_left_s * job.deadline_s / (max(1, view.left_s) * job.work_s)
        worth = pressure * min(self.facts.on_demand_micro)
        places = [Place(zone, is_spot) for zone in range(len(self.facts.zones)) for is_spot in (True, False)]
        costs = [(self._cost_of(view, place), place.zone, not place.is_spot, place) for place in places]
        return [
            place for cost, _, _, place in sorted(costs, key=lambda row: row[:3]) if cost < worth or place == view.held
        ]

    def _cost_of(self, view: ZoneView, place: Place) -> float:
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
