"""Damped asynchronous updates: without lag they are sequential, and no gradient weighs more for being old."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import (
    Adam,
    Damping,
    Momentum,
    Sgd,
    apply_damped,
    apply_damped_batch,
    apply_pushes,
)

SIZE, COUNT = 50, 6
OPTIMISERS = (Sgd(learning_rate=0.1), Momentum(learning_rate=0.1), Adam(learning_rate=0.1))


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=SIZE).astype(np.float32), rng.normal(size=(COUNT, SIZE)).astype(np.float32)


def started(optimiser):
    parameters = jnp.asarray(drawn()[0])
    return jnp.array(parameters, copy=True), optimiser.initial_slots(parameters)


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: type(optimiser).__name__)
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_without_lag_it_is_sequential_descent_bit_for_bit(optimiser, power):
    gradients = drawn()[1]
    parameters, slots = started(optimiser)
    wanted, wanted_slots = started(optimiser)
    for version, gradient in enumerate(gradients):
        now = jnp.int32(version)
        parameters, slots = apply_damped(
            parameters, slots, jnp.asarray(gradient), now, now, optimiser=optimiser, damping=Damping(power=power)
        )
        wanted, wanted_slots = apply_pushes(
            wanted, wanted_slots, [jnp.asarray(gradient)], jnp.ones(1), now, optimiser=optimiser
        )
    assert np.array_equal(np.asarray(parameters), np.asarray(wanted))
    for found, slot in zip(slots, wanted_slots, strict=True):
        assert np.array_equal(np.asarray(found), np.asarray(slot))


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: type(optimiser).__name__)
def test_a_batch_is_the_same_as_one_gradient_after_the_other(optimiser):
    gradients = drawn()[1]
    read = jnp.asarray([0, 0, 1, 3, 0, 4], jnp.int32)
    damping = Damping()
    parameters, slots = started(optimiser)
    for version, gradient in enumerate(gradients):
        parameters, slots = apply_damped(
            parameters,
            slots,
            jnp.asarray(gradient),
            jnp.int32(version),
            read[version],
            optimiser=optimiser,
            damping=damping,
        )
    together, together_slots, _ = apply_damped_batch(
        *started(optimiser), jnp.asarray(gradients), jnp.int32(0), read, optimiser=optimiser, damping=damping
    )
    assert np.array_equal(np.asarray(together), np.asarray(parameters))
    for found, slot in zip(together_slots, slots, strict=True):
        assert np.array_equal(np.asarray(found), np.asarray(slot))


def test_the_batch_tells_the_sum_of_its_weights():
    optimiser, damping = OPTIMISERS[0], Damping()
    read = jnp.asarray([0, 0, 0, 3, 2, 5], jnp.int32)
    *_, total = apply_damped_batch(
        *started(optimiser), jnp.asarray(drawn()[1]), jnp.int32(0), read, optimiser=optimiser, damping=damping
    )
    lags = np.arange(COUNT) - np.asarray(read)
    assert float(total) == pytest.approx(np.sum(1.0 / (1 + lags)), rel=1e-6)


def test_plain_descent_of_a_batch_is_one_weighted_sum():
    """Without slots, the gradients are independent: a matrix product gives the same result."""
    optimiser, damping = OPTIMISERS[0], Damping(power=0.5)
    start, gradients = drawn()
    read = np.array([0, 0, 1, 3, 0, 4], np.int32)
    found, *_ = apply_damped_batch(
        *started(optimiser),
        jnp.asarray(gradients),
        jnp.int32(0),
        jnp.asarray(read),
        optimiser=optimiser,
        damping=damping,
    )
    weights = (1.0 + np.arange(COUNT) - read) ** -0.5
    assert np.asarray(found) == pytest.approx(start - 0.1 * weights @ gradients, abs=1e-5)


def test_with_momentum_a_batch_is_no_weighted_sum():
    """Each update multiplies the slot's content, so the batch has to be applied one gradient after the other."""
    optimiser, damping = OPTIMISERS[1], Damping(power=0.5)
    start, gradients = drawn()
    read = np.zeros(COUNT, np.int32)
    found, *_ = apply_damped_batch(
        *started(optimiser),
        jnp.asarray(gradients),
        jnp.int32(0),
        jnp.asarray(read),
        optimiser=optimiser,
        damping=damping,
    )
    summed = ((1.0 + np.arange(COUNT)) ** -0.5).astype(np.float32) @ gradients
    once, _ = apply_pushes(*started(optimiser), [jnp.asarray(summed)], jnp.ones(1), jnp.int32(0), optimiser=optimiser)
    assert np.abs(np.asarray(found) - np.asarray(once)).max() > 0.1 * np.abs(np.asarray(once) - start).max()


@given(st.floats(0, 4), st.integers(0, 10_000), st.integers(0, 10_000))
def test_older_gradients_never_weigh_more(power, lag, more):
    damping = Damping(power=power)
    young, old = float(damping.weight(jnp.int32(lag))), float(damping.weight(jnp.int32(lag + more)))
    assert 0 <= old <= young * (1 + 1e-6)
    assert float(damping.weight(jnp.int32(0))) == 1.0


@pytest.mark.parametrize("power", [-0.1, float("nan")])
def test_refuses_to_reward_age(power):
    with pytest.raises(InvalidOptionError, match="at least 0"):
        Damping(power=power)


def test_gradients_of_another_length_are_refused_and_not_stretched():
    optimiser, damping, now = OPTIMISERS[0], Damping(), jnp.int32(0)
    with pytest.raises(InvalidOptionError, match="gradient must have shape"):
        apply_damped(*started(optimiser), jnp.ones(1), now, now, optimiser=optimiser, damping=damping)
    with pytest.raises(InvalidOptionError, match="one row for each version read"):
        apply_damped_batch(
            *started(optimiser), jnp.ones((3, SIZE)), now, jnp.zeros(2, jnp.int32), optimiser=optimiser, damping=damping
        )
