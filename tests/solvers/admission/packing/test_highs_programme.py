"""Packing programmes that grow: their optimum by hand after each change."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

from optim.solvers.lp.highs import add_columns, add_rows, empty_programme


def solved(highs):
    highs.run()
    solution = highs.getSolution()
    return highs.getInfo().objective_function_value, list(solution.col_value), list(solution.row_dual)


def test_columns_and_rows_are_added_to_a_programme_with_right_hand_sides_1() -> None:
    highs = empty_programme(2)
    add_columns(highs, np.array([3.0, 2.0]), csc_array([[0.5, 0.0], [0.0, 0.25]]), np.array([np.inf, 1.5]))
    value, x, dual = solved(highs)
    assert x == pytest.approx([2.0, 1.5])
    assert value == pytest.approx(9.0)
    assert dual == pytest.approx([6.0, 0.0])
    add_rows(highs, csr_array([[0.5, 1.0]]))
    value, x, _ = solved(highs)
    assert value == pytest.approx(6.0)
    assert 0.5 * x[0] + x[1] <= 1.0 + 1e-9
    add_columns(highs, np.array([5.0]), csc_array([[1.0], [0.0], [0.5]]), np.array([np.inf]))
    value, x, _ = solved(highs)
    assert value == pytest.approx(6.0)
    assert x[0] * 0.5 + x[2] <= 1.0 + 1e-9
    assert highs.getNumRow() == 3
    assert highs.getNumCol() == 3
