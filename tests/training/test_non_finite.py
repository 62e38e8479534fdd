"""Failures that don't end a machine: exceptions, gradients of the wrong form, and gradients that aren't numbers."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from optim.core.errors import TrainingError
from optim.kernels.parameter_server import Momentum, Sgd
from optim.training.stages import ClusterOptions
from optim.training.trainer import Action, Event, Trainer

START = [Event(clock=0, action=Action.ADD_RELIABLE, machines=("a", "b"))]
RATE = 0.25


@dataclass
class Counting:
    """Integral gradients over four partitions of different sizes; a test makes some of them non-finite."""

    spoil: object = lambda gradient, partition, clock: gradient
    num_partitions: int = 4
    num_parameters: int = 6
    asked: list = field(default_factory=list)
    unit: float = 1.0

    def initial_parameters(self):
        return np.zeros(6, np.float32)

    def weight(self, partition):
        return self.unit * (partition + 1)

    def gradient(self, parameters, partition, clock):
        del parameters
        self.asked.append((partition, clock))
        gradient = np.full(6, 4.0 * partition + clock, np.float32)
        return self.spoil(gradient, partition, clock), float(10 * partition)


def spoiled(value, partition=2, clock=1, times=10**9):
    """Put a value into a gradient of one partition and clock, a given number of times."""
    left = [times]

    def spoil(gradient, at, when):
        if (at, when) == (partition, clock) and left[0] > 0:
            left[0] -= 1
            gradient[3] = value
        return gradient

    return spoil


def train(application, optimiser=None, clocks=3, **options):
    options = ClusterOptions(num_shards=2, **options)
    return Trainer(application, optimiser or Sgd(learning_rate=RATE), options).run(clocks, START)


def test_an_exception_ends_the_run_with_the_machine_and_its_own_words():
    def fail(gradient, partition, clock):
        if clock == 2:
            raise ValueError("ratings\nare empty")
        return gradient

    with pytest.raises(TrainingError) as caught:
        train(Counting(fail))
    words = str(caught.value)
    assert words.startswith("machine a failed: ValueError: ratings are empty (test_non_finite.py:")
    assert "in fail)" in words
    assert "\n" not in words


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (lambda g, p, c: g[:-1], r"float32 of shape \(5,\)"),
        (lambda g, p, c: g.astype(np.float64), "float64 of shape"),
        (lambda g, p, c: list(g), "list"),
    ],
)
def test_a_gradient_of_another_form_is_refused_with_what_it_is(wrong, found):
    with pytest.raises(TrainingError, match=f"got .*{found}.*np.asarray"):
        train(Counting(wrong))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_no_number_stops_the_run_by_default(value):
    with pytest.raises(
        TrainingError, match=r"machine [ab] computed a gradient or loss that isn't finite, of partition 2 at clock 1"
    ):
        train(Counting(spoiled(value)))


def test_large_gradients_are_finite_also_where_their_sum_is_not_in_single_precision():
    large = Counting(lambda gradient, partition, clock: np.full(6, 3e38, np.float32), unit=0.01)
    assert np.isfinite(train(large, Sgd(learning_rate=1e-38)).parameters).all()


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_skipped_partition_has_no_part_in_its_clock(staleness):
    record = train(Counting(spoiled(np.nan)), non_finite="skip", staleness=staleness)
    w, losses = np.zeros(6), []
    for clock in range(3):
        used = [partition for partition in range(4) if (partition, clock) != (2, 1)]
        weights = np.array([partition + 1.0 for partition in used])
        w -= RATE * np.dot(weights, [4.0 * partition + clock for partition in used]) / weights.sum()
        losses.append(sum(10.0 * partition for partition in used) / weights.sum())
    np.testing.assert_allclose(record.parameters, w, rtol=1e-6)
    assert record.losses == pytest.approx(losses)
    assert record.num_skipped == 1


def test_a_clock_of_which_nothing_is_left_goes_by_and_changes_nothing():
    def spoil(gradient, partition, clock):
        return gradient * np.float32(np.nan if clock == 1 else 1)

    optimiser = Momentum(learning_rate=RATE)
    record = train(Counting(spoil), optimiser, clocks=2, non_finite="skip")
    assert np.array_equal(record.parameters, train(Counting(), optimiser, clocks=1).parameters)
    assert np.isnan(record.losses[1])
    assert record.num_skipped == 4


def test_a_refused_gradient_is_computed_again_by_another_machine():
    application = Counting(spoiled(np.nan, times=1))
    record = train(application, non_finite="refuse")
    assert record.equals(train(Counting()))
    assert application.asked.count((2, 1)) == 2
    with pytest.raises(TrainingError, match="computed again a gradient or loss that isn't finite"):
        train(Counting(spoiled(np.nan)), non_finite="refuse")
