"""What fractional markets and their rounding come to, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

import optim
from optim.models.auction.market import FractionalMarket, market_of
from optim.solvers.auction.allocation import Allocator
from optim.solvers.auction.fractional import envy_ratio, integral_shares, rounded, solve_fractional
from optim.solvers.auction.tables import Tables
from tests.support.auction.builders import auction, linear
from tests.support.golden import check

APPS, GOODS = 4, 3
"""The shape for which the other tests of this folder compile."""


def market(seed):
    """Return a market by a seed."""
    rng = np.random.default_rng(seed)
    speed, supply = rng.uniform(0.1, 2.0, (APPS, GOODS)), rng.integers(1, 6, GOODS).astype(float)
    return FractionalMarket(
        speed=speed,
        supply=supply,
        cap=rng.uniform(0.5, 2.0, APPS) * (speed * supply).sum(axis=1),
        elapsed_min=rng.uniform(0, 3.0, APPS),
        work_min=rng.uniform(1.0, 2.0, APPS),
        ideal_min=rng.uniform(0.5, 2.0, APPS),
        machine_good=np.arange(GOODS),
        app=np.arange(APPS),
    )


def solved():
    """Solve markets to several tolerances, and round shares."""
    found = []
    for seed in range(4):
        drawn = market(seed)
        found += [solve_fractional(drawn, tol=tol) for tol in (1e-2, 1e-5)]
        share = np.random.default_rng(seed).dirichlet(np.ones(APPS), GOODS).T * drawn.supply
        found += [integral_shares(drawn, share), envy_ratio(drawn, share)]
    return found


def awarded():
    """Round drawn shares of an auction's market to bundles."""
    instance = auction([4, 3, 5], *[linear(4, 6.0 + app, "machine") for app in range(APPS)])
    tables, found = Tables.build(instance), []
    drawn = market_of(instance)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        share = rng.dirichlet(np.ones(len(drawn.app)), len(drawn.supply)).T * drawn.supply
        found.append(rounded(tables, Allocator(tables), drawn, share))
    return [*found, drawn, optim.solve(instance, "greedy")]


RUNS = {"markets": solved, "awards": awarded}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/auction/fractional", name, RUNS[name])
