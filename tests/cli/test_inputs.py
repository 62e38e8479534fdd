"""On-demand prices from the text of a command."""

import pytest

from optim.cli.inputs import on_demand_of
from optim.core.errors import InvalidOptionError, InvalidProblemError


def test_on_demand_is_usd_per_hour_or_a_file_of_types(tmp_path):
    path = tmp_path / "types.csv"
    path.write_text("instance_type,on_demand_usd_per_hour\np5.48xlarge,98.32\n")
    assert on_demand_of(None) is None
    assert on_demand_of("3.06") == 3_060_000
    assert on_demand_of("0.000001") == 1
    assert on_demand_of("p3.2xlarge") == 3_060_000
    assert on_demand_of(str(path)) == {"p5.48xlarge": 98_320_000}


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e300", "0.0000001"])
def test_a_number_that_is_no_price_is_refused(text):
    with pytest.raises(InvalidOptionError, match=r"USD per hour in \[1e-6, 1e6\], got"):
        on_demand_of(text)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(InvalidProblemError, match=r"nowhere\.csv"):
        on_demand_of("nowhere.csv")
