"""The checker's quantities of a price path, second by second, against plain loops."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optim.models.bidding.market.prices import PricePath
from optim.simulation.spot.oracle import Oracle
from optim.simulation.spot.oracle_check import _beside, _max_gain, _Steps
from tests.support.spot.worlds import world

TIMES, PRICES = (0, 500, 1500, 2100, 6000, 6100), (2, 5, 3, 8, 2, 9)
RISES = ((500, 5), (2100, 8), (6100, 9))
PATH = PricePath(time_s=np.array(TIMES), price_micro=np.array(PRICES))
STEPS = _Steps(PATH)
moments = st.integers(0, 8000)


def price(second):
    return PRICES[np.searchsorted(TIMES, second, side="right") - 1]


@given(begin=moments, length=st.integers(1, 4000))
def test_lowest_and_highest_prices_are_those_of_all_seconds(begin, length):
    prices = [price(second) for second in range(begin, begin + length)]
    assert STEPS.lowest(begin, begin + length) == min(prices)
    assert STEPS.highest(begin, begin + length) == max(prices)


@given(begin=moments, length=st.integers(1, 4000))
def test_rises_are_the_changes_to_a_higher_price(begin, length):
    expected = [(time, after) for time, after in RISES if begin <= time < begin + length]
    assert list(STEPS.rises(begin, begin + length)) == expected
    assert list(STEPS.rises(0, 600)) == [(500, 5)]


def test_a_price_told_again_is_no_rise_and_frees_nothing():
    """Price files often repeat a price: a repeated price outbids no lower bid."""
    steps = _Steps(PricePath(time_s=np.array([0, 500, 900]), price_micro=np.array([3, 3, 2])))
    assert list(steps.rises(0, 1000)) == []
    assert not steps.has_free_moment(0, 1000)


@given(begin=st.integers(0, 6500), length=st.integers(1, 1500))
def test_a_time_is_free_if_a_bid_held_through_it_is_outbid_within_the_hour(begin, length):
    end = begin + length
    is_free = False
    for rise, after in RISES:
        granted = min(begin, rise - 1)
        held = {price(second) for second in range(granted, rise)}
        is_free |= end <= rise + 120 and rise - granted < 3600 and max(held) < after
    assert STEPS.is_free(begin, end) == is_free


@pytest.fixture(scope="module")
def is_free():
    """For each second: whether a lease of less than an hour that a rise of the price ends can include the second."""
    found = np.zeros(9000, dtype=bool)
    for rise, after in RISES:
        found[rise : rise + 120] = True  # allocated since the previous second
        for second in range(rise - 1, max(-1, rise - 3600), -1):
            if price(second) >= after:
                break
            found[second] = True
    return found


@given(begin=st.integers(0, 8000), length=st.integers(1, 900))
@example(begin=2300, length=60)  # at the highest price for more than an hour
def test_a_time_has_a_free_moment_if_one_of_its_seconds_is_free(is_free, begin, length):
    assert STEPS.has_free_moment(begin, begin + length) == is_free[begin : begin + length].any()


def test_before_the_first_price_there_is_none():
    assert STEPS.lowest(-500, -100) == float("inf")
    assert STEPS.highest(-500, -100) == 0


@pytest.mark.parametrize(
    ("startup_min", "slot", "rate"),
    [(0, (0, 120), 0.0), (0, (480, 600), 2.0), (0, (600, 720), 4.0), (0.5, (480, 600), 2.0), (1.5, (480, 600), 2.0),
     (1.75, (480, 600), 0.0), (2, (480, 600), 0.0), (0, (720, 840), 2.0), (0, (840, 960), 0.0)],
)  # fmt: skip
def test_machines_under_warning_work_beside_others_if_start_up_is_shorter(startup_min, slot, rate):
    """At most two machines; prices rise at 500 s in one and at 605 s in both markets, and a warning takes 120 s."""
    paths = (((0, 1), (500, 2), (605, 3)), ((0, 5), (605, 6)))
    job = world(*paths, max_spot=2, tick_s=120, startup_min=startup_min, job_hours=1)
    steps = [_Steps(path) for path in job.history.paths]
    assert _beside(job, steps, *slot) == rate
    assert Oracle(job)._beside[slot[0] // 120] == rate


@given(
    q=st.floats(0.01, 5.0),
    unit=st.floats(0.001, 2.0),
    free=st.floats(0.0, 20.0),
    most=st.floats(1.0, 40.0),
    serial=st.sampled_from([0.0, 0.002, 0.1]),
)
def test_the_most_that_can_be_gained_at_a_moment_is_no_less_than_on_a_fine_grid(q, unit, free, most, serial):
    rates = np.append(np.linspace(0.0, max(free, most), 4001), free)
    gains = q * rates / (1 - serial + serial * rates) - unit * np.maximum(0.0, rates - free)
    found = _max_gain(q, unit, free, most, serial)
    assert found >= gains.max() - 1e-9
    assert found == pytest.approx(gains.max(), rel=1e-3, abs=1e-3)
