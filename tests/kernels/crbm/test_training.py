"""Statistics and training against a plain CRBM; masks, padding, sweeps and determinism."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.kernels import counter_random
from optim.kernels.counter_random import SHUFFLE_ROUNDS, seed_words
from optim.kernels.crbm import (
    CrbmParameters,
    Rates,
    forecast_error,
    gather_windows,
    gpu_training,
    initial_state,
    pad_parameters,
    sweep,
    train,
    trim_parameters,
    window_ends,
)
from optim.kernels.crbm import parameters as crbm_parameters
from optim.kernels.crbm import training as crbm_training
from optim.kernels.crbm.divergence import Sampling, contrastive_divergence, pack, unpack
from tests.support.kernels.plain_crbm import random_parameters, statistics, windows

# Compiled at once instead of operation by operation.
bernoulli, pack_at_once = jax.jit(counter_random.bernoulli), jax.jit(pack)
initial_parameters = jax.jit(crbm_parameters.initial_parameters, static_argnums=(1, 2, 3))
parameter_mask = jax.jit(crbm_parameters.parameter_mask, static_argnums=(0, 1, 2, 3, 4))
statistics_of = jax.jit(contrastive_divergence, static_argnames=("num_visible", "num_gibbs_steps", "sampling"))
TOL = 1e-5  # float32 sums of a few dozen terms of size one
SIZES = [pytest.param((1, 1, 1), marks=pytest.mark.prove), (8, 3, 6)]


shuffled = jax.jit(counter_random.shuffled, static_argnums=(2, 3))


def as_kernel(parameters):
    return CrbmParameters(*(jnp.asarray(one, jnp.float32) for one in parameters))


def some_series(seed, samples, num_visible):
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.standard_normal((samples, num_visible)), axis=0) / 8


@pytest.mark.parametrize("sampling", list(Sampling))
@pytest.mark.parametrize("num_gibbs_steps", [3, pytest.param(1, marks=pytest.mark.prove)])
@pytest.mark.parametrize("sizes", SIZES)
def test_statistics_equal_those_of_a_plain_machine_for_the_same_draws(sizes, num_gibbs_steps, sampling):
    num_visible, num_delays, num_hidden = sizes
    rng = np.random.default_rng(1)
    parameters = random_parameters(rng, *sizes)
    series = some_series(2, 30, num_visible)
    ends = window_ends([30], num_delays)
    mask = rng.random(ends.size) < 0.7
    seed, draw = jnp.asarray([5, 6], jnp.uint32), 11

    def hidden_of(step, probability):
        if sampling is Sampling.MEAN_FIELD:
            return probability
        padded = np.zeros((ends.size, num_hidden))
        padded[mask] = probability
        columns = padded.T.astype(np.float32)
        return np.asarray(bernoulli(seed, np.uint32(draw * num_gibbs_steps + step), columns)).T[mask]

    u, v = windows(series, ends, num_delays)
    expected, errors, activity = statistics(parameters, u[mask], v[mask], hidden_of, num_gibbs_steps)
    found = statistics_of(
        pack_at_once(as_kernel(parameters)),
        gather_windows(jnp.asarray(series, jnp.float32), jnp.asarray(ends), num_delays),
        jnp.asarray(mask, jnp.float32),
        seed,
        jnp.uint32(draw),
        num_visible=num_visible,
        num_gibbs_steps=num_gibbs_steps,
        sampling=sampling,
    )
    for one, other in zip(unpack(found.gradient, num_visible), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=TOL, atol=TOL)
    np.testing.assert_allclose(found.squared_error, errors, rtol=TOL)
    np.testing.assert_allclose(found.activity, activity, rtol=TOL)


def plain_training(parameters, series, ends, num_delays, rates, words, num_epochs, batch_size):
    """Mean-field training with momentum, decay, sparsity and clipping; batches as the kernel's shuffle gives them."""
    num_batches = -(-ends.size // batch_size)
    velocity = [np.zeros_like(one) for one in parameters]
    history = []
    for epoch in range(num_epochs):
        momentum = rates.early_momentum if epoch < rates.early_epochs else rates.momentum
        positions = np.arange(num_batches * batch_size, dtype=np.int32)
        order = np.asarray(shuffled(words[epoch][2:], positions, num_batches, batch_size)).reshape(num_batches, -1)
        total = 0.0
        for batch in order:
            u, v = windows(series, ends[batch[batch < ends.size]], num_delays)
            gradients, errors, activity = statistics(parameters, u, v, lambda _, p: p, 1)
            total = total + errors
            norm = np.sqrt(sum(np.sum(one**2) for one in gradients))
            factor = min(1.0, rates.gradient_limit / norm)
            gradients = [factor * one for one in gradients]
            gradients[4] += rates.sparsity_cost * (rates.sparsity_target - activity)
            decays = (rates.decay, rates.autoregression_decay, rates.decay, 0.0, 0.0)
            for i, (gradient, decay) in enumerate(zip(gradients, decays, strict=True)):
                rate = rates.learning_rate * (rates.autoregression_factor if i == 1 else 1.0)
                velocity[i] = momentum * velocity[i] + rate * (gradient - decay * parameters[i])
                parameters[i] = parameters[i] + velocity[i]
        history.append(total / ends.size)
    return parameters, np.array(history)


RATES = Rates(
    learning_rate=0.02,
    autoregression_factor=0.3,
    momentum=0.8,
    early_momentum=0.4,
    early_epochs=2,
    decay=0.01,
    autoregression_decay=0.03,
    sparsity_target=0.3,
    sparsity_cost=0.2,
    gradient_limit=0.5,
)


def test_training_equals_that_of_a_plain_machine():
    parameters = random_parameters(np.random.default_rng(3), 2, 3, 4, scale=0.1)
    series, ends, key = some_series(4, 53, 2), window_ends([20, 33], 3), jax.random.key(9)
    words = [seed_words(jax.random.fold_in(key, epoch), 2 + SHUFFLE_ROUNDS) for epoch in range(4)]
    state, errors = train(
        initial_state(as_kernel(parameters)),
        jnp.asarray(series, jnp.float32),
        jnp.asarray(ends),
        RATES,
        key,
        num_epochs=4,
        batch_size=10,
        sampling="mean-field",
    )
    expected, history = plain_training(parameters, series, ends, 3, RATES, words, 4, 10)
    for one, other in zip(state.parameters, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(errors, history, rtol=1e-4)


def training(num_epochs, key=1, state=None, ends=None, **options):
    series = jnp.asarray(some_series(5, 200, 2), jnp.float32)
    ends = jnp.asarray(window_ends([80, 120], 3)) if ends is None else ends
    begin = initial_state(initial_parameters(jax.random.key(0), 2, 3, 4)) if state is None else state
    return train(
        begin,
        series,
        ends,
        RATES._replace(gradient_limit=10.0, sparsity_cost=0.0),
        jax.random.key(key),
        num_epochs=num_epochs,
        batch_size=32,
        **options,
    )


def leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def test_the_same_key_trains_the_same_machine_and_another_key_another():
    first, again, other = (leaves(training(2, key)[0]) for key in (1, 1, 2))
    assert all((one == two).all() for one, two in zip(first, again, strict=True))
    assert any((one != two).any() for one, two in zip(first, other, strict=True))


def test_two_calls_of_two_epochs_are_one_call_of_four():
    half, _ = training(2)
    twice, _ = training(2, state=half)
    for one, other in zip(leaves(twice), leaves(training(4)[0]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_training_lowers_the_forecasts_error_below_that_of_the_mean():
    series = some_series(5, 200, 2)
    ends = window_ends([80, 120], 3)
    state, first = training(4)
    for _ in range(9):
        state, errors = training(4, state=state)
    found = forecast_error(state.parameters, jnp.asarray(series, jnp.float32), jnp.asarray(ends))
    assert (np.asarray(found) < 0.3 * np.var(series[ends], axis=0)).all()
    assert (np.asarray(errors[-1]) < np.asarray(first[0])).all()


def test_masked_parameters_keep_their_values():
    mask = parameter_mask(2, 3, 4, 3, 4)
    mask = mask._replace(autoregression=jnp.zeros_like(mask.autoregression))
    begin = initial_parameters(jax.random.key(0), 2, 3, 4)
    state, _ = training(3, mask=mask)
    np.testing.assert_array_equal(state.parameters.autoregression, begin.autoregression)
    assert (np.asarray(state.parameters.weights) != np.asarray(begin.weights)).all()


@pytest.mark.prove
def test_a_sweep_trains_each_padded_machine_as_it_would_be_alone():
    series, ends = jnp.asarray(some_series(6, 120, 3), jnp.float32), jnp.asarray(window_ends([120], 3))
    sizes, rates = [(1, 4), (3, 2)], [0.01, 0.02]  # fewer machines than any side of their arrays
    keys = jax.random.split(jax.random.key(3), 2)
    begins = [initial_parameters(jax.random.key(i), 3, *size) for i, size in enumerate(sizes)]
    larger = jax.jit(pad_parameters, static_argnums=(1, 2))
    padded = jax.tree.map(lambda *one: jnp.asarray(np.stack(one)), *(larger(begin, 3, 4) for begin in begins))
    masks = jax.tree.map(lambda *one: jnp.asarray(np.stack(one)), *(parameter_mask(3, *size, 3, 4) for size in sizes))
    together, errors = sweep(
        initial_state(padded),
        series,
        ends,
        RATES._replace(learning_rate=jnp.asarray(rates)),
        keys,
        masks,
        num_epochs=3,
        batch_size=16,
    )
    errors = np.asarray(errors)
    for i, (size, rate) in enumerate(zip(sizes, rates, strict=True)):
        alone, error = train(
            initial_state(begins[i]),
            series,
            ends,
            RATES._replace(learning_rate=rate),
            keys[i],
            num_epochs=3,
            batch_size=16,
        )
        own = trim_parameters(jax.tree.map(lambda one, i=i: np.asarray(one)[i], together.parameters), *size)
        for one, other in zip(own, alone.parameters, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(errors[i], error, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_gibbs_steps": 0}, "num_gibbs_steps must be at least 1"),
        ({"sampling": "rbg"}, "bernoulli, mean-field"),
        ({"ends": jnp.zeros(0, jnp.int32)}, "at least one window"),
    ],
)
def test_refuses_wrong_use_with_the_value_and_the_remedy(options, words):
    with pytest.raises(InvalidOptionError, match=words):
        training(1, **options)


def test_nothing_is_widened_where_64_bits_are_on():
    with jax.enable_x64(True):
        state, errors = training(2, sampling="mean-field")
        series, ends = jnp.zeros((20, 2), jnp.float32), jnp.arange(3, 20, dtype=jnp.int32)
        error = forecast_error(state.parameters, series, ends)
    arrays = [*state.parameters, *state.velocity, errors, error]
    assert {array.dtype.name for array in arrays} == {"float32"}
    assert state.epoch.dtype == jnp.int32


@pytest.mark.parametrize(
    ("sizes", "batch_size", "steps", "sampling", "largest"),
    [
        ((2, 3, 4), 20, 1, Sampling.BERNOULLI, 99),  # many batches in one launch
        pytest.param((2, 3, 4), 70, 1, Sampling.BERNOULLI, 50, marks=pytest.mark.prove),  # a launch for each batch
        pytest.param((8, 3, 6), 150, 1, Sampling.BERNOULLI, 999, marks=pytest.mark.prove),  # of two tiles a batch
        pytest.param((3, 1, 5), 33, 2, Sampling.MEAN_FIELD, 99, marks=pytest.mark.prove),
    ],
)
def test_the_kernels_by_hand_train_the_machine_that_the_scan_trains(
    monkeypatch, sizes, batch_size, steps, sampling, largest
):
    """Stepped through on any device; with windows that don't count, clipping, decays and sparsity."""
    monkeypatch.setattr(gpu_training, "LARGEST_BATCH", largest)
    monkeypatch.setattr(gpu_training, "LAUNCH_WINDOWS", 2 * batch_size)  # so that there is a launch for the remainder
    series = jnp.asarray(some_series(8, 190, sizes[0]), jnp.float32)
    ends = jnp.asarray(np.append(window_ends([90, 100], sizes[1]), [-1, -1, -1]).astype(np.int32))

    def trained(way):
        state = initial_state(as_kernel(random_parameters(np.random.default_rng(3), *sizes, scale=0.1)))
        options = {"num_epochs": 2, "batch_size": batch_size, "num_gibbs_steps": steps, "sampling": sampling}
        return crbm_training._train_one(state, series, ends, RATES, jax.random.key(1), None, **options, way=way)

    (state, errors), (known, wanted) = trained("interpreted"), trained("scan")
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(known), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(errors, wanted, rtol=1e-5)
    crbm_training._train_one.clear_cache()
