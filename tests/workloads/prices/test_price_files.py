"""Price files and price lists: rows read, rows omitted with the reason, and one line for each error."""

import gzip
import json
import os

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.workloads.bidding.instances import Work
from optim.workloads.prices.availability_files import read_availability, zone_named
from optim.workloads.prices.price_files import (
    ListedPrice,
    describe_list,
    is_price_list,
    read_on_demand,
    read_price_list,
    read_prices,
    read_rates,
)
from tests.support.bidding.public_prices import prices_of_2015
from tests.support.public_traces import spot_file

HEADER = "timestamp,zone,instance_type,price_usd_per_hour\n"
OD = {"c3.xlarge": 210_000, "r3.large": 175_000}


def csv(tmp_path, *rows, header=HEADER, name="prices.csv"):
    path = tmp_path / name
    path.write_text(header + "".join(f"{row}\n" for row in rows))
    return path


def test_prices_are_whole_micro_dollars_by_market_and_the_last_row_of_a_time_counts(tmp_path):
    path = csv(
        tmp_path,
        "2015-03-11T00:00:00Z,z1,c3.xlarge,0.0324",
        "2015-03-11T00:00:10Z,z1,c3.xlarge,0.1",
        "2015-03-11T00:00:10Z,z1,c3.xlarge,0.0321",
        "2015-03-11T00:00:05Z,z2,r3.large,0.02",
    )
    history = read_prices(path, OD)
    assert [market.name for market in history.markets] == ["c3.xlarge@z1", "r3.large@z2"]
    assert history.paths[0].price_micro.tolist() == [32_400, 32_100]
    assert np.diff(history.paths[0].time_s).tolist() == [10]
    assert history.markets[1].rate == 0.5
    assert (history.begin_s, history.end_s - history.begin_s) == (1426032000, 10)


def test_several_files_are_one_history_whatever_their_order(tmp_path):
    zones = [f"2015-03-11T{hour:02}:00:00Z,z{hour % 2},c3.xlarge,0.0{1 + hour % 5}" for hour in range(12)]
    other = [f"2015-03-11T{hour:02}:30:00Z,z0,r3.large,0.02{hour % 3}" for hour in range(12)]
    early, late = csv(tmp_path, *zones[:7], name="a.csv"), csv(tmp_path, *zones[7:], name="b.csv")
    apart = csv(tmp_path, *other, name="c.csv")
    whole = read_prices(csv(tmp_path, *zones, *other), OD)
    assert read_prices([early, late, apart], OD) == whole
    assert read_prices([late, apart, early], OD) == whole
    assert read_prices([early, early, late, apart], OD) == whole
    bad = csv(tmp_path, *other[:2], other[0], name="d.csv")
    with pytest.raises(InvalidProblemError, match=r"d\.csv: row 4: r3\.large@z0 goes back in time"):
        read_prices([early, bad], OD)
    with pytest.raises(InvalidProblemError, match=r"c\.csv: instance type 'r3\.large' has no on-demand price"):
        read_prices([early, apart], {"c3.xlarge": 1})


def test_gaps_are_times_without_a_change_anywhere(tmp_path):
    path = csv(
        tmp_path,
        "2015-03-11T00:00:00Z,z1,c3.xlarge,0.03",
        "2015-03-11T02:00:00Z,z1,c3.xlarge,0.04",
        "2015-03-11T01:00:00Z,z2,c3.xlarge,0.05",
        "2015-03-11T09:00:00Z,z2,c3.xlarge,0.05",
    )
    history = read_prices(path, OD)
    assert (history.gaps - history.begin_s).tolist() == [[2 * 3600, 9 * 3600]]


