"""What is drawn and read of spot markets, with every option changed and of small files of every form, compared with what is kept."""

import json
from pathlib import Path

from optim.workloads.bidding.generator import CapacityOptions, GeneratorOptions, draw_capacity, generate
from optim.workloads.bidding.instances import kind_of_work, work_rate
from optim.workloads.prices.availability_files import (
    ZoneOptions,
    job_of,
    market_of,
    read_availability,
    read_egress,
    read_spells,
    region_of,
    zone_named,
)
from optim.workloads.prices.price_files import (
    describe_list,
    is_price_list,
    parse_times,
    provider_in,
    read_on_demand,
    read_price_list,
    read_prices,
    read_rates,
)
from optim.workloads.prices.price_generator import PriceOptions, generate_prices
from tests.support.kept import assert_kept, outcome, short
from tests.support.variants import option_variants
from tests.support.varied_tables import with_cells

KEPT = Path(__file__).parent / "kept"


def told(draw, given):
    """Return what is drawn, in short, or why nothing is."""
    drawn = outcome(lambda: draw(given))
    return drawn if isinstance(drawn, str) else short(drawn)


def test_draws_with_every_option_changed():
    prices = {"num_types": 2, "num_zones": 2, "days": 2.0}
    found = {
        f"prices {what}": told(lambda one: generate_prices(PriceOptions(**one), 3), given)
        for what, given in option_variants(PriceOptions, **prices)
    }
    tiny = {**prices, "days": 3.0, "deltas_micro": (1000, 50_000), "total": 8, "max_count": 2}
    more = [
        ("windows", {**tiny, "windows": 3, "slots": 2}),
        *((term, {**tiny, "term": term}) for term in ("own", "any")),
    ]
    for what, given in [
        ("as it is", tiny),
        *more,
        ("one bid", {**tiny, "one_bid_a_market": True}),
        ("serial", {**tiny, "serial": 0.1, "reliable": 1, "startup_min": 9.0}),
    ]:
        found[f"instance {what}"] = told(lambda one: generate(GeneratorOptions(**one), 3), given)
    capacity = {"zone_types": 6, "num_zones": 3, "num_regions": 2, "windows": 4, "least_gpus": 4}
    for what, given in option_variants(CapacityOptions, **capacity):
        found[f"capacity {what}"] = told(lambda one: draw_capacity(CapacityOptions(**one), 3), given)
    found |= {
        f"wrong {what}": outcome(lambda one=given: GeneratorOptions(**one) and "fine")
        for what, given in option_variants(GeneratorOptions, **tiny)
    }
    assert_kept(KEPT / "draws.json", found)


def test_tables_with_one_cell_changed(tmp_path):
    hours = [f"2015-03-11T{hour:02}:{minute}:00Z" for hour in range(6) for minute in (15, 45)]
    prices = [
        ["timestamp", "zone", "instance_type", "price_usd_per_hour"],
        *([time, "us-east-1a", ("c3.xlarge", "c3.2xlarge")[n % 2], 0.02 + 0.01 * n] for n, time in enumerate(hours)),
    ]
    listed = {"c3.xlarge": 209_000, "c3.2xlarge": 419_000}
    demand = [
        ["instance_type", "on_demand_usd_per_hour", "rate"],
        ["c3.xlarge", 0.209, 1.0],
        ["c3.2xlarge", 0.419, 2.5],
    ]
    there = [
        ["tick", "timestamp_local", "zone", "available", "price_usd_per_hour"],
        *([n, f"2023-02-15T00:{n}0:00", "us-west-2a", n % 3 and 1, 0.9] for n in range(5)),
    ]
    other = [
        ["kind", "nodes", "campaign", "zone", "resource", "gap_seconds", "tick", "value"],
        *(["spot", 1, "c1", "us-west-2a", "v100_1", 600, n, n % 2] for n in range(5)),
    ]
    spells = [
        ["kind", "nodes", "campaign", "zone", "resource", "gap_seconds", "tick", "value"],
        *(["preemption", 4, "c1", "us-west-2a", "v100_1", 600, n, (4, 4, 2, 3, 0)[n]] for n in range(5)),
    ]
    moves = [
        ["from", "to", "usd_per_gb", "gb_per_s"],
        ["us-west-2a", "us-west-2b", 0.01, 1.5],
        ["us-west-2", "us-east-1", 0.02, ""],
    ]
    cases = {
        "prices": (lambda path: read_prices(path, listed), prices), "prices by rates": (lambda path: read_prices(path, listed, rates={"c3.xlarge": 2.0, "c3.2xlarge": 3.0}, gap_s=1000), prices[:8]),
        "on demand": (read_on_demand, demand), "rates": (read_rates, demand),
        "availability": (lambda path: list(read_availability(path).values()), there), "availability given": (lambda path: list(read_availability(path, on_demand_micro=3_000_000).values()), there),
        "campaigns": (lambda path: list(read_availability(path, spot_micro=900_000).values()), other), "spells": (read_spells, spells), "egress": (read_egress, moves),
    }  # fmt: skip
    for name, (read, rows) in cases.items():
        assert_kept(
            KEPT / "tables.json",
            {f"{name} {what}": said for what, said in with_cells(tmp_path / "table.csv", read, rows).items()},
            is_part=True,
        )


