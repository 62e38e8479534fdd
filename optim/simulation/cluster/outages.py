"""When machines fail and are repaired: drawn once for all policies, since it hangs on nothing that they do."""

from collections.abc import Iterator
from heapq import heapify, heapreplace

import numpy as np

from optim.models.cluster.workload import US
from optim.models.cluster.world import Cluster, IntArray
from optim.simulation.cluster.options import EngineOptions

STREAM = 0x0A7A6E
"""Parts these draws from a policy's own of the same seed."""

MOST_FAILURES = 1_000_000
"""Failures without an end or a submission after which a run ends with its jobs unfinished: none of them gets on any more."""

Outage = tuple[int, int, bool]
"""When, in microseconds; which machine; whether it fails, or is repaired."""


def outages(cluster: Cluster, options: EngineOptions, seed: int) -> Iterator[Outage]:
    """Yield failures and repairs in the order of their times and then machines, without end; none if machines never fail.

    A machine is up for a time with mean `mtbf_hours` and then down for one with mean `repair_hours`, both exponential and
    rounded up to a microsecond, one after the other.
    """
    if not options.mtbf_hours:
        return
    rng = np.random.default_rng([STREAM, seed])
    hour_us = 3600 * US

    def span(mean_hours: float) -> int:
        return 1 + int(rng.exponential(mean_hours * hour_us))

    ahead = [(span(options.mtbf_hours), machine, True) for machine in range(cluster.num_machines)]
    heapify(ahead)
    while True:
        time, machine, fails = ahead[0]
        heapreplace(ahead, (time + span(options.repair_hours if fails else options.mtbf_hours), machine, not fails))
        yield time, machine, fails


class OutageFeed:
    """Failures and repairs as engines take them: the next one, or several at once, all of an instant together."""

    def __init__(self, cluster: Cluster, options: EngineOptions, seed: int) -> None:
        self._ahead = outages(cluster, options, seed)
        self.next: Outage | None = next(self._ahead, None)

    def take(self) -> Outage:
        """Take the next one; there must be one."""
        taken = self.next
        assert taken is not None
        self.next = next(self._ahead, None)
        return taken

    def take_many(self, least: int) -> tuple[IntArray, IntArray, IntArray]:
        """Take at least so many, and return times, machines, and whether they fail (1); empty if machines never fail."""
        rows: list[Outage] = []
        while self.next is not None and (len(rows) < least or rows[-1][0] == self.next[0]):
            rows.append(self.take())
        time, machine, fails = np.array(rows, np.int64).reshape(-1, 3).T.copy()
        return time, machine, fails
