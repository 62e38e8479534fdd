"""Hazards by hand: losses over time at risk by age, a factor by part of the day, survival over both."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.lifetimes import AGES_S, BLOCKS, Hazards, Lifetimes, fit_hazards
from optim.models.bidding.market.prices import HOUR_S


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
    # Half an hour before six in the morning: what comes after counts twice.
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
        # Short watches, so that a spell lies in one part of the day, mostly.
        rate = truth["ab"[kind]] * factor[int(start // 21_600)]
        lost_s = rng.exponential(HOUR_S / rate)
        rows.append((kind, start, min(lost_s, 500.0), lost_s < 500.0))
    found = fit_hazards(spells(*rows, kinds=("a", "b")))
    mean = factor.mean()
    assert found.rate[:, 0] == pytest.approx([0.5 * mean, 0.1 * mean], rel=0.15)
    assert found.factor / found.factor.mean() == pytest.approx(factor / mean, rel=0.25)
    assert len(found.factor) == BLOCKS


def test_refuses_spells_of_no_length():
    with pytest.raises(InvalidProblemError, match="longer than nothing"):
        spells((0, 0, 0, True))
