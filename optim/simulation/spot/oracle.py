"""Clairvoyant references: lower bounds on the cost of a job with all prices known, and plans of nearly that cost.

Given a price q of work, the slots are independent. Each slot buys machines until the gain of another machine at q is
below its cost. Consecutive slots of equal cost form one segment, and a price history has far fewer segments than slots.

The lower bound comes from a relaxation. At every moment a machine-hour costs at least the lowest price of the past hour, or the
on-demand price. A machine costs nothing at a moment at which some bid would have obtained the machine for free: less than an
hour before the price rises above all prices since that moment. Machines under warning also work for free. If start-up takes
less time than a warning, these machines overlap with their replacements, and together they may exceed the limit on spot
instances. The best price of work is found by bisection on this Lagrangian dual. The relaxation omits start-up times and pauses.

If prices evict no machines (`Billing.has_bids`), no hour is free.

The upper bound is a plan in complete hours, or in free hours alone, without overheads.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.policies import policy
from optim.models.bidding.market.evictions import NEVER, crossings
from optim.models.bidding.market.prices import HOUR_S, MICRO, PricePath
from optim.simulation.spot.engine import WARNING_S
from optim.simulation.spot.policy import World, minutes

HALVINGS = 80

HIGHEST = 1e6
"""Dollars per unit of work, above any realistic price."""

NARROW = 1e-12
"""Relative width at which the bracket of the price counts as closed: the dual is flat at its maximum."""


def best_shadow_price(
    unit: FloatArray, free_rate: FloatArray, *, most: float | FloatArray, serial: float, slot_h: float, work: float
) -> tuple[float, float]:
    """Return the largest value found of ``q work - sum_t max_V (q G(V) - unit_t max(0, V - free_t))``, and its q.

    Parameters
    ----------
    unit
        Shape (slots,): minimum cost in dollars of a unit of rate for an hour.
    free_rate
        Shape (slots,): rate that costs nothing.
    most
        Maximum rate, for all slots or per slot.
    serial
        Amdahl's serial share: machines of total rate V work at rate ``G(V) = V / (1 - serial + serial V)``.
    slot_h
        Hours per slot.
    work
        Work of the job.
    """
    if not len(unit):
        return 0.0, 0.0
    limit = np.broadcast_to(np.asarray(most, dtype=np.float64), unit.shape)
    changes = [np.diff(figures, prepend=np.nan) != 0 for figures in (unit, free_rate, limit)]
    begins = np.flatnonzero(np.logical_or.reduce(changes))
    hours = slot_h * np.diff(np.append(begins, len(unit)))
    value, price = _bisect(unit[begins], free_rate[begins], hours, limit[begins], serial, work)
    return float(value), float(price)


@compiled
def _bisect(
    unit: FloatArray, free_rate: FloatArray, hours: FloatArray, most: FloatArray, serial: float, work: float
) -> tuple[float, float]:
    low, high = 0.0, 1e-3
    while _dual(high, unit, free_rate, hours, most, serial, work)[1] < work and high < HIGHEST:
        low, high = high, 2.0 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if middle <= 0.0 or high - low <= NARROW * high:
            break
        if _dual(middle, unit, free_rate, hours, most, serial, work)[1] < work:
            low = middle
        else:
            high = middle
    below = _dual(low, unit, free_rate, hours, most, serial, work)[0] if low > 0.0 else 0.0
    above = _dual(high, unit, free_rate, hours, most, serial, work)[0]
    return (above, high) if above >= below else (max(0.0, below), low)


@compiled
def _dual(
    q: float, unit: FloatArray, free_rate: FloatArray, hours: FloatArray, most: FloatArray, serial: float, work: float
) -> tuple[float, float]:
    """Return the dual value at a price of work, and the work bought at that price."""
    base, value, bought = 1.0 - serial, q * work, 0.0
    for i in range(len(unit)):
        slope = unit[i] / q
        if serial == 0.0:
            rate = np.inf if slope < 1.0 else 0.0
        else:
            rate = max(0.0, (np.sqrt(base / max(slope, 1e-12)) - base) / serial)
        rate = min(max(rate, free_rate[i]), max(most[i], free_rate[i]))
        useful = rate / (base + serial * rate)
        cost = unit[i] * (rate - free_rate[i])
        value += hours[i] * (cost - q * useful)
        bought += hours[i] * useful
    return value, bought


OFFSETS = 6
"""Number of offsets within the first hour at which plans begin."""

LIMIT_STEP = 1.1
"""Factor by which the limit on a unit's cost is raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPiece:
    """Instances of a plan: paid instances for a complete hour at the price at its begin, or free instances for a slot.

    Parameters
    ----------
    market, count
        Market of the instances, and their number.
    begin_s, end_s
        Begin and end of their work.
    is_free
        Whether some bid gets them for free.
    """

    market: int
    count: int
    begin_s: int
    end_s: int
    is_free: bool

    @property
    def machine_hours(self) -> float:
        """Number of machine-hours."""
        return self.count * (self.end_s - self.begin_s) / HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleResult:
    """A reference with its certificate, which `check_reference` verifies.

    Parameters
    ----------
    name, start_s
        Name of the reference, and start time.
    bound_usd
        Lower bound on the cost of any policy that completes the job within the horizon under the reference's billing.
    cost_usd
        Cost of the plan, infinity without a plan.
    hours
        Duration of the plan.
    shadow_price
        Multiplier that proves the bound, in dollars per unit of work.
    plan
        Pieces of the plan with cost `cost_usd`; empty if none was found.
    """

    name: str
    start_s: int
    bound_usd: float
    cost_usd: float
    hours: float
    shadow_price: float
    plan: tuple[PlanPiece, ...]


