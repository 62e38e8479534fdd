"""What a policy over zones sees and answers, and the guard that keeps a deadline whatever the traces do."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from optim.models.bidding.zones.market import ZoneJob


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of machines in a zone."""

    zone: int
    is_spot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneFacts:
    """What is known before a run: everything but the traces.

    Parameters
    ----------
    zones, regions, on_demand_micro
        Names, and prices on demand in micro-dollars an hour.
    tick_s
        Length of a tick.
    job
        The job in ticks, with its set-ups and moves.
    """

    zones: tuple[str, ...]
    regions: tuple[str, ...]
    on_demand_micro: tuple[int, ...]
    tick_s: int
    job: ZoneJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneView:
    """What a policy sees at a tick.

    Parameters
    ----------
    tick, ticks_left
        Ticks since the start, and until the deadline.
    work_left
        Ticks of work that are left.
    held, setup_left
        What is held, None for nothing, and for how many ticks it doesn't work yet.
    state
        Row of `ZoneJob.setup`: 0 before any state, 1 + the zone in which it lies.
    spot_micro
        Spot prices of all zones now: they are public, availability isn't.
    seen
        By zone the last tick at which it was tried or held, and whether machines were there; what is seen is seen once.
    probe
        Ask a zone for a machine and give it back: tells whether there is one. Costs `probe_s` of its price if there is.
    """

    tick: int
    ticks_left: int
    work_left: int
    held: Place | None
    setup_left: int
    state: int
    spot_micro: Sequence[int]
    seen: Sequence[tuple[int, bool] | None]
    probe: Callable[[int], bool]


class ZonePolicy(ABC):
    """Say at every tick where to run; built anew for every run with the facts.

    Attributes
    ----------
    name
        Its name.

    Parameters
    ----------
    facts
        What is known before the run.
    """

    name: ClassVar[str] = "a policy of one's own"

    def __init__(self, facts: ZoneFacts) -> None:
        self.facts = facts

    @abstractmethod
    def decide(self, view: ZoneView) -> Sequence[Place]:
        """Return places in order of preference: the first that can be had is taken, or kept. Without any, nothing is held."""


class GuardedPolicy(ZonePolicy):
    """A policy that never misses a deadline: whatever it chooses, machines on demand are taken before it is too late.

    Machines at work may stay: every tick of work takes one from the time and one from the work left. Anything else may
    cost a tick without work, and is allowed only while a launch on demand at the next tick would still be in time. From
    then on nothing but machines on demand is held, to the end.

    Parameters
    ----------
    facts
        What is known before the run.
    """

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self._is_locked = False

    def decide(self, view: ZoneView) -> Sequence[Place]:
        """Return what the policy chooses, if there is time, else machines on demand."""
        wanted = () if self._is_locked else self.choose(view)
        is_working = view.held is not None and view.setup_left == 0
        if is_working and wanted and wanted[0] == view.held:
            return wanted
        least = min(int(ticks) for ticks in self.facts.job.setup[view.state])
        if self._is_locked or view.ticks_left - 1 < view.work_left + least:
            self._is_locked = True
            return (self._surest(view),)
        return wanted

    @abstractmethod
    def choose(self, view: ZoneView) -> Sequence[Place]:
        """Return places in order of preference while there is time."""

    def on_demand(self, view: ZoneView) -> Place:
        """Return the machines on demand that cost the rest of the job least, set-up and move included."""
        job = self.facts.job

        def cost(zone: int) -> tuple[int, int]:
            if view.held == Place(zone, False):
                setup, move = view.setup_left, 0
            else:
                setup, move = int(job.setup[view.state, zone]), int(job.move_micro[view.state, zone])
            hours = (view.work_left + setup) * self.facts.tick_s / 3600
            return round(hours * job.machines * self.facts.on_demand_micro[zone]) + move, zone

        return Place(min(range(len(self.facts.zones)), key=cost), False)

    def _surest(self, view: ZoneView) -> Place:
        """Return the machines on demand that work soonest; what is held of them already, if nothing is sooner."""
        setups = [int(ticks) for ticks in self.facts.job.setup[view.state]]
        if view.held is not None and not view.held.is_spot and view.setup_left <= min(setups):
            return view.held
        prices = self.facts.on_demand_micro
        return Place(min(range(len(setups)), key=lambda zone: (setups[zone], prices[zone], zone)), False)
