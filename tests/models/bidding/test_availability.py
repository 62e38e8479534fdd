"""Availability traces: what a tick says, and what makes a trace invalid."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.lifetimes import AvailabilityTrace


def trace(**changes):
    """Three ticks: had for 60 s, not for 120 s, had until 300 s."""
    known = {
        "zone": "here",
        "resource": "gpu",
        "time_s": np.array([0, 60, 180]),
        "is_available": np.array([True, False, True]),
        "price_micro": np.array([5, 6, 7]),
        "on_demand_micro": 20,
        "end_s": 300,
    }
    return AvailabilityTrace(**known | changes)


def test_each_tick_holds_until_the_next():
    given = trace()
    assert len(given) == 3
    assert [given.price_at(t) for t in (-1, 0, 59, 60, 179, 180, 10**6)] == [None, 5, 5, 6, 6, 7, 7]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"time_s": np.array([0, 60, 60])}, "strictly ascending"),
        ({"time_s": np.array([0, 200, 180])}, "strictly ascending"),
        ({"end_s": 180}, "strictly ascending"),
        ({"time_s": np.zeros(0, dtype=int)}, "one at least"),
        ({"is_available": np.array([True])}, "every tick"),
        ({"price_micro": np.array([1, 2])}, "every tick"),
    ],
)
def test_refuses_a_trace_that_contradicts_itself(changes, says):
    with pytest.raises(InvalidProblemError, match=f"here: .*{says}"):
        trace(**changes)
