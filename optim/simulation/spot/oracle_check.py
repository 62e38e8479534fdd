"""Check a clairvoyant reference: its bound and its plan, from the prices alone, without the code that found them.

The bound follows from weak duality. Let q be the price of work. Who does all the work and pays least loses nothing by
being paid q a unit; what is left is a problem for every moment by itself, whose best value is an upper bound of what
anybody can gain at that moment. A moment costs a machine no less than the lowest price of the hour before, and nothing
if some bid has it for free: if the price rises above the present one within the hour, or rose in the last two minutes. Where
start-up takes less than a warning, machines under warning work beside those that replace them: as many more as may be taken, for every rise in the last two minutes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import isclose, isfinite, sqrt

from optim.models.bidding.market.prices import HOUR_S, MICRO, PricePath
from optim.simulation.spot.engine import WARNING_S
from optim.simulation.spot.oracle import OracleResult
from optim.simulation.spot.policy import World, minutes

TOL = 1e-9
"""Rounding of sums, relative."""


class _Steps:
    """A price path as plain lists, and whether prices evict at all."""

    def __init__(self, path: PricePath, *, has_bids: bool = True) -> None:
        self.has_bids = has_bids
        self.times: list[int] = path.time_s.tolist()
        self.prices: list[int] = path.price_micro.tolist()

    def within(self, begin_s: int, end_s: int) -> Iterator[tuple[int, int, int]]:
        """Yield (begin, end, price) of the steps that overlap a time."""
        first = max(0, bisect_right(self.times, begin_s) - 1)
        for step in range(first, bisect_left(self.times, end_s)):
            end = self.times[step + 1] if step + 1 < len(self.times) else end_s
            yield max(begin_s, self.times[step]), min(end, end_s), self.prices[step]

    def lowest(self, begin_s: int, end_s: int) -> float:
        """Return the lowest price within a time, infinity where there is none."""
        first = max(0, bisect_right(self.times, begin_s) - 1)
        return min(self.prices[first : bisect_left(self.times, end_s)], default=float("inf"))

    def highest(self, begin_s: int, end_s: int) -> int:
        """Return the highest price within a time, 0 where there is none."""
        return max((price for _, _, price in self.within(begin_s, end_s)), default=0)

    def highest_change(self, begin_s: int, end_s: int) -> int:
        """Return the highest price among the changes within a time, -1 where there is none."""
        return max(self.prices[bisect_left(self.times, begin_s) : bisect_left(self.times, end_s)], default=-1)

    def rises(self, begin_s: int, end_s: int) -> Iterator[tuple[int, int]]:
        """Yield (time, price) of the changes within a time that evict somebody: the rises."""
        if not self.has_bids:
            return
        for step in range(max(1, bisect_left(self.times, begin_s)), bisect_left(self.times, end_s)):
            if self.prices[step] > self.prices[step - 1]:
                yield self.times[step], self.prices[step]

    def has_free_moment(self, begin_s: int, end_s: int) -> bool:
        """Tell whether any second of a time can be had for free."""
        if not self.has_bids:
            return False
        if any(True for _ in self.rises(begin_s - WARNING_S + 1, end_s)):
            return True
        return any(self.highest_change(end, end + HOUR_S - 1) > price for _, end, price in self.within(begin_s, end_s))

    def is_free(self, begin_s: int, end_s: int) -> bool:
        """Tell whether a single lease has the whole time for free."""
        for time_s, price in self.rises(end_s - WARNING_S, begin_s + HOUR_S):
            granted = min(begin_s, time_s - 1)
            if granted >= self.times[0] and time_s - granted < HOUR_S and self._bid(granted, time_s) < price:
                return True
        return False

    def _bid(self, granted_s: int, end_s: int) -> int:
        """Return the lowest bid that is granted at a time and holds until before another."""
        return max(self.highest(granted_s, granted_s + 1), self.highest_change(granted_s + 1, end_s))


def check_reference(world: World, result: OracleResult) -> tuple[str, ...]:
    """Return what is wrong with a reference: nothing if bound and plan are what they claim to be.

    Parameters
    ----------
    world
        Prices and job.
    result
        What `Oracle.solve` returned.
    """
    return ReferenceChecker(world).problems(result)


class ReferenceChecker:
    """Check references from several starts of one world: what is true of a slot is worked out once.

    Parameters
    ----------
    world
        Prices and job.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._steps = [_Steps(path, has_bids=world.billing.has_bids) for path in world.history.paths]
        self._slots: dict[tuple[int, bool], tuple[float, float, float]] = {}

    def problems(self, result: OracleResult) -> tuple[str, ...]:
        """Return what is wrong with a reference: nothing if bound and plan are what they claim to be."""
        problems = []
        proven = self._proven_bound(result)
        if result.bound_usd > proven + TOL * max(1.0, proven):
            problems.append(f"bound {result.bound_usd} $ is above {proven} $, which is all that the multiplier proves")
        if isfinite(result.cost_usd):
            problems += _plan_problems(self._world, self._steps, result)
            if result.cost_usd < result.bound_usd * (1 - TOL) - TOL:
                problems.append(f"plan at {result.cost_usd} $ lies below the bound {result.bound_usd} $")
        return tuple(problems)

    def _slot(self, begin_s: int, *, has_free: bool) -> tuple[float, float, float]:
        """Return the least micro-dollars of a unit of rate, the rate that is free, and the largest rate, in a slot."""
        found = self._slots.get((begin_s, has_free))
        if found is None:
            world, options, end_s = self._world, self._world.options, begin_s + self._world.options.tick_s
            markets = world.history.markets
            least = [market.on_demand_micro / market.rate for market in markets]
            for steps, market in zip(self._steps, markets, strict=True):
                least.append(steps.lowest(begin_s - HOUR_S, end_s) / market.rate)
            beside, free = _beside(world, self._steps, begin_s, end_s), 0.0
            if has_free:
                is_free = any(steps.has_free_moment(begin_s, end_s) for steps in self._steps)
                free = options.max_spot * world.baseline.rate * is_free + beside
            on_demand = options.baseline * max(market.rate for market in markets)
            most = options.max_spot * world.baseline.rate + on_demand
            found = self._slots[begin_s, has_free] = min(least), free, most + beside
        return found

    def _proven_bound(self, result: OracleResult) -> float:
        """Return ``q work - sum over slots of max over V of (q G(V) - cost(V))``, at least 0."""
        history, options, q = self._world.history, self._world.options, result.shadow_price
        gaps = [begin for begin in history.gaps[:, 0].tolist() if begin >= result.start_s]
        end = min([result.start_s + options.horizon_s, history.end_s, *gaps])
        gains: dict[tuple[float, float, float], float] = {}
        value, begin = q * self._world.job_work, result.start_s
        while q > 0 and begin < end:
            slot = self._slot(begin, has_free=result.name == "oracle")
            if slot not in gains:
                unit, free, most = slot
                gains[slot] = _max_gain(q, unit / MICRO, free, most, options.serial)
            value -= options.tick_s / HOUR_S * gains[slot]
            begin += options.tick_s
        return max(0.0, value)


