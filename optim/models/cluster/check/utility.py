"""Verify a run's total utility, and its upper bound by prices, job by job."""

import math
from heapq import heapify, heappush, heapreplace

from optim.core.limits import Effort
from optim.core.solution import Violation, violation
from optim.models.cluster.check.replay import Replayed
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import Worth
from optim.models.cluster.workload import Workload

TOL = 1e-9
STEP = 20
"""Number of steps charged per slot; several, because sums use exact integers, which are slow."""

UNIT = 2**1074
"""Every double is an integer multiple of 1 / UNIT."""


def check_worth(jobs: Workload, cluster: Cluster, replayed: Replayed, worth: Worth, policy: str) -> list[Violation]:
    """Return violations for claims about utility that don't hold."""
    if len(worth.theta) != len(jobs):
        return [violation("utility", "must have one row of theta per job", where=policy)]
    earned = math.fsum(
        _value(theta, (end - submit) / worth.slot_us)
        for theta, submit, end, is_done in zip(
            worth.theta.tolist(), jobs.submit_us.tolist(), replayed.end_us, replayed.is_done, strict=True
        )
        if is_done
    )
    problems = []
    if not abs(worth.utility - earned) <= TOL * max(1.0, abs(earned)):
        problems.append(
            violation("utility", f"{worth.utility!r} is claimed, but the log gives {earned!r}", where=policy)
        )
    bound = max_earned(jobs, cluster, worth)
    if not worth.bound >= bound * (1 - TOL):
        problems.append(
            violation("utility", f"an upper bound of {worth.bound!r} is claimed, but {bound!r} is proven", where=policy)
        )
    if earned > worth.bound * (1 + TOL):
        problems.append(violation("utility", f"{earned!r} exceeds the claimed upper bound", where=policy))
    return problems


def max_earned(jobs: Workload, cluster: Cluster, worth: Worth) -> float:
    """Return an upper bound of total utility: all GPU-slots at their prices plus each job's largest utility minus cost ((D.10)).

    Raises
    ------
    InvalidProblemError
        If the computation takes more steps than the limits allow.
    """
    effort = Effort(f"the utility of {len(jobs)} jobs in slots of {worth.slot_us} us")
    price = worth.price.tolist()
    rows = zip(
        worth.theta.tolist(), jobs.submit_us.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist(), strict=True
    )
    profit = [
        _best_payoff(theta, submit, gang, duration, worth.slot_us, price, effort)
        for theta, submit, gang, duration in rows
    ]
    return cluster.num_gpus * math.fsum(price) + math.fsum(profit)


def _value(theta: list[float], delay: float) -> float:
    first, urgency, target = theta
    return first / (1.0 + math.exp(min(700.0, max(-700.0, urgency * (delay - target)))))


def _best_payoff(
    theta: list[float], submit: int, gang: int, duration: int, slot: int, price: list[float], effort: Effort
) -> float:
    """Return an upper bound of a job's utility minus cost.

    A job that ends k to k + 1 slots after its submission uses GPUs in at most k + 2 slots.
    """
    first, shortest = submit // slot, duration / slot
    whole, k = duration // slot, duration // slot
    effort.spend(STEP * (k + 1))
    window = _Cheapest(whole, price[first : first + k + 1] + [0.0] * max(0, min(k + 1, first + k + 1 - len(price))))
    best = 0.0
    while True:
        delay = max(float(k), shortest)
        if _value(theta, delay) <= best:
            return best
        effort.spend(STEP)
        window.add(price[first + k + 1] if first + k + 1 < len(price) else 0.0)
        rest = (shortest - whole) * window.next
        best = max(best, _value(theta, delay) - gang * (window.total() + rest))
        if window.next <= 0.0:
            return best  # cost is 0 from here on, and utility decreases
        k += 1


class _Cheapest:
    """Exact running sum of the `count` lowest prices of a growing set, and the next lowest price.

    Parameters
    ----------
    count
        Number of summed prices.
    prices
        The first `count` + 1 prices.
    """

    def __init__(self, count: int, prices: list[float]) -> None:
        ordered = sorted(prices)
        self._taken = [-price for price in ordered[:count]]  # negated: a heap with the highest price first
        self._rest = ordered[count:]
        heapify(self._taken)
        heapify(self._rest)
        self._sum = sum(map(_whole, ordered[:count]))

    @property
    def next(self) -> float:
        """The lowest price outside the sum."""
        return self._rest[0]

    def add(self, price: float) -> None:
        """Add a price to the set."""
        if self._taken and price < -self._taken[0]:
            dearest = -heapreplace(self._taken, -price)
            self._sum += _whole(price) - _whole(dearest)
            price = dearest
        heappush(self._rest, price)

    def total(self) -> float:
        """Return the sum, rounded once."""
        return self._sum / UNIT


def _whole(price: float) -> int:
    """Return a price as an exact integer multiple of 1 / UNIT."""
    numerator, denominator = price.as_integer_ratio()
    return numerator * (UNIT // denominator)
