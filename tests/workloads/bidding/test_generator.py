"""Generated bidding instances, with and without bids: of the requested form, the same by seed."""

import numpy as np
import pytest

from optim import verify
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.data import HourOutlook, Scalability, ScenarioOutlook
from optim.models.bidding.problem import PROBLEM
from optim.solvers.solve import solve
from optim.workloads.bidding.generator import CapacityOptions, GeneratorOptions, draw_capacity, generate

SMALL = {"num_types": 1, "num_zones": 1, "days": 2.0}


def test_same_seed_same_instance():
    options = GeneratorOptions(num_types=2, num_zones=1, days=5)
    one, other = (PROBLEM.write_instance(generate(options, 3)) for _ in range(2))
    assert one == other
    assert one != PROBLEM.write_instance(generate(options, 4))


def test_one_hour_and_windows_have_the_forms_asked_for():
    hour = generate(GeneratorOptions(num_types=2, num_zones=2, days=5), 0)
    assert isinstance(hour.outlook, HourOutlook)
    assert (len(hour.markets), hour.num_bids) == (4, 48)
    windows = generate(GeneratorOptions(num_types=1, num_zones=2, days=5, windows=5, slots=4), 0)
    assert isinstance(windows.outlook, ScenarioOutlook)
    assert windows.outlook.alive.shape == (24, 5, 4)
    assert np.isclose(windows.outlook.weight.sum(), 1.0)
    # A window without an eviction is worked from the third minute to its end.
    assert windows.outlook.alive[-1].sum(axis=1).max() == pytest.approx(4 * (57 / 60))


@pytest.mark.parametrize("bad", [{"slots": 7}, {"term": "else"}, {"days": 0}, {"num_zones": 4}, {"total": -1}])
def test_refuses_options_out_of_range(bad):
    with pytest.raises(InvalidOptionError):
        GeneratorOptions(**bad)


def test_kinds_without_bids_take_the_options_that_go_with_them_and_refuse_the_others():
    usual = generate(GeneratorOptions(zone_types=6, windows=8), 0)
    assert (usual.scalability, usual.outlook.ready_s) == (Scalability.amdahl(0.01), 180)
    own = generate(GeneratorOptions(zone_types=6, windows=8, serial=0.3, startup_min=30.0, max_count=2), 0)
    assert (own.scalability, own.outlook.ready_s) == (Scalability.amdahl(0.3), 1800)
    assert own.bids.max_count.tolist() == [2] * 6
    # The offers are drawn as before.
    assert own.markets == usual.markets
    np.testing.assert_array_equal(own.outlook.charge_micro, usual.outlook.charge_micro)


@pytest.mark.parametrize(
    "other",
    [
        {"num_types": 2},
        {"num_zones": 1},
        {"days": 2.0},
        {"deltas_micro": (100,)},
        {"total": 1},
        {"reliable": 9},
        {"reliable_usd": 5.0},
        {"scale_min": 50.0},
        {"eviction_min": 50.0},
        {"term": "per-bid"},
        {"slots": 4},
        {"one_bid_per_market": True},
        {"prices": "prices.csv", "on_demand": "on_demand.csv"},
    ],
)
def test_options_of_bids_are_refused_for_kinds_without_bids(other):
    with pytest.raises(InvalidOptionError, match=f"without bids; leave out zone_types, or {', '.join(other)}$"):
        GeneratorOptions(zone_types=6, **other)
    GeneratorOptions(**other)


def test_draws_from_files_where_they_are_named(tmp_path):
    prices, on_demand = tmp_path / "prices.csv", tmp_path / "on_demand.csv"
    lines = [f"2015-01-{d:02d}T{h:02d}:00:00Z,z1,c3.xlarge,0.{40 + d * h % 9}" for d in range(1, 6) for h in range(24)]
    prices.write_text("\n".join(["timestamp,zone,instance_type,price_usd_per_hour", *lines]) + "\n")
    on_demand.write_text("instance_type,on_demand_usd_per_hour\nc3.xlarge,0.21\n")
    instance = generate(GeneratorOptions(prices=str(prices), on_demand=str(on_demand)), 0)
    assert instance.markets == ("c3.xlarge@z1",)
    assert 0.4 <= instance.outlook.price_usd[0] <= 0.48
    with pytest.raises(InvalidOptionError, match="require each other"):
        GeneratorOptions(prices=str(prices))
    with pytest.raises(InvalidProblemError, match=r"none\.csv"):
        generate(GeneratorOptions(prices="none.csv", on_demand="none.csv"), 0)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (
            {**SMALL, "windows": 10**6},
            "windows: at most 100000 are generated, got 1000000; generate fewer, or raise .*--limit count=N",
        ),
        (
            {**SMALL, "windows": 10**5, "slots": 60},
            "windows times slots times bids: at most 50000000 are generated, got 72000000",
        ),
        (
            {"zone_types": 1000, "windows": 10**5},
            "windows times zone_types: at most 50000000 are generated, got 100000000",
        ),
    ],
)
def test_refuses_to_draw_more_than_a_reader_takes(sizes, text):
    with pytest.raises(InvalidOptionError, match=text):
        generate(GeneratorOptions(**sizes), 0)


