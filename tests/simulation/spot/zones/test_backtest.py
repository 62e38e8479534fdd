"""Back-tests over zones: equal for any number of processes, every row with the proven least cost, user policies."""

import pickle

import pytest

from optim.core.errors import InvalidOptionError
from optim.simulation.spot.backtest import ZoneBacktest, ZoneStarts, run_over_zones
from tests.support.policies import ZONE_POLICIES
from tests.support.spot.zones import zone_job, zone_market

MARKET = zone_market("xxx-x--xxxx--xx-xxxx", "--xxxxx-xx-xx-x-xxxx", spot=[1.0, 1.25], tick_s=1800)
WORLD = ZoneStarts(market=MARKET, job=zone_job(MARKET, 4, 8, move=0.25, machines=2))
NAMES = (*ZONE_POLICIES, "optimum")


def rows(**settings):
    return [entry.rows for entry in run_over_zones(WORLD, NAMES, starts=4, seed=0, **settings)]


def test_every_row_has_its_ratio_to_the_least_cost():
    found = rows()
    copied = pickle.loads(pickle.dumps(ZoneBacktest(WORLD, NAMES, 0)))  # sent to another process
    assert copied.run_start(3).rows == found[3]
    for start in found:
        by_name = {row.policy: row for row in start}
        assert tuple(by_name) == NAMES
        best = by_name["optimum"]
        assert (best.ratio_to_optimum, best.deadline_met, best.bound_usd) == (1.0, True, best.cost_usd)
        assert by_name["on-demand"].ratio_to_on_demand == 1.0
        assert by_name["on-demand"].cost_usd == 2 * 3.0 * 0.5 * 5
        for row in start:
            assert row.ratio_to_optimum == pytest.approx(row.cost_usd / best.cost_usd)
            assert row.ratio_to_optimum >= 1.0
            assert row.is_done
            assert row.work_done == 2.0
            assert row.cost_per_work == pytest.approx(row.cost_usd / 2.0)
    held = {row.policy: (row.on_demand_hours, row.paid_hours, row.hours) for row in found[0]}
    assert held["on-demand"] == (5.0, 0.0, 2.5)
    assert held["optimum"][0] + held["optimum"][1] >= 5.0


def test_starts_are_drawn_from_the_ticks_that_leave_the_deadline():
    starts = {row.start for entry in run_over_zones(WORLD, ["on-demand"], starts=200, seed=1) for row in entry.rows}
    assert len(starts) == len(MARKET) - 8 + 1
    with pytest.raises(InvalidOptionError, match=r"deadline of 10\.5 h needs 21 ticks"):
        run_over_zones(ZoneStarts(market=MARKET, job=zone_job(MARKET, 4, 21)), ["on-demand"], starts=1, seed=0)


OWN = """
from tests.support.policies import ZONE_POLICIES
from optim.simulation.spot.zones import Offer, ZonePolicy
from dataclasses import dataclass

class Never(ZonePolicy):
    def decide(self, view):
        return ()

class Other:
    pass
"""


def test_a_policy_of_ones_own_is_run_and_may_miss_its_deadline(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    (entry,) = run_over_zones(WORLD, [f"{file}:Never", "on-demand"], starts=1, seed=0)
    never = entry.rows[0]
    assert never.policy == f"{file}:Never"
    assert (never.deadline_met, never.is_done, never.cost_usd, never.work_done) == (False, False, 0.0, 0.0)
    for name, message in (
        ("Other", "is not a policy over zones"),
        ("Nobody", "mine.py has no class Nobody; it has Never"),
    ):
        with pytest.raises(InvalidOptionError, match=message):
            run_over_zones(WORLD, [f"{file}:{name}"], starts=1, seed=0)
    with pytest.raises(
        InvalidOptionError, match=r"there is no file .*; give a policy over zones as ./mine.py:MyPolicy"
    ):
        run_over_zones(WORLD, [f"{tmp_path}/none.py:Never"], starts=1, seed=0)
    with pytest.raises(
        InvalidOptionError,
        match="unknown policy over zones 'clever'; there are: adaptive-zones, cheapest-zone",
    ):
        run_over_zones(WORLD, ["clever"], starts=1, seed=0)
