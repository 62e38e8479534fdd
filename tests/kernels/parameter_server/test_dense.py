"""Dense pushes: no push is lost, additions have the promised order, and one clock equals one large batch."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import (
    Adagrad,
    Adam,
    Momentum,
    Sgd,
    apply_pushes,
    dense,
)
from optim.kernels.parameter_server.blocks import BLOCK

SIZE = 7
WORKERS = 4
EPS = float(np.finfo(np.float32).eps)

OPTIMISERS = (
    Sgd(learning_rate=0.1),
    Momentum(learning_rate=0.1),
    Adagrad(learning_rate=0.1),
    Adam(learning_rate=0.1),
)

whole_numbers = hnp.arrays(np.float32, (WORKERS, SIZE), elements=st.integers(-1000, 1000).map(np.float32))
reals = hnp.arrays(np.float32, (WORKERS, SIZE), elements=st.floats(-8, 8, width=32))
weight_lists = hnp.arrays(np.float32, (WORKERS,), elements=st.integers(1, 9).map(np.float32))


def names(optimisers=OPTIMISERS):
    return pytest.mark.parametrize("optimiser", optimisers, ids=lambda optimiser: type(optimiser).__name__)


def drawn(size, workers, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=size).astype(np.float32), rng.normal(size=(workers, size)).astype(np.float32)


def mean_of(gradients, weights):
    """Return the mean of pushes: minus the parameters after a step of rate 1 from zero."""
    start = np.zeros(gradients.shape[1], np.float32)
    return -run_clocks(start, gradients, jnp.asarray(weights), Sgd(learning_rate=1.0), clocks=1)[0]


def run_clocks(start, gradients, weights, optimiser, clocks=3):
    """Apply the same pushes several times and return parameters and slots, one below the other."""
    parameters = jnp.array(start, copy=True)
    slots = optimiser.initial_slots(parameters)
    for clock in range(clocks):
        parameters, slots = apply_pushes(
            parameters, slots, [jnp.asarray(g) for g in gradients], weights, jnp.int32(clock), optimiser=optimiser
        )
    return np.stack([np.asarray(array) for array in (parameters, *slots)])


@given(whole_numbers, weight_lists)
def test_whole_numbers_are_added_exactly(gradients, weights):
    sums, inverse = (weights[:, None] * gradients).sum(axis=0), np.float32(1) / weights.sum()
    assert np.array_equal(mean_of(gradients, weights), sums * inverse)


@given(whole_numbers, weight_lists, st.permutations(range(WORKERS)))
def test_order_changes_no_sum_of_whole_numbers(gradients, weights, order):
    assert np.array_equal(mean_of(gradients, weights), mean_of(gradients[list(order)], weights[list(order)]))


@given(reals, st.permutations(range(WORKERS)))
def test_order_changes_sums_by_rounding_only(gradients, order):
    ones = np.ones(WORKERS, np.float32)
    straight, turned = mean_of(gradients, ones), mean_of(gradients[list(order)], ones)
    allowed = 2 * (WORKERS - 1) * EPS * np.abs(gradients).mean(axis=0, dtype=np.float64)
    assert np.all(np.abs(straight.astype(np.float64) - turned) <= allowed)


@given(whole_numbers, whole_numbers, st.integers(-3, 3))
def test_aggregation_is_linear(first, second, factor):
    ones = np.ones(WORKERS, np.float32)
    together = mean_of(first + np.float32(factor) * second, ones)
    assert np.array_equal(together, mean_of(first, ones) + factor * mean_of(second, ones))


@given(reals, weight_lists)
def test_mean_is_taken_over_the_weights_and_never_over_the_number_of_workers(gradients, weights):
    wanted = (weights[:, None].astype(np.float64) * gradients).sum(axis=0) / weights.sum()
    assert mean_of(gradients, weights) == pytest.approx(wanted, abs=8 * 16 * EPS)


@names()
def test_the_same_function_gives_the_same_bits_each_time(optimiser):
    start, gradients = drawn(3 * BLOCK, 4)
    weights = jnp.asarray([1.0, 3.0, 2.0, 0.7])
    assert np.array_equal(
        run_clocks(start, gradients, weights, optimiser), run_clocks(start, gradients, weights, optimiser)
    )


def _mean_gradient(parameters, samples, targets):
    """Return the gradient of the mean squared error of a linear model."""
    return samples.T @ (samples @ parameters - targets) / len(targets)


@names()
def test_a_batch_split_among_workers_is_the_whole_batch(optimiser):
    rng = np.random.default_rng(3)
    samples, targets = rng.normal(size=(40, SIZE)), rng.normal(size=40)
    shares = np.split(np.arange(40), [4, 19, 31])
    split = whole = jnp.asarray(rng.normal(size=SIZE), jnp.float32)
    split_slots = whole_slots = optimiser.initial_slots(split)
    whole = jnp.array(whole, copy=True)
    whole_slots = tuple(jnp.array(slot, copy=True) for slot in whole_slots)
    for clock in range(5):
        pulled = np.asarray(split, np.float64)
        parts = [jnp.asarray(_mean_gradient(pulled, samples[share], targets[share]), jnp.float32) for share in shares]
        weights = jnp.asarray([len(share) for share in shares], jnp.float32)
        split, split_slots = apply_pushes(split, split_slots, parts, weights, jnp.int32(clock), optimiser=optimiser)
        all_of_it = jnp.asarray(_mean_gradient(np.asarray(whole, np.float64), samples, targets), jnp.float32)
        whole, whole_slots = apply_pushes(
            whole, whole_slots, [all_of_it], jnp.ones(1), jnp.int32(clock), optimiser=optimiser
        )
    assert np.asarray(split) == pytest.approx(np.asarray(whole), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("workers", [17, 32, 33])
def test_many_pushes_are_folded_in_their_order(workers, monkeypatch):
    optimiser = Sgd(learning_rate=0.5)
    start, gradients = drawn(SIZE, workers)
    weights = jnp.arange(1, workers + 1, dtype=jnp.float32)
    folded = run_clocks(start, gradients, weights, optimiser, clocks=1)
    monkeypatch.setattr(dense, "MAX_FOLD", workers)
    assert np.array_equal(run_clocks(start, gradients, weights, optimiser, clocks=1), folded)


@names(OPTIMISERS[1:])  # one without slots visits no blocks
@pytest.mark.parametrize(
    "size", [*(pytest.param(size, marks=pytest.mark.prove) for size in (2 * BLOCK + 1, 5 * BLOCK)), 5 * BLOCK + 77]
)
def test_blocks_change_no_bit(optimiser, size):
    start, gradients = drawn(size, 4)
    weights = jnp.asarray([1.0, 3.0, 2.0, 0.7])
    whole = run_clocks(start, gradients, weights, optimiser)
    cuts = [0, BLOCK - 77, 2 * BLOCK - 154, size]  # the parts before the last share what is compiled
    parts = [run_clocks(start[low:high], gradients[:, low:high], weights, optimiser) for low, high in pairwise(cuts)]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)


def _by_numpy(start, gradients, weights, optimiser, clocks):
    """Work the same out in float64, by the textbook's formulas."""
    w = start.astype(np.float64)
    slots = [np.zeros_like(w) for _ in range(optimiser.num_slots)]
    g = (weights[:, None].astype(np.float64) * gradients).sum(axis=0) / weights.sum()
    for clock in range(1, clocks + 1):
        match optimiser:
            case Sgd():
                w = w - optimiser.learning_rate * g
            case Momentum():
                slots[0] = optimiser.decay * slots[0] + g
                w = w - optimiser.learning_rate * slots[0]
            case Adagrad():
                slots[0] = slots[0] + g**2
                w = w - optimiser.learning_rate * g / (np.sqrt(slots[0]) + optimiser.epsilon)
            case Adam():
                slots[0] = optimiser.first_decay * slots[0] + (1 - optimiser.first_decay) * g
                slots[1] = optimiser.second_decay * slots[1] + (1 - optimiser.second_decay) * g**2
                first = slots[0] / (1 - optimiser.first_decay**clock)
                second = slots[1] / (1 - optimiser.second_decay**clock)
                w = w - optimiser.learning_rate * first / (np.sqrt(second) + optimiser.epsilon)
    return np.stack([w, *slots])


