"""Jobs with a deadline in one zone or several: what policies see and answer, the guard of the deadline, and the engine.

Policies act at ticks; time and work are whole seconds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

from optim.core.errors import NotAllowedError
from optim.core.user_code import who_answers
from optim.models.bidding.market.billing import Billing, StayBill, bill_stay, invoice
from optim.models.bidding.market.prices import HOUR_S
from optim.models.bidding.market.spells import SpellHazards
from optim.models.bidding.market.zones import UNITS_USD, Allocation, ZoneJob, ZoneMarket

IN_ONE_ZONE = "in one zone"
"""Trait of the policies that run by default where there is one zone; with several zones those run that are defaults."""


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
    hazards
        How spells of availability end, learned from other traces or earlier ones; None where there are none.
    keeps_tick
        Whether the environment forces machines on demand, unless spot machines are held, where a launch of them a tick later
        would be too late.
    """

    zones: tuple[str, ...]
    regions: tuple[str, ...]
    on_demand_micro: tuple[int, ...]
    tick_s: int
    job: ZoneJob
    billing: Billing = Billing.PER_SECOND
    hazards: SpellHazards | None = None
    keeps_tick: bool = False


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
        lost_s = min(view.setup_left_s, self.facts.tick_s) if is_kept else self.may_lose_s(view, wanted)
        launches = 1 if view.held is not None and view.held.is_spot else self.launches
        if self._is_locked or view.left_s - lost_s < view.work_left_s + launches * self._launch_s:
            self._is_locked = True
            return (self._surest(view),)
        return wanted

    def may_lose_s(self, view: ZoneView, wanted: Sequence[Offer]) -> int:
        """Return the seconds of a tick that may pass without work if what is held isn't kept: all, if no place has machines."""
        del view, wanted
        return self.facts.tick_s

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRun:
    """What a policy did from one tick of a market.

    Parameters
    ----------
    policy, first
        Who, and from which tick.
    units, probe_units
        The bill in `UNITS_USD` to the dollar, and the probes' part of it.
    end_s, work_done_s
        Seconds until the job was done, or given up at the deadline's double or the traces' end; seconds of work done.
    is_done, deadline_met
        Whether the job was done, and in time.
    evictions, probes
        How many.
    free_s
        Seconds of spot machines that weren't charged.
    stays
        What was held when.
    """

    policy: str
    first: int
    units: int
    probe_units: int
    end_s: int
    work_done_s: int
    is_done: bool
    deadline_met: bool
    evictions: int
    probes: int
    free_s: int
    stays: tuple[Allocation, ...]

    @property
    def cost_usd(self) -> float:
        """The bill in dollars."""
        return self.units / UNITS_USD

    def held_s(self, *, is_spot: bool) -> int:
        """Return how many seconds machines of a kind were held."""
        return sum(stay.end_s - stay.begin_s for stay in self.stays if stay.is_spot == is_spot)


