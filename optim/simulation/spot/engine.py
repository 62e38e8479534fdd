"""Engine of a back-test on prices: events in time order, exact progress between them, and the bill."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real

from optim.core.errors import NotAllowedError
from optim.core.user_code import who_answers, whole
from optim.models.bidding.market.billing import (
    Billing,
    End,
    FixedPrice,
    Lease,
    LedgerLine,
    Prices,
    Reason,
    charged_hours,
    lease_lines,
    to_usd,
)
from optim.models.bidding.market.prices import HOUR_S
from optim.simulation.spot.policy import LiveLease, Policy, Recovery, Request, View, World, minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A lease at one point in time.

    Parameters
    ----------
    lease
        The lease at that time; its number never changes.
    is_working
        Whether start-up is over and the machines do work; reliable machines, which only store the state, never do.
    is_warned
        Whether the price has exceeded the lease's bid; the lease ends two minutes after that.
    """

    lease: LiveLease
    is_working: bool
    is_warned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of a run after all events due at one time.

    Parameters
    ----------
    time_s
        The time in seconds since 1970.
    holdings
        All leases, on-demand leases first.
    work_done, work_saved
        Work done and not lost, and the part of this work that the last complete checkpoint contains.
    rate, resumes_s
        From `resumes_s` until the next snapshot, `rate` units of work are done per hour.
    """

    time_s: int
    holdings: tuple[Holding, ...]
    work_done: float
    work_saved: float
    rate: float
    resumes_s: int


Observer = Callable[[Snapshot], None]
"""Function that receives every snapshot, in time order; of several snapshots at the same time, only the last is valid."""


def noop(moment: Snapshot) -> None:
    """Ignore a snapshot."""
    del moment


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Result of a policy's run from one start.

    Parameters
    ----------
    policy, start_s
        Name of the policy, and start time in seconds since 1970.
    cost_micro
        Bill in micro-dollars; equal to the sum over the ledger.
    hours
        Hours from the start to the end of the job, or to the horizon, where the run is given up.
    work_done, is_done
        Work done, and whether the job is complete.
    evictions
        Number of evicted leases.
    on_demand_hours, paid_hours, free_hours
        Machine-hours of on-demand instances, of paid spot instances, and of spot instances that were not charged.
    end_s
        End of the last lease.
    ledger
        Lines of the bill.
    """

    policy: str
    start_s: int
    cost_micro: int
    hours: float
    work_done: float
    is_done: bool
    evictions: int
    on_demand_hours: float
    paid_hours: float
    free_hours: float
    end_s: int
    ledger: tuple[LedgerLine, ...]

    @property
    def cost_usd(self) -> float:
        """The bill in dollars."""
        return to_usd(self.cost_micro)


WARNING_S = 120
"""Seconds that instances remain after the price has exceeded their bid."""

RENEWAL_S = 58 * 60
"""Second of a lease's hour at which its renewal is decided."""

NEVER = 2**62

WORK_TOL = 1e-9


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    """A lease with its time of eviction, which the policy does not see; on-demand leases are never evicted."""

    lease: LiveLease
    crossing_s: int = NEVER
    renewal_s: int = NEVER
    drop_s: int = NEVER
    is_leaving: bool = False
    is_working: bool = False

    @property
    def is_spot(self) -> bool:
        return self.lease.bid_micro is not None


