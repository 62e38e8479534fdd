"""The engine of runs over zones: a tick at a time, every unit paid is added up twice."""

from collections.abc import Sequence
from dataclasses import dataclass

from optim.core.errors import NotAllowedError
from optim.models.bidding.zones.market import HOUR_S, UNITS_USD, Stay, ZoneJob, ZoneMarket
from optim.simulation.spot.zones.policy import Place, ZoneFacts, ZonePolicy, ZoneView


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRun:
    """What a policy did from one tick of a market.

    Parameters
    ----------
    policy, first
        Who, and from which tick.
    units, probe_units
        The bill in `UNITS_USD` to the dollar, and the probes' part of it.
    ticks, work_done
        Ticks until the job was done, or given up at the deadline's double or the traces' end; ticks of work done.
    is_done, deadline_met
        Whether the job was done, and in time.
    evictions, probes
        How many.
    stays
        What was held when.
    """

    policy: str
    first: int
    units: int
    probe_units: int
    ticks: int
    work_done: int
    is_done: bool
    deadline_met: bool
    evictions: int
    probes: int
    stays: tuple[Stay, ...]

    @property
    def cost_usd(self) -> float:
        """The bill in dollars."""
        return self.units / UNITS_USD

    def ticks_held(self, *, is_spot: bool) -> int:
        """Return how many ticks machines of a kind were held."""
        return sum(stay.end - stay.begin for stay in self.stays if stay.is_spot == is_spot)


class _Run:
    """One policy from one tick."""

    def __init__(self, market: ZoneMarket, job: ZoneJob, policy: ZonePolicy, first: int, probe_s: int) -> None:
        self._market, self._job, self._policy, self._first = market, job, policy, first
        self._probe_s = probe_s
        self._tick = self._state = self._work = self._units = self._probe_units = 0
        self._held: Place | None = None
        self._begun = self._setup = 0
        self._stays: list[Stay] = []
        self._moves: list[int] = []
        self._evictions = self._probes = 0
        self._seen: list[tuple[int, bool] | None] = [None] * market.num_zones

    def execute(self) -> ZoneRun:
        """Run until the job is done, at most to twice the deadline."""
        market, job = self._market, self._job
        last = min(2 * job.deadline, len(market) - self._first)
        while self._work < job.work and self._tick < last:
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
            self._leave()

    def _view(self) -> ZoneView:
        setup_left = max(0, self._begun + self._setup - self._tick) if self._held else 0
        return ZoneView(
            tick=self._tick,
            ticks_left=self._job.deadline - self._tick,
            work_left=self._job.work - self._work,
            held=self._held,
            setup_left=setup_left,
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

    def _move(self, wanted: Sequence[Place]) -> None:
        for place in wanted:
            if not 0 <= place.zone < self._market.num_zones:
                raise NotAllowedError(
                    f"policy {self._policy.name!r} asks for zone {place.zone}, there are {self._market.num_zones}"
                )
            if place == self._held:
                return
            if not place.is_spot or self._has(place.zone):
                self._leave()
                self._held, self._begun = place, self._tick
                self._setup = int(self._job.setup[self._state, place.zone])
                self._moves.append(HOUR_S * int(self._job.move_micro[self._state, place.zone]))
                self._units += self._moves[-1]
                return
        self._leave()

    def _pass(self) -> None:
        """Hold for a tick, and work if the set-up is over."""
        held, at = self._held, self._first + self._tick
        self._tick += 1
        if held is None:
            return
        market = self._market
        price = market.spot_micro[at, held.zone] if held.is_spot else market.on_demand_micro[held.zone]
        self._units += int(price) * market.tick_s * self._job.machines
        if self._tick - self._begun > self._setup:
            self._work += 1
        if self._tick - self._begun >= self._setup:
            self._state = 1 + held.zone

    def _leave(self) -> None:
        if self._held is not None:
            self._stays.append(Stay(self._held.zone, self._held.is_spot, self._begun, self._tick))
            self._held = None

    def _finish(self) -> ZoneRun:
        units = self._units + self._probe_units
        again = _invoice(self._market, self._job, self._first, self._stays) + sum(self._moves) + self._probe_units
        if units != again:
            raise NotAllowedError(f"the run adds up to {units} units, its stays to {again}; report this")
        is_done = self._work >= self._job.work
        return ZoneRun(
            policy=self._policy.name,
            first=self._first,
            units=units,
            probe_units=self._probe_units,
            ticks=self._tick,
            work_done=self._work,
            is_done=is_done,
            deadline_met=is_done and self._tick <= self._job.deadline,
            evictions=self._evictions,
            probes=self._probes,
            stays=tuple(self._stays),
        )


def _invoice(market: ZoneMarket, job: ZoneJob, first: int, stays: Sequence[Stay]) -> int:
    """Return what stays cost, added up by place."""
    total = 0
    for stay in stays:
        if stay.is_spot:
            total += int(market.spot_micro[first + stay.begin : first + stay.end, stay.zone].sum())
        else:
            total += int(market.on_demand_micro[stay.zone]) * (stay.end - stay.begin)
    return total * market.tick_s * job.machines


def run_zones(market: ZoneMarket, job: ZoneJob, policy: ZonePolicy, first: int, *, probe_s: int = 60) -> ZoneRun:
    """Run a policy over zones from a tick.

    Parameters
    ----------
    market, job
        The traces and the job.
    policy
        A new one.
    first
        The tick at which the job starts.
    probe_s
        Seconds that a probe is charged where it finds machines: Amazon charges a minute at least.
    """
    return _Run(market, job, policy, first, probe_s).execute()


def facts_of(market: ZoneMarket, job: ZoneJob) -> ZoneFacts:
    """Return what policies may know of a market and a job."""
    prices = tuple(market.on_demand_micro.tolist())
    return ZoneFacts(zones=market.zones, regions=market.regions, on_demand_micro=prices, tick_s=market.tick_s, job=job)