@names()
@pytest.mark.parametrize("size", [SIZE, 3 * BLOCK + 5])
def test_agrees_with_the_textbook_in_float64(optimiser, size):
    start, gradients = drawn(size, 4)
    weights = np.array([1.0, 3.0, 2.0, 0.7], np.float32)
    found = run_clocks(start, gradients, jnp.asarray(weights), optimiser, clocks=4)
    wanted = _by_numpy(start, gradients, weights, optimiser, clocks=4)
    # Where the mean gradient is near zero, Adagrad and Adam divide rounding by rounding: one in ten thousand may stray.
    strays = np.abs(found - wanted) > 2e-5 * (1 + np.abs(wanted))
    assert strays.mean() <= 1e-4
    assert np.abs(found - wanted).max() <= 2 * 0.1 * 4


@names()
def test_half_precision_pushes_are_added_in_single_precision(optimiser):
    start, gradients = drawn(301, 4)
    halves = [jnp.asarray(gradient, jnp.bfloat16) for gradient in gradients]
    weights = jnp.asarray([1.0, 3.0, 2.0, 0.7])
    widened = np.stack([np.asarray(half.astype(jnp.float32)) for half in halves])
    parameters = jnp.asarray(start)
    found, _ = apply_pushes(
        jnp.array(parameters, copy=True),
        optimiser.initial_slots(parameters),
        halves,
        weights,
        jnp.int32(0),
        optimiser=optimiser,
    )
    assert found.dtype == jnp.float32
    assert np.array_equal(np.asarray(found), run_clocks(start, widened, weights, optimiser, clocks=1)[0])
    assert np.abs(widened - gradients).max() <= 2.0**-9 * 1.01 * np.abs(gradients).max()


