"""Compressed pushes: what isn't sent is kept, and goes later."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import decode_int8, decode_top_k, encode_int8, encode_top_k

SIZE, SENT = 12, 3
SMALLEST = np.finfo(np.float32).tiny

reals = hnp.arrays(np.float32, (SIZE,), elements=st.floats(-1e6, 1e6, width=32))
whole_numbers = hnp.arrays(np.float32, (5, SIZE), elements=st.integers(-1000, 1000).map(np.float32))


@given(reals, reals)
def test_top_k_and_its_residual_are_the_sum_exactly(gradient, residual):
    total = np.asarray(jnp.asarray(gradient) + jnp.asarray(residual))
    message, left = encode_top_k(jnp.asarray(gradient), jnp.asarray(residual), k=SENT)
    decoded = np.asarray(decode_top_k(message, size=SIZE))
    assert np.array_equal(decoded + np.asarray(left), total)
    assert not (decoded * np.asarray(left)).any()


@example(np.eye(1, SIZE, 1, np.float32)[0] * SMALLEST / 4)  # below float32's normal numbers: nothing, as XLA adds it
@given(reals)
def test_top_k_sends_the_largest_and_of_equals_the_first(gradient):
    total = np.asarray(jnp.asarray(gradient) + jnp.zeros(SIZE))
    message, _ = encode_top_k(jnp.asarray(gradient), jnp.zeros(SIZE), k=SENT)
    order = sorted(range(SIZE), key=lambda index: (-abs(total[index]), index))
    assert np.asarray(message.indices).tolist() == order[:SENT]


@given(whole_numbers)
def test_what_was_sent_over_time_and_what_is_left_is_everything(gradients):
    residual, sent = jnp.zeros(SIZE), np.zeros(SIZE, np.float32)
    for gradient in gradients:
        message, residual = encode_top_k(jnp.asarray(gradient), residual, k=SENT)
        sent += np.asarray(decode_top_k(message, size=SIZE))
    assert np.array_equal(sent + np.asarray(residual), gradients.sum(axis=0))


def test_top_k_of_everything_leaves_nothing():
    gradient = jnp.arange(SIZE, dtype=jnp.float32)
    message, left = encode_top_k(gradient, jnp.zeros(SIZE), k=SIZE)
    assert not np.asarray(left).any()
    assert np.array_equal(np.asarray(decode_top_k(message, size=SIZE)), np.asarray(gradient))


@example(np.zeros(SIZE, np.float32), np.full(SIZE, SMALLEST, np.float32), 0)
@example(np.full(SIZE, SMALLEST, np.float32), np.full(SIZE, 100 * SMALLEST, np.float32), 0)
@given(reals, reals, st.integers(0, 2**31))
def test_int8_errs_by_a_level_at_most_and_keeps_the_error(gradient, residual, seed):
    total = np.asarray(jnp.asarray(gradient) + jnp.asarray(residual))
    message, left = encode_int8(jnp.asarray(gradient), jnp.asarray(residual), jax.random.key(seed))
    decoded = np.asarray(decode_int8(message))
    level = max(np.abs(total).max() / 127, SMALLEST)
    assert message.levels.dtype == jnp.int8
    # Compiled code takes what is below the smallest normal number for 0, a difference as well.
    assert np.all(np.abs(decoded - total) <= 1.0001 * level)
    assert decoded + np.asarray(left) == pytest.approx(total, rel=1e-6, abs=1e-6 * max(1.0, float(level)))


@given(whole_numbers, st.integers(0, 2**31))
def test_int8_sends_over_time_what_was_pushed_but_for_the_last_residual(gradients, seed):
    residual, sent = jnp.zeros(SIZE), np.zeros(SIZE)
    for clock, gradient in enumerate(gradients):
        key = jax.random.fold_in(jax.random.key(seed), clock)
        message, residual = encode_int8(jnp.asarray(gradient), residual, key)
        sent += np.asarray(decode_int8(message), np.float64)
    assert sent + np.asarray(residual) == pytest.approx(gradients.sum(axis=0, dtype=np.float64), abs=5e-3)
    # A level is at most what five gradients of 1000 and their residuals could hold over 127.
    assert np.abs(np.asarray(residual)).max() <= 1000 / 127 * 1.1


def test_int8_rounds_without_bias():
    gradient, draws = jnp.asarray([1.0, 0.3, -0.7123, 0.0]), 1000
    total = np.zeros(4)
    for key in jax.random.split(jax.random.key(0), draws):
        total += np.asarray(decode_int8(encode_int8(gradient, jnp.zeros(4), key)[0]))
    spread = (1 / 127) / 2 / np.sqrt(draws)
    assert np.abs(total / draws - np.asarray(gradient)).max() <= 5 * spread


def test_int8_of_zeros_is_zero():
    message, left = encode_int8(jnp.zeros(SIZE), jnp.zeros(SIZE), jax.random.key(0))
    assert not np.asarray(decode_int8(message)).any()
    assert not np.asarray(left).any()


def test_the_same_key_gives_the_same_levels():
    gradient = jnp.linspace(-1, 1, SIZE)
    first, _ = encode_int8(gradient, jnp.zeros(SIZE), jax.random.key(7))
    second, _ = encode_int8(gradient, jnp.zeros(SIZE), jax.random.key(7))
    assert np.array_equal(np.asarray(first.levels), np.asarray(second.levels))


def test_descent_with_error_feedback_reaches_the_minimum():
    """A tenth of the entries is sent each time; what is left out comes later, so no coordinate is forgotten."""
    target = np.random.default_rng(0).normal(size=40).astype(np.float32)
    parameters, residual = np.zeros(40, np.float32), jnp.zeros(40)
    for _ in range(400):
        message, residual = encode_top_k(jnp.asarray(parameters - target), residual, k=4)
        parameters = parameters - 0.05 * np.asarray(decode_top_k(message, size=40))
    assert np.abs(parameters - target).max() < 1e-2


@pytest.mark.parametrize("k", [0, SIZE + 1])
def test_top_k_refuses_numbers_out_of_range(k):
    with pytest.raises(InvalidOptionError, match=f"from 1 to the gradient's length {SIZE}, got {k}"):
        encode_top_k(jnp.ones(SIZE), jnp.zeros(SIZE), k=k)


def test_residuals_of_another_length_are_refused_and_not_stretched():
    with pytest.raises(InvalidOptionError, match="residual must have shape"):
        encode_top_k(jnp.ones(SIZE), jnp.zeros(1), k=SENT)
    with pytest.raises(InvalidOptionError, match="residual must have shape"):
        encode_int8(jnp.ones(SIZE), jnp.zeros(1), jax.random.key(0))