def test_lists_of_providers(tmp_path):
    amazon = {
        "SpotPriceHistory": [
            {
                "Timestamp": f"2015-03-11T0{n}:15:00Z",
                "AvailabilityZone": "us-east-1a",
                "InstanceType": "c3.xlarge",
                "SpotPrice": str(0.05 + 0.01 * n),
                "ProductDescription": ("Linux/UNIX", "Windows")[n % 3 == 2],
            }
            for n in range(6)
        ]
    }
    azure = {
        "Items": [
            {
                "currencyCode": "USD",
                "retailPrice": 0.5 + n,
                "unitPrice": 0.5 + n,
                "armRegionName": "eastus",
                "effectiveStartDate": "2024-01-01T00:00:00Z",
                "meterName": ("D2 v3 Spot", "D2 v3", "D2 v3 Low Priority")[n],
                "productName": "Virtual Machines Dv3 Series",
                "skuName": ("D2 v3 Spot", "D2 v3", "D2 v3 Low Priority")[n],
                "serviceName": "Virtual Machines",
                "unitOfMeasure": "1 Hour",
                "type": "Consumption",
                "armSkuName": "Standard_D2_v3",
            }
            for n in range(3)
        ]
    }
    google = {
        "skus": [
            {
                "description": f"{('Spot Preemptible ', '')[n]}N1 Instance Core running in Americas",
                "category": {"resourceFamily": "Compute", "usageType": ("Preemptible", "OnDemand")[n]},
                "serviceRegions": ["us-central1"],
                "pricingInfo": [
                    {
                        "effectiveTime": "2024-01-01T00:00:00Z",
                        "pricingExpression": {
                            "usageUnit": "h",
                            "tieredRates": [
                                {
                                    "startUsageAmount": 0,
                                    "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 10**7 * (n + 1)},
                                }
                            ],
                        },
                    }
                ],
            }
            for n in range(2)
        ]
    }
    found, path = {}, tmp_path / "list.json"
    for name, document in {"amazon": amazon, "azure": azure, "google": google, "nothing": {}, "list": []}.items():
        path.write_text(json.dumps(document))
        said = [
            outcome(read_price_list, path),
            outcome(is_price_list, path),
            provider_in(path.read_bytes()),
            outcome(describe_list, path),
            outcome(read_prices, path, {"c3.xlarge": 209_000}),
            outcome(read_prices, path, {"c3.xlarge": 209_000}, product="Windows"),
        ]
        found[name] = [one.replace(str(tmp_path), "") if isinstance(one, str) else one for one in said]
    columns = list(azure["Items"][0])
    path.write_text(
        "\n".join([",".join(columns), *(",".join(str(item[name]) for name in columns) for item in azure["Items"])])
    )
    found["azure table"] = [
        one.replace(str(tmp_path), "") if isinstance(one, str) else one
        for one in (outcome(read_price_list, path), outcome(describe_list, path))
    ]
    assert_kept(KEPT / "lists.json", found)


def test_types_times_and_zones(tmp_path):
    path = tmp_path / "there.csv"
    rows = [
        f"{n},2023-02-15T0{n // 6}:{n % 6}0:00,us-west-2{zone},{int((n + len(zone)) % 3 > 0)},{0.5 + 0.1 * n}"
        for zone in ("a", "b")
        for n in range(18)
    ]
    path.write_text("\n".join(["tick,timestamp_local,zone,available,price_usd_per_hour", *rows]))
    traces = read_availability(path, on_demand_micro=3_000_000)
    market = outcome(market_of, traces, ("us-west-2a", "us-west-2b"))
    options = {"job_hours": 1.0, "deadline_hours": 2.5}
    kinds = ("c3.xlarge", "c3.2xlarge", "v100_1", "p3.8xlarge", "nothing", "Standard_D2_v3")
    found = {
        "market": market, "regions": [region_of(zone) for zone in ("us-west-2a", "eu-1", "c1/us-west-2a/v100_1/spot", "x")],
        "named": [outcome(lambda zone=zone: short(zone_named(traces, zone))) for zone in ("us-west-2a", "us-west-2c")],
        "jobs": {what: told(lambda one: job_of(market, ZoneOptions(**one)), given) for what, given in option_variants(ZoneOptions, **options)},
        "rates": [outcome(work_rate, kind) for kind in kinds], "given": [outcome(work_rate, kind, {"c3.xlarge": 3.0}) for kind in kinds],
        "kind": [outcome(kind_of_work, given) for given in ((kinds[0],), kinds[2:4], kinds[:3], ())],
        "times": [outcome(parse_times, "f", "t", [text]) for text in ("2015-03-11T16:54:38Z", "2015-03-11 16:54:38", "2015-03-11T16:54:38+02:00", "x", "")],
    }  # fmt: skip
    assert_kept(KEPT / "others.json", found)
