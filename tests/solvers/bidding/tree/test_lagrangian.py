"""The solver's bounds against the checker's, which shares no code with it."""

import numpy as np
import pytest

from optim.models.bidding.check.exact_instance import VerifierContext
from optim.models.bidding.check.tree import CheckedBox, leaf_bound
from optim.models.bidding.data import CurveKind, Scalability
from optim.solvers.bidding.tree.box import Box, relax
from optim.solvers.bidding.tree.lagrangian import CellMultipliers, LagrangianBound, expand, point_of_slope
from optim.solvers.bidding.tree.node_lp import solve_node
from tests.support.bidding.small_markets import CURVES, varied

TOL = 1e-7
"""Solver and checker sum the same terms in different orders; ranges of sums have margins of a billionth."""


def drawn_case(seed):
    """Return a random instance, a box of it and multipliers over its cells."""
    instance, rng = varied(seed), np.random.default_rng([seed, 2])
    bids = instance.bids
    low = np.minimum(rng.integers(0, 2, len(bids)) * rng.integers(0, 2), bids.max_count)
    change = bool(rng.random() < 0.7) if bids.is_new.any() else False
    high = bids.max_count if change else np.where(bids.is_new, 0, bids.max_count)
    low = np.minimum(low, high)
    box = Box(low=low, high=high, has_change=change)
    relaxation = relax(instance, box, 0.0)
    cells, envelope = len(relaxation.weight), relaxation.envelope
    attribution = rng.uniform(0, 1, relaxation.hit.shape) * relaxation.hit
    x = CellMultipliers(
        point=rng.uniform(0, 6, cells),
        eviction=rng.uniform(0, 1, cells) * relaxation.is_open,
        attribution=attribution / np.maximum(attribution.sum(axis=1, keepdims=True), 1.0),
        cap=rng.uniform(0, 0.2, len(instance.caps.limit)),
        work=float(rng.uniform(0, 0.2)),
    )
    if envelope is not None:
        by_rate, by_theta = envelope.plane(float(rng.random()))
        prices = rng.uniform(-0.1, 0.1, 2)
        x = CellMultipliers(
            point=x.point, eviction=x.eviction, attribution=x.attribution, cap=x.cap, work=x.work,
            lost_by_rate=by_rate, lost_by_theta=by_theta, theta=float(prices[0]), rate=float(prices[1]),
        )  # fmt: skip
    return instance, box, relaxation, x, float(rng.uniform(0.05, 0.4))


def checked(instance, box, relaxation, x, ratio):
    """Return the checker's bound for the multipliers."""
    same = CheckedBox(low=box.low, high=box.high, has_change=box.has_change, theta=box.theta, rate=box.rate)
    return leaf_bound(VerifierContext(instance=instance), same, expand(relaxation, x), ratio, 0.0)


def is_plain(instance, box, relaxation):
    """Return whether a box is valued without multipliers."""
    is_empty = relaxation.envelope is not None and relaxation.envelope.is_empty
    return box.is_single or box.exceeds_a_cap(instance) or is_empty


@pytest.mark.parametrize("part", range(4))
def test_what_multipliers_prove_is_what_the_checker_finds(part):
    compared = 0
    for seed in range(40 * part, 40 * (part + 1)):
        instance, box, relaxation, x, ratio = drawn_case(seed)
        if is_plain(instance, box, relaxation):
            continue
        bound = LagrangianBound(instance, relaxation, x, ratio)
        assert bound.value == pytest.approx(checked(instance, box, relaxation, x, ratio), abs=TOL), seed
        compared += 1
    assert compared > 20


def test_a_bound_with_other_limits_of_one_bid_is_no_more_than_the_checkers_of_that_box():
    for seed in range(60):
        instance, box, relaxation, x, ratio = drawn_case(seed)
        if is_plain(instance, box, relaxation):
            continue
        bound = LagrangianBound(instance, relaxation, x, ratio)
        if not np.isfinite(bound.value):
            continue  # two bids of a market that allows one
        for position, bid in enumerate(relaxation.active.tolist()):
            low, high = int(box.low[bid]), int(box.high[bid])
            if low == high:
                continue
            for part, ends in zip(box.split(instance, bid, low), ((low, low), (low + 1, high)), strict=True):
                assert bound.with_bounds(position, *ends) <= checked(instance, part, relaxation, x, ratio) + TOL, seed


def test_the_programmes_multipliers_prove_more_than_any_drawn():
    for seed in range(80):
        instance, box, relaxation, x, ratio = drawn_case(seed)
        if is_plain(instance, box, relaxation):
            continue
        point = solve_node(instance, relaxation, ratio, (np.zeros(len(relaxation.weight)),), instance.min_work)
        if point is None:  # two bids of a market that allows one
            assert not np.isfinite(LagrangianBound(instance, relaxation, x, ratio).value), seed
            continue
        best = LagrangianBound(instance, relaxation, point.multipliers, ratio).value
        assert best >= LagrangianBound(instance, relaxation, x, ratio).value - 1e-6, seed


@pytest.mark.parametrize("curve", CURVES)
def test_a_tangents_point_has_the_slope_that_was_asked_for(curve):
    if curve.kind in (CurveKind.LINEAR, CurveKind.POINTS):
        return
    rates = np.array([0.5, 2.0, 6.0])
    assert point_of_slope(curve, curve.slope(rates), 50.0) == pytest.approx(rates, rel=1e-6)
    assert point_of_slope(curve, np.array([1e-9]), min(curve.peak, 9.0)) == pytest.approx(min(curve.peak, 9.0))


def test_a_curve_of_points_has_its_tangent_at_the_corner():
    curve = Scalability(kind=CurveKind.POINTS, points=((2.0, 2.0), (5.0, 4.0)))
    assert point_of_slope(curve, np.array([0.8]), 5.0) == pytest.approx([2.0])
