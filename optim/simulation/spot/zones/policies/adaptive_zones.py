"""Uniform progress over zones in the order of what they are expected to cost, learned from probes."""

from collections.abc import Sequence
from typing import ClassVar

from optim.simulation.spot.zones.policies.memory import ZoneMemory
from optim.simulation.spot.zones.policies.uniform_progress_zones import UniformProgressZones
from optim.simulation.spot.zones.policy import Place, ZoneFacts, ZoneView

PROBE_EVERY_H = 2.0
"""A zone that wasn't seen for so long is asked."""


class AdaptiveZones(UniformProgressZones):
    """Keep up with a straight line of progress; zones come in order of dollars a tick of work, and may be left for better.

    Cheaper zones that weren't seen for `PROBE_EVERY_H` are probed, and machines' expected life follows from what was
    seen. A tick of work in a zone costs its price, and its share of the launch and of the move over that life. Machines
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
        if held is None or not held.is_spot or view.setup_left:
            return wanted
        best = self.order(view)[0]
        if best == held or not self.memory.was_there(best.zone):
            return (held,)
        life = min(self.memory.lifetime(best.zone), float(view.work_left))
        saved = (view.spot_micro[held.zone] - self._cost(view, best.zone)) * life
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
        """Return the spot machines by cost of a tick of work, those held as they are."""

        def cost(zone: int) -> tuple[float, int]:
            is_held = view.held == Place(zone, True)
            return (float(view.spot_micro[zone]) if is_held else self._cost(view, zone)), zone

        return tuple(Place(zone, True) for zone in sorted(range(len(self.facts.zones)), key=cost))

    def _cost(self, view: ZoneView, zone: int) -> float:
        """Return the micro-dollars an hour that work in a zone costs after a launch."""
        job = self.facts.job
        life = max(1.0, min(self.memory.lifetime(zone), float(view.work_left)))
        setup = int(job.setup[view.state, zone])
        move = int(job.move_micro[view.state, zone]) * 3600 / self.facts.tick_s / job.machines
        return view.spot_micro[zone] * (1 + setup / life) + move / life
