"""The generated price histories: the same by seed, within the cap, with spikes."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.models.bidding.market.evictions import fit_evictions
from optim.workloads.prices.price_generator import CAP, PriceOptions, generate_prices


def test_same_seed_same_history():
    options = PriceOptions(num_types=2, num_zones=1, days=3)
    one, other = generate_prices(options, 5), generate_prices(options, 5)
    for first, second in zip(one.paths, other.paths, strict=True):
        assert np.array_equal(first.time_s, second.time_s)
        assert np.array_equal(first.price_micro, second.price_micro)
    assert not np.array_equal(one.paths[0].time_s, generate_prices(options, 6).paths[0].time_s)


def test_prices_look_like_the_bidding_era():
    history = generate_prices(PriceOptions(days=40), 0)
    assert history.num_markets == 15
    ratios = [
        path.price_micro / market.on_demand_micro for market, path in zip(history.markets, history.paths, strict=True)
    ]
    assert max(ratio.max() for ratio in ratios) > 2
    assert max(ratio.max() for ratio in ratios) <= CAP
    assert 0.1 < np.median(np.concatenate(ratios)) < 0.3
    beta = fit_evictions(history).beta
    assert 0.4 < np.median(beta[:, 1]) < 0.8
    assert 0.01 < np.median(beta[:, -1]) < 0.2


@pytest.mark.parametrize(("name", "value"), [("days", 0), ("num_types", 9), ("correlation", 1.5)])
def test_refuses_options_out_of_range(name, value):
    with pytest.raises(InvalidOptionError, match=name):
        PriceOptions(**{name: value})
