"""Whether any footprint has positive work after losses; otherwise there is no search."""

import numpy as np
import pytest

from optim.core.solution import Termination
from optim.models.bidding.data import EvictionTerm
from optim.models.files import verify
from optim.solvers.bidding.outcome import can_work
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import best_of_all, hour_instance


def losing(evicted, usable_h, **fields):
    """Return bids of an hour's loss each time that they are evicted."""
    size = len(evicted)
    given = {"evicted": evicted, "usable_h": usable_h, "eviction_loss_h": 1.0, "max_count": 2} | fields
    return hour_instance(range(size), [0.1] * size, [1.0] * size, **given)


@pytest.mark.parametrize("solver", ["dinkelbach", "greedy", "frontier"])
@pytest.mark.parametrize("evicted", [1.0, 0.9])
def test_bids_whose_losses_eat_their_work_are_no_answer(solver, evicted):
    instance = losing([evicted], [0.5], max_count=100)
    assert not can_work(instance)
    found = solve(instance, solver)
    assert found.decision is None
    assert found.termination is Termination.INFEASIBLE
    assert verify(instance, found).is_ok


def test_a_bid_that_works_alone_is_found_behind_one_that_does_not():
    """If any eviction causes losses for all allocations, the second works only without the first."""
    instance = losing([1.0, 0.1], [0.5, 0.9], term=EvictionTerm.ANY_BID)
    assert can_work(instance)
    found = solve(instance, "dinkelbach")
    assert found.decision.counts[0] == 0
    assert found.objective == pytest.approx(best_of_all(instance), rel=1e-6)


def test_what_does_not_fit_does_not_work():
    assert not can_work(losing([0.0], [1.0], cap=0.5))
    assert can_work(losing([0.0], [1.0], cap=1))
    assert not can_work(losing([0.0], [1.0], max_count=np.array([0])))
    assert can_work(losing([1.0], [0.5], fixed_rate=1.0))
