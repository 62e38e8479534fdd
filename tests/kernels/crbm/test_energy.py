"""Free energy and codes against enumeration and autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optim.kernels.crbm import (
    CrbmParameters,
    divergence,
    encode,
    free_energy,
    gather_windows,
    hidden_logits,
    pad_parameters,
    trim_parameters,
    window_ends,
)
from optim.kernels.crbm.divergence import Sampling, contrastive_divergence, unpack
from optim.kernels.crbm.energy import window_free_energy
from tests.support.kernels.plain_crbm import free_energy_by_enumeration, random_parameters, sigmoid, windows

pack = jax.jit(divergence.pack)  # at once instead of operation by operation
statistics_of = jax.jit(contrastive_divergence, static_argnames=("num_visible", "num_gibbs_steps", "sampling"))
TOL = 1e-5  # float32 sums of a few dozen terms of size one
SIZES = [(1, 1, 1), (2, 3, 4), (8, 3, 6)]


def problem(seed, num_visible, num_delays, num_hidden, lengths=(9, 2, 14)):
    rng = np.random.default_rng(seed)
    parameters = random_parameters(rng, num_visible, num_delays, num_hidden)
    series = rng.standard_normal((sum(lengths), num_visible))
    ends = window_ends(lengths, num_delays)
    kernel = CrbmParameters(*(jnp.asarray(one, jnp.float32) for one in parameters))
    return parameters, kernel, series, ends


@pytest.mark.parametrize("sizes", SIZES)
def test_free_energy_is_minus_the_log_of_the_sum_over_all_hidden_states(sizes):
    parameters, kernel, series, ends = problem(1, *sizes)
    u, v = windows(series, ends, sizes[1])
    expected = [free_energy_by_enumeration(parameters, *pair) for pair in zip(v, u, strict=True)]
    found = free_energy(kernel, jnp.asarray(series, jnp.float32), jnp.asarray(ends))
    np.testing.assert_allclose(found, expected, rtol=TOL, atol=TOL)


@pytest.mark.parametrize("sizes", SIZES)
def test_codes_are_the_hiddens_probabilities_at_the_windows_own_sample(sizes):
    parameters, kernel, series, ends = problem(2, *sizes)
    W, _, B, _, b = parameters
    u, v = windows(series, ends, sizes[1])
    codes = encode(kernel, jnp.asarray(series, jnp.float32), jnp.asarray(ends))
    np.testing.assert_allclose(codes, sigmoid(v @ W + u @ B + b), atol=TOL)


def test_every_segment_gives_codes_from_its_own_samples_alone_and_none_is_zero():
    lengths = (7, 3, 1, 12, 4)
    _, kernel, series, ends = problem(3, 2, 3, 4, lengths)
    assert ends.size == sum(max(0, length - 3) for length in lengths)
    together = np.asarray(encode(kernel, jnp.asarray(series, jnp.float32), jnp.asarray(ends)))
    apart, begin = [], 0
    for length in lengths:
        own = window_ends([length], 3)
        if own.size:
            part = jnp.asarray(series[begin : begin + length], jnp.float32)
            apart.append(np.asarray(encode(kernel, part, jnp.asarray(own))))
        begin += length
    np.testing.assert_allclose(together, np.concatenate(apart), atol=TOL)
    assert (together > 0).all()


def test_a_code_moves_with_its_last_sample_and_with_no_later_one():
    _, kernel, series, ends = problem(4, 2, 3, 4, (10,))
    before = np.asarray(hidden_logits(kernel, jnp.asarray(series, jnp.float32), jnp.asarray(ends)))
    series[6] += 1.0
    after = np.asarray(hidden_logits(kernel, jnp.asarray(series, jnp.float32), jnp.asarray(ends)))
    moved = np.abs(after - before).max(axis=1) > 0
    assert [int(end) for end in ends[moved]] == [6, 7, 8, 9]


def test_padded_windows_have_no_code():
    _, kernel, series, _ = problem(5, 2, 3, 4)
    ends = jnp.asarray([3, -1])
    codes, worth = (f(kernel, jnp.asarray(series, jnp.float32), ends) for f in (encode, free_energy))
    assert np.isfinite(codes[0]).all()
    assert np.isnan(codes[1]).all()
    assert np.isnan(worth).tolist() == [False, True]


def test_history_is_time_major_with_the_oldest_frame_first():
    ramp = jnp.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(gather_windows(ramp, jnp.asarray([3]), 3)[:, 0], np.arange(8.0))


@pytest.mark.parametrize("sizes", [SIZES[0], *(pytest.param(more, marks=pytest.mark.prove) for more in SIZES[1:])])
def test_the_statistics_first_term_is_the_gradient_of_the_free_energy(sizes):
    _, kernel, series, ends = problem(6, *sizes)
    columns = gather_windows(jnp.asarray(series, jnp.float32), jnp.asarray(ends), sizes[1])

    @jax.jit
    @jax.grad
    def energy_gradient(parameters, at):
        return jnp.mean(window_free_energy(parameters, at))

    found = statistics_of(
        pack(kernel),
        columns,
        jnp.ones(len(ends)),
        jnp.zeros(2, jnp.uint32),
        jnp.uint32(0),
        num_visible=sizes[0],
        num_gibbs_steps=1,
        sampling=Sampling.MEAN_FIELD,
    )
    # The statistics are the difference of the term at the data and the term at the reconstruction.
    length = sizes[0] * sizes[1]
    history, sample = columns[:length], columns[length:]
    bias = kernel.autoregression.T @ history + kernel.visible_bias[:, None]
    inputs = kernel.weights.T @ sample + kernel.conditioning.T @ history + kernel.hidden_bias[:, None]
    rebuilt = jnp.concatenate([history, kernel.weights @ jax.nn.sigmoid(inputs) + bias])
    data, model = (energy_gradient(kernel, at) for at in (columns, rebuilt))
    for name, term, other, one in zip(kernel._fields, data, model, unpack(found.gradient, sizes[0]), strict=True):
        np.testing.assert_allclose(one, other - term, atol=TOL, err_msg=name)


def test_packing_and_padding_can_be_undone():
    _, kernel, _, _ = problem(7, 3, 2, 5)
    for back in (unpack(pack(kernel), 3), trim_parameters(pad_parameters(kernel, 4, 9), 2, 5)):
        for one, other in zip(kernel, back, strict=True):
            np.testing.assert_array_equal(one, other)