def test_amazons_json_is_read_latest_first(tmp_path):
    entries = [
        {"AvailabilityZone": "z1", "InstanceType": "c3.xlarge", "SpotPrice": price, "Timestamp": time, "More": 1}
        for price, time in (("0.05", "2015-03-11T03:00:00.000Z"), ("0.04", "2015-03-11T01:00:00+00:00"))
    ]
    path = tmp_path / "history.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"SpotPriceHistory": entries}).encode()))
    assert read_prices(path, OD).paths[0].price_micro.tolist() == [40_000, 50_000]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["2015-03-11T01:00:00Z,z,c3.xlarge,0.1", "2015-03-11T00:00:00Z,z,c3.xlarge,0.1"], "row 3: .*back in time"),
        (["2015-03-11T01:00:00Z,z,c3.xlarge,-0.1"], "row 2.*must be at least"),
        (["2015-03-11T01:00:00Z,z,c3.xlarge,0"], "row 2.*must be at least"),
        (["2015-03-11T01:00:00Z,z,c3.xlarge,"], "row 2.*got nothing"),
        (["yesterday,z,c3.xlarge,0.1"], "row 2, column 'timestamp'.*yesterday"),
        (["2015-03-11T01:00:00Z,z,c9.huge,0.1"], "'c9.huge' has no on-demand price"),
        ([], "no rows"),
    ],
)
def test_bad_rows_give_one_clear_line(tmp_path, rows, message):
    with pytest.raises(InvalidProblemError, match=message) as raised:
        read_prices(csv(tmp_path, *rows), OD)
    assert "\n" not in str(raised.value)


def test_bad_json_gives_one_clear_line(tmp_path):
    path = tmp_path / "history.json"
    path.write_text('{"SpotPriceHistory": []}')
    with pytest.raises(InvalidProblemError, match="empty"):
        read_prices(path, OD)
    path.write_text('{"Else": []}')
    with pytest.raises(InvalidProblemError, match="SpotPriceHistory"):
        read_prices(path, OD)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"SpotPrice": "0"}, "amazon.json: field 'SpotPrice': must be at least 1e-06, got 0; correct or remove it"),
        ({"Timestamp": "soon"}, "amazon.json: field 'Timestamp': expected a time like .*, got 'soon'; correct"),
    ],
)
def test_what_is_wrong_in_a_list_is_not_told_by_a_row(tmp_path, changed, message):
    path = amazon(tmp_path, (None, "0.1"), (None, "0.2"))
    listed = json.loads(path.read_text())
    listed["SpotPriceHistory"][1].update(changed)
    path.write_text(json.dumps(listed, indent=1))
    with pytest.raises(InvalidProblemError, match=message):
        read_prices(path, OD)


def test_a_mark_of_the_byte_order_makes_no_difference(tmp_path):
    path = amazon(tmp_path, (None, "0.04"), (None, "0.05"))
    path.write_text("\ufeff" + path.read_text())
    assert read_prices(path, OD).paths[0].price_micro.tolist() == [40_000, 50_000]
    on_demand = csv(tmp_path, "2,c3.xlarge,0.21", header="\ufeffrate,instance_type,on_demand_usd_per_hour\n")
    assert read_rates(on_demand) == {"c3.xlarge": 2.0}


def test_prices_come_through_a_pipe_if_they_are_json(tmp_path):
    def piped(content):
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        try:
            return read_prices(f"/proc/self/fd/{reader}", OD).paths[0].price_micro.tolist()
        finally:
            os.close(reader)

    assert piped(amazon(tmp_path, (None, "0.04"), (None, "0.05")).read_bytes()) == [40_000, 50_000]
    for content in (csv(tmp_path, "2015-03-11T00:00:00Z,z1,c3.xlarge,0.0324").read_bytes(), b'{"Items": []}'):
        with pytest.raises(InvalidProblemError, match="a table is read more than once"):
            piped(content)


