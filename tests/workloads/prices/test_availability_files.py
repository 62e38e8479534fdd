"""Availability of machines: spells, zones on one grid, and jobs on it."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.market.lifetimes import AvailabilityTrace
from optim.workloads.prices.availability_files import (
    ZoneOptions,
    job_of,
    market_of,
    read_egress,
    read_spells,
    region_of,
)

HEADER = "kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n"


def write(tmp_path, series, kind="preemption"):
    path = tmp_path / "series.csv"
    rows = [
        f"{kind},4,c,{zone},v100_1,60,{tick},{value}"
        for zone, values in series.items()
        for tick, value in enumerate(values)
    ]
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


def test_machines_that_come_are_launched_and_those_that_go_are_lost_the_oldest_first(tmp_path):
    found = read_spells(write(tmp_path, {"a": [1, 2, 2, 1, 0, 1], "b": [0, 0, 1]}))
    assert found.kinds == ("c/a/v100_1", "c/b/v100_1")
    rows = list(zip(found.kind, found.start_s, found.length_s, found.is_lost, strict=True))
    assert rows == [
        (0, 0.0, 180.0, True),
        (0, 60.0, 180.0, True),
        (0, 300.0, 60.0, False),
        (1, 120.0, 60.0, False),
    ]


def test_refuses_a_file_without_preemption_series(tmp_path):
    with pytest.raises(InvalidProblemError, match="no row has kind 'preemption'"):
        read_spells(write(tmp_path, {"a": [1, 1]}, kind="availability"))


def test_refuses_more_machines_at_once_than_can_be_told_apart(tmp_path):
    with pytest.raises(InvalidProblemError, match="machines at once: at most 100000 are read, got 1000000000"):
        read_spells(write(tmp_path, {"a": [1, 10**9]}))


def test_names_the_row_of_the_file_whatever_rows_are_left_out(tmp_path):
    path = write(tmp_path, {"a": [1, 1, 1]})
    first, second, third, fourth = path.read_text().splitlines()
    path.write_text("\n".join((first, second.replace("preemption", "availability"), "", second, fourth, third)))
    with pytest.raises(InvalidProblemError, match="row 6: c/a/v100_1 goes back in time"):
        read_spells(path)


def trace(zone, begin, ticks, step=600, jitter=0):
    time_s = begin + step * np.arange(ticks) + jitter * (np.arange(ticks) % 2)
    return AvailabilityTrace(
        zone=zone,
        resource="v100",
        time_s=time_s,
        is_available=np.arange(ticks) % 3 > 0,
        price_micro=1_000_000 + 1000 * np.arange(ticks),
        on_demand_micro=3_000_000,
        end_s=int(time_s[-1]) + step,
    )


TRACES = {
    "us-west-2a": trace("us-west-2a", 0, 60),
    "us-west-2b": trace("us-west-2b", 1150, 60, jitter=20),
    "us-east-1a": trace("us-east-1a", 600, 50),
    "slow": trace("slow", 0, 60, step=640),
    "later": trace("later", 10**6, 60),
}


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-west-2a", "us-west-2"),
        ("us-central1-f", "us-central1"),
        ("aws-2023/eu-west-1b/v100_1/availability", "eu-west-1"),
        ("westeurope", "westeurope"),
        ("eastus2", "eastus2"),
    ],
)
def test_a_zones_region_is_its_name_without_the_letter(zone, region):
    assert region_of(zone) == region


def test_zones_are_put_on_the_firsts_grid_over_the_time_that_all_cover():
    market = market_of(TRACES, ["us-west-2a", "us-west-2b", "us-east-1a"])
    assert market.regions == ("us-west-2", "us-west-2", "us-east-1")
    assert (market.tick_s, market.time_s[0], market.time_s[-1]) == (600, 1200, 30_000)
    # At 1200 s the first zone is in its third tick, the second in its first, the other region in its second.
    assert market.spot_micro[0].tolist() == [1_002_000, 1_000_000, 1_001_000]
    assert market.is_available[0].tolist() == [True, False, True]
    assert market.spot_micro[1].tolist() == [1_003_000, 1_001_000, 1_002_000]


def test_refuses_zones_that_do_not_go_together():
    with pytest.raises(InvalidOptionError, match="ticks differ in length: 600 s in us-west-2a, 640 s in slow"):
        market_of(TRACES, ["us-west-2a", "slow"])
    with pytest.raises(InvalidOptionError, match="us-west-2a, later have no time in common"):
        market_of(TRACES, ["us-west-2a", "later"])
    with pytest.raises(InvalidOptionError, match="zones are named twice"):
        market_of(TRACES, ["us-west-2a", "us-west-2a"])


def egress(tmp_path, *rows, header="from,to,usd_per_gb,gb_per_s"):
    path = tmp_path / "egress.csv"
    path.write_text("\n".join((header, *rows)) + "\n")
    return read_egress(path)


def test_launches_and_transfers_take_whole_seconds_of_any_number_and_moves_their_dollars(tmp_path):
    market = market_of(TRACES, ["us-west-2a", "us-west-2b", "us-east-1a"])
    table = egress(
        tmp_path, "us-west-2,us-east-1,0.02,0.1", "us-east-1,us-west-2,0.03,", "us-west-2a,us-west-2b,0.01,1"
    )
    options = ZoneOptions(job_hours=2.1, deadline_hours=4.95, changeover_hours=0.1, state_gb=90, machines=2)
    job = job_of(market, options, table)
    assert (job.work_s, job.deadline_s, job.machines) == (7560, 17_820, 2)
    # 360 s alone, with 900 s of transfer, and with 90 s.
    assert job.setup_s.tolist() == [[360, 360, 360], [360, 450, 1260], [360, 360, 1260], [360, 360, 360]]
    usd = [[0, 0, 0], [0, 0.9, 1.8], [0, 0, 1.8], [2.7, 2.7, 0]]
    assert job.move_micro.tolist() == [[round(1e6 * amount) for amount in row] for row in usd]
    # 8 1/3 hours are 30,000 s, and a little more in floating point.
    assert job_of(market, ZoneOptions(job_hours=50 / 6, deadline_hours=12)).work_s == 30_000
    third = job_of(market, ZoneOptions(job_hours=2, deadline_hours=5, changeover_hours=0.1666))
    assert set(third.setup_s.ravel()) == {600}  # 599.76 s, rounded up
    plain = job_of(market, ZoneOptions(job_hours=2, deadline_hours=5))
    assert (plain.work_s, plain.deadline_s, plain.move_micro.sum()) == (7200, 18_000, 0)
    assert set(plain.setup_s.ravel()) == {360}


def test_the_first_column_may_stand_behind_a_mark_of_the_byte_order(tmp_path):
    table = egress(tmp_path, "0.5,a,b,0.02", header="\ufeffgb_per_s,from,to,usd_per_gb")
    assert table.links["a", "b"].gb_per_s == 0.5


def test_refuses_bad_tables(tmp_path):
    market = market_of(TRACES, ["us-west-2a", "us-east-1a"])
    options = ZoneOptions(job_hours=2, deadline_hours=5, state_gb=1)
    with pytest.raises(InvalidProblemError, match="no row from us-east-1 to us-west-2"):
        job_of(market, options, egress(tmp_path, "us-west-2,us-east-1,0.02,1"))
    with pytest.raises(InvalidProblemError, match="row 2, column 'usd_per_gb': must be at least 0"):
        egress(tmp_path, "us-west-2,us-east-1,-1,1")
    with pytest.raises(InvalidProblemError, match="column 'gb_per_s': must be at least"):
        egress(tmp_path, "us-west-2,us-east-1,1,0")
    with pytest.raises(InvalidOptionError, match=r"launch and work take 2\.1 h; give"):
        job_of(market, ZoneOptions(job_hours=2, deadline_hours=2.09))
