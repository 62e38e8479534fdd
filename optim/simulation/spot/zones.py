"""Jobs with a deadline in one or several zones: interface of policies, deadline guard, and engine.

Policies act at ticks; time and work are integer seconds.
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
"""Trait of the policies that run by default in one zone; with several zones the policies marked as defaults run."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine type (spot or on demand) in a zone."""

    zone: int
    is_spot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneFacts:
    """Information known before a run: everything except the traces.

    Parameters
    ----------
    zones, regions, on_demand_micro
        Names of zones and regions, and on-demand prices in micro-dollars per hour.
    tick_s
        Length of a tick in seconds.
    job
        The job, with its set-up times and move prices.
    billing
        Billing rule.
    hazards
        Hazards of the ends of availability spells, learned from other or earlier traces; None if unknown.
    keeps_tick
        Whether the environment forces on-demand machines, if no spot machines are in use, once a launch one tick later
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
    """Information available to a policy at a tick; times are integer seconds.

    Parameters
    ----------
    tick, elapsed_s, left_s
        Ticks and seconds since the start, and seconds until the deadline.
    work_left_s
        Remaining work.
    held, setup_left_s
        Present machines (None without any), and their remaining set-up time.
    state
        Row of `ZoneJob.setup_s`: 0 before any state exists, 1 + the zone that stores it afterwards.
    spot_micro
        Present spot prices of all zones in micro-dollars per hour. Prices are public, availability is not.
    seen
        For each zone: tick of the last observation (a request, a probe or a lease), and whether there were machines.
    probe
        Function that requests a machine of a zone, returns whether there is one, and releases it. A successful probe
        costs `probe_s` seconds at the zone's price.
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
    """Choose offers at every tick; a new policy is created for every run from its facts.

    Attributes
    ----------
    name
        Name of the policy.

    Parameters
    ----------
    facts
        Information known before the run.
    """

    name: ClassVar[str] = "a custom policy"

    def __init__(self, facts: ZoneFacts) -> None:
        self.facts = facts

    @abstractmethod
    def decide(self, view: ZoneView) -> Sequence[Offer]:
        """Return offers in order of preference; an empty sequence releases all machines.

        The job uses the first available offer. Machines that it already uses under this offer stay.
        """


def checked_places(policy: ZonePolicy, answer: Sequence[Offer]) -> Sequence[Offer]:
    """Return a policy's answer after checking its form.

    Raises
    ------
    NotAllowedError
        If the answer is not a sequence of offers.
    """
    if isinstance(answer, Sequence) and all(
        isinstance(place, Offer) and isinstance(place.zone, Integral) for place in answer
    ):
        return answer
    who = who_answers(policy, "choose", "decide")
    raise NotAllowedError(f"policy {who} must return a tuple of Offer(zone, is_spot), () for none, got {answer!r}")


class DeadlineGuard(ZonePolicy):
    """A policy that always meets the deadline: the guard switches to on-demand machines before it is too late.

    Machines at work may stay, because every second reduces the time and the work left alike. Other choices may lose up
    to a tick: the rest of a set-up, or a tick without machines. The guard permits them only while an on-demand launch
    at the next tick would still meet the deadline. From then on the job stays on on-demand machines to the end.

    Attributes
    ----------
    launches
        Number of launches for which the guard reserves time while no spot machines are in use.

    Parameters
    ----------
    facts
        Information known before the run.
    """

    launches: ClassVar[int] = 1

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self._is_locked = False
        # Maximum over state locations of the minimum set-up: a launch in another zone moves the state there.
        self._launch_s = max(int(row.min()) for row in facts.job.setup_s)

    def decide(self, view: ZoneView) -> Sequence[Offer]:
        """Return the policy's choice if there is time, otherwise on-demand machines."""
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
        """Return the seconds without work in the next tick if the present machines are released: the full tick."""
        del view, wanted
        return self.facts.tick_s

    @abstractmethod
    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return offers in order of preference while there is time."""

    def on_demand(self, view: ZoneView) -> Offer:
        """Return the on-demand offer with the lowest cost for the rest of the job, including set-up and move."""
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
        """Return the on-demand offer that works soonest; present on-demand machines unless another is sooner."""
        setups = [int(seconds) for seconds in self.facts.job.setup_s[view.state]]
        if view.held is not None and not view.held.is_spot and view.setup_left_s <= min(setups):
            return view.held
        prices = self.facts.on_demand_micro
        return Offer(min(range(len(setups)), key=lambda zone: (setups[zone], prices[zone], zone)), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRun:
    """Result of a policy's run from one tick of a market.

    Parameters
    ----------
    policy, first
        Name of the policy, and start tick.
    units, probe_units
        Bill in units of ``1 / UNITS_USD`` dollars, and the part of it that probes cost.
    end_s, work_done_s
        Seconds until the job was complete or given up (at twice the deadline or the end of the traces), and seconds of
        work done.
    is_done, deadline_met
        Whether the job was completed, and whether it met the deadline.
    evictions, probes
        Number of evictions and of probes.
    free_s
        Seconds of spot machines that were not charged.
    stays
        Allocations in time order.
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
        """Return the seconds during which spot (or on-demand) machines were in use."""
        return sum(stay.end_s - stay.begin_s for stay in self.stays if stay.is_spot == is_spot)


class _Run:
    """Run of one policy from one tick."""

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
        """Run until the job is complete, at most to twice the deadline."""
        market, job = self._market, self._job
        last = min(2 * job.num_ticks(market.tick_s), len(market) - self._first)
        while self._work_s < job.work_s and self._tick < last:
            self._lose()
            self._move(self._policy.decide(self._view()))
            self._pass()
        self._leave()
        return self._finish()

    def _has(self, zone: int) -> bool:
        """Return whether a zone has spot machines now, and record the observation."""
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
                    f"policy {who} requests zone {place.zone}, expected a number from 0 to {self._market.num_zones - 1}"
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
        """Use the present machines for a tick or until the job is complete; they work once the set-up is over."""
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
            raise NotAllowedError(
                f"the bill adds up to {held} units, the invoice to {again}; this is an error in optim, please report it"
            )
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
        A policy that has not run before.
    first
        Tick at which the job starts.
    billing
        Billing rule.
    probe_s
        Seconds that a successful probe is charged; Amazon charges at least a minute.
    """
    return _Run(market, job, policy, first, billing, probe_s).execute()


def facts_of(
    market: ZoneMarket,
    job: ZoneJob,
    billing: Billing = Billing.PER_SECOND,
    hazards: SpellHazards | None = None,
) -> ZoneFacts:
    """Return the information that policies get about a market and a job, with hazards learned before."""
    return ZoneFacts(
        zones=market.zones,
        regions=market.regions,
        on_demand_micro=tuple(market.on_demand_micro.tolist()),
        tick_s=market.tick_s,
        job=job,
        billing=billing,
        hazards=hazards,
    )
