"""Availability traces, hazards by age and part of the day, and the exact survival probability."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.lifetimes import (
    AGES_S,
    BLOCKS,
    AvailabilityTrace,
    CommonShocks,
    Hazards,
    Lifetimes,
    fit_hazards,
)
from optim.models.bidding.market.prices import HOUR_S


def trace(**changes):
    """A trace with machines available until 60 s and from 180 s to 300 s."""
    known = {
        "zone": "here",
        "resource": "gpu",
        "time_s": np.array([0, 60, 180]),
        "is_available": np.array([True, False, True]),
        "price_micro": np.array([5, 6, 7]),
        "on_demand_micro": 20,
        "end_s": 300,
    }
    return AvailabilityTrace(**known | changes)


def test_each_tick_holds_until_the_next():
    given = trace()
    assert len(given) == 3
    assert [given.price_at(t) for t in (-1, 0, 59, 60, 179, 180, 10**6)] == [None, 5, 5, 6, 6, 7, 7]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"time_s": np.array([0, 60, 60])}, "strictly ascending"),
        ({"time_s": np.array([0, 200, 180])}, "strictly ascending"),
        ({"end_s": 180}, "strictly ascending"),
        ({"time_s": np.zeros(0, dtype=int)}, "at least one tick"),
        ({"is_available": np.array([True])}, "every tick"),
        ({"price_micro": np.array([1, 2])}, "every tick"),
    ],
)
def test_refuses_a_trace_that_contradicts_itself(changes, says):
    with pytest.raises(InvalidProblemError, match=f"here: .*{says}"):
        trace(**changes)


def spells(*rows, kinds=("a",)):
    """Return spells from rows (kind, start, length, lost)."""
    kind, start, length, lost = zip(*rows, strict=True)
    return Lifetimes(
        kinds=kinds,
        kind=np.array(kind),
        start_s=np.array(start, dtype=float),
        length_s=np.array(length, dtype=float),
        is_lost=np.array(lost),
    )


def test_survival_goes_through_ages_and_parts_of_the_day():
    hazards = Hazards(
        kinds=("a",), rate=np.array([[0.6, 0.3, 0.2, 0.1, 0.1, 0.05]]), factor=np.array([1.0, 2.0, 1.0, 1.0])
    )
    # 10 minutes at .6, 20 at .3, 30 at .2.
    first_hour = 0.1 + 0.1 + 0.1
    assert hazards.cumulative(0, 0.0, HOUR_S) == pytest.approx(first_hour)
    assert hazards.survival(0, 0.0, HOUR_S) == pytest.approx(np.exp(-first_hour))
    # Half an hour before six in the morning: the time afterwards counts twice.
    assert hazards.cumulative(0, 5.5 * HOUR_S, HOUR_S) == pytest.approx(0.2 + 2 * 0.1)
    assert hazards.cumulative(0, 0.0, HOUR_S, age_s=HOUR_S) == pytest.approx(0.1)
    assert hazards.cumulative(0, 23 * HOUR_S, 2 * HOUR_S, age_s=5 * HOUR_S) == pytest.approx(0.2)


def test_rates_are_losses_over_time_at_risk_with_a_prior_of_one_loss():
    found = fit_hazards(spells((0, 0, 600, True), (0, 0, 1800, False), (1, 0, 600, True), kinds=("a", "b")))
    # Pooled: two losses in half an hour at the youngest age; a has one in 20 minutes, b one in 10.
    pooled = 2 / 0.5
    assert found.rate[0, 0] == pytest.approx((1 + 1) / (1200 / HOUR_S + 1 / pooled))
    assert found.rate[1, 0] == pytest.approx((1 + 1) / (600 / HOUR_S + 1 / pooled))
    assert found.rate[0, 1] == 0.0
    assert found.rate.shape == (2, len(AGES_S))


def test_a_known_hazard_is_recovered_by_kind_age_and_part_of_the_day():
    rng = np.random.default_rng(0)
    truth = {"a": 0.5, "b": 0.1}
    factor = np.array([0.5, 1.0, 2.0, 1.0])
    rows = []
    for _ in range(4000):
        kind = int(rng.integers(0, 2))
        start = float(rng.uniform(0, 86_400))
        # Short observations, so that most spells are within one part of the day.
        rate = truth["ab"[kind]] * factor[int(start // 21_600)]
        lost_s = rng.exponential(HOUR_S / rate)
        rows.append((kind, start, min(lost_s, 500.0), lost_s < 500.0))
    found = fit_hazards(spells(*rows, kinds=("a", "b")))
    mean = factor.mean()
    assert found.rate[:, 0] == pytest.approx([0.5 * mean, 0.1 * mean], rel=0.15)
    assert found.factor / found.factor.mean() == pytest.approx(factor / mean, rel=0.25)
    assert len(found.factor) == BLOCKS


def test_refuses_spells_of_no_length():
    with pytest.raises(InvalidProblemError, match="positive length"):
        spells((0, 0, 0, True))


def by_outcomes(shocks, capacity, least):
    """Return the probability that `least` capacity survives, summed over all combinations of shocks."""
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
    with pytest.raises(InvalidProblemError, match="own and zone need one entry per kind"):
        CommonShocks(
            zone=np.array([0]), region=np.array([0]), own=np.zeros(2), by_zone=np.zeros(1), by_region=np.zeros(1)
        )
