"""Gradients are the derivatives of the losses, data belongs to its partition, and training helps."""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import digamma

from optim.core.errors import InvalidOptionError
from optim.training.applications import LogisticRegression, MatrixFactorisation, NeuralNetwork, TopicModel

SMALL = (
    MatrixFactorisation(num_users=12, num_items=7, num_ratings=90, num_factors=3, num_partitions=3),
    LogisticRegression(num_observations=30, num_features=5, num_classes=4, num_partitions=3),
)
ALL = (
    *SMALL,
    TopicModel(num_documents=9, num_words=11, num_topics=3, num_tokens=20, num_partitions=3),
    NeuralNetwork(num_observations=30, num_features=5, num_classes=4, num_hidden=6, num_partitions=3, batch=1.0),
)


def plain_factorisation(application, parameters, partition):
    """Loss and mean gradient of a matrix factorisation, rating by rating in float64."""
    ratings = application.data(partition)
    vectors = parameters.astype(np.float64).reshape(-1, application.num_factors)
    gradient, loss = np.zeros_like(vectors), 0.0
    for user, item, value in zip(*ratings, strict=True):
        rows = [user, application.num_users + item]
        own, other = vectors[rows]
        error = own @ other - value
        loss += error**2 / 2 + application.decay / 2 * (own @ own + other @ other)
        gradient[rows[0]] += error * other + application.decay * own
        gradient[rows[1]] += error * own + application.decay * other
    return gradient.ravel() / len(ratings[2]), loss


def plain_regression(application, parameters, partition, rows=slice(None)):
    """Loss and mean gradient of a logistic regression, observation by observation in float64."""
    observations, labels = (own[rows] for own in application.data(partition))
    weights = parameters.astype(np.float64).reshape(application.num_features, application.num_classes)
    gradient, loss = application.decay * weights, 0.5 * application.decay * (weights**2).sum()
    for x, label in zip(observations.astype(np.float64), labels, strict=True):
        shares = np.exp(x @ weights)
        shares /= shares.sum()
        loss -= np.log(shares[label]) / len(labels)
        gradient += np.outer(x, shares - np.eye(application.num_classes)[label]) / len(labels)
    return gradient.ravel(), loss * application.size(partition)


def plain_topics(application, parameters, partition):
    """Loss and natural gradient of a topic model, document by document, with the shares of each word's topics."""
    counts = application.data(partition)
    topics = parameters.astype(np.float64).reshape(application.num_words, application.num_topics).T
    words = np.exp(digamma(topics) - digamma(topics.sum(axis=1, keepdims=True)))
    statistics, loss = np.zeros_like(topics), 0.0
    for document in counts:
        gamma = np.ones(application.num_topics)
        for _ in range(application.num_passes + 1):
            phi = np.exp(digamma(gamma) - digamma(gamma.sum()))[:, None] * words
            phi /= phi.sum(axis=0)
            last, gamma = gamma, application.alpha + phi @ document
        statistics += phi * document
        loss -= document @ np.log(last / last.sum() @ (topics / topics.sum(axis=1, keepdims=True)))
    target = application.eta + application.num_documents / len(counts) * statistics
    return (topics - target).T.ravel(), loss


def plain_network(application, parameters, partition):
    """Loss and mean gradient of a perceptron, observation by observation in float64, by the chain rule."""
    widths = [application.num_features, *[application.num_hidden] * application.num_layers, application.num_classes]
    layers, at = [], 0
    for inputs, outputs in itertools.pairwise(widths):  # biases come first: names are sorted
        biases, weights = np.split(parameters[at : at + outputs * (inputs + 1)].astype(np.float64), [outputs])
        layers.append((weights.reshape(inputs, outputs), biases))
        at += outputs * (inputs + 1)
    assert at == len(parameters)
    observations, labels = application.data(partition)
    gradients, loss = [[np.zeros_like(weights), np.zeros_like(biases)] for weights, biases in layers], 0.0
    for x, label in zip(observations.astype(np.float64), labels, strict=True):
        values = [x]
        for number, (weights, biases) in enumerate(layers):
            out = values[-1] @ weights + biases
            values.append(out if number == len(layers) - 1 else np.where(out > 0, out, 0.0))
        shares = np.exp(values[-1]) / np.exp(values[-1]).sum()
        loss -= np.log(shares[label])
        back = shares - np.eye(application.num_classes)[label]
        for number in reversed(range(len(layers))):
            gradients[number][0] += np.outer(values[number], back) / len(labels)
            gradients[number][1] += back / len(labels)
            back = (layers[number][0] @ back) * (values[number] > 0)
    flat = np.concatenate([part for weights, biases in gradients for part in (biases, weights.ravel())])
    return flat, loss


@pytest.mark.parametrize(
    ("application", "plain"),
    [
        (ALL[3], plain_network),
        (replace(SMALL[0], decay=0.7), plain_factorisation),
        (replace(SMALL[1], decay=0.3), plain_regression),
        (replace(SMALL[1], decay=0.0), plain_regression),
        (replace(ALL[2], alpha=0.7, eta=0.3), plain_topics),
    ],
)
def test_loss_and_gradient_are_those_of_the_stated_problem(application, plain):
    parameters = np.random.default_rng(1).normal(0, 0.5, application.num_parameters).astype(np.float32)
    if plain is plain_topics:
        parameters = np.abs(parameters) + np.float32(0.1)
    gradient, loss = application.gradient(parameters, 1, 0)
    expected_gradient, expected_loss = plain(application, parameters, 1)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert gradient == pytest.approx(expected_gradient, rel=1e-4, abs=1e-5)


