"""Quantiles of needs, some of which are lower bounds: the example of Kaplan and Meier, and a separate estimate."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from optim.rightsizing.learned_policies import quantiles, survival_quantiles

LEVELS = np.linspace(0.0, 1.0, 41)


def masses(values, is_censored):
    """Return the product-limit estimate's mass at each observed value, and the remaining mass, as fractions."""
    left, found = Fraction(1), {}
    for value in sorted({v for v, bound in zip(values, is_censored, strict=True) if not bound}):
        at_risk = sum(v >= value for v in values)
        happened = sum(v == value and not bound for v, bound in zip(values, is_censored, strict=True))
        found[value] = left * Fraction(happened, at_risk)
        left -= found[value]
    return found, left


def by_hand(values, is_censored, levels, beyond):
    """Return the same quantiles from masses given as fractions."""
    found, left = masses(values, is_censored)
    points = []
    for value, mass in found.items():
        happened = sum(v == value and not bound for v, bound in zip(values, is_censored, strict=True))
        points += [(value, mass / happened)] * happened
    if left:
        points.append((max(values) + beyond, left))
    place = [Fraction(0)]
    for (_, mass), (_, more) in itertools.pairwise(points):
        place.append(place[-1] + (mass + more) / 2)
    if len(points) == 1:
        return np.full(len(levels), points[0][0])
    return np.interp(levels, [float(each / place[-1]) for each in place], [value for value, _ in points])


def test_example_of_kaplan_and_meier():
    # Section 2: deaths at 0.8, 3.1, 5.4, 9.2, losses at 1.0, 2.7, 7.0, 12.1 months; P(t) = 7/8, 7/10, 21/40, 21/80.
    values = [0.8, 3.1, 5.4, 9.2, 1.0, 2.7, 7.0, 12.1]
    is_censored = [False] * 4 + [True] * 4
    found, left = masses(values, is_censored)
    survival = np.cumprod([1]) - np.cumsum([float(mass) for mass in found.values()])
    assert survival.tolist() == pytest.approx([7 / 8, 7 / 10, 21 / 40, 21 / 80])
    assert left == Fraction(21, 80)
    answer = survival_quantiles(np.array([values]), np.array([is_censored]), LEVELS, beyond=0.5)
    np.testing.assert_allclose(answer[0], by_hand(values, is_censored, LEVELS, 0.5))
    assert answer[0, -1] == 12.6


@pytest.mark.parametrize("seed", range(6))
def test_masses_are_those_of_fractions(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 9, (4, 12)).astype(float)  # with equal values
    is_censored = rng.random((4, 12)) < 0.4
    answer = survival_quantiles(values, is_censored, LEVELS, beyond=0.2)
    for row in range(4):
        expected = by_hand(values[row].tolist(), is_censored[row].tolist(), LEVELS, 0.2)
        np.testing.assert_allclose(answer[row], expected)


def test_without_bounds_quantiles_are_as_ever_and_with_bounds_alone_they_lie_beyond():
    values = np.random.default_rng(1).normal(size=(3, 30))
    nothing = np.zeros_like(values, bool)
    usual = quantiles(values, LEVELS)
    np.testing.assert_allclose(survival_quantiles(values, nothing, LEVELS, beyond=0.2), usual)
    assert (survival_quantiles(values, ~nothing, LEVELS, beyond=0.2) == values.max(axis=1)[:, None] + 0.2).all()