def amazon(tmp_path, *entries):
    """Write Amazon's JSON of (product or None, price) entries, hour by hour in one market."""
    listed = [
        {
            "AvailabilityZone": "z",
            "InstanceType": "c3.xlarge",
            "SpotPrice": price,
            "Timestamp": f"2015-03-11T0{k}:00:00Z",
        }
        | ({} if product is None else {"ProductDescription": product})
        for k, (product, price) in enumerate(entries)
    ]
    path = tmp_path / "amazon.json"
    path.write_text(json.dumps({"SpotPriceHistory": listed}))
    return path


def test_prices_of_one_product_are_read_linux_by_default(tmp_path):
    path = amazon(
        tmp_path,
        *(("Linux/UNIX", "0.04"), ("Windows", "0.4"), ("Linux/UNIX (Amazon VPC)", "0.06"), ("Linux/UNIX", "0.05")),
    )
    assert read_prices(path, OD).paths[0].price_micro.tolist() == [40_000, 50_000]
    assert read_prices(path, OD, product="Windows").paths[0].price_micro.tolist() == [400_000]
    only_vpc = amazon(tmp_path, ("Linux/UNIX (Amazon VPC)", "0.06"), ("SUSE Linux", "0.1"))
    assert read_prices(only_vpc, OD).paths[0].price_micro.tolist() == [60_000]


@pytest.mark.parametrize(
    ("entries", "product", "message"),
    [
        ((("Windows", "0.4"), ("SUSE Linux", "0.1")), None, r"'Linux/UNIX' \(there are: SUSE Linux, Windows\); choose"),
        ((("Linux/UNIX", "0.4"),), "Windows", r"'Windows' \(there are: Linux/UNIX\)"),
        ((("Linux/UNIX", "0.4"), (None, "0.1")), None, "some entries have a ProductDescription"),
        (((None, "0.4"),), "Windows", "no entries have a ProductDescription"),
    ],
)
def test_products_that_are_not_there_or_not_told_are_refused(tmp_path, entries, product, message):
    with pytest.raises(InvalidProblemError, match=message) as raised:
        read_prices(amazon(tmp_path, *entries), OD, product=product)
    assert "\n" not in str(raised.value)


def test_a_csv_file_has_no_products_to_choose_from(tmp_path):
    with pytest.raises(InvalidProblemError, match="names no products"):
        read_prices(csv(tmp_path, "2015-03-11T00:00:00Z,z1,c3.xlarge,0.0324"), OD, product="Windows")


def test_the_work_of_a_machine_is_what_the_file_says_else_the_tables(tmp_path):
    rows = ["p5.48xlarge,98.32,400", "c3.xlarge,0.21,", "r3.large,0.175,0.4"]
    on_demand = csv(tmp_path, *rows, header="instance_type,on_demand_usd_per_hour,rate\n", name="od.csv")
    kinds = ("c3.xlarge", "p5.48xlarge", "r3.large")
    prices = csv(tmp_path, *(f"2015-03-11T00:00:00Z,z1,{kind},0.03" for kind in kinds))
    prices.write_text(prices.read_text() + "2015-03-11T01:00:00Z,z1,c3.xlarge,0.04\n")
    known = read_on_demand(on_demand)
    assert [m.rate for m in read_prices(prices, known, rates=read_rates(on_demand)).markets] == [1.0, 400.0, 0.4]
    with pytest.raises(
        InvalidProblemError, match=r"'p5.48xlarge' has no known rate of work by vcpus; give one in .* column rate"
    ):
        read_prices(prices, known)
    bad = csv(tmp_path, "c3.xlarge,0.21,0", header="instance_type,on_demand_usd_per_hour,rate\n", name="bad.csv")
    with pytest.raises(InvalidProblemError, match="row 2, column 'rate': must be at least"):
        read_rates(bad)


TICKS = "tick,timestamp_local,zone,available,price_usd_per_hour\n"


