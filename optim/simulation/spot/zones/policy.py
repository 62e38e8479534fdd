"""What a policy over zones sees and answers, and the guard that keeps a deadline whatever the traces do."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

from optim.core.errors import NotAllowedError
from optim.core.user_code import who_answers
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.prices import HOUR_S
from optim.models.bidding.market.zones import ZoneJob


@dataclass(frozen=True, slots=True)
class Offer:
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
        The job, with its set-ups and moves.
    billing
        The rule of the bill.
    """

    zones: tuple[str, ...]
    regions: tuple[str, ...]
    on_demand_micro: tuple[int, ...]
    tick_s: int
    job: ZoneJob
    billing: Billing = Billing.PER_SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneView:
    """What a policy sees at a tick; times are whole seconds.

    Parameters
    ----------
    tick, elapsed_s, left_s
        Ticks and seconds since the start, and seconds until the deadline.
    work_left_s
        Work that is left.
    held, setup_left_s
        What is held, None for nothing, and for how long it doesn't work yet.
    state
        Row of `ZoneJob.setup_s`: 0 before any state, 1 + the zone in which it lies.
    spot_micro
        Spot prices of all zones now: they are public, availability isn't.
    seen
        By zone the last tick at which it was tried or held, and whether machines were there; what is seen is seen once.
    probe
        Ask a zone for a machine and give it back: tells whether there is one. Costs `probe_s` of its price if there is.
    """

    tick: int
    elapsed_s: int
    left_s: int
    work_left_s: int
    held: Offer | None
    setup_left_s: int
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
    def decide(self, view: ZoneView) -> Sequence[Offer]:
        """Return places in order of preference: the first that can be had is taken, or kept. Without any, nothing is held."""


def checked_places(policy: ZonePolicy, answer: Sequence[Offer]) -> Sequence[Offer]:
    """Return a policy's answer.

    Raises
    ------
    NotAllowedError
        If it isn't places.
    """
    if isinstance(answer, Sequence) and all(
        isinstance(place, Offer) and isinstance(place.zone, Integral) for place in answer
    ):
        return answer
    who = who_answers(policy, "choose", "decide")
    raise NotAllowedError(f"policy {who} must return a tuple of Offer(zone, is_spot), () for none, got {answer!r}")


class DeadlineGuard(ZonePolicy):
    """A policy that never misses a deadline: whatever it chooses, machines on demand are taken before it is too late.

    Machines at work may stay: every second of work takes one from the time and one from the work left. What is left of a
    set-up is lost, and anything else may cost a tick without work; both are allowed only while a launch on demand at the
    next tick would still be in time. From then on nothing but machines on demand is held, to the end.

    Attributes
    ----------
    launches
        While no spot machines are held, the guard keeps time for so many launches.

    Parameters
    ----------
    facts
        What is known before the run.
    """

    launches: ClassVar[int] = 1

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self._is_locked = False
        # The longest of the shortest set-ups: a launch in another zone moves the state there.
        self._launch_s = max(int(row.min()) for row in facts.job.setup_s)

    def decide(self, view: ZoneView) -> Sequence[Offer]:
        """Return what the policy chooses, if there is time, else machines on demand."""
        wanted = () if self._is_locked else checked_places(self, self.choose(view))
        is_kept = view.held is not None and bool(wanted) and wanted[0] == view.held
        if is_kept and view.setup_left_s == 0:
            return wanted
        lost_s = min(view.setup_left_s, self.facts.tick_s) if is_kept else self.facts.tick_s
        launches = 1 if view.held is not None and view.held.is_spot else self.launches
        if self._is_locked or view.left_s - lost_s < view.work_left_s + launches * self._launch_s:
            self._is_locked = True
            return (self._surest(view),)
        return wanted

    @abstractmethod
    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return places in order of preference while there is time."""

    def on_demand(self, view: ZoneView) -> Offer:
        """Return the machines on demand that cost the rest of the job least, set-up and move included."""
        job = self.facts.job

        def cost(zone: int) -> tuple[int, int]:
            if view.held == Offer(zone, False):
                setup_s, move = view.setup_left_s, 0
            else:
                setup_s, move = int(job.setup_s[view.state, zone]), int(job.move_micro[view.state, zone])
            held = (view.work_left_s + setup_s) * job.machines * self.facts.on_demand_micro[zone]
            return held + HOUR_S * move, zone

        return Offer(min(range(len(self.facts.zones)), key=cost), False)

    def _surest(self, view: ZoneView) -> Offer:
        """Return the machines on demand that work soonest; what is held of them already, if nothing is sooner."""
        setups = [int(seconds) for seconds in self.facts.job.setup_s[view.state]]
        if view.held is not None and not view.held.is_spot and view.setup_left_s <= min(setups):
            return view.held
        prices = self.facts.on_demand_micro
        return Offer(min(range(len(setups)), key=lambda zone: (setups[zone], prices[zone], zone)), False)
