"""Rows updated in place: as stated, to the bit whatever the threads, and by the same rule as JAX's table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optim.kernels.parameter_server import Adagrad, Adam, Momentum, Sgd
from optim.training.server import HostRows

ROWS, WIDTH, COUNT = 7, 3, 15
RULES = {
    "descent": Sgd(learning_rate=0.5),
    "Adagrad": Adagrad(learning_rate=0.5, epsilon=1e-3),
}
START = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
SQUARES = np.random.default_rng(1).random((ROWS, WIDTH)).astype(np.float32)

row_lists = hnp.arrays(np.int32, (COUNT,), elements=st.integers(-3, ROWS + 3))
values = hnp.arrays(np.float32, (COUNT, WIDTH), elements=st.floats(-4, 4, width=16))


def table(rule, threads=1):
    return HostRows(START, (SQUARES,) * rule.num_slots, rule, threads=threads)


def plain(rule, rows, pushed, start, squares):
    """The update in float64, row by row."""
    start, squares = start.astype(np.float64), squares.astype(np.float64)
    for row in range(ROWS):
        g = sum((pushed[i].astype(np.float64) for i in range(COUNT) if rows[i] == row), np.zeros(WIDTH))
        if rule.num_slots and row in rows:
            squares[row] += g**2
            g = g / (np.sqrt(squares[row]) + rule.epsilon)
        start[row] -= rule.learning_rate * g
    return start, squares


@pytest.mark.parametrize("name", RULES)
@given(rows=row_lists, pushed=values, again=row_lists)
def test_equal_rows_add_up_before_the_rule_and_others_rest(name, rows, pushed, again):
    rule = RULES[name]
    held, expected = table(rule), (START, SQUARES)
    for one in (rows, again):
        held.push(one, pushed)
        expected = plain(rule, one, pushed, *expected)
    assert held.parameters() == pytest.approx(expected[0], abs=1e-4)
    if rule.num_slots:
        assert held.slots()[0] == pytest.approx(expected[1], rel=1e-5, abs=1e-5)
    rest = ~np.isin(np.arange(ROWS), [*rows, *again])
    assert np.array_equal(held.parameters()[rest], START[rest])


@pytest.mark.parametrize("name", RULES)
@given(rows=row_lists, pushed=values, threads=st.integers(2, 4))
def test_threads_change_no_bit(name, rows, pushed, threads):
    alone, several = table(RULES[name]), table(RULES[name], threads)
    for _ in range(2):
        alone.push(rows, pushed)
        several.push(rows, pushed)
    several.close()
    assert np.array_equal(alone.parameters(), several.parameters())
    assert all(map(np.array_equal, alone.slots(), several.slots()))


def test_what_is_given_and_handed_out_is_a_copy():
    rule, start = RULES["Adagrad"], START.copy()
    held = HostRows(start, (SQUARES,), rule)
    before, slots = held.parameters(), held.slots()
    held.push(np.array([0, 1], np.int32), np.ones((2, WIDTH), np.float32))
    assert np.array_equal(start, START)
    assert np.array_equal(before, START)
    assert np.array_equal(slots[0], SQUARES)
    assert not np.array_equal(held.parameters(), START)


def test_other_rules_have_no_loops():
    assert all(HostRows.takes(rule) for rule in RULES.values())
    assert not HostRows.takes(Momentum(learning_rate=0.1))
    assert not HostRows.takes(Adam(learning_rate=0.1))
