"""What makes windows of history, caps and labels of a bidding instance invalid."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.bidding.data import ScenarioOutlook
from tests.support.bidding.small_markets import hour_instance

HOUR = hour_instance([0, 0], [0.1, 0.1], [1.0, 1.0], cap=4)


def windows(**changes):
    """Two bids of one market in two windows of two half hours; the lower one is outbid in the second window."""
    known = {
        "weight": np.array([0.25, 0.75]),
        "slot_s": 1800,
        "num_slots": 2,
        "ready_s": 60,
        "charge_micro": np.array([[10, 0], [10, 20]]),
        "evicted_s": np.array([[-1, 600], [-1, 3000]]),
    }
    outer = {name: changes.pop(name) for name in ("eviction_loss_h", "change_loss_h") if name in changes}
    return replace(HOUR, outlook=ScenarioOutlook(**known | changes), **outer)


def test_accepts_windows_that_agree():
    given = windows(eviction_loss_h=0.25, change_loss_h=0.25)
    assert given.unit_cost.tolist() == pytest.approx([2.5e-6, 17.5e-6])
    assert given.outlook.alive[0, 1].tolist() == pytest.approx([(600 - 60) / 1800, 0.0])
    assert given.outlook.alive[1, 1].tolist() == pytest.approx([(1800 - 60) / 1800, 1200 / 1800])
    assert given.outlook.eviction_mask[:, 1].tolist() == [[True, False], [False, True]]
    assert not given.outlook.eviction_mask[:, 0].any()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"weight": np.array([0.5, 0.6])}, "add up to 1"),
        ({"weight": np.array([-0.5, 1.5])}, "add up to 1"),
        ({"weight": np.zeros(0), "charge_micro": np.zeros((2, 0)), "evicted_s": np.zeros((2, 0))}, "add up to 1"),
        ({"slot_s": 0}, "slots of at least 1 second"),
        ({"num_slots": 0}, "slots of at least 1 second"),
        ({"ready_s": -1}, "slots of at least 1 second"),
        ({"charge_micro": np.zeros((2, 1), dtype=int)}, "one entry a scenario, 2"),
        ({"evicted_s": np.full((1, 2), -1)}, "one entry a scenario, 2"),
        ({"charge_micro": np.array([[-1, 0], [10, 20]])}, "at least 0"),
        ({"evicted_s": np.array([[-2, 600], [-1, 3000]])}, "or -1 for a bid that lasts"),
        ({"evicted_s": np.array([[-1, 600], [-1, 3600]])}, "between 0 and 3599"),
        ({"evicted_s": np.array([[-1, 600], [-1, 599]])}, "must not fall with the delta"),
        ({"evicted_s": np.array([[-1, -1], [-1, 3000]])}, "must not fall with the delta"),
        ({"eviction_loss_h": 0.26, "change_loss_h": 0.25}, "at most a slot of 1800 s"),
    ],
)
def test_refuses_windows_that_contradict_themselves(changes, says):
    with pytest.raises(InvalidProblemError, match=says):
        windows(**changes)


def test_the_first_and_the_last_second_of_an_hour_are_within_it():
    assert windows(evicted_s=np.array([[0, 0], [3599, -1]])).num_bids == 2


@pytest.mark.parametrize(
    ("caps", "says"),
    [
        ({"weight": np.ones((1, 3))}, "one weight a bid and one limit a cap"),
        ({"limit": np.ones(2)}, "one weight a bid and one limit a cap"),
        ({"limit": np.array([np.nan])}, r"caps\[0\].limit"),
        ({"weight": np.array([[1.0, -1.0]])}, "weights must be between 0 and"),
        ({"weight": np.array([[1.0, np.inf]])}, "weights must be between 0 and"),
        ({"weight": np.array([[1.0, 1e16]])}, r"weights must be between 0 and 1e\+14"),
    ],
)
def test_refuses_caps_that_limit_nothing(caps, says):
    with pytest.raises(InvalidProblemError, match=says):
        replace(HOUR, caps=replace(HOUR.caps, **caps))


def test_markets_have_names_of_their_own_and_bids_have_one_of_them():
    with pytest.raises(InvalidProblemError, match="different names"):
        replace(HOUR, markets=("m0", "m0"))
    with pytest.raises(InvalidProblemError, match="market must be between 0 and 0"):
        replace(HOUR, bids=replace(HOUR.bids, market=np.array([0, 1])))
    with pytest.raises(InvalidProblemError, match="one value a bid"):
        replace(HOUR, bids=replace(HOUR.bids, rate=np.ones(3)))
