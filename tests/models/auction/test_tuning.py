"""Successive halving and early stopping: worked examples."""

import pytest

from optim.core.errors import InvalidOptionError
from optim.models.auction.tuning import (
    TrialClass,
    classify_trials,
    expected_trial_work,
    fit_loss_curve,
    rung_sizes,
)


def test_rungs_keep_a_rounded_up_share():
    assert rung_sizes(10, 3) == (10, 4, 2, 1)
    assert rung_sizes(1, 2) == (1,)


def test_a_trials_expected_work_adds_up_to_the_runs():
    assert 9 * expected_trial_work(9, 3, 1.0, 0) == pytest.approx(9 + 3 * 2 + 1 * 6)
    assert expected_trial_work(9, 3, 1.0, 2) == 6.0


def test_a_power_law_is_recovered():
    fit = fit_loss_curve([0.5 + 2.0 * t**-1.0 for t in range(1, 12)])
    assert fit.at(100.0) == pytest.approx(0.52, abs=0.02)


def test_trials_are_good_promising_or_poor_by_their_predicted_loss():
    curves = [[limit + 1.0 / t for t in range(1, 9)] for limit in (1.0, 1.1, 2.0)]
    assert classify_trials(curves, 100.0) == (TrialClass.GOOD, TrialClass.PROMISING, TrialClass.POOR)
    assert [c.share for c in TrialClass] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: rung_sizes(3, 1),
        lambda: rung_sizes(0, 3),
        lambda: fit_loss_curve([1.0]),
    ],
)
def test_refuses_runs_that_make_no_sense(call):
    with pytest.raises(InvalidOptionError):
        call()
