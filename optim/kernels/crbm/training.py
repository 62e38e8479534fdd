"""Training by contrastive divergence: many epochs in one compiled call, for one CRBM or several at once."""

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from optim.core.errors import InvalidOptionError, check_in
from optim.kernels import gpu
from optim.kernels.counter_random import SHUFFLE_ROUNDS, seed_words, shuffled
from optim.kernels.crbm import gpu_training
from optim.kernels.crbm.divergence import Sampling, contrastive_divergence, pack, unpack
from optim.kernels.crbm.parameters import CrbmParameters
from optim.kernels.crbm.windows import gather_windows


class Rates(NamedTuple):
    """Rates of training: numbers, or arrays of shape () that a sweep stacks. New values need no compilation.

    Attributes
    ----------
    learning_rate
        Factor on a batch's mean gradient. A good first try is the rate for batches of one window, times min(batch size,
        32).
    autoregression_factor
        Learning rate of A relative to that of the other parameters; 0 keeps A constant.
    momentum, early_momentum, early_epochs
        Momentum: share of the last step that is added to the next step; `early_momentum` during the first `early_epochs`.
    decay, autoregression_decay
        Weight decay of W and B, and weight decay of A. Biases don't decay.
    sparsity_target, sparsity_cost
        Target for the mean probability of the hidden units, and cost of differences from it, which changes only hidden biases.
    gradient_limit
        Maximum norm of a batch's gradient; a larger gradient is scaled down to it.
    """

    learning_rate: jax.Array | float = 1e-3
    autoregression_factor: jax.Array | float = 1.0
    momentum: jax.Array | float = 0.9
    early_momentum: jax.Array | float = 0.5
    early_epochs: jax.Array | int = 5
    decay: jax.Array | float = 2e-4
    autoregression_decay: jax.Array | float = 2e-4
    sparsity_target: jax.Array | float = 0.2
    sparsity_cost: jax.Array | float = 0.0
    gradient_limit: jax.Array | float = 10.0


class TrainingState(NamedTuple):
    """State of training between calls.

    Attributes
    ----------
    parameters
        Parameters of the CRBM.
    velocity
        The last step, shaped as the parameters.
    epoch
        Scalar int32: number of completed epochs. Shuffles and draws depend on it and on the key, so two calls of five
        epochs give the same result as one call of ten.
    """

    parameters: CrbmParameters
    velocity: CrbmParameters
    epoch: jax.Array


def initial_state(parameters: CrbmParameters) -> TrainingState:
    """Return the state before the first epoch; it shares no memory with `parameters`."""
    copied = jax.tree.map(lambda array: jnp.array(array, dtype=jnp.float32, copy=True), parameters)
    leading = parameters.weights.shape[:-2]
    return TrainingState(
        parameters=copied, velocity=jax.tree.map(jnp.zeros_like, copied), epoch=jnp.zeros(leading, jnp.int32)
    )


Way = Literal["scan", "launches", "interpreted"]
"""Implementation of an epoch: an XLA loop over batches, Pallas kernels on a GPU, or kernels interpreted on any device
(tests)."""


class _Plan(NamedTuple):
    """Mask, learning rates and decays of a step, packed like the parameters, and sparsity costs of hidden units, shape (H,)."""

    support: jax.Array
    step: jax.Array
    decay: jax.Array
    sparsity: jax.Array


def _plan(rates: Rates, mask: CrbmParameters) -> _Plan:
    """Pack rates and mask; all arrays are zero in padding and in P's block of zeros."""
    zero = jax.tree.map(jnp.zeros_like, mask)
    rate = jnp.asarray(rates.learning_rate, jnp.float32)
    scaled = jax.tree.map(lambda ones: rate * ones, mask)
    autoregression_step = jnp.asarray(rates.autoregression_factor, jnp.float32) * scaled.autoregression
    decays = zero._replace(
        weights=rates.decay * mask.weights,
        conditioning=rates.decay * mask.conditioning,
        autoregression=rates.autoregression_decay * mask.autoregression,
    )
    return _Plan(
        support=pack(mask),
        step=pack(scaled._replace(autoregression=autoregression_step)),
        decay=pack(decays),
        sparsity=jnp.asarray(rates.sparsity_cost, jnp.float32) * mask.hidden_bias,
    )


