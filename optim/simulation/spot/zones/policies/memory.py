"""What a policy remembers of zones: how often machines were there, and how long they lasted."""

from optim.models.bidding.zones.market import HOUR_S
from optim.simulation.spot.zones.policy import ZoneFacts, ZoneView

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
