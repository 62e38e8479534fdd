"""Uniform progress over zones in the order of what they are expected to cost, learned from probes."""

from collections.abc import Sequence
from typing import ClassVar

from optim.models.bidding.zones.market import HOUR_S
from optim.simulation.spot.zones.policies.memory import ZoneMemory
from optim.simulation.spot.zones.policies.uniform_progress_zones import UniformProgressZones
from optim.simulation.spot.zones.policy import Place, ZoneFacts, ZoneView

PROBE_EVERY_H = 2.0
"""A zone that wasn't seen for so long is asked."""


class AdaptiveZones(UniformProgressZones):
    """Keep up with a straight line of progress; zones come in order of dollars an hour of work, and may be left for better.

    Cheaper zones that weren't seen for `PROBE_EVERY_H` are probed, and machines' expected life follows from what was
    seen. Work in a zone costs its price, and its share of the launch and of the move over that life. Machines
    are left for others that are there if what is saved over the shorter of their life and the rest pays for launch and
    move.
    """

    name: ClassVar[str] = "adaptive-zones"

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self.memory = ZoneMemory(facts)
        self._probe_ticks = max(1, round(PROBE_EVERY_H * 3600 / facts.tick_s))

    def choose(self, view: ZoneView) -> Sequence[Place]:
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

    def order(self, view: ZoneView) -> tuple[Place, ...]:
        """Return the spot machines by cost of an hour of work, those held as they are."""

        def cost(zone: int) -> tuple[float, int]:
            is_held = view.held == Place(zone, True)
            return (float(view.spot_micro[zone]) if is_held else self._cost(view, zone)), zone

        return tuple(Place(zone, True) for zone in sorted(range(len(self.facts.zones)), key=cost))

    def _cost(self, view: ZoneView, zone: int) -> float:
        """Return the micro-dollars an hour that work in a zone costs after a launch."""
        job = self.facts.job
        life_s = max(float(self.facts.tick_s), min(self.memory.lifetime_s(zone), float(view.work_left_s)))
        setup_s = int(job.setup_s[view.state, zone])
        move = int(job.move_micro[view.state, zone]) * HOUR_S / job.machines
        return view.spot_micro[zone] * (1 + setup_s / life_s) + move / life_s
