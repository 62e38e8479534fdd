"""The programmes' optima by hand: a straight line or a curve of points is exact, tangents of a smooth one nearly so."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.bidding.data import CurveKind, Scalability, ScenarioOutlook
from optim.models.bidding.programme import charnes_cooper_model, parametric_model
from optim.solvers.lp.highs import CompiledModel, solve_with_highs
from tests.support.bidding.small_markets import hour_instance

TOL = 1e-6
"""HiGHS' tolerances against values of the order of 1."""


def two_bids(charge_low, charge_high):
    """Return a market of two machines at either of two bids, the lower one outbid after 45 minutes of one hour in two.

    A machine at the lower bid then loses a quarter of an hour of the half-hour slot of its eviction.
    """
    base = hour_instance([0, 0], [0.1, 0.1], [1.0, 1.0], max_count=2, cap=2, fixed_usd=0.4, eviction_loss_h=0.25)
    charge = np.array([[charge_low] * 2, [charge_high] * 2])
    evicted = np.array([[-1, 1800 + 900], [-1, -1]])
    outlook = ScenarioOutlook(
        weight=np.array([0.5, 0.5]), slot_s=1800, num_slots=2, ready_s=0, charge_micro=charge, evicted_s=evicted
    )
    return replace(base, outlook=outlook)


def optimum(model):
    return solve_with_highs(CompiledModel(model)).objective


@pytest.mark.parametrize(
    ("charges", "counts", "expected"),
    [
        ((100_000, 100_000), [0, 2], 0.4 + 2 * 0.1 - 2 * 1.0),
        ((100_000, 10_000_000), [2, 0], 0.4 + 2 * 0.1 - 2 * (0.5 * 1.0 + 0.5 * (0.5 + 0.5 * 0.25))),
    ],
)
def test_only_those_who_hold_a_bid_that_is_outbid_lose_by_it(charges, counts, expected):
    instance = two_bids(*charges)
    model = parametric_model(instance, 1.0)
    assert optimum(model) == pytest.approx(expected, abs=TOL)
    assert [round(model.count[j].value) for j in range(2)] == counts


@pytest.mark.parametrize("ratio", [0.1, 0.3, 1.0])
def test_tangents_follow_a_curve_as_far_as_all_machines_together_go(ratio):
    """Without existing machines: V = 2 k for k up to 6, work V / (1 + 0.1 V), a dime each."""
    curve = Scalability(kind=CurveKind.SATURATING, serial=0.1, base=1.0)
    instance = hour_instance([0], [0.1], [2.0], max_count=6, fixed_usd=0.4, scalability=curve)
    best = min(0.4 + 0.1 * k - ratio * 2 * k / (1 + 0.2 * k) for k in range(7))
    found = optimum(parametric_model(instance, ratio))
    assert best - 2e-3 * ratio * 12 / 2.2 <= found <= best + TOL
    lowest = min((0.4 + 0.1 * k) / (2 * k / (1 + 0.2 * k)) for k in np.linspace(0.01, 6, 600))
    assert optimum(charnes_cooper_model(instance)) == pytest.approx(lowest, rel=2e-3)
