"""Bills by the rules of each era, hour by hour, against bills added up in another way."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.billing import AMAZON, Billing, End, FixedPrice, Lease, charged_hours, lease_lines
from optim.models.bidding.market.prices import PricePath

HOUR = 3600
EC2_2013, EC2_TODAY = Billing.AWS_2009, Billing.AWS_2017
PATH = PricePath(
    time_s=np.array([0, 1800, 3600, 5400]), price_micro=np.array([100_000, 900_000, 200_000, 50_000], dtype=np.int64)
)


def lease(granted, ended, end=End.RETURNED, count=3):
    return Lease(market="m", count=count, granted_s=granted, ended_s=ended, end=end)


def amounts(rule, *args, prices=PATH, **kwargs):
    return [line.amount_micro for line in lease_lines(lease(*args, **kwargs), prices, rule)]


def test_an_hour_costs_the_price_of_its_start_whatever_comes_later():
    assert amounts(EC2_2013, 0, 2 * HOUR) == [300_000, 600_000]
    assert amounts(EC2_2013, 1800, 1800 + HOUR) == [2_700_000]


def test_the_evicted_hour_is_free_and_the_returned_hour_is_paid():
    assert amounts(EC2_2013, 0, HOUR + 1, End.EVICTED) == [300_000, 0]
    assert amounts(EC2_2013, 0, HOUR + 1) == [300_000, 600_000]


def test_a_crossing_on_the_boundary_begins_no_hour_and_frees_none():
    assert amounts(EC2_2013, 0, HOUR, End.EVICTED) == [300_000]


def test_today_the_first_hour_is_free_if_interrupted_and_later_seconds_are_charged():
    assert amounts(EC2_TODAY, 0, 1800, End.EVICTED) == [0]
    assert amounts(EC2_TODAY, 0, HOUR + 1800, End.EVICTED) == [300_000, 300_000]
    assert amounts(EC2_TODAY, 0, 1800) == [150_000]
    assert amounts(EC2_TODAY, 0, 10) == [5_000]


def test_on_demand_rounds_hours_up_before_2017_and_seconds_today():
    price = FixedPrice(210_000)
    assert amounts(EC2_2013, 0, HOUR + 1, prices=price) == [630_000, 630_000]
    assert amounts(EC2_TODAY, 0, HOUR + 1800, prices=price) == [630_000, 315_000]


def test_there_is_no_bill_before_the_first_price():
    with pytest.raises(InvalidProblemError, match="no price"):
        lease_lines(lease(-10, 10), PATH, EC2_2013)


@given(
    prices=st.lists(st.integers(1, 10**7), min_size=1, max_size=6),
    granted=st.integers(0, 10_000),
    held=st.integers(1, 5 * HOUR),
    count=st.integers(1, 9),
    is_evicted=st.booleans(),
)
def test_the_lines_add_up_to_the_bill_computed_hour_by_hour(prices, granted, held, count, is_evicted):
    path = PricePath(time_s=np.arange(len(prices)) * 2000, price_micro=np.array(prices, dtype=np.int64))
    end = End.EVICTED if is_evicted else End.RETURNED
    lines = lease_lines(lease(granted, granted + held, end, count), path, EC2_2013)
    started = -(-held // HOUR)
    paid = held // HOUR if is_evicted else started
    expected = sum(prices[min((granted + n * HOUR) // 2000, len(prices) - 1)] for n in range(paid)) * count
    assert sum(line.amount_micro for line in lines) == expected
    assert len(lines) == started


@given(granted=st.integers(0, 10_000), held=st.integers(60, 5 * HOUR), price=st.integers(1, 10**7))
def test_seconds_cost_their_share_of_the_hour_to_half_a_micro_dollar_a_line(granted, held, price):
    lines = lease_lines(lease(granted, granted + held, count=1), FixedPrice(price), EC2_TODAY)
    assert abs(sum(line.amount_micro for line in lines) - price * held / HOUR) <= len(lines) / 2


@given(
    held=st.one_of(st.integers(1, 5 * HOUR), st.sampled_from([1, 59, 60, HOUR - 1, HOUR, HOUR + 1, 2 * HOUR])),
    billing=st.sampled_from(AMAZON),
    end=st.sampled_from(list(End)),
)
@example(held=HOUR, billing=EC2_TODAY, end=End.EVICTED)
@example(held=10, billing=EC2_TODAY, end=End.RETURNED)
def test_the_lines_charge_the_hours_that_the_second_derivation_charges(held, billing, end):
    """At 3600 micro-dollars per hour, a line's amount is its seconds."""
    lines = lease_lines(lease(0, held, end, count=1), FixedPrice(HOUR), billing)
    charged = charged_hours(held, billing, is_evicted=end is End.EVICTED)
    assert [line.amount_micro for line in lines if line.amount_micro] == charged
