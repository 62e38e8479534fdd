"""The study over zones: verified rows on drawn markets, recordings and wrong hazards, and a bill at the last price."""

from dataclasses import replace

import numpy as np
import pytest
from optim_studies.zone_deadlines import (
    RIVALS,
    WAYS,
    Outcome,
    ZoneDeadlineOptions,
    _contradictions,
    _outcome,
    outcome_of,
    world_of,
)

from optim.benchmarks.suite import BenchRequest, choose_suites
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.models.bidding.market.zones import Allocation
from optim.simulation.spot.zones import facts_of, run_zones
from tests.support.spot.zones import drawn, zone_job, zone_market

TINY = {"job_hours": 4.0, "deadline_hours": 5.0, "starts": 3}


def rows(**options):
    (suite,) = choose_suites(("bidding",), ("zone-deadlines",))
    return {
        work.solver: work.run(Never(), SilentProgress())
        for work in suite.build(BenchRequest(options={**TINY, **options}))
    }


def test_every_row_is_verified_and_paired():
    found = rows()
    assert tuple(found) == WAYS
    assert all(record.verified for record in found.values()), [record.violations for record in found.values()]
    least = found["optimum"].findings
    assert least["above_optimum"] == 0.0
    assert found["deadline-dp"].findings["more_usd"] == 0.0
    for record in found.values():
        mine = record.findings
        assert mine["usd"] == pytest.approx(least["usd"] * (1.0 + mine["above_optimum"]))
        assert mine["usd"] - mine["more_usd"] == pytest.approx(found["deadline-dp"].findings["usd"])
        assert mine["late"] == 0.0


def table(path, zones):
    lines = [
        f"{k},2023-02-15 {k // 6:02}:{k % 6}0:00,{zone},{int((k + 3 * number) % 10 < 7)},{1.0 + number}"
        for number, zone in enumerate(zones)
        for k in range(120)
    ]
    path.write_text("\n".join(["tick,timestamp_local,zone,available,price_usd_per_hour", *lines]) + "\n")
    return str(path)


def test_recordings_halves_spread_and_wrong_hazards(tmp_path):
    here = table(tmp_path / "a.csv", ("us-west-2a", "us-east-1a"))
    there = table(tmp_path / "b.csv", ("eu-west-1a",))
    told = ZoneDeadlineOptions(availability=here, history=there, **TINY)
    world = world_of(told, 0)
    assert world.market.regions == ("us-west-2", "us-east-1")
    assert world.job.move_micro[1, 1] == 1_000_000
    assert world.hazards.source
    late = world_of(replace(told, part="second-half"), 0)
    assert min(late.firsts) >= 60
    spread = world_of(replace(told, price_spread=0.5), 0)
    factors = spread.market.spot_micro / world.market.spot_micro
    assert np.ptp(factors, axis=0).max() < 1e-5
    assert abs(factors[0, 0] - factors[0, 1]) > 0.01
    tenfold = world_of(replace(told, wrong="tenfold"), 0).hazards.hazard
    assert tenfold == pytest.approx(np.minimum(1.0, 10.0 * world.hazards.hazard))
    turned = world_of(replace(told, wrong="reversed"), 0).hazards.hazard
    assert turned == pytest.approx(world.hazards.hazard[:, ::-1])
    for wrong in ("tenth", "reversed"):
        assert not outcome_of(replace(told, wrong=wrong), 0, "deadline-dp", 0)[0].is_late
    with pytest.raises(InvalidOptionError, match="shorter than a deadline"):
        world_of(replace(told, part="first-half", deadline_hours=11.0), 0)
    with pytest.raises(InvalidOptionError, match="availability=FILE"):
        ZoneDeadlineOptions(zones="us-west-2a")


def test_a_bill_at_the_last_price_takes_the_last_zones():
    market = zone_market("xxxx", "xxxx", spot=[1.0, 2.0], on_demand=[3.0, 4.0])
    job = zone_job(market, 3, 4, setup=0)
    stays = (Allocation(0, True, 0, 3600), Allocation(0, False, 3600, 7200), Allocation(1, True, 7200, 9000))
    found = _outcome(market, job, 0, stays, 9.0, is_late=False)
    assert found.last_price_usd == pytest.approx(1.5 * 2.0 + 1.0 * 4.0)


def test_a_run_that_is_late_or_too_cheap_is_a_problem():
    def outcome(usd, is_late=False):
        return Outcome(usd=usd, last_price_usd=usd, is_late=is_late)

    least = [outcome(5.0)]
    assert not list(_contradictions("a", {"a": [outcome(5.0)], "optimum": least}, 7))
    (late,) = _contradictions("a", {"a": [outcome(5.0, is_late=True)], "optimum": least}, 7)
    assert late == "start 7: a is late"
    (cheap,) = _contradictions("a", {"a": [outcome(4.0)], "optimum": least}, 7)
    assert "below the proven minimum" in cheap


@pytest.mark.parametrize("name", RIVALS)
def test_tables_over_zones_are_never_late(name):
    for seed in range(20):
        market, job = drawn(seed, ticks=16)
        assert run_zones(market, job, RIVALS[name](facts_of(market, job)), 0).deadline_met