def test_availability_counts_1_as_there_to_be_had(tmp_path):
    rows = ["0,2023-02-15 22:08:16,a,0,1.5", "1,2023-02-15 22:11:31,a,1,1.6", "0,2023-02-15 22:08:16,b,1,1.7"]
    traces = read_availability(csv(tmp_path, *rows, header=TICKS), on_demand_micro=3_060_000)
    assert list(traces) == ["a", "b"]
    assert traces["a"].is_available.tolist() == [False, True]
    assert traces["a"].price_micro.tolist() == [1_500_000, 1_600_000]
    assert traces["a"].end_s - traces["a"].time_s[-1] == 195
    with pytest.raises(InvalidOptionError, match="unknown zone 'c'; there are: a, b"):
        zone_named(traces, "c")


TYPED = "tick,timestamp_local,zone,available,price_usd_per_hour,instance_type,on_demand_usd_per_hour\n"


def test_the_price_on_demand_is_what_was_given_or_the_files_or_that_of_the_type(tmp_path):
    rows = ["0,2023-02-15 22:08:16,a,0,1.5,p5.48xlarge,98.32", "0,2023-02-15 22:08:16,b,1,1.7,p3.2xlarge,3.5"]
    path = csv(tmp_path, *rows, header=TYPED)
    assert [trace.on_demand_micro for trace in read_availability(path).values()] == [98_320_000, 3_500_000]
    by_type = read_availability(path, on_demand_micro={"p5.48xlarge": 90_000_000})
    assert [trace.on_demand_micro for trace in by_type.values()] == [90_000_000, 3_500_000]
    assert {trace.on_demand_micro for trace in read_availability(path, on_demand_micro=7).values()} == {7}
    types_only = csv(tmp_path, *(row.rpartition(",")[0] for row in rows), header=TYPED.rpartition(",")[0] + "\n")
    traces = read_availability(types_only)
    assert (traces["b"].resource, traces["b"].on_demand_micro) == ("p3.2xlarge", 3_060_000)
    with pytest.raises(InvalidProblemError, match=r"a: machines of type 'p5.48xlarge' have no on-demand price; give"):
        zone_named(traces, "a")
    neither = csv(tmp_path, "0,2023-02-15 22:08:16,a,0,1.5", header=TICKS)
    with pytest.raises(InvalidProblemError, match="names no type, and has no on-demand price; give --on-demand"):
        zone_named(read_availability(neither), "a")


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("p3.2xlarge,3.06", r"zone a has more than one instance_type \(p5.48xlarge and p3.2xlarge\)"),
        ("p5.48xlarge,3.06", r"zone a has more than one on_demand_usd_per_hour \(98.32 and 3.06\)"),
        ("p5.48xlarge,0", "row 3, column 'on_demand_usd_per_hour': must be at least"),
    ],
)
def test_a_zone_has_one_type_and_one_price_on_demand(tmp_path, end, message):
    rows = ["0,2023-02-15 22:08:16,a,0,1.5,p5.48xlarge,98.32", f"1,2023-02-15 22:11:31,a,0,1.5,{end}"]
    with pytest.raises(InvalidProblemError, match=message):
        read_availability(csv(tmp_path, *rows, header=TYPED))


def test_machines_without_a_list_price_are_charged_as_no_other(tmp_path):
    header = "kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n"
    rows = [f"availability,4,c,z,{resource},300,0,4" for resource in ("k80_8", "v100_8")]
    path = csv(tmp_path, *rows, header=header)
    listed = read_availability(path)["c/z/v100_8/availability"]
    assert (listed.on_demand_micro, listed.price_micro.tolist()) == (4 * 24_480_000, [4 * 7_344_000])
    with pytest.raises(InvalidProblemError, match="'k80_8' have no on-demand price"):
        read_availability(path)["c/z/k80_8/availability"]
    given = read_availability(path, on_demand_micro={"k80_8": 7_200_000})["c/z/k80_8/availability"]
    assert (given.on_demand_micro, given.price_micro.tolist()) == (28_800_000, [8_640_000])


