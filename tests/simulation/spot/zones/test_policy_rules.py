"""Every rule of every policy over zones, on traces small enough for a bill by hand: dollars and allocations."""

import pytest

from optim.models.bidding.market.zones import UNITS_USD
from optim.simulation.spot.zones import facts_of, run_zones
from tests.support.policies import ZONE_POLICIES
from tests.support.spot.zones import ticks_of, zone_job, zone_market


def stays(name, market, job):
    """Return dollars without probes, and stays as (zone, begin, end, s for spot or d for on demand)."""
    run = run_zones(market, job, ZONE_POLICIES[name](facts_of(market, job)), 0)
    assert run.deadline_met
    return (run.units - run.probe_units) / UNITS_USD, [
        (zone, begin, end, "s" if is_spot else "d")
        for zone, is_spot, begin, end in (ticks_of(stay, market) for stay in run.stays)
    ]


def test_uniform_progress_takes_the_first_zone_of_the_order_even_if_another_is_cheaper():
    market = zone_market("xxxxxxxxxx", "xxxxxxxxxx", spot=[2.0, 1.0])
    assert stays("uniform-progress-zones", market, zone_job(market, 4, 9)) == (10.0, [(0, 0, 5, "s")])


def test_uniform_progress_stays_on_spot_until_it_is_taken_and_goes_on_to_the_next_zone():
    market = zone_market("xx-xxxxxxxx", "-xxxxxxxxxx", spot=[1.0, 1.0])
    cost, held = stays("uniform-progress-zones", market, zone_job(market, 4, 10, move=0.5))
    assert held == [(0, 0, 2, "s"), (1, 2, 6, "s")]  # the first zone is back at tick 3, and isn't returned to
    assert cost == 2.0 + 0.5 + 4.0


def test_uniform_progress_runs_on_demand_where_behind_until_ahead_by_two_launches_and_spot_is_there():
    market = zone_market("-------x--x" + "x" * 13, spot=[1.0])
    cost, held = stays("uniform-progress-zones", market, zone_job(market, 8, 24))
    # Behind from the second tick on: one tick of waiting at an even start, then on demand. Due are a third of the
    # ticks so far and of two more; at tick 7 there is spot, and 5 of (7 + 2) / 3 = 3 are done.
    assert held == [(0, 1, 7, "d"), (0, 7, 8, "s"), (0, 10, 14, "s")]
    assert cost == 6 * 3.0 + 1.0 + 4.0


def test_uniform_progress_stays_on_demand_when_ahead_while_there_is_no_spot():
    market = zone_market("-" * 30, spot=[1.0])
    assert stays("uniform-progress-zones", market, zone_job(market, 6, 24)) == (21.0, [(0, 1, 8, "d")])


def test_greedy_waits_for_spot_in_any_zone_and_never_moves_without_need():
    market = zone_market("---xxxxxxx", "--xxxxxxxx", spot=[0.5, 1.0])
    assert stays("greedy-spot", market, zone_job(market, 3, 9)) == (4.0, [(1, 2, 6, "s")])


def test_cheapest_zone_takes_the_lowest_price_that_is_there_and_keeps_it():
    prices = [[1.0] * 10, [2.0] * 10, [0.5] * 10]
    market = zone_market("xxxxxxxxxx", "xxxxxxxxxx", "--xxxxxxxx", spot=prices)
    assert stays("cheapest-zone", market, zone_job(market, 3, 9)) == (4.0, [(0, 0, 4, "s")])


def test_on_demand_takes_the_cheapest_zone_from_start_to_end():
    market = zone_market("xxxxx", "xxxxx", on_demand=[3.0, 2.5])
    assert stays("on-demand", market, zone_job(market, 3, 5)) == (10.0, [(1, 0, 4, "d")])


@pytest.mark.parametrize(("move", "held"), [(0.5, [(0, 0, 2, "s"), (1, 2, 11, "s")]), (40.0, [(0, 0, 10, "s")])])
def test_adaptive_leaves_for_a_cheaper_zone_that_a_probe_finds_if_the_rest_of_the_work_pays_for_it(move, held):
    # The second zone has machines from the second hour on, and is probed every two hours.
    market = zone_market("x" * 20, "--" + "x" * 18, spot=[2.0, 1.0])
    job = zone_job(market, 9, 19, move=move)
    run = run_zones(market, job, ZONE_POLICIES["adaptive-zones"](facts_of(market, job)), 0)
    found = [
        (zone, begin, end, "s" if is_spot else "d")
        for zone, is_spot, begin, end in (ticks_of(stay, market) for stay in run.stays)
    ]
    assert found == held
    probes = run.probe_units / UNITS_USD
    paid = sum((end - begin) * (2.0 if zone == 0 else 1.0) for zone, begin, end, _ in held)
    assert run.cost_usd == pytest.approx(paid + move * (len(held) - 1) + probes)
    assert probes > 0


def test_adaptive_probes_nothing_dearer_than_what_it_holds():
    market = zone_market("x" * 20, "x" * 20, spot=[1.0, 1.5])
    job = zone_job(market, 9, 19)
    run = run_zones(market, job, ZONE_POLICIES["adaptive-zones"](facts_of(market, job)), 0)
    assert (run.probes, run.cost_usd) == (0, 10.0)


def test_skynomad_waits_while_work_is_worth_less_than_on_demand_and_takes_it_under_pressure():
    market = zone_market("-" * 24, spot=[1.0])
    cost, held = stays("skynomad", market, zone_job(market, 6, 20))
    # Work for 6 ticks and a launch on demand costs 3 * 7 / 6 = 3.5 per tick; its value is 3 * 20 / (20 - t) > 3.5 from
    # t = 3.
    assert held == [(0, 3, 10, "d")]
    assert cost == 21.0


def test_skynomad_takes_spot_at_once_where_its_launch_and_work_cost_less_than_on_demand():
    market = zone_market("x" * 10, spot=[2.1])
    # A launch and 3 ticks of work cost 2.1 * 4 / 3 = 2.8 per tick of work, with a value of 3.
    assert stays("skynomad", market, zone_job(market, 3, 10)) == (pytest.approx(8.4), [(0, 0, 4, "s")])


def test_skynomad_prefers_what_costs_least_a_tick_of_work_launch_and_move_included():
    market = zone_market("xx" + "-" * 18, "-" + "x" * 19, "-" + "x" * 19, spot=[1.0, 1.2, 1.25])
    job = zone_job(market, 6, 19)
    job.move_micro[1, 1] = 2_000_000
    cost, held = stays("skynomad", market, job)
    assert held == [(0, 0, 2, "s"), (2, 2, 8, "s")]
    assert cost == 2.0 + 6 * 1.25
