"""The engine of jobs with a deadline in one zone or several: policies act at ticks, time and work are whole seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

from optim.core.errors import NotAllowedError
from optim.core.user_code import who_answers
from optim.models.bidding.market.billing import Billing, StayBill, bill_stay, invoice
from optim.models.bidding.market.prices import HOUR_S
from optim.models.bidding.market.zones import UNITS_USD, Allocation, ZoneJob, ZoneMarket
from optim.simulation.spot.zones.policy import Offer, ZoneFacts, ZonePolicy, ZoneView, checked_places


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


def facts_of(market: ZoneMarket, job: ZoneJob, billing: Billing = Billing.PER_SECOND) -> ZoneFacts:
    """Return what policies may know of a market and a job."""
    return ZoneFacts(
        zones=market.zones,
        regions=market.regions,
        on_demand_micro=tuple(market.on_demand_micro.tolist()),
        tick_s=market.tick_s,
        job=job,
        billing=billing,
    )