def test_availability_without_prices_needs_all_nodes(tmp_path):
    header = "kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n"
    rows = [f"availability,4,c,z,k80_1,300,{tick},{value}" for tick, value in enumerate((4, 3, 0))]
    traces = read_availability(csv(tmp_path, *rows, header=header))
    assert traces["c/z/k80_1/availability"].is_available.tolist() == [True, False, False]
    assert traces["c/z/k80_1/availability"].time_s.tolist() == [0, 300, 600]


@pytest.mark.parametrize(
    ("row", "message"),
    [("0,2023-02-15 22:08:16,a,2,1.5", "must be 0 or 1"), ("0,2023-02-15 22:08:16,a,1,-1", "must be at least")],
)
def test_bad_ticks_give_one_clear_line(tmp_path, row, message):
    with pytest.raises(InvalidProblemError, match=message):
        read_availability(csv(tmp_path, row, header=TICKS))


def test_ticks_out_of_order_are_refused(tmp_path):
    rows = ["1,2023-02-15 22:11:31,a,1,1.6", "0,2023-02-15 22:08:16,a,0,1.5"]
    with pytest.raises(InvalidProblemError, match="row 3: a goes back in time"):
        read_availability(csv(tmp_path, *rows, header=TICKS))


@pytest.mark.prove
def test_the_2015_file_has_15_markets_and_two_long_gaps():
    history = prices_of_2015()
    assert history.num_markets == 15
    hours = np.diff(history.gaps, axis=1).ravel() / 3600
    assert sorted(hours.round(1).tolist())[-2:] == [13.1, 56.4]


@pytest.mark.prove
def test_the_2023_file_has_9_zones():
    traces = read_availability(spot_file("aws_v100_price_availability_2023.csv.gz"), on_demand_micro=3_060_000)
    assert len(traces) == 9
    assert all(len(trace) == 20_158 for trace in traces.values())


GPU_OD = {"p2.xlarge": 900_000, "p3.2xlarge": 3_060_000, "p3.8xlarge": 12_240_000, **OD}


def rates_of(tmp_path, *types, **options):
    """Return the rates that a file of such types is read with."""
    rows = [f"2020-01-0{1 + k}T00:00:00Z,z,{name},0.5" for k, name in enumerate(types)]
    return {
        market.instance_type: market.rate for market in read_prices(csv(tmp_path, *rows), GPU_OD, **options).markets
    }


def test_gpus_count_as_gpus_where_every_machine_has_some_and_processors_do_elsewhere(tmp_path):
    gpus = rates_of(tmp_path, "p2.xlarge", "p3.2xlarge", "p3.8xlarge")
    assert gpus == {"p2.xlarge": pytest.approx(240 / 900), "p3.2xlarge": 1.0, "p3.8xlarge": 4.0}
    assert rates_of(tmp_path, "p3.2xlarge", "c3.xlarge") == {"p3.2xlarge": 2.0, "c3.xlarge": 1.0}
    assert rates_of(tmp_path, "p3.2xlarge", "p3.8xlarge", work=Work.VCPUS) == {"p3.2xlarge": 2.0, "p3.8xlarge": 8.0}
    rated = rates_of(tmp_path, "p3.2xlarge", "c3.xlarge", rates={"c3.xlarge": 0.01})
    assert rated == {"p3.2xlarge": 1.0, "c3.xlarge": 0.01}
    with pytest.raises(InvalidProblemError, match=r"'c3.xlarge' has no known rate of work by gpus; .*\(1 for a V100\)"):
        rates_of(tmp_path, "p3.2xlarge", "c3.xlarge", work=Work.GPUS)