class SpotRun:
    """Run of one policy from one start.

    Parameters
    ----------
    world
        Prices during the run, estimates of evictions from earlier prices, and the job.
    policy
        The policy.
    start_s
        Start of the job, in seconds since 1970.
    watcher
        Observer that receives a snapshot of leases and progress after every possible change.
    """

    def __init__(self, world: World, policy: Policy, start_s: int, watcher: Observer = noop) -> None:
        self._world, self._policy, self._start, self._watcher = world, policy, start_s, watcher
        self._options = world.options
        self._now = start_s
        self._held: list[_Held] = []
        self._granted = 0
        self._ended: list[tuple[Lease, Prices, bool]] = []  # lease, prices that it is charged, and whether it is spot
        self._progress = self._saved = 0.0
        self._paused_s = start_s
        self._writing_s = NEVER
        self._written_s: list[int] = []
        self._since_saved = 0.0
        self._every_s = math.inf
        self._must_restart = False
        self._evictions = 0
        self._rate = 0.0

    def execute(self) -> RunResult:
        """Run until the job is complete or the horizon is reached."""
        options, last = self._options, self._start + self._options.horizon_s
        if self._policy.has_reliable and options.reliable:
            self._take_on_demand(self._world.history.index[self._world.reliable.name], options.reliable, works=False)
        tick = self._start
        self._decide()
        self._happen()
        self._tell()
        while True:
            leases = self._leases()
            event, rooms = min(self._next_event(), last), self._rooms(leases)
            interested = self._policy.wants_more(leases, rooms[0])
            if interested:
                tick = self._start + options.tick_s * ((self._now - self._start) // options.tick_s + 1)
                if self._watcher is noop:
                    tick = self._skip_ticks(leases, rooms, range(tick, event, options.tick_s))
            if self._advance(min(event, tick) if interested else event) or self._now >= last:
                self._tell()
                return self._finish()
            if self._happen() or (interested and self._now == tick):
                self._decide()
                self._happen()  # leases without start-up work immediately
            self._tell()

    def _skip_ticks(self, leases: Sequence[LiveLease], rooms: tuple[float, int], ticks: range) -> int:
        """Advance through the next ticks as long as the policy requests nothing.

        Return the tick after the skipped ones.
        """
        skipped = self._policy.next_decision_tick(leases, rooms, ticks) if ticks else 0
        for tick in ticks[:skipped]:
            # Work is summed tick by tick: a single product may differ in the last bit and shift the end of the job.
            if self._advance(tick):
                break
        return ticks.start + ticks.step * skipped

    def _tell(self) -> None:
        if self._watcher is noop:
            return  # back-tests of thousands of starts skip the snapshots
        self._watcher(
            Snapshot(
                time_s=self._now,
                holdings=tuple(
                    Holding(lease=held.lease, is_working=held.is_working, is_warned=held.is_leaving)
                    for held in self._held
                ),
                work_done=self._progress,
                work_saved=self._saved,
                rate=self._rate,
                resumes_s=max(self._now, self._paused_s),
            )
        )

    def _leases(self) -> tuple[LiveLease, ...]:
        """Return the leases that work or will work: neither reliable machines nor leases under eviction."""
        return tuple([held.lease for held in self._held if held.lease.ready_s < NEVER and not held.is_leaving])

    def _rooms(self, leases: Sequence[LiveLease]) -> tuple[float, int]:
        """Return the spot capacity and the number of on-demand instances still available, given some leases."""
        size = self._world.size
        spot = sum([lease.count * size(lease.market) for lease in leases if lease.bid_micro is not None])
        rest = sum([lease.count for lease in leases if lease.bid_micro is None])
        return self._options.max_spot - spot, self._options.baseline - rest

    def _view(self) -> View:
        leases = self._leases()
        room, on_demand_room = self._rooms(leases)
        return View(
            now_s=self._now,
            price_micro=tuple([path.price_at(self._now) for path in self._world.history.paths]),
            leases=leases,
            room=room,
            on_demand_room=on_demand_room,
            work_left=self._world.job_work - self._progress,
        )

    def _decide(self) -> None:
        view = self._view()
        request = self._checked(self._policy.decide(view))
        if request is None:
            return
        is_spot = request.bid_micro is not None
        room = self._world.count_within(request.market, view.room) if is_spot else view.on_demand_room
        if not 0 < request.count <= room:
            who = who_answers(self._policy, "decide")
            raise NotAllowedError(f"policy {who} requests {request.count} instances, but only {room} are allowed")
        if request.bid_micro is None:
            self._take_on_demand(request.market, request.count)
        else:
            self._take_spot(request, request.bid_micro)

    def _checked(self, request: Request | None) -> Request | None:
        """Return a policy's request with integer fields; raise NotAllowedError if it is not valid."""
        if request is None:
            return None
        who = who_answers(self._policy, "decide")
        if not isinstance(request, Request):
            raise NotAllowedError(f"policy {who} must return a Request or None, got {request!r}")
        numbers = {name: whole(getattr(request, name)) for name in ("market", "count", "bid_micro")}
        for name, number in numbers.items():
            if number is None and not (name == "bid_micro" and request.bid_micro is None):
                given = getattr(request, name)
                raise NotAllowedError(f"policy {who}: {name} must be an integer, got {given!r}; round it")
        market, markets = numbers["market"], len(self._world.history.markets)
        if market is None or not 0 <= market < markets:
            raise NotAllowedError(f"policy {who} requests market {market}, expected a number from 0 to {markets - 1}")
        return Request(**numbers)  # type: ignore[arg-type]

    def _checkpoint_every_s(self) -> float:
        """Return a policy's checkpoint interval; raise NotAllowedError if it is not a positive time."""
        every_s = self._policy.checkpoint_every_s(self._leases())
        if isinstance(every_s, bool) or not isinstance(every_s, Real) or not every_s > 0:
            who = who_answers(self._policy, "checkpoint_every_s")
            raise NotAllowedError(
                f"policy {who} must return seconds above 0, got {every_s!r}; return math.inf for no checkpoints"
            )
        return every_s

    def _take_spot(self, request: Request, bid_micro: int) -> None:
        path = self._world.history.paths[request.market]
        price = path.price_at(self._now)
        if price is None or price > bid_micro:
            return
        held = self._grant(request, price)
        if not self._world.billing.has_bids:
            return  # the bid only limits the price paid; prices evict no machines
        crossing = path.first_above(self._now, bid_micro)
        held.crossing_s = NEVER if crossing is None else crossing

    def _take_on_demand(self, market: int, count: int, *, works: bool = True) -> None:
        price = self._world.history.markets[market].on_demand_micro
        self._grant(Request(market=market, count=count, bid_micro=None), price, works=works)

    def _grant(self, request: Request, price_micro: int, *, works: bool = True) -> _Held:
        """Start the requested lease now, at the price of its first hour."""
        lease = LiveLease(
            number=self._granted,
            market=request.market,
            count=request.count,
            bid_micro=request.bid_micro,
            granted_s=self._now,
            ready_s=self._now + minutes(self._options.startup_min) if works else NEVER,
            price_micro=price_micro,
        )
        self._granted += 1
        self._held.append(_Held(lease=lease, renewal_s=self._now + RENEWAL_S if works else NEVER))
        return self._held[-1]

    def _next_event(self) -> int:
        now, times = self._now, [NEVER]
        for held in self._held:
            if held.is_leaving:
                times.append(held.crossing_s + WARNING_S)
            else:
                times += (held.crossing_s, held.renewal_s, held.drop_s)
            if not held.is_working:
                times.append(held.lease.ready_s)
        if self._paused_s > now:
            times.append(self._paused_s)
        if self._rate > 0 and self._writing_s == NEVER and self._every_s < math.inf:
            times.append(max(self._paused_s, now) + max(1, math.ceil(self._every_s - self._since_saved)))
        return min(time for time in times if time > now)

    def _advance(self, until: int) -> bool:
        """Work until a time; stop early and return True if the job is complete before it."""
        begin = max(self._now, self._paused_s)
        if self._rate > 0 and begin < until:
            left = (self._world.job_work - self._progress) / self._rate * HOUR_S
            if left <= until - begin + WORK_TOL:
                self._now = begin + math.ceil(left - WORK_TOL)
                self._progress = self._world.job_work
                return True
            self._progress += self._rate * (until - begin) / HOUR_S
            self._since_saved += until - begin
        self._now = until
        return False

    def _happen(self) -> bool:
        """Process every event due now; return whether there was an eviction."""
        now, was_evicted, was_hurt, was_changed = self._now, False, False, False
        if self._writing_s <= now:
            self._saved, self._since_saved, self._writing_s = self._progress, 0.0, NEVER
            self._written_s.append(now)
        for held in list(self._held):
            if held.is_leaving and held.crossing_s + WARNING_S <= now:
                self._held.remove(held)
                was_hurt = was_hurt or held.is_working
            elif not held.is_leaving and held.crossing_s <= now:
                held.is_leaving = was_evicted = True
                self._evictions += 1
                self._end(held, held.crossing_s, End.EVICTED)
            elif held.drop_s <= now:
                self._held.remove(held)
                was_changed = True
                self._end(held, now, End.RETURNED)
            elif held.renewal_s <= now:
                self._renew(held)
        is_anybody = self._rate > 0
        for held in self._held:
            if not held.is_working and held.lease.ready_s <= now:
                held.is_working = True
                was_changed = was_changed or is_anybody
        self._set_rate()
        if was_hurt:
            self._recover()
        if was_changed and self._policy.recovery is Recovery.ELASTIC:
            self._pause(minutes(self._options.scale_min))
        if self._must_restart and self._rate > 0:
            self._must_restart = False
            self._pause(self._options.restart_s)
        if self._rate > 0 and self._policy.recovery is Recovery.CHECKPOINT and self._writing_s == NEVER:
            self._every_s = self._checkpoint_every_s() if not self._since_saved else self._every_s
            if self._since_saved >= self._every_s:
                self._pause(self._options.write_s)
                self._writing_s = self._paused_s
        return was_evicted

    def _renew(self, held: _Held) -> None:
        """Ask the policy whether to renew a lease for another hour."""
        hour_end = held.lease.hour_end_s(self._now)
        # A policy that renews everything gets no view: views would take most of the run time.
        if getattr(type(self._policy), "should_renew", None) is Policy.should_renew or self._policy.should_renew(
            self._view(), held.lease
        ):
            held.renewal_s = hour_end + RENEWAL_S
            price = self._world.history.paths[held.lease.market].price_at(self._now)
            held.lease = replace(held.lease, price_micro=price or 0) if held.is_spot else held.lease
        else:
            held.renewal_s, held.drop_s = NEVER, hour_end

    def _set_rate(self) -> None:
        markets = self._world.history.markets
        rates = (held.lease.count * markets[held.lease.market].rate for held in self._held if held.is_working)
        self._rate = self._world.useful_rate(sum(rates))

    def _recover(self) -> None:
        """Apply the cost of an eviction of working instances."""
        if self._policy.recovery is Recovery.ELASTIC:
            self._pause(minutes(self._options.eviction_min))
            return
        self._progress = self._saved if self._policy.recovery is Recovery.CHECKPOINT else 0.0
        # An eviction aborts a checkpoint or restart in progress.
        self._writing_s, self._since_saved, self._paused_s = NEVER, 0.0, self._now
        self._must_restart = self._progress > 0

    def _pause(self, seconds: int) -> None:
        self._paused_s = max(self._paused_s, self._now) + seconds if seconds else self._paused_s

    def _end(self, held: _Held, time_s: int, end: End) -> None:
        lease, market = held.lease, self._world.history.markets[held.lease.market]
        record = Lease(
            market=market.name if held.is_spot else f"{market.instance_type} on demand",
            count=lease.count,
            granted_s=lease.granted_s,
            ended_s=max(time_s, lease.granted_s + 1),
            end=end,
        )
        path: Prices = self._world.history.paths[lease.market] if held.is_spot else FixedPrice(market.on_demand_micro)
        self._ended.append((record, path, held.is_spot))

    def _finish(self) -> RunResult:
        """End all leases, write the bill, and verify its sum."""
        end_s = self._now
        for held in self._held:
            if not held.is_leaving:
                lingers = held.is_spot and self._options.linger
                until = held.lease.hour_end_s(self._now - 1) if lingers else self._now
                is_evicted = held.crossing_s < until
                end_s = max(end_s, min(held.crossing_s, until))
                self._end(held, min(held.crossing_s, until), End.EVICTED if is_evicted else End.RETURNED)
        ledger, hours = self._bill()
        return RunResult(
            policy=self._policy.name,
            start_s=self._start,
            cost_micro=sum(line.amount_micro for line in ledger),
            hours=(self._now - self._start) / HOUR_S,
            work_done=self._progress,
            is_done=self._progress >= self._world.job_work - WORK_TOL,
            evictions=self._evictions,
            on_demand_hours=hours["on demand"],
            paid_hours=hours["paid"],
            free_hours=hours["free"],
            end_s=end_s,
            ledger=tuple(ledger),
        )

    def _bill(self) -> tuple[list[LedgerLine], dict[str, float]]:
        """Return the ledger of leases and checkpoints, and machine-hours by type; free checkpoints are omitted.

        Raises
        ------
        NotAllowedError
            If the sum of the lines differs from the sum over billed hours, which is an error in this package.
        """
        billing, write_micro = self._world.billing, self._options.write_micro
        ledger: list[LedgerLine] = []
        hours, invoice = {"on demand": 0.0, "paid": 0.0, "free": 0.0}, len(self._written_s) * write_micro
        for lease, prices, is_spot in self._ended:
            lines = lease_lines(lease, prices, billing)
            for line in lines:
                kind = "free" if line.reason is Reason.EVICTED_FREE else "paid"
                hours[kind if is_spot else "on demand"] += line.machine_hours
            ledger += lines
            invoice += _invoice(lease, prices, billing)
        ledger += [_written(time_s, write_micro) for time_s in self._written_s if write_micro]
        cost = sum(line.amount_micro for line in ledger)
        if cost != invoice:
            raise NotAllowedError(
                f"the ledger adds up to {cost} micro-dollars, the invoice to {invoice}; this is an "
                f"error in optim, please report it"
            )
        return ledger, hours


def _written(time_s: int, write_micro: int) -> LedgerLine:
    """Return the bill line of a checkpoint: no machine time, but the price of writing."""
    return LedgerLine(
        market="storage",
        count=1,
        begin_s=time_s,
        end_s=time_s,
        price_micro=write_micro,
        amount_micro=write_micro,
        reason=Reason.WRITTEN,
    )


def _invoice(lease: Lease, prices: Prices, billing: Billing) -> int:
    """Return the bill of a lease as a sum over hours, without a ledger."""
    charged = charged_hours(lease.ended_s - lease.granted_s, billing, is_evicted=lease.end is End.EVICTED)
    parts = (seconds * (prices.price_at(lease.granted_s + n * HOUR_S) or 0) for n, seconds in enumerate(charged))
    return sum((lease.count * part + HOUR_S // 2) // HOUR_S for part in parts)  # each hour is rounded to a micro-dollar


def run_policy(world: World, policy: Policy, start_s: int) -> RunResult:
    """Run a policy from a start."""
    return SpotRun(world, policy, start_s).execute()