def test_more_partitions_than_users_share_them():
    application = MatrixFactorisation(num_users=2, num_items=3, num_ratings=10, num_factors=2, num_partitions=5)
    drawn = [application.data(partition)[0] for partition in range(5)]
    assert [len(users) for users in drawn] == [2] * 5
    assert set(np.concatenate(drawn).tolist()) == {0, 1}


def test_a_batch_is_the_share_that_comes_next_in_the_partitions_random_order():
    application = LogisticRegression(
        num_observations=60, num_features=4, num_classes=3, batch=0.3, num_partitions=2, seed=8
    )
    parameters = np.linspace(-1, 1, 12, dtype=np.float32)
    order = np.random.default_rng([8, 3, 1]).permutation(30)
    drawn = [order[(5 * 9 + place) % 30] for place in range(9)]
    gradient, loss = application.gradient(parameters, 1, 5)
    expected_gradient, expected_loss = plain_regression(application, parameters, 1, drawn)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert gradient == pytest.approx(expected_gradient, rel=1e-4, abs=1e-5)


def test_a_batch_stands_for_its_whole_partition():
    whole = LogisticRegression(num_observations=400, num_features=3, num_classes=2, num_partitions=1)
    drawn = replace(whole, batch=0.5)
    parameters = np.full(6, 0.3, np.float32)
    losses = [drawn.gradient(parameters, 0, clock)[1] for clock in range(200)]
    assert np.mean(losses) == pytest.approx(whole.gradient(parameters, 0, 0)[1], rel=0.02)


def test_topics_stand_still_where_the_inference_has_arrived():
    """At a fixed point of batch inference, the natural gradients of all documents sum to 0."""
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


@pytest.mark.parametrize("kind", [MatrixFactorisation, LogisticRegression, TopicModel, NeuralNetwork])
def test_published_shapes_shrink_with_the_scale(kind):
    small, large = kind.at_scale(0.0005), kind.at_scale(0.001)
    assert small.num_parameters < large.num_parameters
    assert sum(small.weight(partition) for partition in range(small.num_partitions)) == small.num_examples


@pytest.mark.parametrize(
    ("kind", "at_a_hundredth", "at_least"),
    [
        (
            MatrixFactorisation,
            {"num_users": 4800, "num_items": 180, "num_ratings": 10_000, "num_factors": 10},
            {"num_users": 5, "num_items": 1, "num_ratings": 5, "num_factors": 1},
        ),
        (
            LogisticRegression,
            {"num_observations": 640, "num_features": 215, "num_classes": 10},
            {"num_observations": 5, "num_features": 1, "num_classes": 2},
        ),
        (
            TopicModel,
            {"num_documents": 3000, "num_words": 1000, "num_topics": 10, "num_tokens": 333},
            {"num_documents": 5, "num_words": 2, "num_topics": 2, "num_tokens": 333},
        ),
    ],
)
def test_scales_are_of_the_published_sizes(kind, at_a_hundredth, at_least):
    assert kind.at_scale(0.01, num_partitions=5, seed=3) == kind(num_partitions=5, seed=3, **at_a_hundredth)
    assert kind.at_scale(1e-6, num_partitions=5) == kind(num_partitions=5, **at_least)


def test_more_partitions_than_examples_are_refused():
    with pytest.raises(InvalidOptionError, match="5 examples can't be cut into 8 partitions"):
        LogisticRegression(num_observations=5)


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_drawn_ratings_are_products_of_standard_factors_and_noise(noise):
    """Their mean is 0, and their variance is 1 plus that of the noise, for every rank."""
    application = MatrixFactorisation(
        num_users=400, num_items=300, num_ratings=20_000, num_factors=8, noise=noise, num_partitions=2
    )
    ratings = np.concatenate([application.data(partition)[2] for partition in range(2)])
    assert len(ratings) == 20_000
    assert abs(ratings.mean()) < 0.05
    assert ratings.var() == pytest.approx(1.0 + noise**2, rel=0.1)


def test_a_network_of_a_few_megabytes_learns_what_it_is_given():
    """Whole partitions, plain descent: the loss falls below that of guessing."""
    application = NeuralNetwork(num_partitions=2)
    assert 2e6 < 4 * application.num_parameters < 8e6
    small = replace(application, num_hidden=64, batch=1.0)
    parameters = small.initial_parameters()
    losses = []
    for clock in range(30):
        found = [small.gradient(parameters, partition, clock) for partition in range(2)]
        parameters = parameters - np.float32(0.3) * (found[0][0] + found[1][0])
        losses.append(sum(loss for _, loss in found) / small.num_examples)
    assert losses[-1] < 0.8 * np.log(10) < losses[0]


@pytest.mark.parametrize(
    ("cls", "changed"), [(MatrixFactorisation, "num_factors"), (LogisticRegression, "num_features")]
)
def test_applications_are_equal_only_if_all_their_options_are(cls, changed):
    """Equal applications share compiled functions."""
    assert cls() == cls()
    assert hash(cls()) == hash(cls())
    assert cls() != cls(**{changed: 3})