def test_a_history_of_changes_alone_has_gaps_only_where_a_whole_day_is_missing(tmp_path):
    hours = [0, 5, 11, 30, 54, 81, 90]
    rows = [f"2020-01-0{1 + h // 24}T{h % 24:02d}:00:00Z,z,c3.xlarge,0.{1 + h % 3}" for h in hours]
    calm = read_prices(csv(tmp_path, *rows), OD)
    assert ((calm.gaps - calm.begin_s) // 3600).tolist() == [[54, 81]]
    stated = read_prices(csv(tmp_path, *rows), OD, gap_s=20 * 3600)
    assert ((stated.gaps - stated.begin_s) // 3600).tolist() == [[30, 54], [54, 81]]
    # Two quiet times are no habit.
    few = read_prices(csv(tmp_path, *rows[:3]), OD)
    assert ((few.gaps - few.begin_s) // 3600).tolist() == [[0, 5], [5, 11]]


def amazon_entry(price, time):
    return {
        "AvailabilityZone": "z1",
        "InstanceType": "c3.xlarge",
        "SpotPrice": price,
        "Timestamp": time,
        "ProductDescription": "Linux/UNIX",
    }


ENTRIES = [amazon_entry("0.05", "2025-03-11T03:00:00Z"), amazon_entry("0.04", "2025-03-11T01:00:00Z")]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"SpotPriceHistory": ENTRIES}),
        json.dumps({"SpotPriceHistory": ENTRIES, "NextToken": ""}),
        json.dumps(ENTRIES),
        json.dumps({"SpotPriceHistory": [{**entry, "SpotPrice": float(entry["SpotPrice"])} for entry in ENTRIES]}),
        json.dumps({"SpotPriceHistory": ENTRIES[:1], "NextToken": "x"})
        + "\n"
        + json.dumps({"SpotPriceHistory": ENTRIES[1:]}),
    ],
    ids=["whole", "no next page", "entries", "numbers", "pages"],
)
def test_amazons_answer_is_read_as_clients_save_it(tmp_path, caplog, text):
    path = tmp_path / "history.json"
    path.write_text(text)
    assert read_prices(path, OD).paths[0].price_micro.tolist() == [40_000, 50_000]
    assert caplog.text == ""


def test_a_page_of_a_longer_answer_is_said(tmp_path, caplog):
    path = tmp_path / "page.json"
    path.write_text(json.dumps({"SpotPriceHistory": ENTRIES, "NextToken": "eyJ2Ijoi"}))
    assert len(read_prices(path, OD).paths[0]) == 2
    assert "page.json: one page of a longer response (it has a NextToken), so earlier prices are missing" in caplog.text


def test_what_follows_a_document_must_be_one(tmp_path):
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"SpotPriceHistory": ENTRIES}) + "\n{")
    with pytest.raises(InvalidProblemError, match="not valid JSON"):
        read_prices(path, OD)