_Plan = tuple[float, float, tuple[PlanPiece, ...]]
"""Dollars, hours and pieces of a plan."""


@policy(
    "oracle",
    world="spot",
    summary="Lower bound on every policy's cost with all prices known; hours that end in an eviction are free.",
    is_reference=True,
)
@policy(
    "oracle-paid",
    world="spot",
    summary="Lower bound with all prices known, where every started hour is paid.",
    is_default=True,
    is_reference=True,
)
class Oracle:
    """Both references over one history; results that do not depend on the start are computed once.

    Parameters
    ----------
    world
        Prices during the run, and the job; the estimates of evictions are not used.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        history, options = world.history, world.options
        self._slot_s = options.tick_s
        self._begin = history.begin_s
        self._slots = -(-(history.end_s - history.begin_s) // self._slot_s)
        self._rates = np.array([market.rate for market in history.markets])

    @cached_property
    def _floor(self) -> FloatArray:
        """Lowest price in dollars during each slot and the hour before it, shape (markets, slots)."""
        window = -(-HOUR_S // self._slot_s) + 1
        rows = []
        for path in self._world.history.paths:
            lowest = _slot_minimum(path, self._begin, self._slot_s, self._slots)
            padded = np.concatenate([np.full(window - 1, np.inf), lowest])
            rows.append(np.lib.stride_tricks.sliding_window_view(padded, window).min(axis=1))
        return np.array(rows) / MICRO

    @cached_property
    def _free(self) -> BoolArray:
        """Whether any moment of a slot is free for some bid, shape (markets, slots)."""
        return self._slots_for_free(is_inner=False)

    @cached_property
    def _surely_free(self) -> BoolArray:
        """Whether a complete slot is free for some bid, shape (markets, slots)."""
        return self._slots_for_free(is_inner=True)

    @cached_property
    def _intervals(self) -> list[IntArray]:
        if not self._world.billing.has_bids:
            return [np.zeros((0, 2), dtype=np.int64)] * self._world.history.num_markets
        return [free_intervals(path) for path in self._world.history.paths]

    @cached_property
    def _beside(self) -> FloatArray:
        """Upper bound on the rate of machines under warning, in addition to the spot limit, shape (slots,).

        Leases taken at least a start-up time ago and not warned by then obey the limit. All other working machines were
        warned during the last warning period less a start-up time. Each price rise warns at most as many machines as
        the limit allows.
        """
        startup_s = minutes(self._world.options.startup_min)
        if startup_s >= WARNING_S or not self._world.billing.has_bids:
            return np.zeros(self._slots)
        rises = [path.time_s[_rises(path)] for path in self._world.history.paths]
        times = np.unique(np.concatenate(rises))
        rates = np.full(len(times), self._world.spot_capacity)
        total = np.concatenate([[0.0], np.cumsum(rates)])
        begin = self._begin + self._slot_s * np.arange(self._slots)
        end = begin + self._slot_s - startup_s
        warned: FloatArray = total[np.searchsorted(times, end)] - total[np.searchsorted(times, begin - WARNING_S + 1)]
        return np.maximum(warned, 0.0)

    def _slots_for_free(self, *, is_inner: bool) -> BoolArray:
        return np.array(
            [_covered(own, self._begin, self._slot_s, self._slots, is_inner=is_inner) for own in self._intervals]
        )

    def solve(self, name: str, start_s: int) -> OracleResult:
        """Compute the bound and a plan for a job from a start."""
        history = self._world.history
        end = min(start_s + self._world.options.horizon_s, int(history.censor_after(np.array([start_s]))[0]))
        first, last = (start_s - self._begin) // self._slot_s, -(-(end - self._begin) // self._slot_s)
        last = min(last, self._slots)
        is_free = name == "oracle"
        unit = self._floor[:, first:last] / self._rates[:, None]
        on_demand = min(market.on_demand_micro / MICRO / market.rate for market in history.markets)
        cheapest = unit.min(axis=0, initial=on_demand)
        free_rate, beside = np.zeros(last - first), self._beside[first:last]
        if is_free:
            is_free_now = self._free[:, first:last].any(axis=0)
            free_rate = np.where(is_free_now, self._world.spot_capacity, 0.0) + beside
        bound, price = best_shadow_price(
            cheapest,
            free_rate,
            most=self._world.spot_capacity + self._world.options.baseline * float(self._rates.max()) + beside,
            serial=self._world.options.serial,
            slot_h=self._slot_s / HOUR_S,
            work=self._world.job_work,
        )
        cost, hours, plan = self._plan(start_s, end, first, price, is_free=is_free)
        return OracleResult(
            name=name, start_s=start_s, bound_usd=bound, cost_usd=cost, hours=hours, shadow_price=price, plan=plan
        )

    def _plan(self, start_s: int, end_s: int, first: int, price: float, *, is_free: bool) -> _Plan:
        """Return cost, hours and pieces: free slots alone if they suffice, otherwise complete paid hours."""
        if is_free:
            free = self._free_plan(first, (end_s - self._begin) // self._slot_s)
            if free:
                return 0.0, (free[-1].end_s - start_s) / HOUR_S, free
        times = np.arange(start_s, end_s - HOUR_S + 1, HOUR_S // OFFSETS)
        prices = np.array([_prices_at(path, times) for path in self._world.history.paths]) / MICRO
        plans = (self._paid_plan(times[k::OFFSETS], prices[:, k::OFFSETS], start_s, price) for k in range(OFFSETS))
        return min(plans, key=lambda plan: plan[:2])

    def _free_plan(self, first: int, last: int) -> tuple[PlanPiece, ...]:
        """Return free slots until they complete the job; empty if they do not suffice."""
        most = self._world.max_of
        rate = np.where(self._surely_free[:, first:last], (self._rates * most)[:, None], 0.0)
        work = np.cumsum(self._world.useful_rate(rate.max(axis=0, initial=0.0))) * self._slot_s / HOUR_S
        size = int(np.searchsorted(work, self._world.job_work)) + 1
        if size > len(work):
            return ()
        market = rate[:, :size].argmax(axis=0)
        begin = self._begin + self._slot_s * (first + np.arange(size))
        return tuple(
            PlanPiece(market=m, count=int(most[m]), begin_s=at, end_s=at + self._slot_s, is_free=True)
            for m, at, best in zip(market.tolist(), begin.tolist(), rate[market, np.arange(size)], strict=True)
            if best > 0
        )

    def _paid_plan(self, hours: IntArray, prices: FloatArray, start_s: int, shadow_price: float) -> _Plan:
        """Return complete machine-hours from the given begin times, bought in order of decreasing return.

        Each hour uses its cheapest market.
        """
        if not len(hours):
            return float("inf"), 0.0, ()
        most = self._world.max_of
        unit = np.where((most > 0)[:, None], prices / self._rates[:, None], np.inf)
        market = unit.argmin(axis=0)
        price, rate = prices[market, np.arange(len(hours))], self._rates[market]
        number = np.minimum(np.arange(most.max(initial=0) + 1), most[market][:, None])
        useful = self._world.useful_rate(number * rate[:, None])
        gain = np.diff(useful, axis=1)
        cost = np.broadcast_to(price[:, None], gain.shape)
        unit = np.divide(cost, gain, out=np.full(gain.shape, np.inf), where=gain > 0)
        order = _cheapest_first(unit.ravel(), gain.ravel(), self._world.job_work, shadow_price)
        done = np.cumsum(gain.ravel()[order])
        needed = int(np.searchsorted(done, self._world.job_work - 1e-9)) + 1
        if needed > len(order):
            return float("inf"), 0.0, ()
        counts = np.bincount(order[:needed] // gain.shape[1], minlength=len(hours))
        pieces = tuple(
            PlanPiece(market=m, count=count, begin_s=at, end_s=at + HOUR_S, is_free=False)
            for m, count, at in zip(market.tolist(), counts.tolist(), hours.tolist(), strict=True)
            if count
        )
        return float(price @ counts), (pieces[-1].end_s - start_s) / HOUR_S, pieces


def _cheapest_first(unit: FloatArray, gain: FloatArray, work: float, likely: float) -> IntArray:
    """Return positions in order of unit cost (ties by position), until their gains cover the work.

    Only the few costs up to a limit are sorted, since sorting dominates the run time. The limit starts at `likely` and
    is raised if needed. All positions are returned if the gains never cover the work.
    """
    limit, size = max(likely, float(unit.min())), int(np.isfinite(unit).sum())
    while limit < np.inf:
        chosen = np.flatnonzero(unit <= limit)
        if float(gain[chosen].sum()) >= work or len(chosen) == size:
            return chosen[np.argsort(unit[chosen], kind="stable")]
        limit *= LIMIT_STEP
    return np.argsort(unit, kind="stable")


def _rises(path: PricePath) -> IntArray:
    """Return the changes that can evict a lease: price rises."""
    return np.flatnonzero(np.diff(path.price_micro) > 0) + 1


def free_intervals(path: PricePath) -> IntArray:
    """Return the periods that some bid gets for free, shape (price rises, 2); periods may overlap.

    Suppose the price rises at u above all prices since g. The rise evicts a bid equal to the maximum price between g and u
    that was granted at g or later. From a grant or the begin of a billing hour less than an hour before u, the lease is
    free, including the warning.
    """
    size = len(path)
    rises = _rises(path)
    # In reversed time, the last change to a price at least as high becomes a first crossing.
    mirrored = PricePath(time_s=np.arange(size, dtype=np.int64), price_micro=path.price_micro[::-1].copy())
    before = crossings(mirrored, np.array([0]), at_equal=True)[0][::-1]
    last_high = np.where(before >= NEVER, -1, size - 1 - before)[rises]
    open_s = path.time_s[last_high + 1]  # the high price itself ends with the next change
    end = path.time_s[rises]
    begin = np.maximum(open_s, end - HOUR_S + 1)
    return np.column_stack([begin, end + WARNING_S])


def _covered(intervals: IntArray, begin_s: int, slot_s: int, slots: int, *, is_inner: bool) -> BoolArray:
    """Return the slots that a single interval covers completely (`is_inner`), or that any interval touches."""
    relative = intervals - begin_s
    if is_inner:
        first, last = -(-relative[:, 0] // slot_s), relative[:, 1] // slot_s
    else:
        first, last = relative[:, 0] // slot_s, -(-relative[:, 1] // slot_s)
    steps = np.zeros(slots + 1, dtype=np.int64)
    kept = last > first
    np.add.at(steps, np.clip(first[kept], 0, slots), 1)
    np.add.at(steps, np.clip(last[kept], 0, slots), -1)
    return np.asarray(np.cumsum(steps[:-1]) > 0)


def _slot_minimum(path: PricePath, begin_s: int, slot_s: int, slots: int) -> FloatArray:
    """Return the lowest price in each slot, infinity before the first price."""
    starts = begin_s + slot_s * np.arange(slots)
    at_start = _prices_at(path, starts)
    inside = (path.time_s - begin_s) // slot_s
    kept = (inside >= 0) & (inside < slots)
    np.minimum.at(at_start, inside[kept], path.price_micro[kept].astype(np.float64))
    return at_start


def _prices_at(path: PricePath, times: IntArray) -> FloatArray:
    """Return prices at the given times as floats, infinity before the first price."""
    step = np.searchsorted(path.time_s, times, side="right") - 1
    return np.where(step >= 0, path.price_micro[np.maximum(step, 0)].astype(np.float64), np.inf)
