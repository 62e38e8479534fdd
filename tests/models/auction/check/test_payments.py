"""Sizes of grants by the rule, and valid parts of a bundle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.check.payments import _sizes
from optim.models.auction.decision import PaymentRule
from optim.models.auction.payment import grant_size


@given(
    st.sampled_from([rule for rule in PaymentRule if rule is not PaymentRule.LOTTERY]),
    st.one_of(st.floats(0, 1), st.sampled_from([0.25, 0.5, 0.75, 1 / 3, 2 / 3])),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_the_checkers_sizes_are_the_rules(rule, share, gangs, gang):
    assert _sizes(rule, share, gangs * gang, gang) == {grant_size(rule, share, gangs * gang, gang)}


@pytest.mark.parametrize(("share", "sizes"), [(0.0, {0}), (0.5, {0, 4}), (1.0, {4})])
def test_a_lottery_gives_all_or_nothing(share, sizes):
    assert _sizes(PaymentRule.LOTTERY, share, 4, 1) == sizes


@pytest.mark.parametrize(
    ("rule", "share", "gang", "size"),
    [
        (PaymentRule.FLOOR, 0.49, 1, 0),
        (PaymentRule.FLOOR, 0.5, 1, 1),
        (PaymentRule.FLOOR, 0.999, 1, 1),
        (PaymentRule.NEAREST, 0.49, 1, 0),
        (PaymentRule.NEAREST, 0.5, 1, 1),
        (PaymentRule.CEIL, 1e-6, 1, 1),
        (PaymentRule.CEIL, 0.0, 1, 0),
        (PaymentRule.NONE, 0.0, 1, 1),
    ],
)
def test_sizes_of_a_bundle_of_one(rule, share, gang, size):
    assert _sizes(rule, share, 1, gang) == {size}


def test_half_a_gang_is_not_kept_by_rounding_down():
    assert _sizes(PaymentRule.FLOOR, 0.6, 2, 2) == {0}
    assert _sizes(PaymentRule.NEAREST, 0.6, 2, 2) == {2}