def _train(
    state: TrainingState,
    series: jax.Array,
    ends: jax.Array,
    rates: Rates | jax.Array,
    key: jax.Array,
    mask: CrbmParameters | None,
    *,
    num_epochs: int,
    batch_size: int,
    num_gibbs_steps: int,
    sampling: Sampling,
    way: Way,
) -> tuple[TrainingState, jax.Array]:
    """Train for `num_epochs` epochs; see `train`."""
    num_visible, num_delays = state.parameters.num_visible, state.parameters.num_delays
    rates = Rates(*rates)
    num_batches = -(-ends.shape[0] // batch_size)
    plan = _plan(rates, jax.tree.map(jnp.ones_like, state.parameters) if mask is None else mask)
    num_windows = jnp.maximum(jnp.sum(ends >= 0), 1)
    positions = jnp.arange(num_batches * batch_size, dtype=jnp.int32)
    if way != "scan":
        is_drawn, counts = sampling == Sampling.BERNOULLI, (num_visible, num_delays, state.parameters.num_hidden)
        sizes = gpu_training.Sizes(*counts, batch_size, num_gibbs_steps, is_drawn, way == "interpreted")
        push = jnp.pad(plan.sparsity[:, None], ((num_visible, 0), (plan.support.shape[1] - 1, 0)))
        support, step, decay, push = (
            gpu_training.squared(each, sizes) for each in (plan.support, plan.step, plan.decay, push)
        )
        steps = gpu_training.Steps(support, step, decay, push, jnp.zeros(3, jnp.float32))

    def epoch(carry: tuple[jax.Array, jax.Array, jax.Array], _: None):  # type: ignore[no-untyped-def]
        packed, velocity, number = carry
        words = seed_words(jax.random.fold_in(key, number), 2 + SHUFFLE_ROUNDS)
        momentum = jnp.where(number < rates.early_epochs, rates.early_momentum, rates.momentum)

        # The order of an epoch's windows is computed outside the scan: inside, the compiler would compute it again in
        # every fusion.
        place = shuffled(words[2:], positions, num_batches, batch_size)
        order = jnp.where(place < ends.shape[0], ends[jnp.minimum(place, ends.shape[0] - 1)], -1)

        if way != "scan":
            square, fast, error = gpu_training.epoch(
                gpu_training.squared(packed, sizes),
                gpu_training.squared(velocity, sizes),
                series,
                order.reshape(num_batches, batch_size),
                words[:2],
                steps._replace(numbers=jnp.stack([momentum, rates.gradient_limit, rates.sparsity_target])),
                sizes,
            )
            machine, fast = gpu_training.unsquared(square, sizes), gpu_training.unsquared(fast, sizes)
            return (machine, fast, number + 1), error / num_windows

        def batch(carry, inputs):  # type: ignore[no-untyped-def]
            packed, velocity = carry
            end, index = inputs
            statistics = contrastive_divergence(
                packed,
                gather_windows(series, end, num_delays),
                (end >= 0).astype(packed.dtype),
                words[:2],
                index,
                num_visible=num_visible,
                num_gibbs_steps=num_gibbs_steps,
                sampling=sampling,
            )
            gradient = statistics.gradient * plan.support
            norm = jnp.sqrt(jnp.sum(gradient * gradient))
            gradient = gradient * jnp.minimum(1.0, rates.gradient_limit / jnp.maximum(norm, 1e-30))
            push = plan.sparsity * (rates.sparsity_target - statistics.activity)
            # Add a padded array: an indexed update would be a scatter, ten times slower on a CPU.
            gradient = gradient + jnp.pad(push[:, None], ((num_visible, 0), (packed.shape[1] - 1, 0)))
            velocity = momentum * velocity + plan.step * (gradient - plan.decay * packed)
            return (packed + velocity, velocity), statistics.squared_error

        inputs = (order.reshape(num_batches, batch_size), jnp.arange(num_batches, dtype=jnp.uint32))
        (packed, velocity), errors = lax.scan(batch, (packed, velocity), inputs)
        return (packed, velocity, number + 1), jnp.sum(errors, axis=0) / num_windows

    start = (pack(state.parameters), pack(state.velocity), state.epoch)
    (packed, velocity, number), errors = lax.scan(epoch, start, None, length=num_epochs)
    return TrainingState(unpack(packed, num_visible), unpack(velocity, num_visible), number), errors


_STATIC = ("num_epochs", "batch_size", "num_gibbs_steps", "sampling", "way")


@partial(jax.jit, static_argnames=_STATIC, donate_argnums=0)
def _train_one(state, series, ends, rates, key, mask, **static):  # type: ignore[no-untyped-def]
    return _train(state, series, ends, rates, key, mask, **static)


@partial(jax.jit, static_argnames=_STATIC, donate_argnums=0)
def _train_many(state, series, ends, rates, keys, masks, **static):  # type: ignore[no-untyped-def]
    one = partial(_train, **static)
    return jax.vmap(one, in_axes=(0, None, None, 0, 0, 0))(state, series, ends, rates, keys, masks)


def train(
    state: TrainingState,
    series: jax.Array,
    ends: jax.Array,
    rates: Rates,
    key: jax.Array,
    *,
    num_epochs: int,
    batch_size: int = 1024,
    num_gibbs_steps: int = 1,
    sampling: Sampling | str = Sampling.BERNOULLI,
    mask: CrbmParameters | None = None,
) -> tuple[TrainingState, jax.Array]:
    """Train a CRBM for `num_epochs` epochs in one compiled call; `state` is donated.

    Each epoch visits every window once, in batches of a fresh shuffle. Each batch makes the step
    ``m <- momentum m + rate (g - decay theta)``, ``theta <- theta + m`` along its mean statistics g of CD-k. Histories
    are gathered from the series batch by batch and never stored.

    Parameters
    ----------
    state
        State from `initial_state` or from the previous call.
    series
        Shape (T, V), float32: concatenated series, standardised.
    ends
        Shape (n,), int32: positions of the windows' last samples, see `window_ends`. Negative entries are padding.
    rates
        Rates of training.
    key
        Key of shuffles and draws. Calls that continue one training must all use the same key.
    num_epochs, batch_size
        Number of passes over the windows, and number of windows per step.
    num_gibbs_steps
        Number k of Gibbs steps.
    sampling
        Form in which hidden units enter the reconstruction.
    mask
        Shaped as the parameters: 1 where a parameter may change, 0 elsewhere. None if all parameters may change.

    Returns
    -------
    tuple
        New state, and the mean squared error of the reconstruction by epoch and feature, shape (num_epochs, V). It is
        computed while the parameters change. It isn't a forecast error, since the reconstruction uses the sample.

    Raises
    ------
    InvalidOptionError
        If a count is below 1, a shape doesn't fit, or `sampling` is unknown.
    """
    static = _checked(state, series, ends, num_epochs, batch_size, num_gibbs_steps, sampling)
    return _train_one(state, series, ends, _in_one_array(rates), key, mask, **static)  # type: ignore[no-any-return]


def sweep(
    state: TrainingState,
    series: jax.Array,
    ends: jax.Array,
    rates: Rates,
    keys: jax.Array,
    masks: CrbmParameters,
    *,
    num_epochs: int,
    batch_size: int = 1024,
    num_gibbs_steps: int = 1,
    sampling: Sampling | str = Sampling.BERNOULLI,
) -> tuple[TrainingState, jax.Array]:
    """Train several CRBMs on the same windows at once; `state` is donated.

    Parameters
    ----------
    state, rates, keys, masks
        As for `train`; each array has an additional first axis over CRBMs. Pad CRBMs of different sizes by
        `pad_parameters`, and mask them by `parameter_mask`; padding doesn't change the result of training.
    series, ends
        Series and windows, the same for all CRBMs. Each window in `ends` needs enough earlier samples for the longest history.
    num_epochs, batch_size, num_gibbs_steps, sampling
        As for `train`.

    Returns
    -------
    tuple
        New state, and errors of shape (CRBMs, num_epochs, V).

    Raises
    ------
    InvalidOptionError
        As for `train`.
    """
    static = _checked(state, series, ends, num_epochs, batch_size, num_gibbs_steps, sampling)
    spread = _in_one_array(rates, masks.weights.shape[:1])
    return _train_many(state, series, ends, spread, keys, masks, **static)  # type: ignore[no-any-return]


def _in_one_array(rates: Rates, leading: tuple[int, ...] = ()) -> jax.Array:
    """Return all rates stacked along a last axis, so that one transfer to a device suffices."""
    library = jnp if any(isinstance(rate, jax.Array) for rate in rates) else np
    broadcast = (library.broadcast_to(library.asarray(rate, np.float32), leading) for rate in rates)
    return library.stack(list(broadcast), axis=-1)


def _checked(  # type: ignore[no-untyped-def]
    state: TrainingState, series, ends, num_epochs, batch_size, num_gibbs_steps, sampling
):
    """Check the arguments, and return the static ones of the compiled functions."""
    counts = {"num_epochs": num_epochs, "batch_size": batch_size, "num_gibbs_steps": num_gibbs_steps}
    check_in("[1, inf)", counts)
    if sampling not in list(Sampling):
        raise InvalidOptionError(f"sampling must be one of {', '.join(Sampling)}, got {sampling!r}")
    if series.ndim != 2 or series.shape[1] != state.parameters.num_visible:
        raise InvalidOptionError(
            f"series must have shape (samples, {state.parameters.num_visible}) to fit the CRBM, got {series.shape}"
        )
    if ends.ndim != 1 or ends.shape[0] == 0:
        raise InvalidOptionError(
            f"ends must list at least one window, got shape {ends.shape}; are all series too short?"
        )
    is_small = gpu_training.fits(state.parameters.num_visible, state.parameters.num_delays, state.parameters.num_hidden)
    has_gpu_kernel = is_small and jax.default_backend() == "gpu" and gpu.triton() is not None
    return {**counts, "sampling": Sampling(sampling), "way": "launches" if has_gpu_kernel else "scan"}
