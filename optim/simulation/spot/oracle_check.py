"""Check of the bound and plan of a clairvoyant reference, from the prices alone and without the code that computed them.

The bound follows from weak duality. Let q be the price of work. Suppose that policies are paid q per unit of work. For
a policy that completes the job, this lowers the cost by the constant ``q work``. Without the requirement to complete
the job, the moments are independent, and the optimum at a moment bounds any policy's gain at that moment. A machine
costs at least the lowest price of the hour before. It costs nothing if some bid gets it for free: from less than an
hour before a rise above the present price to two minutes after it. If start-up takes less time than a warning, machines
under warning work at the same time as their replacements. Each rise in the last two minutes then adds as many machines
as the limit allows.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import isclose, isfinite, sqrt

from optim.models.bidding.market.prices import HOUR_S, MICRO, PricePath
from optim.simulation.spot.engine import WARNING_S
from optim.simulation.spot.oracle import OracleResult
from optim.simulation.spot.policy import World, minutes

TOL = 1e-9
"""Relative tolerance for the rounding of sums."""


class _Steps:
    """A price path as plain lists, and whether price rises evict leases."""

    def __init__(self, path: PricePath, *, has_bids: bool = True) -> None:
        self.has_bids = has_bids
        self.times: list[int] = path.time_s.tolist()
        self.prices: list[int] = path.price_micro.tolist()

    def within(self, begin_s: int, end_s: int) -> Iterator[tuple[int, int, int]]:
        """Yield (begin, end, price) of the steps that overlap a period."""
        first = max(0, bisect_right(self.times, begin_s) - 1)
        for step in range(first, bisect_left(self.times, end_s)):
            end = self.times[step + 1] if step + 1 < len(self.times) else end_s
            yield max(begin_s, self.times[step]), min(end, end_s), self.prices[step]

    def lowest(self, begin_s: int, end_s: int) -> float:
        """Return the lowest price within a period, infinity without a price."""
        first = max(0, bisect_right(self.times, begin_s) - 1)
        return min(self.prices[first : bisect_left(self.times, end_s)], default=float("inf"))

    def highest(self, begin_s: int, end_s: int) -> int:
        """Return the highest price within a period, 0 without a price."""
        return max((price for _, _, price in self.within(begin_s, end_s)), default=0)

    def highest_change(self, begin_s: int, end_s: int) -> int:
        """Return the highest price among the changes within a period, -1 without a change."""
        return max(self.prices[bisect_left(self.times, begin_s) : bisect_left(self.times, end_s)], default=-1)

    def rises(self, begin_s: int, end_s: int) -> Iterator[tuple[int, int]]:
        """Yield (time, price) of the price rises within a period; only these evict leases."""
        if not self.has_bids:
            return
        for step in range(max(1, bisect_left(self.times, begin_s)), bisect_left(self.times, end_s)):
            if self.prices[step] > self.prices[step - 1]:
                yield self.times[step], self.prices[step]

    def has_free_moment(self, begin_s: int, end_s: int) -> bool:
        """Return whether any second of a period is free for some bid."""
        if not self.has_bids:
            return False
        if any(True for _ in self.rises(begin_s - WARNING_S + 1, end_s)):
            return True
        return any(self.highest_change(end, end + HOUR_S - 1) > price for _, end, price in self.within(begin_s, end_s))

    def is_free(self, begin_s: int, end_s: int) -> bool:
        """Return whether a single lease gets the complete period for free."""
        for time_s, price in self.rises(end_s - WARNING_S, begin_s + HOUR_S):
            granted = min(begin_s, time_s - 1)
            if granted >= self.times[0] and time_s - granted < HOUR_S and self._bid(granted, time_s) < price:
                return True
        return False

    def _bid(self, granted_s: int, end_s: int) -> int:
        """Return the lowest bid that is granted at `granted_s` and not exceeded before `end_s`."""
        return max(self.highest(granted_s, granted_s + 1), self.highest_change(granted_s + 1, end_s))


def check_reference(world: World, result: OracleResult) -> tuple[str, ...]:
    """Return the errors of a reference: empty if its bound and its plan are valid.

    Parameters
    ----------
    world
        Prices and job.
    result
        Result of `Oracle.solve`.
    """
    return ReferenceChecker(world).problems(result)


class ReferenceChecker:
    """Check references from several starts of one world; values per slot are computed once.

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
        """Return the errors of a reference: empty if its bound and its plan are valid."""
        problems = []
        proven = self._proven_bound(result)
        if result.bound_usd > proven + TOL * max(1.0, proven):
            problems.append(f"bound {result.bound_usd} $ exceeds {proven} $, the bound that its multiplier proves")
        if isfinite(result.cost_usd):
            problems += _plan_problems(self._world, self._steps, result)
            if result.cost_usd < result.bound_usd * (1 - TOL) - TOL:
                problems.append(f"plan at {result.cost_usd} $ lies below the bound {result.bound_usd} $")
        return tuple(problems)

    def _slot(self, begin_s: int, *, has_free: bool) -> tuple[float, float, float]:
        """Return, for a slot, the minimum micro-dollars per unit of rate, the free rate, and the maximum rate."""
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
    """Return an upper bound on the rate of machines under warning in a slot, in addition to the spot limit."""
    startup_s = minutes(world.options.startup_min)
    if startup_s >= WARNING_S:
        return 0.0  # replacements start working after the warned machines are gone
    times = {time_s for path in steps for time_s, _ in path.rises(begin_s - WARNING_S + 1, end_s - startup_s)}
    return world.options.max_spot * world.baseline.rate * len(times)