@names()
def test_updates_take_place_in_the_donated_memory(optimiser):
    start, gradients = drawn(4 * BLOCK, 2)
    parameters = jnp.array(start, copy=True)
    slots = optimiser.initial_slots(parameters)
    places = [array.unsafe_buffer_pointer() for array in (parameters, *slots)]
    pushes = [jnp.asarray(gradient) for gradient in gradients]
    done, done_slots = apply_pushes(parameters, slots, pushes, jnp.ones(2), jnp.int32(0), optimiser=optimiser)
    assert [array.unsafe_buffer_pointer() for array in (done, *done_slots)] == places
    assert parameters.is_deleted()
    assert not any(push.is_deleted() for push in pushes)


@names()
def test_an_update_needs_no_memory_of_the_parameters_size(optimiser):
    array = jax.ShapeDtypeStruct((64 * BLOCK,), jnp.float32)
    scalar, version = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    weights = jax.ShapeDtypeStruct((4,), jnp.float32)
    slots = (array,) * optimiser.num_slots
    lowered = dense._apply.lower(array, slots, (array,) * 4, weights, scalar, version, optimiser=optimiser)
    assert lowered.compile().memory_analysis().temp_size_in_bytes < 16 * 4 * BLOCK


@names()
def test_a_kept_update_leaves_the_old_parameters_alive(optimiser):
    start, gradients = drawn(3 * BLOCK, 2)
    parameters = jnp.array(start, copy=True)
    slots = optimiser.initial_slots(parameters)
    pushes = [jnp.asarray(gradient) for gradient in gradients]
    given = jax.tree.map(jnp.copy, slots)  # slots are donated all the same
    kept = apply_pushes(parameters, given, pushes, jnp.ones(2), jnp.int32(0), optimiser=optimiser, keep=True)
    assert np.array_equal(np.asarray(parameters), start)
    donated = apply_pushes(parameters, slots, pushes, jnp.ones(2), jnp.int32(0), optimiser=optimiser)
    assert np.array_equal(np.asarray(kept[0]), np.asarray(donated[0]))


