"""Price lists of the three large clouds: what is read, what is left out and why, and one line for what is wrong."""

import json

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.workloads.prices.price_files import ListedPrice, describe_list, is_price_list, read_price_list, read_prices


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
        "no GPU: cores and memory are priced apart": 1, "of usage type Commit1Yr": 1, "in JPY, not in dollars": 1,
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
        ({"Items": [azure(retailPrice=-1)]}, "costs -1 dollars an hour"),
        ({"Items": [azure(retailPrice="cheap")]}, "list.json"),
        (
            {"SpotPriceHistory": [{"AvailabilityZone": "z", "InstanceType": "t", "SpotPrice": "x", "Timestamp": "t"}]},
            "SpotPrice must be",
        ),
        ("armSkuName,retailPrice\na,1\n", "give its columns, currencyCode among them"),
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
