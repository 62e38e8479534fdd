"""Clairvoyant references: the least that a job can cost if all prices are known, bounded from below.

With a price q of work the slots fall apart: each buys work until the next machine's gain, at q, is below its cost. Slots
that follow one another at the same cost are one segment, and a history of prices has far fewer segments than slots.

What nobody can beat is bounded by a relaxation: at every moment a machine's hour costs no less than the lowest price
of the past hour, as it was charged at some moment within it, or on demand, and nothing at a moment that some bid could have had for
free, because the price rises above everything since less than an hour before.
Machines under warning work for nothing, too: where new ones start up sooner than a warning lasts, they do so beside those that replace
them, above the limit on spot instances. With a price of work the moments fall
apart, and the best price of work is found by bisection: a Lagrangian dual. Start-up and pauses are left out.

Where prices evict nobody (`Billing.has_bids`) nothing is free.

From above there is a plan in whole hours (or in free hours alone), without overheads: what a clairvoyant could do.
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
"""Dollars a unit of work that nobody pays."""

NARROW = 1e-12
"""Relative width at which a bracket of the price is as good as closed: the dual is flat at its best."""


def best_shadow_price(
    unit: FloatArray, free_rate: FloatArray, *, most: float | FloatArray, serial: float, slot_h: float, work: float
) -> tuple[float, float]:
    """Return the largest ``q work - sum_t max_V (q G(V) - unit_t max(0, V - free_t))`` that was found, and its q.

    Parameters
    ----------
    unit
        Shape (slots,): least cost of a unit of rate for an hour.
    free_rate
        Shape (slots,): rate that costs nothing.
    most
        Largest rate that may be bought, in every slot or slot by slot.
    serial
        Amdahl's share: V machines' rates do ``G(V) = V / (1 - serial + serial V)``.
    slot_h
        Hours of a slot.
    work
        Of the job.
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
    """Return the dual's value at a price of work, and the work that the price buys."""
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
"""Hours are tried from so many offsets within the first hour."""