def write(tmp_path, content, name="list.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def azure(**changes):
    """Return an entry of Azure's list as its service prints it."""
    return {
        "currencyCode": "USD", "retailPrice": 0.61, "armRegionName": "eastus", "location": "US East",
        "effectiveStartDate": "2024-03-01T00:00:00Z", "productName": "Virtual Machines NCSv3 Series",
        "skuName": "NC6s v3 Spot", "armSkuName": "Standard_NC6s_v3", "unitOfMeasure": "1 Hour", "type": "Consumption",
        **changes,
    }  # fmt: skip


def google(
    usage="Preemptible", group="GPU", text="Nvidia Tesla V100 GPU attached to Spot VMs running in Iowa", **money
):
    """Return an entry of Google's list."""
    price = {"currencyCode": "USD", "units": "0", "nanos": 740_000_000, **money}
    return {
        "name": "services/6F81/skus/0A", "description": text,
        "category": {"resourceFamily": "Compute", "resourceGroup": group, "usageType": usage},
        "serviceRegions": ["us-central1", "us-west1"],
        "pricingInfo": [{"pricingExpression": {"usageUnit": "h", "tieredRates": [{"unitPrice": price}]}}],
    }  # fmt: skip


def test_azures_list_keeps_windows_apart_and_says_what_it_leaves_out(tmp_path):
    entries = [
        azure(),
        azure(productName="Virtual Machines NCSv3 Series Windows", retailPrice=0.9),
        azure(skuName="NC6s v3", retailPrice=3.06),
        azure(currencyCode="EUR"),
        azure(unitOfMeasure="1 Month"),
        azure(type="Reservation"),
        azure(skuName="NC6s v3 Low Priority"),
        azure(armSkuName=""),
    ]
    found = read_price_list(write(tmp_path, {"Items": entries, "NextPageLink": None}))
    assert found.provider == "Azure"
    assert [(p.product, p.is_spot, p.usd_per_hour) for p in found.prices] == [
        ("Linux/UNIX", True, 0.61), ("Windows", True, 0.9), ("Linux/UNIX", False, 3.06),
    ]  # fmt: skip
    assert found.prices[0].instance_type == "Standard_NC6s_v3"
    assert found.prices[0].zone == "eastus"
    assert sum(found.left_out.values()) == 5
    assert found.left_out["in EUR, not in dollars"] == 1
    header = list(azure())
    rows = [",".join(str(entry[name]) for name in header) for entry in entries]
    table = write(tmp_path, "\n".join([",".join(header), *rows]) + "\n", "list.csv")
    assert read_price_list(table) == found


def test_a_list_may_begin_with_a_mark_of_the_byte_order(tmp_path):
    path = write(tmp_path, "\ufeff" + json.dumps({"Items": [azure()]}))
    assert is_price_list(path)
    assert read_price_list(path).provider == "Azure"
    assert read_prices(path, {"Standard_NC6s_v3": 3_060_000}).paths[0].price_micro.tolist() == [610_000]


def test_googles_list_has_gpus_by_region_and_leaves_cores_out(tmp_path):
    entries = [
        google(),
        google("OnDemand", units="2", nanos=480_000_000),
        google(group="CPU", text="Spot Preemptible N1 core"),
        google("Commit1Yr"),
        google(currencyCode="JPY"),
    ]
    found = read_price_list(write(tmp_path, {"skus": entries}))
    assert found.provider == "Google"
    assert [(p.instance_type, p.zone, p.is_spot, p.usd_per_hour) for p in found.prices] == [
        ("V100", "us-central1", True, 0.74), ("V100", "us-west1", True, 0.74),
        ("V100", "us-central1", False, 2.48), ("V100", "us-west1", False, 2.48),
    ]  # fmt: skip
    assert found.left_out == {
        "no GPU: cores and memory have separate prices": 1, "of usage type Commit1Yr": 1, "in JPY, not in dollars": 1,
    }  # fmt: skip


def test_amazons_history_is_read_with_its_products(tmp_path):
    entry = {
        "AvailabilityZone": "z",
        "InstanceType": "p3.2xlarge",
        "SpotPrice": "0.9",
        "Timestamp": "2024-01-01T00:00:00Z",
    }
    content = {"SpotPriceHistory": [entry, {**entry, "ProductDescription": "Windows"}]}
    found = read_price_list(write(tmp_path, content))
    assert found.prices[0] == ListedPrice(
        instance_type="p3.2xlarge",
        zone="z",
        product="Linux/UNIX",
        is_spot=True,
        since="2024-01-01T00:00:00Z",
        usd_per_hour=0.9,
    )
    assert found.prices[1].product == "Windows"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"Other": []}, "no SpotPriceHistory, Items or skus"),
        ({"Items": [{k: v for k, v in azure().items() if k != "currencyCode"}]}, "currencyCode"),
        ({"Items": [azure(retailPrice=-1)]}, "costs -1 dollars per hour"),
        ({"Items": [azure(retailPrice="cheap")]}, "list.json"),
        (
            {"SpotPriceHistory": [{"AvailabilityZone": "z", "InstanceType": "t", "SpotPrice": "x", "Timestamp": "t"}]},
            "SpotPrice must be",
        ),
        ("armSkuName,retailPrice\na,1\n", "give its columns, including currencyCode"),
        ("{", "list.json"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, content, message):
    with pytest.raises(InvalidProblemError, match=message) as raised:
        read_price_list(write(tmp_path, content))
    assert "\n" not in str(raised.value)


