"""Generated instances: of the form asked for, the same by seed."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.data import HourOutlook, Scalability, ScenarioOutlook
from optim.models.bidding.problem import PROBLEM
from optim.workloads.bidding.generator import GeneratorOptions, generate

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
    # What is on offer is drawn as before.
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
        {"term": "own"},
        {"slots": 4},
        {"one_bid_a_market": True},
        {"prices": "prices.csv", "on_demand": "on_demand.csv"},
    ],
)
def test_options_of_bids_are_refused_for_kinds_without_bids(other):
    with pytest.raises(InvalidOptionError, match=f"without bids; leave it out, or {', '.join(other)}$"):
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
    with pytest.raises(InvalidOptionError, match="go together"):
        GeneratorOptions(prices=str(prices))
    with pytest.raises(InvalidProblemError, match=r"none\.csv"):
        generate(GeneratorOptions(prices="none.csv", on_demand="none.csv"), 0)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (
            {**SMALL, "windows": 10**6},
            "windows: at most 100000 are drawn, got 1000000; draw fewer, or raise .*--limit count=N",
        ),
        (
            {**SMALL, "windows": 10**5, "slots": 60},
            "windows times slots times bids: at most 50000000 are drawn, got 72000000",
        ),
        ({"zone_types": 1000, "windows": 10**5}, "windows times zone_types: at most 50000000 are drawn, got 100000000"),
    ],
)
def test_refuses_to_draw_more_than_a_reader_takes(sizes, text):
    with pytest.raises(InvalidOptionError, match=text):
        generate(GeneratorOptions(**sizes), 0)
