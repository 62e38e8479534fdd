"""Prices for the rest of a day."""

import numpy as np
import pytest

from optim.solvers.admission.learned.posted import posted_state
from optim.solvers.admission.learned.resolving import Resolver
from optim.solvers.admission.pricing.class_pricing import Prices
from tests.support.admission.days import days, forecast
from tests.support.admission.tiny import job_document, tiny_instance

STEP = {"kind": "step", "value": 6, "deadline": 0}
RUSH = tiny_instance(*(job_document(f"j{k}", arrival=2, epochs=1, utility=STEP) for k in range(3)))
"""Three jobs for two GPUs each, of which slot 2 holds two, and then only one PS each."""


def test_only_what_is_left_counts() -> None:
    today, known = days(0)[-1], forecast(0)
    resolver = Resolver(today, [day.jobs for day in known.days], 3, known.fill)
    full, half = posted_state(today, known.prices), posted_state(today, known.prices)
    for side in half.sides:
        side.residual *= 0.5
    whole, scarce = (resolver.solve(state, 3, known.prices) for state in (full, half))
    assert scarce.worker[:, 3:].sum() > whole.worker[:, 3:].sum()
    np.testing.assert_array_equal(whole.worker[:, :3], known.worker_price[:, :3])


def test_past_jobs_are_no_longer_expected() -> None:
    none = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    resolver = Resolver(RUSH, [RUSH.jobs], 5, 0.5)
    state = posted_state(RUSH, none)
    before = resolver.solve(state, 1, none)
    assert before.worker[0, 2].sum() + before.ps[0, 2].sum() > 0
    assert resolver.solve(state, 3, none) is none


def test_drift_is_the_worth_of_what_nobody_expected_to_be_taken() -> None:
    prices = Prices(worker=np.ones((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    resolver = Resolver(RUSH, [RUSH.jobs], 1, 1.0)
    state = posted_state(RUSH, prices)
    assert resolver.drift(state, 1, prices) == 0
    state.worker.residual[2, 0, :] = 0
    # Four of the GPUs of slots 1 to 3, of which there are twelve.
    assert resolver.drift(state, 1, prices) == pytest.approx(4 / 12)
