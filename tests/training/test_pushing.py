"""Pushed gradients: complete or by rows."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.training.application import HasRows, check_rows
from optim.training.applications import LogisticRegression, MatrixFactorisation
from optim.training.machine import compute
from optim.training.messages import Compute

FACTORS = MatrixFactorisation(num_users=40, num_items=30, num_ratings=60, num_factors=3, num_partitions=4)
CLASSES = LogisticRegression(num_observations=30, num_features=5, num_classes=4, num_partitions=3)


def order(application, **form):
    return Compute(generation=0, partition=1, clock=2, read_clock=2, parameters=parameters(application), **form)


def parameters(application):
    return np.random.default_rng(0).uniform(0.1, 1.0, application.num_parameters).astype(np.float32)


def touched(application):
    """Rows of the users and items rated, from the data."""
    users, items, _ = application.data(1)
    return sorted({*users.tolist(), *(application.num_users + items).tolist()})


@pytest.mark.parametrize("application", [FACTORS])
def test_rows_hold_all_that_is_not_zero(application):
    computed = compute(application, order(application, densest=1.0))
    assert computed.rows.tolist() == touched(application)
    gradient, loss = application.gradient(parameters(application), 1, 2)
    table = np.zeros((application.num_parameters // application.row_width, application.row_width))
    table[computed.rows] = computed.gradient.reshape(-1, application.row_width)
    assert table.ravel() == pytest.approx(gradient, abs=1e-5)
    assert computed.loss == loss
    assert computed.width == application.row_width
    assert isinstance(application, HasRows)


@pytest.mark.parametrize("application", [FACTORS])
def test_more_rows_than_are_worth_it_go_as_the_whole_gradient(application):
    density = len(touched(application)) * application.row_width / application.num_parameters
    at, below = (compute(application, order(application, densest=density * share)) for share in (1 + 1e-9, 1 - 1e-9))
    assert at.rows is not None
    assert below.rows is None
    assert np.array_equal(below.gradient, application.gradient(parameters(application), 1, 2)[0])
    never = compute(application, order(application))
    assert never.rows is None
    assert np.array_equal(never.gradient, below.gradient)


def test_own_pushes_that_are_not_applied_yet_are_seen():
    own = (np.full(20, 0.5, np.float32), np.full(20, 0.25, np.float32))
    seen = compute(CLASSES, order(CLASSES, unapplied=own, rate=0.2))
    expected, _ = CLASSES.gradient(parameters(CLASSES) - np.float32(0.15), 1, 2)
    assert seen.gradient == pytest.approx(expected, abs=1e-6)


def test_what_is_not_finite_is_told_and_left_as_it_is():
    for densest in (0.0, 1.0):
        spoilt = order(FACTORS, densest=densest)
        spoilt.parameters[:] = np.nan
        assert not compute(FACTORS, spoilt).is_finite


@pytest.mark.parametrize(
    ("rows", "text"),
    [([[0, 2]], "shape"), ([2, 2], "must increase"), ([-1, 2], "from 0 to at most 3"), ([0, 4], "from 0 to at most 3")],
)
def test_rows_that_are_none_are_refused(rows, text):
    with pytest.raises(InvalidProblemError, match=text):
        check_rows(np.array(rows, np.int32), 4)
    check_rows(np.array([0, 3], np.int32), 4)
    check_rows(np.zeros(0, np.int32), 4)


def test_an_application_whose_rows_are_none_is_refused_when_it_computes(monkeypatch):
    monkeypatch.setattr(type(FACTORS), "rows", lambda *_: np.array([2, 2], np.int32))
    with pytest.raises(InvalidProblemError, match="must increase"):
        compute(FACTORS, order(FACTORS, densest=1.0))


def test_numbers_of_rows_are_whole_ones_of_32_bits():
    with pytest.raises(InvalidProblemError, match="int32"):
        check_rows(np.array([0, 1]), 4)
