"""Posted prices stay as they are until others are posted."""

import numpy as np

from optim.solvers.admission.posted_prices.learned_run import post, posted_state
from optim.solvers.admission.pricing.classes import Prices
from optim.solvers.admission.pricing.servers import Use
from tests.support.admission.days import days


def test_prices_are_each_server_s_class_s_and_taking_changes_none() -> None:
    today, rng = days(0)[-1], np.random.default_rng(0)
    shapes = today.worker_servers.capacity.shape, today.ps_servers.capacity.shape
    first, second = (Prices(worker=rng.random(shapes[0]), ps=rng.random(shapes[1])) for _ in range(2))
    first.worker[0, 0, 0] = 0.0
    state = posted_state(today, first)
    for prices in (first, second):
        post(state, prices)
        for side, array in zip(state.sides, (prices.worker, prices.ps), strict=True):
            for h, c in enumerate(side.servers.class_of_server.tolist()):
                np.testing.assert_allclose(side.price[:, :, h], array[c], rtol=1e-12)
    one = np.zeros(1, dtype=np.int64)
    _, after = state.worker.take(Use(slot=one, server=one, amount=np.ones((1, today.num_resources))))
    np.testing.assert_allclose(after[0], first.worker[0, 0], rtol=1e-12)
