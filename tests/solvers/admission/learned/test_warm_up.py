"""A day without a history."""

import numpy as np

from optim.solvers.admission.posted_prices.learned_run import RisingPrices, posted_state, repeated
from optim.solvers.admission.posted_prices.price_functions import (
    PriceFloorRule,
    ZeroStartPrice,
    job_value_stats,
    price_ranges,
)
from optim.solvers.admission.pricing.classes import Prices
from optim.solvers.admission.pricing.servers import ClusterState, ResidualSearch, uses
from tests.support.admission.days import days
from tests.support.admission.tiny import job_document, tiny_instance


def test_the_jobs_so_far_come_again_block_by_block() -> None:
    today = tiny_instance(*(job_document(name, arrival=a) for name, a in (("a", 0), ("b", 1), ("c", 3))), horizon=5)
    again = repeated(today, 2)
    assert again.arrival.tolist() == [2, 3, 4]
    assert [name.split(":")[-1] for name in again.ids] == ["a", "b", "a"]


def test_prices_are_the_paper_s_once_every_job_has_been_met() -> None:
    today = days(0)[-1]
    free = Prices(worker=np.zeros(today.worker_servers.capacity.shape), ps=np.zeros(today.ps_servers.capacity.shape))
    state = posted_state(today, free)
    rising = RisingPrices(today, state)
    bounds = price_ranges(today, PriceFloorRule.UNIT_FREE_LAMBDA, stats=job_value_stats(today))
    paper = ClusterState(today, bounds, ZeroStartPrice())
    for job in range(today.num_jobs):
        rising.meet(job)
    found = ResidualSearch(today).find(0, paper, 0.0)
    for side, other, use in zip(state.sides, paper.sides, uses(today, found), strict=True):
        side.residual[use.slot, :, use.server] -= use.amount
        other.take(use)
    rising.taken(uses(today, found))
    for side, other in zip(state.sides, paper.sides, strict=True):
        np.testing.assert_allclose(side.price, other.price, rtol=1e-12)