OPTIONS = CapacityOptions(zone_types=9, num_zones=4, num_regions=2, windows=4000, zone_share=0.5, region_share=0.3)


def test_windows_are_lost_as_often_and_as_jointly_as_the_shocks_say():
    draw = draw_capacity(OPTIONS, 3)
    is_lost = draw.instance.outlook.evicted_s >= 0
    survival = draw.shocks.survival()
    assert 1 - is_lost.mean(axis=1) == pytest.approx(survival, abs=4 * 0.5 / np.sqrt(4000))
    # Kinds 0 and 4 share zone 0: both survive only if neither their own nor the shared causes strike.
    both = np.exp(-(draw.shocks.own[[0, 4]].sum() + draw.shocks.by_zone[0] + draw.shocks.by_region[0]))
    assert (~is_lost[0] & ~is_lost[4]).mean() == pytest.approx(both, abs=0.032)
    assert both > survival[0] * survival[4]


def test_machines_are_paid_by_the_second_and_limited_by_zone_and_region():
    draw = draw_capacity(CapacityOptions(zone_types=8, num_zones=4, num_regions=2, windows=50), 1)
    instance = draw.instance
    outlook = instance.outlook
    hours = np.where(outlook.evicted_s < 0, 3600, outlook.evicted_s) / 3600
    usd = outlook.charge_micro / 1e6 / hours
    assert usd.std(axis=1).max() < 1e-3
    assert instance.caps.names == ("zone 0", "zone 1", "zone 2", "zone 3", "region 0", "region 1")
    assert (instance.caps.weight.sum(axis=0) == 2 * draw.capacity).all()
    assert instance.caps.limit.tolist() == [32.0] * 4 + [48.0] * 2
    assert (
        draw_capacity(CapacityOptions(zone_types=8, num_zones=4, num_regions=2, windows=50), 1).instance.name
        == instance.name
    )


@pytest.mark.prove
def test_the_generator_of_instances_draws_them_too_and_every_solver_certifies_its_answer():
    instance = generate(GeneratorOptions(zone_types=6, windows=8), 0)
    assert instance.name == "capacity-6-8-0"
    found = {name: solve(instance, name) for name in ("greedy", "exchange", "frontier", "dinkelbach")}
    for solution in found.values():
        assert verify(instance, solution).is_ok
        assert solution.objective >= found["dinkelbach"].bound * (1 - 1e-9)
    assert found["dinkelbach"].gap <= 1e-6
    with pytest.raises(InvalidOptionError, match="preemptions needs zone_types"):
        GeneratorOptions(preemptions="x.csv")


def test_hazards_of_a_file_stand_in_for_drawn_ones(tmp_path):
    path = tmp_path / "series.csv"
    rows = [f"preemption,1,c,a,t,600,{tick},{int(tick % 20 > 0)}" for tick in range(400)]
    path.write_text("kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n" + "\n".join(rows) + "\n")
    draw = draw_capacity(CapacityOptions(zone_types=6, windows=40, preemptions=str(path)), 0)
    assert (draw.shocks.survival() == 1.0).all()  # no machine was lost within three hours
    other = draw_capacity(CapacityOptions(zone_types=6, windows=40), 0)
    assert not np.allclose(other.shocks.survival(), draw.shocks.survival())


def test_kinds_of_one_series_are_lost_at_rates_that_scatter_by_three_tenths(tmp_path):
    path = tmp_path / "series.csv"
    rows = [f"preemption,1,c,a,t,600,{tick},{int(tick % 4 > 0)}" for tick in range(900)]
    path.write_text("kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n" + "\n".join(rows) + "\n")
    draw = draw_capacity(CapacityOptions(zone_types=300, windows=10, preemptions=str(path)), 0)
    scatter = np.log(-np.log(draw.shocks.survival()))
    assert scatter.std() == pytest.approx(0.3, abs=4 * 0.3 / np.sqrt(600))