@pytest.mark.parametrize(("pushes", "weights"), [(0, 0), (2, 3), (3, 1)])
def test_refuses_weights_that_are_not_one_a_push(pushes, weights):
    with pytest.raises(InvalidOptionError, match="one weight per push"):
        apply_pushes(
            jnp.zeros(2),
            (),
            [jnp.zeros(2)] * pushes,
            jnp.ones(weights),
            jnp.int32(0),
            optimiser=OPTIMISERS[0],
        )


@pytest.mark.parametrize("length", [1, SIZE + 1])
def test_pushes_of_another_length_are_refused_and_not_stretched(length):
    optimiser = OPTIMISERS[0]
    with pytest.raises(InvalidOptionError, match=r"each push must have shape \(7,\)"):
        apply_pushes(
            jnp.zeros(SIZE), (), [jnp.zeros(SIZE), jnp.zeros(length)], jnp.ones(2), jnp.int32(0), optimiser=optimiser
        )


def test_a_step_rounds_once_or_twice_and_only_compiled_functions_agree_on_it():
    """Compilers contract ``w - rate g``: that's why bits are promised between compiled functions, not with NumPy."""
    optimiser, rate = OPTIMISERS[0], np.float32(0.1)
    start, (gradient,) = drawn(4096, 1)
    found = run_clocks(start, gradient[None], jnp.ones(1), optimiser, clocks=1)[0]
    twice = start - rate * gradient
    once = (start.astype(np.float64) - np.float64(rate) * gradient.astype(np.float64)).astype(np.float32)
    assert np.mean(once != twice) > 0.01
    assert np.all((found == once) | (found == twice))
    assert np.all(found == once) or np.all(found == twice)


def test_the_order_of_a_sum_is_felt_so_it_is_fixed():
    start, gradients = drawn(4096, 8)
    straight, turned = (
        run_clocks(start, order, jnp.ones(8), OPTIMISERS[0], clocks=1)[0] for order in (gradients, gradients[::-1])
    )
    assert np.mean(straight != turned) > 0.01
    assert straight == pytest.approx(turned, abs=1e-5)


def test_kernels_never_ask_the_host():
    optimiser, vector, version = OPTIMISERS[3], jnp.zeros(SIZE), jnp.int32(0)
    traced = jax.make_jaxpr(
        lambda w, slots: apply_pushes(w, slots, [vector] * 20, jnp.ones(20), version, optimiser=optimiser)
    )(vector, optimiser.initial_slots(vector))
    assert "callback" not in str(traced)


@names()
def test_pushes_that_weigh_nothing_give_no_mean_and_no_nan(optimiser):
    start, gradients = drawn(SIZE, 2)
    slots = optimiser.initial_slots(jnp.asarray(start))
    new, _ = apply_pushes(
        jnp.asarray(start), slots, [jnp.asarray(g) for g in gradients], jnp.zeros(2), jnp.int32(0), optimiser=optimiser
    )
    assert np.array_equal(new, start)


@pytest.mark.parametrize("is_push", [True, False])
def test_a_pytree_is_refused_with_the_remedy(is_push):
    vector, tree = jnp.zeros(3), {"slope": jnp.zeros(3)}
    rule = Sgd(learning_rate=0.1)
    given = (vector, tree) if is_push else (tree, vector)
    with pytest.raises(InvalidOptionError, match=r"must be one float32 vector, got dict; flatten .*ravel_pytree"):
        apply_pushes(given[0], (), [given[1]], jnp.ones(1), jnp.int32(0), optimiser=rule)