def _max_gain(q: float, unit: float, free: float, most: float, serial: float) -> float:
    """Return ``max_V q G(V) - unit max(0, V - free)``: attained at the free rate, at the limit, or at slope 0."""
    base = 1.0 - serial
    tries = [free, max(free, most)]
    if serial > 0 and unit > 0:
        tries.append(min(max((sqrt(q * base / unit) - base) / serial, free), max(free, most)))
    return max(q * v / (base + serial * v) - unit * (v - free) if v > 0 else 0.0 for v in tries)


def _plan_problems(world: World, steps: list[_Steps], result: OracleResult) -> Iterator[str]:
    """Yield the errors of a plan: in its bill, its work, its limits, and its free pieces."""
    history, options = world.history, world.options
    cost, work = 0, 0.0
    last = result.start_s + options.horizon_s
    clock = result.start_s
    for piece in sorted(result.plan, key=lambda piece: piece.begin_s):
        if not (clock <= piece.begin_s and piece.end_s <= last) or history.touches_gap(piece.begin_s, piece.end_s):
            yield f"the piece from {piece.begin_s} to {piece.end_s} overlaps another piece or a gap, or lies outside the run"
        clock = piece.end_s
        largest = options.max_spot * world.baseline.rate / history.markets[piece.market].rate
        if not 0 < piece.count <= largest * (1 + TOL):
            yield f"{piece.count} instances at {piece.begin_s} exceed the limit of {largest:g}"
        path = steps[piece.market]
        if not piece.is_free:
            if piece.end_s - piece.begin_s != HOUR_S:
                yield f"the piece at {piece.begin_s} is not exactly an hour long"
            price = history.paths[piece.market].price_at(piece.begin_s)
            cost += piece.count * (0 if price is None else price)
            if price is None:
                yield f"the piece at {piece.begin_s} has no price"
        elif result.name != "oracle" or not path.is_free(piece.begin_s, piece.end_s):
            yield f"the piece from {piece.begin_s} to {piece.end_s} is not free"
        rate = piece.count * history.markets[piece.market].rate
        work += world.useful_rate(rate) * (piece.end_s - piece.begin_s) / HOUR_S
    if work < world.job_work * (1 - TOL):
        yield f"the plan does {work} of {world.job_work} units of work"
    if not isclose(cost / MICRO, result.cost_usd, rel_tol=TOL, abs_tol=TOL):
        yield f"the plan costs {cost / MICRO} $, not {result.cost_usd} $"
