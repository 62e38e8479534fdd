"""Prices for the rest of a day."""

import numpy as np
import pytest

from optim.solvers.admission.posted_prices.learned_run import posted_state, prices_for_the_rest
from optim.solvers.admission.pricing.classes import Prices
from tests.support.admission.days import days, forecast
from tests.support.admission.tiny import job_document, tiny_instance

STEP = {"kind": "step", "value": 6, "deadline": 0}
RUSH = tiny_instance(*(job_document(f"j{k}", arrival=2, epochs=1, utility=STEP) for k in range(3)))
"""Three jobs for two GPUs each, of which slot 2 holds two, and then only one PS each."""


def test_only_what_is_left_counts() -> None:
    today, known = days(0)[-1], forecast(0)
    full, half = posted_state(today, known.prices), posted_state(today, known.prices)
    for side in half.sides:
        side.residual *= 0.5
    expected = known.days[0].jobs
    whole, scarce = (prices_for_the_rest(today, expected, state, 3, known.prices, known.fill) for state in (full, half))
    assert scarce.worker[:, 3:].sum() > whole.worker[:, 3:].sum()
    np.testing.assert_array_equal(whole.worker[:, :3], known.worker_price[:, :3])


def test_past_jobs_are_no_longer_expected() -> None:
    none = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    state = posted_state(RUSH, none)
    before = prices_for_the_rest(RUSH, RUSH.jobs, state, 1, none, 0.5)
    assert before.worker[0, 2].sum() + before.ps[0, 2].sum() > 0
    assert prices_for_the_rest(RUSH, RUSH.jobs, state, 3, none, 0.5) is none


PATIENT = tiny_instance(
    *(job_document(f"j{k}", arrival=2, epochs=1, utility={**STEP, "deadline": 1}) for k in range(3))
)
"""The same three jobs, for which slot 3 is as good: together the slots hold all of them."""


def test_a_full_slot_is_no_room_and_is_dear() -> None:
    none = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    state = posted_state(PATIENT, none)
    free = prices_for_the_rest(PATIENT, PATIENT.jobs, state, 1, none, 1.0)
    for side in state.sides:
        side.residual[2] = 0
    full = prices_for_the_rest(PATIENT, PATIENT.jobs, state, 1, none, 1.0)
    assert free.worker.sum() + free.ps.sum() == pytest.approx(0, abs=1e-6)
    # Slot 3 holds two of three jobs: there a job pays all that it is worth, and in the full slot no less.
    cost = 2 * full.worker[0, :, 0] + full.ps[0, :, 1]
    assert cost[2] >= 0.95 * 6
    assert cost[3] == pytest.approx(6, rel=0.05)