class _Run:
    """One policy from one tick."""

    def __init__(
        self, market: ZoneMarket, job: ZoneJob, policy: ZonePolicy, first: int, billing: Billing, probe_s: int
    ) -> None:
        self._market, self._job, self._policy, self._first = market, job, policy, first
        self._billing, self._probe_s = billing, probe_s
        self._tick = self._now_s = self._state = self._work_s = self._probe_units = 0
        self._held: Offer | None = None
        self._begun_s = self._setup_left_s = 0
        self._stays: list[Allocation] = []
        self._moves = 0
        self._evictions = self._probes = 0
        self._seen: list[tuple[int, bool] | None] = [None] * market.num_zones

    def execute(self) -> ZoneRun:
        """Run until the job is done, at most to twice the deadline."""
        market, job = self._market, self._job
        last = min(2 * job.num_ticks(market.tick_s), len(market) - self._first)
        while self._work_s < job.work_s and self._tick < last:
            self._lose()
            self._move(self._policy.decide(self._view()))
            self._pass()
        self._leave()
        return self._finish()

    def _has(self, zone: int) -> bool:
        """Tell whether a zone has spot machines now, and note that it was seen."""
        is_there = bool(self._market.is_available[self._first + self._tick, zone])
        self._seen[zone] = self._tick, is_there
        return is_there

    def _lose(self) -> None:
        held = self._held
        if held is not None and held.is_spot and not self._has(held.zone):
            self._evictions += 1
            self._leave(is_lost=True)

    def _view(self) -> ZoneView:
        return ZoneView(
            tick=self._tick,
            elapsed_s=self._now_s,
            left_s=self._job.deadline_s - self._now_s,
            work_left_s=self._job.work_s - self._work_s,
            held=self._held,
            setup_left_s=self._setup_left_s,
            state=self._state,
            spot_micro=tuple(self._market.spot_micro[self._first + self._tick].tolist()),
            seen=tuple(self._seen),
            probe=self._probe,
        )

    def _probe(self, zone: int) -> bool:
        is_there = self._has(zone)
        self._probes += 1
        if is_there:
            price = int(self._market.spot_micro[self._first + self._tick, zone])
            self._probe_units += self._probe_s * price * self._job.machines
        return is_there

    def _move(self, wanted: Sequence[Offer]) -> None:
        for place in checked_places(self._policy, wanted):
            if not 0 <= place.zone < self._market.num_zones:
                who = who_answers(self._policy, "choose", "decide")
                raise NotAllowedError(
                    f"policy {who} asks for zone {place.zone}, there are {self._market.num_zones}; number them from 0"
                )
            if place == self._held:
                return
            if not place.is_spot or self._has(place.zone):
                self._leave()
                self._held, self._begun_s = place, self._now_s
                self._setup_left_s = int(self._job.setup_s[self._state, place.zone])
                self._moves += HOUR_S * int(self._job.move_micro[self._state, place.zone])
                return
        self._leave()

    def _pass(self) -> None:
        """Hold for a tick, or until the job is done, and work once the set-up is over."""
        tick_s = self._market.tick_s
        self._tick += 1
        if self._held is None:
            self._now_s += tick_s
            return
        idle_s = min(self._setup_left_s, tick_s)
        worked_s = min(tick_s - idle_s, self._job.work_s - self._work_s)
        self._work_s += worked_s
        self._setup_left_s -= idle_s
        self._now_s += tick_s if self._work_s < self._job.work_s else idle_s + worked_s
        if self._setup_left_s == 0:
            self._state = 1 + self._held.zone

    def _leave(self, *, is_lost: bool = False) -> None:
        if self._held is not None:
            self._stays.append(Allocation(self._held.zone, self._held.is_spot, self._begun_s, self._now_s, is_lost))
            self._held, self._setup_left_s = None, 0

    def _finish(self) -> ZoneRun:
        about = (self._market, self._job, self._first)
        bills: list[StayBill] = [bill_stay(*about, stay, self._billing) for stay in self._stays]
        held, again = (
            sum(bill.units for bill in bills),
            sum(invoice(*about, stay, self._billing) for stay in self._stays),
        )
        if held != again:
            raise NotAllowedError(f"the bill adds up to {held} units, the invoice to {again}; report this")
        is_done = self._work_s >= self._job.work_s
        return ZoneRun(
            policy=self._policy.name,
            first=self._first,
            units=held + self._moves + self._probe_units,
            probe_units=self._probe_units,
            end_s=self._now_s,
            work_done_s=self._work_s,
            is_done=is_done,
            deadline_met=is_done and self._now_s <= self._job.deadline_s,
            evictions=self._evictions,
            probes=self._probes,
            free_s=sum(bill.free_s for bill in bills),
            stays=tuple(self._stays),
        )


def run_zones(
    market: ZoneMarket,
    job: ZoneJob,
    policy: ZonePolicy,
    first: int,
    *,
    billing: Billing = Billing.PER_SECOND,
    probe_s: int = 60,
) -> ZoneRun:
    """Run a policy from a tick.

    Parameters
    ----------
    market, job
        The traces and the job.
    policy
        A new one.
    first
        The tick at which the job starts.
    billing
        The rule of the bill.
    probe_s
        Seconds that a probe is charged where it finds machines: Amazon charges a minute at least.
    """
    return _Run(market, job, policy, first, billing, probe_s).execute()


def facts_of(
    market: ZoneMarket,
    job: ZoneJob,
    billing: Billing = Billing.PER_SECOND,
    hazards: SpellHazards | None = None,
) -> ZoneFacts:
    """Return what policies may know of a market and a job, and of how spells ended elsewhere or before."""
    return ZoneFacts(
        zones=market.zones,
        regions=market.regions,
        on_demand_micro=tuple(market.on_demand_micro.tolist()),
        tick_s=market.tick_s,
        job=job,
        billing=billing,
        hazards=hazards,
    )
