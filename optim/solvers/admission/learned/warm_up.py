"""A day without a history: the paper's rule at first, with what is known so far; then prices learned from the day's start.

The rule's U and lower scale come from the jobs that have arrived, the present one included. After the first share of the
slots the jobs seen so far stand for the rest of the day: they are expected again and again, block by block, and prices are
learned from that; and again each time that the day has doubled.

Source: Agrawal, Wang, Ye, "A dynamic near-optimal algorithm for online linear programming", 2014,
DOI 10.1287/opre.2014.1289 (the one-time and the dynamic learning algorithm).
"""

from dataclasses import replace

import numpy as np

from optim.models.admission.instance import AdmissionInstance, Jobs
from optim.models.admission.union import take_jobs, together
from optim.solvers.admission.posted_prices.price_functions import ZeroStartPrice
from optim.solvers.admission.posted_prices.price_ranges import LowerScale, PriceRanges, job_worth, price_ranges
from optim.solvers.admission.posted_prices.server_state import ClusterState, ServerSide, Use


class RisingPrices:
    """Zero-start prices whose constants come from the jobs seen so far, on a cluster that others change."""

    def __init__(self, instance: AdmissionInstance, state: ClusterState) -> None:
        self._instance, self._state = instance, state
        self._worth, self._function = job_worth(instance), ZeroStartPrice()
        self._seen: list[int] = []
        self._ranges: PriceRanges | None = None

    def meet(self, job: int) -> None:
        """Take a job's worth into account; if it changes the constants, all prices follow."""
        self._seen.append(job)
        known = self._worth.of(np.array(self._seen, dtype=np.int64))
        ranges = price_ranges(self._instance, LowerScale.UNIT_FREE_LAMBDA, worth=known)
        if self._ranges is None or any(
            not np.array_equal(getattr(a, name), getattr(b, name))
            for a, b in ((ranges.worker, self._ranges.worker), (ranges.ps, self._ranges.ps))
            for name in ("log_lower", "log_upper")
        ):
            self._ranges = ranges
            for side in self._state.sides:
                slots, _, servers = side.price.shape
                slot, server = (index.ravel() for index in np.indices((slots, servers)))
                self._reprice(side, slot, server)

    def taken(self, uses: tuple[Use, ...]) -> None:
        """Price the cells anew that a schedule has taken from."""
        for side, use in zip(self._state.sides, uses, strict=True):
            self._reprice(side, use.slot, use.server)

    def _reprice(self, side: ServerSide, slot: np.ndarray, server: np.ndarray) -> None:
        assert self._ranges is not None, "prices exist once a job was met"
        ranges = self._ranges.worker if side is self._state.worker else self._ranges.ps
        capacity = side.capacity[slot, :, server]
        taken = capacity - side.residual[slot, :, server]
        share = np.divide(taken, capacity, out=np.zeros_like(capacity), where=capacity > 0)
        row = side.servers.class_of_server[server], slot
        side.price[slot, :, server] = self._function.price(share, ranges.log_lower[row], ranges.log_upper[row])


def repeated(instance: AdmissionInstance, slot: int) -> Jobs:
    """Return the jobs that arrived before `slot`, expected again block by block in the rest of the day."""
    seen = np.flatnonzero(instance.jobs.arrival < slot)
    block = take_jobs(instance.jobs, seen)
    shifts = range(slot, instance.horizon, slot)
    return together([replace(block, arrival=block.arrival + shift) for shift in shifts], instance).jobs
