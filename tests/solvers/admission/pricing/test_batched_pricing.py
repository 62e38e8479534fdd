"""Batched pricing in JAX against the compiled loop."""

import numpy as np
import pytest

import optim
from optim.solvers.admission.pricing.batched_pricing import price_batched
from optim.solvers.admission.pricing.classes import JobTables, Prices, price


@pytest.mark.parametrize(
    "name", ["tiny-0", *(pytest.param(name, marks=pytest.mark.prove) for name in ("small-1", "heavy-0"))]
)
def test_payoffs_and_completions_equal_the_loop(name):
    instance = optim.reference_instance(name)
    tables = JobTables.build(instance)
    rng = np.random.default_rng(1)
    shape = (instance.horizon, instance.num_resources)
    prices = Prices(
        worker=0.1 * rng.random((instance.worker_servers.num_classes, *shape)),
        ps=0.1 * rng.random((instance.ps_servers.num_classes, *shape)),
    )
    payoff, completion = price_batched(tables, prices)
    expected = price(tables, prices)
    assert (expected.payoff > 0).any()
    np.testing.assert_allclose(payoff, expected.payoff, atol=1e-9)
    np.testing.assert_array_equal(completion, expected.completion)