LIMIT_STEP = 1.1
"""Factor by which the limit on a unit's cost is raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPiece:
    """Instances of a plan: paid ones are held for a whole hour at the price of its begin, free ones for a slot.

    Parameters
    ----------
    market, count
        Whose instances, and how many.
    begin_s, end_s
        When they work.
    is_free
        Whether some bid has them for free.
    """

    market: int
    count: int
    begin_s: int
    end_s: int
    is_free: bool

    @property
    def machine_hours(self) -> float:
        """Machine-hours."""
        return self.count * (self.end_s - self.begin_s) / HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleResult:
    """A reference with its certificate, which `check_reference` checks.

    Parameters
    ----------
    name, start_s
        Which, and from when.
    bound_usd
        No policy that obeys the reference's bill does the job for less within the horizon.
    cost_usd
        A plan's cost, infinity where no plan was found.
    hours
        How long the plan takes.
    shadow_price
        The multiplier that proves the bound, dollars a unit.
    plan
        What costs `cost_usd`; empty where no plan was found.
    """

    name: str
    start_s: int
    bound_usd: float
    cost_usd: float
    hours: float
    shadow_price: float
    plan: tuple[PlanPiece, ...]


_Plan = tuple[float, float, tuple[PlanPiece, ...]]
"""Dollars, hours, pieces."""


@policy(
    "oracle",
    world="spot",
    summary="Knows all prices and may use hours that an eviction makes free: a lower bound on every policy's cost.",
    is_reference=True,
)
@policy(
    "oracle-paid",
    world="spot",
    summary="Knows all prices and pays every started hour.",
    is_default=True,
    is_reference=True,
)
class Oracle:
    """Both references over one history; what doesn't depend on the start is computed once.

    Parameters
    ----------
    world
        Prices and job; what policies know isn't used.
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
        """Lowest price in dollars over the hour before each slot and the slot itself, shape (markets, slots)."""
        window = -(-HOUR_S // self._slot_s) + 1
        rows = []
        for path in self._world.history.paths:
            lowest = _slot_minimum(path, self._begin, self._slot_s, self._slots)
            padded = np.concatenate([np.full(window - 1, np.inf), lowest])
            rows.append(np.lib.stride_tricks.sliding_window_view(padded, window).min(axis=1))
        return np.array(rows) / MICRO

    @cached_property
    def _free(self) -> BoolArray:
        """Whether any moment of a slot could be had for free, shape (markets, slots)."""
        return self._slots_for_free(is_inner=False)

    @cached_property
    def _surely_free(self) -> BoolArray:
        """Whether a whole slot can be had for free, shape (markets, slots)."""
        return self._slots_for_free(is_inner=True)

    @cached_property
    def _intervals(self) -> list[IntArray]:
        if not self._world.billing.has_bids:
            return [np.zeros((0, 2), dtype=np.int64)] * self._world.history.num_markets
        return [free_intervals(path) for path in self._world.history.paths]

    @cached_property
    def _beside(self) -> FloatArray:
        """Largest rate of machines under warning beside as many as may be taken, shape (slots,).

        All that was taken a start-up ago and not warned by then keeps to the limit. Others at work were warned since a
        warning ago, all but a start-up, and each rise of a price warns at most as many as may be taken.
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
        """Bound a job from a start, and plan it."""
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
        """Return cost, hours and pieces: free slots alone if there are enough, else whole paid hours."""
        if is_free:
            free = self._free_plan(first, (end_s - self._begin) // self._slot_s)
            if free:
                return 0.0, (free[-1].end_s - start_s) / HOUR_S, free
        times = np.arange(start_s, end_s - HOUR_S + 1, HOUR_S // OFFSETS)
        prices = np.array([_prices_at(path, times) for path in self._world.history.paths]) / MICRO
        plans = (self._paid_plan(times[k::OFFSETS], prices[:, k::OFFSETS], start_s, price) for k in range(OFFSETS))
        return min(plans, key=lambda plan: plan[:2])

    def _free_plan(self, first: int, last: int) -> tuple[PlanPiece, ...]:
        """Return free slots until they have done the job; nothing if they don't."""
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
        """Return whole machine-hours that begin at some times, the cheapest market in each, bought by falling return."""
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
    """Return the places of the lowest unit costs, ascending and ties by place: as many as gain all the work, or all there are.

    They are few, and it is the sorting that costs: those up to a limit are sorted alone. It is raised from a likely one.
    """
    limit, size = max(likely, float(unit.min())), int(np.isfinite(unit).sum())
    while limit < np.inf:
        chosen = np.flatnonzero(unit <= limit)
        if float(gain[chosen].sum()) >= work or len(chosen) == size:
            return chosen[np.argsort(unit[chosen], kind="stable")]
        limit *= LIMIT_STEP
    return np.argsort(unit, kind="stable")


def _rises(path: PricePath) -> IntArray:
    """Return the changes that can evict somebody: those to a higher price."""
    return np.flatnonzero(np.diff(path.price_micro) > 0) + 1


def free_intervals(path: PricePath) -> IntArray:
    """Return the times that some bid would have had for free, shape (changes, 2), not merged.

    A rise at u to a price above all since g evicts a bid of the highest price between, granted at g or later; with a
    grant, or an hour's begin, less than an hour before u, all of it is free, and the warning after it.
    """
    size = len(path)
    rises = _rises(path)
    # Reversed in time, the last change with a price at least as high is a first crossing.
    mirrored = PricePath(time_s=np.arange(size, dtype=np.int64), price_micro=path.price_micro[::-1].copy())
    before = crossings(mirrored, np.array([0]), at_equal=True)[0][::-1]
    last_high = np.where(before >= NEVER, -1, size - 1 - before)[rises]
    open_s = path.time_s[last_high + 1]  # the high price itself ends with the next change
    end = path.time_s[rises]
    begin = np.maximum(open_s, end - HOUR_S + 1)
    return np.column_stack([begin, end + WARNING_S])


def _covered(intervals: IntArray, begin_s: int, slot_s: int, slots: int, *, is_inner: bool) -> BoolArray:
    """Return which slots are covered: wholly by a single interval, or touched by any."""
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
    """Return the lowest price in each slot, infinity where there is none yet."""
    starts = begin_s + slot_s * np.arange(slots)
    at_start = _prices_at(path, starts)
    inside = (path.time_s - begin_s) // slot_s
    kept = (inside >= 0) & (inside < slots)
    np.minimum.at(at_start, inside[kept], path.price_micro[kept].astype(np.float64))
    return at_start


def _prices_at(path: PricePath, times: IntArray) -> FloatArray:
    """Return prices at times as floats, infinity before the first."""
    step = np.searchsorted(path.time_s, times, side="right") - 1
    return np.where(step >= 0, path.price_micro[np.maximum(step, 0)].astype(np.float64), np.inf)
