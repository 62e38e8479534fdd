"""The least cost over zones against all ways tried, and its plan and proof."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.billing import Billing
from optim.models.bidding.zones.check import check_optimum
from optim.models.bidding.zones.market import UNITS_USD, Stay
from optim.solvers.bidding.zones.optimum import least_cost
from tests.support.spot.zones import cheapest_by_trying, drawn, drawn_in_seconds, zone_job, zone_market


@given(
    seed=st.integers(0, 10**6),
    draw=st.sampled_from([drawn, drawn_in_seconds]),
    billing=st.sampled_from([Billing.PER_SECOND, Billing.WHOLE_TICKS]),
)
def test_is_the_least_of_all_ways_and_proven(seed, draw, billing):
    market, job = draw(seed)
    best = least_cost(market, job, 0, billing)
    assert best.units == best.plan_units == cheapest_by_trying(market, job, is_whole=billing is Billing.WHOLE_TICKS)
    assert check_optimum(market, job, best, billing) == ()


@given(seed=st.integers(0, 10**6), billing=st.sampled_from([Billing.AWS_2009, Billing.AWS_2017]))
def test_under_amazons_rules_a_bound_is_proven_and_a_plan_is_billed_no_less(seed, billing):
    market, job = drawn_in_seconds(seed)
    best = least_cost(market, job, 0, billing)
    assert check_optimum(market, job, best, billing) == ()
    assert best.units <= best.plan_units


def test_moves_to_another_zone_where_that_pays_and_waits_for_spot():
    market = zone_market("xxx---", "---xxx", spot=[1.0, 1.0])
    # Two ticks of work in the first zone, a launch in the second, two ticks there.
    best = least_cost(market, zone_job(market, 4, 6, move=0.25), 0)
    assert best.plan == (Stay(0, True, 0, 10_800, is_lost=True), Stay(1, True, 10_800, 21_600))
    assert best.usd == 6.25
    # A dear move: two hours on demand after the first two, whose launch costs an hour as well, are worse still.
    dear = least_cost(market, zone_job(market, 4, 6, move=2.0), 0)
    assert dear.usd == 8.0
    late = zone_market("----xxx", spot=[0.5])
    waiting = least_cost(late, zone_job(late, 2, 7), 0)
    assert waiting.plan == (Stay(0, True, 14_400, 25_200),)
    assert waiting.usd == 1.5


def test_starts_at_the_tick_it_is_told_and_counts_every_machine():
    market = zone_market("-xxx", spot=[0.5])
    best = least_cost(market, zone_job(market, 2, 3, machines=4), 1)
    assert (best.usd, best.first) == (4 * 1.5, 1)
    assert best.units == 6 * UNITS_USD


def test_refuses_traces_that_end_too_early_and_values_that_fill_the_memory():
    market = zone_market("xxxx")
    with pytest.raises(InvalidProblemError, match="end before the deadline of a job that starts at tick 2"):
        least_cost(market, zone_job(market, 2, 3), 2)
    with pytest.raises(InvalidOptionError, match="needs more than a GiB"):
        least_cost(market, zone_job(market, 10, 60_000), 0)


def test_machines_lost_after_an_hour_are_paid_for_and_those_lost_before_are_not():
    market = zone_market("xxxxxx---", spot=[1.0], tick_s=600)
    tight = least_cost(market, zone_job(market, 9, 9, setup=0), 0, Billing.AWS_2017)
    assert (tight.bound_usd, tight.usd) == pytest.approx(
        (1 / 6 + 1.5,) * 2
    )  # launched again after a tick: free from then on
    loose = zone_market("-xxxxx----", spot=[1.0], tick_s=600)
    freed = least_cost(loose, zone_job(loose, 9, 10, setup=0), 0, Billing.AWS_2017)
    assert (freed.bound_usd, freed.usd) == (2.0, 2.0)  # fifty minutes are free, forty on demand


def test_the_last_started_hour_before_a_loss_is_free_under_the_rules_of_2009():
    market = zone_market("xxxxxxxxx---", spot=[1.0], tick_s=600)
    best = least_cost(market, zone_job(market, 12, 12, setup=0), 0, Billing.AWS_2009)
    # Billed are an hour of spot and a started hour on demand; in the bound all ticks that an hour before the loss holds are free.
    assert (best.bound_usd, best.usd) == (0.5 + 1.5, 4.0)
