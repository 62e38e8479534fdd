"""Checkpoints: seconds and dollars by hand, expected times against the closed form and against play."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.simulation.spot.bill import CheckpointCost, compare_intervals, schedule


def steady(rate_per_hour, minutes=400):
    """Return expected losses of a machine that is as likely to be lost at any age."""
    return rate_per_hour / 60 * np.arange(minutes)


def test_a_checkpoint_costs_its_gigabytes_over_the_bandwidth_and_their_dollars():
    cost = CheckpointCost(state_gb=120.0, write_gb_per_s=0.5, read_gb_per_s=2.0, usd_per_gb=0.01)
    assert (cost.write_s, cost.read_s, cost.usd) == (240.0, 60.0, 1.2)
    with pytest.raises(InvalidOptionError, match="write_gb_per_s must be"):
        CheckpointCost(state_gb=1.0, write_gb_per_s=0.0)


def test_without_losses_there_are_no_checkpoints_and_work_takes_its_time():
    found = schedule(np.zeros(10), 90, 5, 10)
    assert (found.minutes, found.checkpoints, found.expected_h) == ((90,), 0, 1.5)


@pytest.mark.parametrize("known", [2, 50, 400])
@pytest.mark.parametrize("every", [60, 20, 4, 3, 1])
def test_a_steady_hazard_takes_what_the_closed_form_says(every, known):
    rate, work, write, restart = 1.2 / 60, 60, 4, 7
    found = schedule(steady(1.2, known), work, write, restart, every_min=every)
    assert found.minutes == (every,) * (work // every)
    # Each stretch of n minutes takes (e^(rate n) - 1) (1 / rate + restart) in expectation.
    closed = sum(np.expm1(rate * n) * (1 / rate + restart) for n in [every + write] * (work // every - 1) + [every])
    assert found.expected_h * 60 == pytest.approx(closed, rel=1e-3)


def played(cumulative, stretches, write, restart, runs, seed):
    """Return the mean minutes of a job whose checkpoints follow the stretches, begun anew after each loss."""
    rng = np.random.default_rng(seed)
    minutes = []
    for _ in range(runs):
        time, place, age, limit = 0.0, 0, 0.0, rng.exponential()
        while place < len(stretches):
            length = stretches[place] + (write if place < len(stretches) - 1 else 0)
            if np.interp(age + length, np.arange(len(cumulative)), cumulative) < limit:
                time, age, place = time + length, age + length, place + 1
                continue
            lost = float(np.interp(limit, cumulative, np.arange(len(cumulative)))) - age
            time, age, limit = time + lost + restart, 0.0, rng.exponential()
        minutes.append(time)
    return np.mean(minutes), np.std(minutes) / np.sqrt(runs)


def test_regular_checkpoints_take_what_play_takes():
    cumulative = np.concatenate(
        [steady(2.0, 31), 1.0 + steady(0.2, 900)[1:]]
    )  # machines that settle after half an hour
    found = schedule(cumulative, 120, 4, 6, every_min=30)
    mean, error = played(cumulative, found.minutes, 4, 6, 3000, 0)
    assert found.expected_h * 60 == pytest.approx(mean, abs=4 * error)


def test_nothing_beats_the_best_and_it_waits_longer_on_machines_that_have_settled():
    cumulative = np.concatenate([steady(2.0, 61), 2.0 + steady(0.1, 900)[1:]])
    cost = CheckpointCost(state_gb=60.0)
    found = compare_intervals(cumulative, 180, cost, 5, mean_s=2 * 3600.0)
    assert found["optimal"].expected_h <= min(found["young"].expected_h, found["daly"].expected_h) + 1e-12
    for every in (5, 12, 45, 180):
        assert found["optimal"].expected_h <= schedule(cumulative, 180, 2, 6, every).expected_h + 1e-12
    stretches = found["optimal"].minutes
    assert stretches[-1] > 3 * stretches[0]
    assert found["young"].minutes[0] == round(np.sqrt(2 * 120 * 7200) / 60)
