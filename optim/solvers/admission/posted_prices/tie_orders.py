"""Other orders of what the online rule holds equal: jobs of one arrival slot, and schedules of one payoff.

The rule says which job comes first among those of a slot and which of several best schedules is taken only by
the order in which they are listed. A drawn order shuffles the former, and raises every price of the search by a
random amount that is far too small to make any other schedule the best one.
"""

from dataclasses import dataclass, replace

import numpy as np

from optim.models.admission.instance import MICRO, AdmissionInstance, FloatArray
from optim.solvers.admission.posted_prices.price_ranges import JobWorth
from optim.solvers.admission.posted_prices.server_state import ClusterState
from optim.solvers.admission.pricing.server_search import FoundSchedule, ResidualSearch, uses

TIE_SHARE = 1e-10
"""Payoffs that differ by less than this share of the job's value count as equal: well above the rounding of a cost
of thousands of worker-slots, and well below what tells schedules apart."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TieOrder:
    """One order of what is equal.

    Parameters
    ----------
    jobs
        All jobs, by arrival; those of a slot in this order.
    worker_rise, ps_rise
        Shape (slots, resources, servers), in [0, 1): how much dearer each row counts, in parts of what a job allows.
    """

    jobs: tuple[int, ...]
    worker_rise: FloatArray
    ps_rise: FloatArray


def draw_tie_order(instance: AdmissionInstance, rng: np.random.Generator) -> TieOrder:
    """Draw an order; every order of the jobs of a slot is equally likely."""
    shape = (instance.horizon, instance.num_resources)
    worker = rng.random((*shape, instance.worker_servers.num_servers))
    is_shared = instance.has_shared_servers
    return TieOrder(
        jobs=tuple(np.lexsort((rng.random(instance.num_jobs), instance.jobs.arrival)).tolist()),
        worker_rise=worker,
        ps_rise=worker if is_shared else rng.random((*shape, instance.ps_servers.num_servers)),
    )


class TiedSearch:
    """The exact best schedule within what is left of the servers; which of several, a drawn order says.

    Parameters
    ----------
    instance
        Whose jobs are scheduled.
    search
        Finds best schedules at given prices.
    order
        Of equal schedules.
    worth
        Values and sizes of the jobs that can complete alone.

    Notes
    -----
    The schedule's payoff is at the true prices. It may miss the best one by `TIE_SHARE` of the job's value, and a
    job whose best payoff is no larger than that may be refused.
    """

    def __init__(self, instance: AdmissionInstance, search: ResidualSearch, order: TieOrder, worth: JobWorth) -> None:
        self._instance, self._search, self._order = instance, search, order
        units = worth.worker_slots * (worth.largest_worker.sum(axis=1) + worth.largest_ps.sum(axis=1))
        self._rise = np.zeros(instance.num_jobs)
        self._rise[worth.jobs] = TIE_SHARE * worth.most / np.where(units > 0, units, 1.0)

    def find(self, job: int, state: ClusterState, floor: float) -> FoundSchedule | None:
        """Return a schedule of the largest payoff above `floor`, None if there is none."""
        rise, order = self._rise[job], self._order
        worker = state.worker.price + rise * order.worker_rise
        ps = worker if state.is_shared else state.ps.price + rise * order.ps_rise
        found = self._search.find_at(job, state, floor, worker, ps)
        return None if found is None else replace(found, payoff=found.value - self._cost(found, state))

    def _cost(self, found: FoundSchedule, state: ClusterState) -> float:
        """Return what a schedule costs at the state's own prices."""
        cost = 0.0
        for side, use in zip(state.sides, uses(self._instance, found), strict=True):
            cost += float(np.sum(side.price[use.slot, :, use.server] * use.amount)) / MICRO
        return cost