def test_a_description_has_a_line_for_every_kind_and_every_reason(tmp_path):
    path = write(tmp_path, {"Items": [azure(), azure(retailPrice=0.7), azure(currencyCode="EUR")]})
    assert is_price_list(path)
    read, left_out = describe_list(path)
    assert (read.machine, read.place, read.kind, read.entries) == ("Standard_NC6s_v3", "eastus", "spot", 2)
    assert (read.min_usd, read.max_usd) == (0.61, 0.7)
    assert (left_out.kind, left_out.entries) == ("left out: in EUR, not in dollars", 1)
    assert not is_price_list(tmp_path / "nowhere.json")
    assert not is_price_list(write(tmp_path, {"schema": "optim/bidding/1"}, "other.json"))


def test_azures_lists_of_several_dates_are_a_history_with_its_prices_on_demand(tmp_path):
    entries = [
        azure(effectiveStartDate="2024-06-01T00:00:00Z", retailPrice=0.7),
        azure(),
        azure(armRegionName="westeurope", retailPrice=0.8),
        azure(productName="Virtual Machines NCSv3 Series Windows", retailPrice=0.9),
        azure(skuName="NC6s v3", retailPrice=3.06),
        azure(skuName="NC6s v3", armRegionName="westeurope", retailPrice=3.8),
    ]
    path = write(tmp_path, {"Items": entries})
    history = read_prices(path, {})
    assert [market.name for market in history.markets] == ["Standard_NC6s_v3@eastus", "Standard_NC6s_v3@westeurope"]
    assert [path.price_micro.tolist() for path in history.paths] == [[610_000, 700_000], [800_000]]
    assert {(market.on_demand_micro, market.rate) for market in history.markets} == {(3_800_000, 1.0)}
    assert len(history.gaps) == 0  # three months without a change are no gap
    assert read_prices(path, {"Standard_NC6s_v3": 5}).markets[0].on_demand_micro == 5
    for order in (
        entries,
        entries[::-1],
    ):  # one file each: the on-demand price of the most expensive region counts as in one file
        files = [tmp_path / f"{number}.json" for number in range(len(order))]
        for file, entry in zip(files, order, strict=True):
            spot = azure(armRegionName=entry["armRegionName"], effectiveStartDate="2024-01-01T00:00:00Z")
            file.write_text(json.dumps({"Items": [entry, spot]}))
        assert {market.on_demand_micro for market in read_prices(files, {}).markets} == {3_800_000}
    with pytest.raises(InvalidProblemError, match="'Standard_NC6s_v3' has no on-demand price"):
        read_prices(path, {}, product="Windows")
    with pytest.raises(
        InvalidProblemError, match=r"no spot price is of product 'SUSE' \(there are: Linux/UNIX, Windows\)"
    ):
        read_prices(path, {}, product="SUSE")


def test_googles_lists_have_a_price_from_each_time_on(tmp_path):
    later = google(nanos=600_000_000)["pricingInfo"][0] | {"effectiveTime": "2024-02-01T00:00:00Z"}
    spot = google()
    spot["pricingInfo"][0]["effectiveTime"] = "2024-01-01T00:00:00Z"
    spot["pricingInfo"].append(later)
    history = read_prices(write(tmp_path, {"skus": [spot, google("OnDemand", units="2", nanos=480_000_000)]}), {})
    assert [market.name for market in history.markets] == ["V100@us-central1", "V100@us-west1"]
    assert history.paths[1].price_micro.tolist() == [740_000, 600_000]
    assert np.diff(history.paths[1].time_s).tolist() == [31 * 86_400]
    assert (history.markets[0].on_demand_micro, history.markets[0].rate) == (2_480_000, 1.0)
