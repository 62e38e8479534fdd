"""Scalability curves by their definition, and invalid windows of history, caps and labels."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.bidding.data import CurveKind, Scalability, ScenarioOutlook
from tests.support.bidding.small_markets import CURVES, hour_instance

RATES = st.floats(0.01, 40.0)
curves = st.sampled_from(
    [*CURVES, Scalability(kind=CurveKind.USL, serial=0.1), Scalability(kind=CurveKind.SATURATING, serial=0.2, base=2.0)]
)


@given(curves, RATES)
def test_slopes_are_differences_of_values(curve, rate):
    step = 1e-7 * rate
    right = (curve.value(np.array(rate + step)) - curve.value(np.array(rate))) / step
    assert float(curve.slope(np.array(rate))) == pytest.approx(float(right), abs=1e-5)


def test_amdahl_is_one_machines_work_at_one_machine():
    curve = Scalability.amdahl(0.05)
    assert float(curve.value(np.array(1.0))) == pytest.approx(1.0)
    assert float(curve.value(np.array(10.0))) == pytest.approx(10 / (1 + 0.05 * 9))
    assert curve.peak == np.inf


def test_peaks_are_where_more_machines_are_of_no_use():
    usl = Scalability(kind=CurveKind.USL, serial=0.05, crosstalk=0.01)
    assert usl.peak == pytest.approx(np.sqrt(0.95 / 0.01))
    assert float(usl.value(np.array(usl.peak + 5))) == float(usl.value(np.array(usl.peak)))
    assert float(usl.slope(np.array(usl.peak + 5))) == 0.0
    points = CURVES[3]
    assert points.peak == 9.0
    assert [float(points.value(np.array(v))) for v in (0.0, 1.0, 2.0, 3.5, 9.0, 20.0)] == [0.0, 1.0, 2.0, 3.0, 5.0, 5.0]
    assert [float(points.slope(np.array(v))) for v in (0.0, 2.0, 5.0, 9.0)] == pytest.approx([1.0, 2 / 3, 0.25, 0.0])


BAD = {
    "serial": (Scalability(kind=CurveKind.SATURATING, serial=1.0), "scalability.serial"),
    "base": (Scalability(kind=CurveKind.SATURATING, base=0.0), "scalability.base"),
    "a base whose square is 0": (Scalability(kind=CurveKind.SATURATING, base=1e-200), "base must be at least 1e-14"),
    "crosstalk": (Scalability(kind=CurveKind.USL, serial=0.5, crosstalk=0.6), "scalability.crosstalk"),
    "a curve that bends upward": (Scalability(kind=CurveKind.USL, serial=0.01, crosstalk=0.05), "concave"),
    "points that don't ascend": (Scalability(kind=CurveKind.POINTS, points=((2.0, 2.0), (2.0, 3.0))), "ascending"),
    "no points": (Scalability(kind=CurveKind.POINTS), "ascending"),
    "points that rise faster": (Scalability(kind=CurveKind.POINTS, points=((2.0, 1.0), (4.0, 3.0))), "concave"),
    "a base beyond all sums": (
        Scalability(kind=CurveKind.SATURATING, base=1e16),
        r"scalability.base .* at most 1e\+14",
    ),
    "points beyond all sums": (
        Scalability(kind=CurveKind.POINTS, points=((2.0, 1.0), (1e308, 2.0))),
        r"at most 1e\+14",
    ),
    "points that fall": (Scalability(kind=CurveKind.POINTS, points=((2.0, 2.0), (4.0, 1.0))), "concave"),
}


@pytest.mark.parametrize("name", BAD)
def test_refuses_a_curve_with(name):
    curve, says = BAD[name]
    with pytest.raises(InvalidProblemError, match=says):
        hour_instance([0], [0.1], [1.0], scalability=curve)


FIELDS = {
    "a negative cost": ({"fixed_usd": -1e-9}, "fixed_usd"),
    "an endless loss": ({"eviction_loss_h": np.inf}, "eviction_loss_h"),
    "a cost beyond all sums": ({"fixed_usd": 1e16}, r"fixed_usd must be between 0 and 1e\+14, got 1e\+16"),
    "a rate beyond all sums": ({"work": [1e308]}, r"bids\[0\].rate must be between 0 and 1e\+14, got 1e\+308"),
    "a price beyond all sums": ({"cost": [1e16]}, r"bids\[0\].price_usd must be between 0 and 1e\+14"),
    "a rate below 0": ({"work": [-1.0]}, r"bids\[0\].rate"),
    "a count below 0": ({"max_count": [-1]}, r"bids\[0\].max_count"),
    "too many instances": ({"max_count": [10**6 + 1]}, r"bids\[0\].max_count"),
    "a price below 0": ({"cost": [-0.1]}, r"bids\[0\].price_usd"),
    "more than certain eviction": ({"evicted": [1.1]}, r"bids\[0\].evicted"),
    "more than an hour in use": ({"usable_h": [1.1]}, r"bids\[0\].usable_h"),
    "a cap below 0": ({"cap": -1}, r"caps\[0\].limit"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_refuses_an_hour_with(name):
    fields, says = FIELDS[name]
    known = {"market": [0], "cost": [0.1], "work": [1.0]} | fields
    with pytest.raises(InvalidProblemError, match=says):
        hour_instance(known.pop("market"), known.pop("cost"), known.pop("work"), **known)


def test_bids_are_sorted_by_market_and_delta_and_last_longer_the_higher_they_are():
    with pytest.raises(InvalidProblemError, match="sort them"):
        hour_instance([1, 0], [0.1, 0.1], [1.0, 1.0])
    with pytest.raises(InvalidProblemError, match="sort them"):
        hour_instance([0, 0], [0.1, 0.1], [1.0, 1.0], delta=[5, 3])
    with pytest.raises(InvalidProblemError, match=r"bids\[1\].evicted must not increase"):
        hour_instance([0, 0], [0.1, 0.1], [1.0, 1.0], evicted=[0.1, 0.2])
    assert hour_instance([0, 1], [0.1, 0.1], [1.0, 1.0], evicted=[0.1, 0.2]).num_bids == 2


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
        ({"charge_micro": np.zeros((2, 1), dtype=int)}, "one entry for each of the 2 scenarios"),
        ({"evicted_s": np.full((1, 2), -1)}, "one entry for each of the 2 scenarios"),
        ({"charge_micro": np.array([[-1, 0], [10, 20]])}, "at least 0"),
        ({"evicted_s": np.array([[-2, 600], [-1, 3000]])}, "or -1 for a bid that is not outbid"),
        ({"evicted_s": np.array([[-1, 600], [-1, 3600]])}, "evicted_s 0 to 3599"),
        ({"evicted_s": np.array([[-1, 600], [-1, 599]])}, "must not decrease as the delta increases"),
        ({"evicted_s": np.array([[-1, -1], [-1, 3000]])}, "must not decrease as the delta increases"),
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
        ({"weight": np.ones((1, 3))}, "one weight per bid and one limit per cap"),
        ({"limit": np.ones(2)}, "one weight per bid and one limit per cap"),
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
    with pytest.raises(InvalidProblemError, match="one value per bid"):
        replace(HOUR, bids=replace(HOUR.bids, rate=np.ones(3)))
