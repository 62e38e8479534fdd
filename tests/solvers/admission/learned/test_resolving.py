"""Prices for the rest of a day."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.admission.instance import merge_days, take_jobs
from optim.solvers.admission.posted_prices.learned_run import FIRST_TOL, TOL, LpReoptimizer, posted_state
from optim.solvers.admission.posted_prices.reservations import left_by_class
from optim.solvers.admission.pricing.classes import JobTables, Prices, price
from tests.support.admission.days import CLUSTERS, days, forecast
from tests.support.admission.tiny import job_document, tiny_instance

STEP = {"kind": "step", "value": 6, "deadline": 0}
RUSH = tiny_instance(*(job_document(f"j{k}", arrival=2, epochs=1, utility=STEP) for k in range(3)))
"""Three jobs for two GPUs each, of which slot 2 holds two, and then only one PS each."""


def test_only_what_is_left_counts() -> None:
    today, known = days(0)[-1], forecast(0)
    reoptimizer = LpReoptimizer(today, [day.jobs for day in known.days], 3, known.fill)
    full, half = posted_state(today, known.prices), posted_state(today, known.prices)
    for side in half.sides:
        side.residual *= 0.5
    whole, scarce = (reoptimizer.solve(state, 3, known.prices) for state in (full, half))
    assert scarce.worker[:, 3:].sum() > whole.worker[:, 3:].sum()
    np.testing.assert_array_equal(whole.worker[:, :3], known.worker_price[:, :3])


def test_past_jobs_are_no_longer_expected() -> None:
    none = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    reoptimizer = LpReoptimizer(RUSH, [RUSH.jobs], 5, 0.5)
    state = posted_state(RUSH, none)
    before = reoptimizer.solve(state, 1, none)
    assert before.worker[0, 2].sum() + before.ps[0, 2].sum() > 0
    assert reoptimizer.solve(state, 3, none) is none


def test_drift_is_the_worth_of_what_nobody_expected_to_be_taken() -> None:
    prices = Prices(worker=np.ones((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    reoptimizer = LpReoptimizer(RUSH, [RUSH.jobs], 1, 1.0)
    state = posted_state(RUSH, prices)
    assert reoptimizer.drift(state, 1, prices) == 0
    state.worker.residual[2, 0, :] = 0
    # Four of the GPUs of slots 1 to 3, of which there are twelve.
    assert reoptimizer.drift(state, 1, prices) == pytest.approx(4 / 12)


PATIENT = tiny_instance(
    *(job_document(f"j{k}", arrival=2, epochs=1, utility={**STEP, "deadline": 1}) for k in range(3))
)
"""The same three jobs, for which slot 3 is as good: together the slots hold all of them."""


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_full_slot_is_no_room_and_is_dear(is_prepared) -> None:
    none = Prices(worker=np.zeros((1, 4, 2)), ps=np.zeros((1, 4, 2)))
    reoptimizer = LpReoptimizer(PATIENT, [PATIENT.jobs], 5, 1.0)
    if is_prepared:
        reoptimizer.prepare(none)
    state = posted_state(PATIENT, none)
    free = reoptimizer.solve(state, 1, none)
    for side in state.sides:
        side.residual[2] = 0
    full = reoptimizer.solve(state, 1, none)
    assert free.worker.sum() + free.ps.sum() == pytest.approx(0, abs=1e-6)
    # Slot 3 holds two of three jobs; what a job needs of either slot costs all that it is worth.
    worth = 2 * full.worker[0, :, 0] + full.ps[0, :, 1]
    assert worth[2:] == pytest.approx([6, 6], rel=0.05)


@pytest.mark.prove
@pytest.mark.parametrize("cluster", range(CLUSTERS))
def test_solves_that_go_on_from_the_last_ones_columns_find_as_good_prices_as_fresh_ones(cluster) -> None:
    """Either's bound (L.3) at its prices, over all expected jobs, is within both tolerances of the other's.

    And no solve ends at prices that prove less than those it began at, even if it has not come far.
    """
    today, known = days(cluster)[-1], forecast(cluster)
    expected = [day.jobs for day in known.days]
    warm = LpReoptimizer(today, expected, 8, known.fill)
    warm.prepare(known.prices)
    state, prices = posted_state(today, known.prices), known.prices
    for slot in (1, 3, 5):
        for side in state.sides:
            side.residual[slot:] -= side.residual[slot:] // 5
        before = bound_on_the_rest(today, expected, known.fill, state, slot, prices)
        prices = warm.solve(state, slot, prices)
        fresh = LpReoptimizer(today, expected, 8, known.fill).solve(state, slot, known.prices)
        found, least = (bound_on_the_rest(today, expected, known.fill, state, slot, p) for p in (prices, fresh))
        assert found <= (1 + TOL) * least
        assert least <= (1 + FIRST_TOL) * found
        assert found <= (1 + 1e-9) * before


def bound_on_the_rest(today, expected, fill, state, slot, prices) -> float:
    """Return what the jobs that are expected from a slot on earn at most with what is left, by (L.3)'s dual."""
    rest = merge_days(expected, today)
    rest = replace(rest, jobs=take_jobs(rest.jobs, np.flatnonzero(rest.jobs.arrival >= slot)))
    payoff = price(JobTables.build(rest), prices).payoff.sum()
    left = left_by_class(state)
    sides = (prices.worker, prices.ps)
    worth = sum(float((p[:, slot:] * b[:, slot:]).sum()) for p, b in zip(sides, left, strict=True))
    return payoff + len(expected) * fill * worth
