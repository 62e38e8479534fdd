"""The cheapest units over classes with cost curves, compared with every division of the units among the classes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.solvers.admission.pricing.classes import fill_layers, take_layers

MOST = 5


@given(st.data())
def test_every_number_of_units_costs_the_least_of_all_ways_to_part_it(data):
    classes = data.draw(st.integers(1, 3))
    low = data.draw(st.lists(st.integers(0, 2), min_size=classes, max_size=classes))
    high = [least + data.draw(st.integers(0, 3)) for least in low]
    cost = [float(data.draw(st.integers(0, 4))) for _ in range(classes)]
    curve = [[0.0, *(float(data.draw(st.integers(-2, 6))) for _ in range(2))] for _ in range(classes)]
    layers = np.full((classes + 1, MOST + 1), np.nan)
    arrays = np.array(cost), np.array(low), np.array(high), np.array(curve)
    fewest, reached = fill_layers(MOST, *arrays, layers)

    def pays(units):
        return sum(n * cost[c] + curve[c][min(n, 2)] for c, n in enumerate(units))

    ways = list(product(*(range(a, b + 1) for a, b in zip(low, high, strict=True))))
    for n in range(MOST + 1):
        least = min((pays(units) for units in ways if sum(units) == n), default=np.inf)
        assert layers[classes, n] == least
        assert np.isfinite(least) == (fewest <= n <= reached)
        if np.isfinite(least):
            out = np.zeros(classes, dtype=np.int64)
            take_layers(n, arrays[0], arrays[1], arrays[3], layers, out)
            assert tuple(out) in ways
            assert (out.sum(), pays(out)) == (n, pytest.approx(least))


def test_a_class_that_must_hold_more_than_it_can_leaves_no_way():
    layers = np.zeros((2, MOST + 1))
    fewest, reached = fill_layers(MOST, np.ones(1), np.array([2]), np.array([1]), np.zeros((1, 1)), layers)
    assert fewest > reached
