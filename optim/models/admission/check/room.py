"""How many workers and PSs of one job the servers of a class hold in a slot, exactly.

On separate servers that is a number a server; on shared servers a set of pairs (workers, PSs), and a
class of several servers holds the sums of as many pairs.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from optim.models.admission.check.facts import Demand, Facts, JobFacts
from optim.models.admission.instance import IntArray
from optim.models.admission.proof import Side

IMPOSSIBLE = -(2**40)
"""Marks a number of workers beside which no number of PSs fits, not even none."""


def units_on_server(demand: tuple[int, ...], room: tuple[int, ...], share: Fraction | None, most: int) -> int:
    """Return how many units of a demand one server holds: whole units, the share cap, at most `most`."""
    units = most
    for unit, limit in zip(demand, room, strict=True):
        if unit > 0:
            units = min(units, limit // unit)
    if share is None or units <= 1:
        return units
    allowed = units
    for unit, limit in zip(demand, room, strict=True):
        if unit > 0:
            allowed = min(allowed, share.numerator * limit // (share.denominator * unit))
    return max(1, allowed)


def most_in_class(facts: Facts, job: JobFacts, demand: Demand, side: Side, slots: range) -> IntArray:
    """Return the most units in each class and slot, shape (classes, slots).

    That is `count` times what one server holds: identical servers are one row of the dual.
    """
    servers = facts.servers(side)
    most = job.most_workers if side is Side.WORKER else job.ps_needed(job.most_workers)
    result = np.zeros((len(servers.count), len(slots)), dtype=np.int64)
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    for c, count in enumerate(servers.count):
        for k, room in enumerate(servers.capacity[c, slots.start : slots.stop].tolist()):
            key = (c, tuple(room))
            if key not in known:
                known[key] = min(most, count * units_on_server(demand.of(side), key[1], facts.share, most))
            result[c, k] = known[key]
    return result


def most_ps_beside(
    demand: Demand, room: tuple[int, ...], share: Fraction | None, count: int, most: tuple[int, int]
) -> NDArray[np.int64]:
    """Return for Y = 0, 1, ... the most PSs that `count` equal shared servers hold beside Y workers.

    Parameters
    ----------
    demand, room, share
        The job's demands, one server's capacity, the cap on the job's share of one server.
    count
        Number of servers.
    most
        Most workers and most PSs that matter.

    Returns
    -------
    NDArray
        Shape (most workers + 1,); `IMPOSSIBLE` (or less) where Y workers alone don't fit.
    """
    one = np.full(most[0] + 1, IMPOSSIBLE, dtype=np.int64)
    for y in range(most[0] + 1):
        z = ps_beside_on_one(demand, room, share, y, most[1])
        if z < 0:
            break
        one[y] = z
    return _sum_of_equal(one, count, most[1])


def ps_beside_on_one(demand: Demand, room: tuple[int, ...], share: Fraction | None, y: int, most: int) -> int:
    """Return the most PSs that one server holds beside y workers, -1 if not even the workers fit."""
    z = _units_in_rest(demand, room, y, most)
    if z < 0 or share is None:
        return z
    shared = tuple(share.numerator * limit // share.denominator for limit in room)
    within_share = _units_in_rest(demand, shared, y, most)
    # A single worker or a single PS may exceed the share.
    alone = min(z, 1) if y == 0 else 0 if y == 1 else -1
    return max(within_share, alone)


def _units_in_rest(demand: Demand, room: tuple[int, ...], y: int, most: int) -> int:
    z = most
    for worker, ps, limit in zip(demand.worker, demand.ps, room, strict=True):
        rest = limit - worker * y
        if rest < 0:
            return -1
        if ps > 0:
            z = min(z, rest // ps)
    return z


def _sum_of_equal(one: NDArray[np.int64], count: int, most: int) -> NDArray[np.int64]:
    """Return the `count`-fold (max, +) convolution of a table with itself, by repeated squaring."""
    total = np.full_like(one, IMPOSSIBLE)
    total[0] = 0
    power = one
    while count:
        if count & 1:
            total = _convolve(total, power, most)
        count >>= 1
        if count:
            power = _convolve(power, power, most)
    return total


def _convolve(a: NDArray[np.int64], b: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    result = np.full_like(a, IMPOSSIBLE)
    for y in np.flatnonzero(b >= 0).tolist():
        reached = result[y:]
        np.maximum(reached, a[: len(a) - y] + b[y], out=reached)
    result[result < 0] = IMPOSSIBLE
    return np.minimum(result, most)
