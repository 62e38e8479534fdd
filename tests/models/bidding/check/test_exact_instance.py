"""The checker's quantities of an instance: its curve equals the instance's, and a minimum rate is the inverse of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.bidding.check.exact_instance import min_rate_for, tangent_slope, useful_rate
from optim.models.bidding.data import CurveKind, Scalability
from tests.support.bidding.small_markets import CURVES

curves = st.sampled_from(
    [*CURVES, Scalability(kind=CurveKind.USL, serial=0.1), Scalability(kind=CurveKind.SATURATING, serial=0.2, base=2.0)]
)


@given(curves, st.floats(0.0, 40.0))
def test_the_checkers_curve_is_the_instances(curve, rate):
    assert useful_rate(curve, rate) == pytest.approx(float(curve.value(np.array(rate))), abs=1e-12)
    assert tangent_slope(curve, rate) == pytest.approx(float(curve.slope(np.array(rate))), abs=1e-12)


@given(curves, st.floats(0.01, 30.0))
def test_a_least_rate_is_the_last_that_does_not_suffice(curve, work):
    rate = min_rate_for(curve, work)
    assert useful_rate(curve, rate) <= work * (1 + 1e-9)
    if rate < 1e14:
        assert useful_rate(curve, rate * (1 + 1e-6) + 1e-9) >= work * (1 - 1e-9)


def test_no_work_needs_no_rate():
    assert min_rate_for(CURVES[0], 0.0) == 0.0
    assert min_rate_for(CURVES[0], 5.0) == pytest.approx(5.0)
    assert min_rate_for(CURVES[3], 6.0) > 1e14  # beyond the maximum of the curve


def test_the_least_rate_of_a_law_that_saturates_has_a_closed_form():
    """w = v / (b + s v) where v = b w / (1 - s w)."""
    curve = Scalability(kind=CurveKind.SATURATING, serial=0.2, base=2.0)
    for work in (0.01, 1.0, 4.9):
        assert min_rate_for(curve, work) == pytest.approx(2.0 * work / (1.0 - 0.2 * work), rel=1e-9)
