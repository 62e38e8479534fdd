"""Gradients are the derivatives of the losses, data belongs to its partition, and training helps."""

import pickle

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.training.applications import LogisticRegression, MatrixFactorisation, TopicModel

SMALL = (
    MatrixFactorisation(num_users=12, num_items=7, num_ratings=90, num_factors=3, num_partitions=3),
    LogisticRegression(num_observations=30, num_features=5, num_classes=4, num_partitions=3),
)
ALL = (*SMALL, TopicModel(num_documents=9, num_words=11, num_topics=3, num_tokens=20, num_partitions=3))


@pytest.mark.parametrize("application", SMALL, ids=lambda application: type(application).__name__)
def test_gradient_is_the_derivative_of_the_loss(application):
    rng = np.random.default_rng(1)
    parameters = rng.normal(0, 0.5, application.num_parameters).astype(np.float32)
    gradient, _ = application.gradient(parameters, 1, 0)
    step = 1e-2
    for index in rng.choice(application.num_parameters, 12, replace=False):
        ends = []
        for sign in (1, -1):
            moved = parameters.copy()
            moved[index] += sign * step
            ends.append(application.gradient(moved, 1, 0)[1])
        difference = (ends[0] - ends[1]) / (2 * step) / application.weight(1)
        assert gradient[index] == pytest.approx(difference, abs=2e-3)


def test_topics_stand_still_where_the_inference_has_arrived():
    """At a fixed point of batch inference the natural gradients of all documents add up to nothing."""
    application = ALL[2]
    parameters = application.initial_parameters().astype(np.float64)
    for _ in range(400):
        gradients = [application.gradient(parameters.astype(np.float32), p, 0)[0] for p in range(3)]
        parameters -= np.mean(gradients, axis=0)
    assert np.abs(np.mean(gradients, axis=0)).max() < 1e-3 * np.abs(parameters).max()
    # All tokens are explained: the topics hold them, and the prior.
    expected = 9 * 20 + application.num_parameters * application.eta
    assert parameters.sum() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("application", ALL, ids=lambda application: type(application).__name__)
def test_a_copy_makes_the_same_data_and_gradients(application):
    copy = pickle.loads(pickle.dumps(application))
    assert copy == application
    parameters = application.initial_parameters()
    first, second = application.gradient(parameters, 2, 5), copy.gradient(parameters, 2, 5)
    assert np.array_equal(first[0], second[0])
    assert first[1] == second[1]
    assert len(pickle.dumps(application)) < 1000


def test_a_batch_is_drawn_from_partition_and_clock_alone():
    application = LogisticRegression(num_observations=60, batch=0.5, num_partitions=2)
    parameters = application.initial_parameters()
    again = LogisticRegression(num_observations=60, batch=0.5, num_partitions=2)
    assert np.array_equal(application.gradient(parameters, 1, 4)[0], again.gradient(parameters, 1, 4)[0])
    assert not np.array_equal(application.gradient(parameters, 1, 4)[0], application.gradient(parameters, 1, 5)[0])


@pytest.mark.parametrize("kind", [MatrixFactorisation, LogisticRegression, TopicModel])
def test_published_shapes_shrink_with_the_scale(kind):
    small, large = kind.at_scale(0.0005), kind.at_scale(0.001)
    assert small.num_parameters < large.num_parameters
    assert sum(small.weight(partition) for partition in range(small.num_partitions)) == small.num_examples


def test_more_partitions_than_examples_are_refused():
    with pytest.raises(InvalidOptionError, match="5 examples can't be cut into 8 partitions"):
        LogisticRegression(num_observations=5)
