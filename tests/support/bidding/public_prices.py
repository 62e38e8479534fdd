"""Public prices of spot machines, read once for all tests that look at them."""

from functools import cache

from optim.models.bidding.market.prices import PriceHistory
from optim.workloads.prices.price_files import read_on_demand, read_prices
from tests.support.public_traces import spot_file


@cache
def prices_of_2015() -> PriceHistory:
    """Return the prices of three months of 2015, or skip the test."""
    return read_prices(
        spot_file("aws_spot_price_2015_us-east-1.csv.gz"),
        read_on_demand(spot_file("aws_on_demand_2015_us-east-1.csv.gz")),
    )
