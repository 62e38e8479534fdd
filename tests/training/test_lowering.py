"""Gradients and a complete clock on a GPU: no transfer to the host, no double precision, no racing additions."""

import jax.numpy as jnp
import pytest

from optim.kernels.parameter_server import Adagrad, Adam, RowLayout, apply_pushes
from optim.training.applications import LogisticRegression, MatrixFactorisation, NeuralNetwork, TopicModel
from optim.training.server import apply_row_pushes
from tests.support.lowering import BY_HAND, ROUND_TRIPS, doubles, lowered, racing_scatters

APPLICATIONS = {
    "factors": MatrixFactorisation(num_users=40, num_items=30, num_ratings=60, num_factors=3, num_partitions=2),
    "classes": LogisticRegression(num_observations=62, num_features=6, num_classes=3, num_partitions=2, batch=0.5),
    "topics": TopicModel(num_documents=12, num_words=15, num_topics=2, num_tokens=20, num_partitions=2),
    "network": NeuralNetwork(num_observations=64, num_features=6, num_classes=3, num_hidden=8, num_partitions=2),
}
each = pytest.mark.parametrize("application", APPLICATIONS.values(), ids=APPLICATIONS.keys())


def vectors(application, count):
    return [jnp.ones(application.num_parameters) for _ in range(count)]


@each
def test_a_gradient_stays_on_the_card_and_in_single_precision(application):
    parts = (jnp.ones(application.num_parameters),)
    text = lowered(application.compiled_gradient, (parts, *application.on_device(0, 0)))
    assert ROUND_TRIPS.search(text) is None
    assert doubles(text) == []


@each
@pytest.mark.parametrize("rule", [Adagrad(learning_rate=0.1), Adam(learning_rate=0.1)], ids=["adagrad", "adam"])
def test_a_whole_clock_stays_on_the_card_and_in_single_precision(application, rule):
    """Gradients of all partitions, their weighted mean and the update, as one function."""

    def clock(parameters, slots, batches, weights, version):
        gradients = [application.compiled_gradient((parameters,), *batch)[0][0] for batch in batches]
        return apply_pushes(parameters, slots, gradients, weights, version, optimiser=rule, keep=True)

    parameters, *slots = vectors(application, 1 + rule.num_slots)
    batches = [application.on_device(partition, 0) for partition in range(2)]
    text = lowered(clock, (parameters, tuple(slots), batches, jnp.ones(2), jnp.int32(0)))
    assert ROUND_TRIPS.search(text) is None
    assert doubles(text) == []


def test_a_clock_by_rows_sorts_and_then_writes_each_row_once():
    width, rule = 3, Adagrad(learning_rate=0.1)
    layout = RowLayout(optimiser=rule, width=width, method="sort")
    gradients, rows = [jnp.ones(4 * width)] * 2, [jnp.arange(4, dtype=jnp.int32)] * 2

    def clock(parameters, slots, gradients, rows, weights, version):
        return apply_row_pushes(parameters, slots, gradients, rows, weights, version, layout=layout)

    text = lowered(clock, (jnp.ones(10 * width), (jnp.ones(10 * width),), gradients, rows, jnp.ones(2), jnp.int32(0)))
    assert ROUND_TRIPS.search(text) is None
    assert doubles(text) == []
    assert f"@{BY_HAND}" in text or '"stablehlo.scatter"' in text
    assert racing_scatters(text) == []
    assert "stablehlo.sort" in text
