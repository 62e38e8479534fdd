"""The exact probability of what lasts, against all outcomes one by one and by hand."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.lifetimes import CommonShocks


def by_outcomes(shocks, capacity, least):
    """Return the probability summed over every combination of causes that strike or don't."""
    causes = [*shocks.own, *shocks.by_zone, *shocks.by_region]
    kinds, zones = len(shocks.own), len(shocks.by_zone)
    total = 0.0
    for struck in product((False, True), repeat=len(causes)):
        chance = np.prod([1 - np.exp(-h) if hit else np.exp(-h) for h, hit in zip(causes, struck, strict=True)])
        left = 0.0
        for kind in range(kinds):
            zone = shocks.zone[kind]
            hit = struck[kind] or struck[kinds + zone] or struck[kinds + zones + shocks.region[zone]]
            left += 0.0 if hit else capacity[kind]
        total += chance * (left >= least - 1e-9)
    return total


SHOCKS = st.lists(st.floats(0, 1.5), min_size=8, max_size=8)


@given(values=SHOCKS, capacity=st.lists(st.integers(0, 5), min_size=4, max_size=4), least=st.integers(0, 15))
def test_is_the_sum_over_all_outcomes(values, capacity, least):
    shocks = CommonShocks(
        zone=np.array([0, 1, 1, 2]),
        region=np.array([0, 0, 1]),
        own=np.array(values[:4]) / 2,
        by_zone=np.array([*values[4:6], 0.2]),
        by_region=np.array(values[6:8]) / 3,
    )
    found = shocks.probability(np.array(capacity, dtype=float), least)
    assert found == pytest.approx(by_outcomes(shocks, capacity, least), abs=1e-12)


def test_two_kinds_of_a_zone_fall_together_and_survive_by_all_three_causes():
    shocks = CommonShocks(
        zone=np.array([0, 0]),
        region=np.array([0]),
        own=np.zeros(2),
        by_zone=np.array([np.log(2)]),
        by_region=np.array([np.log(4)]),
    )
    assert shocks.survival() == pytest.approx([0.125, 0.125])
    assert shocks.probability([1.0, 1.0], 2.0) == pytest.approx(0.125)  # not an eighth squared
    assert shocks.probability([1.0, 1.0], 0.0) == pytest.approx(1.0)


def test_refuses_what_is_no_number_of_shocks():
    with pytest.raises(InvalidProblemError, match="finite and at least 0"):
        CommonShocks(
            zone=np.array([0]), region=np.array([0]), own=np.array([-1.0]), by_zone=np.zeros(1), by_region=np.zeros(1)
        )
    with pytest.raises(InvalidProblemError, match="each kind needs a zone"):
        CommonShocks(
            zone=np.array([0]), region=np.array([0]), own=np.zeros(2), by_zone=np.zeros(1), by_region=np.zeros(1)
        )