def _beside(world: World, steps: list[_Steps], begin_s: int, end_s: int) -> float:
    """Return the largest rate of machines under warning, in a slot, beside as many others as may be taken."""
    startup_s = minutes(world.options.startup_min)
    if startup_s >= WARNING_S:
        return 0.0  # who replaces them works when they are gone
    times = {time_s for path in steps for time_s, _ in path.rises(begin_s - WARNING_S + 1, end_s - startup_s)}
    return world.options.max_spot * world.baseline.rate * len(times)


def _max_gain(q: float, unit: float, free: float, most: float, serial: float) -> float:
    """Return ``max of q G(V) - unit max(0, V - free)``: at the free rate, at the limit, or where the slope is 0."""
    base = 1.0 - serial
    tries = [free, max(free, most)]
    if serial > 0 and unit > 0:
        tries.append(min(max((sqrt(q * base / unit) - base) / serial, free), max(free, most)))
    return max(q * v / (base + serial * v) - unit * (v - free) if v > 0 else 0.0 for v in tries)


def _plan_problems(world: World, steps: list[_Steps], result: OracleResult) -> Iterator[str]:
    """Yield what is wrong with a plan: its bill, its work, its limits, and what it takes for free."""
    history, options = world.history, world.options
    cost, work = 0, 0.0
    last = result.start_s + options.horizon_s
    clock = result.start_s
    for piece in sorted(result.plan, key=lambda piece: piece.begin_s):
        if not (clock <= piece.begin_s and piece.end_s <= last) or history.touches_gap(piece.begin_s, piece.end_s):
            yield f"the piece from {piece.begin_s} to {piece.end_s} overlaps another, a gap, or the job's limits"
        clock = piece.end_s
        largest = options.max_spot * world.baseline.rate / history.markets[piece.market].rate
        if not 0 < piece.count <= largest * (1 + TOL):
            yield f"{piece.count} instances at {piece.begin_s}, {largest:g} may be taken"
        path = steps[piece.market]
        if not piece.is_free:
            if piece.end_s - piece.begin_s != HOUR_S:
                yield f"the piece at {piece.begin_s} is no whole hour"
            price = history.paths[piece.market].price_at(piece.begin_s)
            cost += piece.count * (0 if price is None else price)
            if price is None:
                yield f"the piece at {piece.begin_s} has no price"
        elif result.name != "oracle" or not path.is_free(piece.begin_s, piece.end_s):
            yield f"the piece from {piece.begin_s} to {piece.end_s} isn't free"
        rate = piece.count * history.markets[piece.market].rate
        work += world.useful_rate(rate) * (piece.end_s - piece.begin_s) / HOUR_S
    if work < world.job_work * (1 - TOL):
        yield f"the plan does {work} of {world.job_work} units of work"
    if not isclose(cost / MICRO, result.cost_usd, rel_tol=TOL, abs_tol=TOL):
        yield f"the plan costs {cost / MICRO} $, not {result.cost_usd} $"
