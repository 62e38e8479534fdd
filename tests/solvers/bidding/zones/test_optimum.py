"""The least cost over zones against enumeration, and its plan and proof."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.zones import UNITS_USD, Allocation, ZoneJob
from optim.solvers.bidding.zones import least_cost
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
    assert best.plan == (Allocation(0, True, 0, 10_800, is_lost=True), Allocation(1, True, 10_800, 21_600))
    assert best.usd == 6.25
    # An expensive move: two hours on demand after the first two, whose launch costs an hour as well, are still worse.
    dear = least_cost(market, zone_job(market, 4, 6, move=2.0), 0)
    assert dear.usd == 8.0
    late = zone_market("----xxx", spot=[0.5])
    waiting = least_cost(late, zone_job(late, 2, 7), 0)
    assert waiting.plan == (Allocation(0, True, 14_400, 25_200),)
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


MARKET = zone_market("xx-x")
JOB = zone_job(MARKET, 2, 3, setup=0)
TWO_ZONES = zone_market("xxxx", "xxxx")


@pytest.mark.parametrize(
    ("set_up", "said"),
    [
        (lambda: zone_job(MARKET, 0, 3), "work_s and machines must be at least 1"),
        (lambda: zone_job(MARKET, 1, 0), "the deadline of 0 s can't be met even on demand: launch and work take 7200 s"),
        (lambda: zone_job(MARKET, 3, 2, setup=0), "the deadline of 7200 s can't be met"),
        (lambda: zone_job(MARKET, 1, 3, machines=0), "work_s and machines must be at least 1"),
        (lambda: replace(JOB, work_s=3600.5), "work_s must be an integer, got 3600.5"),
        (lambda: replace(JOB, deadline_s=float("nan")), "deadline_s must be an integer, got nan"),
        (lambda: replace(JOB, setup_s=np.full((2, 1), 0.5)), "a job's setup_s must be whole numbers"),
        (lambda: ZoneJob(work_s=1, deadline_s=2, setup_s=np.zeros((1, 0)), move_micro=np.zeros((1, 0))), "(zones + 1, zones)"),
        (lambda: replace(MARKET, spot_micro=np.full((4, 1), np.nan)), "a market's spot_micro must be whole numbers"),
        (lambda: replace(MARKET, spot_micro=[[0], [1], [1], [1]]), "prices must be positive"),
        (lambda: replace(MARKET, time_s=[], is_available=np.zeros((0, 1)), spot_micro=np.zeros((0, 1))), "at least one zone and one tick"),
        (lambda: replace(MARKET, zones=(), regions=()), "a market needs at least one zone"),
        (lambda: least_cost(MARKET, zone_job(MARKET, 4, 6, setup=0), 0), "end before the deadline of a job that starts at tick 0"),
        (lambda: least_cost(MARKET, JOB, -4), "a job that starts at tick -4"),
        (lambda: least_cost(MARKET, JOB, 9), "a job that starts at tick 9"),
        (lambda: least_cost(TWO_ZONES, JOB, 0), "the job has set-up times for 1 zones, but the market has 2"),
        (lambda: least_cost(MARKET, zone_job(TWO_ZONES, 2, 3, setup=0), 0), "the job has set-up times for 2 zones, but the market has 1"),
        (lambda: least_cost(MARKET, replace(JOB, machines=10**18), 0), "more than the exact limit"),
        (lambda: least_cost(zone_market("----", on_demand=[4e12]), JOB, 0), "more than the exact limit"),
        (lambda: least_cost(MARKET, replace(JOB, move_micro=[[2**60], [0]]), 0), "more than the exact limit"),
        (lambda: least_cost(MARKET, JOB, 0, "aws"), "billing must be one of aws-2009, aws-2017, per-second, whole-ticks, got 'aws'"),
    ],
)  # fmt: skip
def test_a_set_up_that_makes_no_sense_is_refused_in_a_line(set_up, said):
    with pytest.raises((InvalidOptionError, InvalidProblemError)) as caught:
        set_up()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("market", "job", "usd"),
    [
        (zone_market("x", spot=[0.5]), (1, 1), 0.5),  # one tick and one price
        (zone_market("-"), (1, 1), 3.0),  # none to be had
        (zone_market("----"), (2, 4), 6.0),  # more machines wanted than any tick offers
        (zone_market("xx-x"), (4, 4), 6.0),  # no slack, and the deadline is where the traces end
        (zone_market("xxxx", spot=[[1e-6, 1, 1, 1]]), (1, 4), 1e-6),
        (zone_market("xxxx", on_demand=[1e-6]), (4, 4), 4e-6),
    ],
)
@pytest.mark.parametrize("machines", [1, 1000])
def test_an_odd_set_up_that_can_be_done_is_solved_and_proven(market, job, usd, machines):
    job = zone_job(market, *job, setup=0, machines=machines)
    best = least_cost(market, job, 0)
    assert best.usd == best.bound_usd == pytest.approx(machines * usd)
    assert best.units == machines * round(usd * UNITS_USD)
    assert check_optimum(market, job, best) == ()


def test_the_name_of_a_rule_means_the_rule():
    market = zone_market("xxxxxx---", spot=[1.0], tick_s=600)
    job = zone_job(market, 9, 9, setup=0)
    for rule in Billing:
        assert least_cost(market, job, 0, rule.value).units == least_cost(market, job, 0, rule).units


def test_the_largest_costs_that_are_taken_are_exact():
    market = zone_market("--", on_demand=[1e6])
    job = zone_job(market, 2, 2, setup=0, machines=20)
    best = least_cost(market, job, 0)
    assert best.units == 2 * 20 * 10**6 * UNITS_USD
    assert check_optimum(market, job, best) == ()
