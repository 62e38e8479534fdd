"""Contrastive divergence on one batch, with all parameters of `CrbmParameters` in one matrix.

With a window's history u and sample v in a column ``z = (u, v, 1)``, V visible and H hidden units, and the matrix

    P = [ A^T  0    a ]      (V rows)
        [ B^T  W^T  b ]      (H rows)

the product ``P z`` stacks the visible units' dynamic bias and the hidden units' input. Let p_0 be the hidden units'
probabilities given the sample, and v_k and p_k the sample and the probabilities after k Gibbs steps. With the residuals
``e = v - v_k`` and ``r = p_0 - p_k``, the product ``(e, r) z^T`` contains the gradients of A, B and both biases, and
the part ``r v^T`` of W's gradient. The rest of W's gradient is ``p_k e^T``, since ``v p_0 - v_k p_k = v r + e p_k``.
"""

from enum import StrEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp

from optim.kernels.counter_random import bernoulli
from optim.kernels.crbm.energy import FULL
from optim.kernels.crbm.parameters import CrbmParameters


class Sampling(StrEnum):
    """Form in which hidden units enter the reconstruction."""

    BERNOULLI = "bernoulli"
    """Ones and zeros, drawn with the hidden units' probabilities."""
    MEAN_FIELD = "mean-field"
    """The probabilities themselves, as in the public code of AI4DL."""


class Divergence(NamedTuple):
    """Statistics of a batch.

    Attributes
    ----------
    gradient
        Direction of ascent for the packed parameters, shape (V + H, D + V + 1) with D the length of a history. The
        entries at P's block of zeros have no meaning.
    squared_error
        Shape (V,): squared error of the reconstruction, summed over the windows with mask 1.
    activity
        Shape (H,): mean of p_0 over the windows with mask 1.
    """

    gradient: jax.Array
    squared_error: jax.Array
    activity: jax.Array


def pack(parameters: CrbmParameters) -> jax.Array:
    """Return the matrix P of the parameters, shape (V + H, D + V + 1)."""
    num_visible = parameters.num_visible
    block = jnp.zeros((num_visible, num_visible), parameters.weights.dtype)
    visible = jnp.concatenate([parameters.autoregression.T, block, parameters.visible_bias[:, None]], axis=1)
    hidden = jnp.concatenate([parameters.conditioning.T, parameters.weights.T, parameters.hidden_bias[:, None]], axis=1)
    return jnp.concatenate([visible, hidden])


def unpack(packed: jax.Array, num_visible: int) -> CrbmParameters:
    """Return the parameters of a packed matrix."""
    length = packed.shape[1] - num_visible - 1
    return CrbmParameters(
        weights=packed[num_visible:, length:-1].T,
        autoregression=packed[:num_visible, :length].T,
        conditioning=packed[num_visible:, :length].T,
        visible_bias=packed[:num_visible, -1],
        hidden_bias=packed[num_visible:, -1],
    )


def contrastive_divergence(
    packed: jax.Array,
    windows: jax.Array,
    mask: jax.Array,
    seed: jax.Array,
    draw: jax.Array,
    *,
    num_visible: int,
    num_gibbs_steps: int,
    sampling: Sampling,
) -> Divergence:
    """Return the statistics of CD-k on a batch of windows.

    Parameters
    ----------
    packed
        The parameters' matrix P, shape (V + H, D + V + 1).
    windows
        Shape (D + V, n): one window per column, its history above its sample.
    mask
        Shape (n,): 1 for each window to include, 0 for padding.
    seed
        Shape (2,), uint32: seed of all draws.
    draw
        Scalar uint32: number of the batch, which uses the draws ``draw * k, ..., draw * k + k - 1`` of `bernoulli`.
    num_visible
        Number V of visible units.
    num_gibbs_steps
        Number k of Gibbs steps. In the gradient, the hidden units are probabilities, both for the data and after the last step.
    sampling
        Form in which hidden units enter the reconstruction.

    References
    ----------
    Taylor, Hinton and Roweis (2007). Modeling human motion using binary latent variables. NIPS 19.
    Hinton (2002). Training products of experts by minimizing contrastive divergence. doi:10.1162/089976602760128018.
    """
    length = packed.shape[1] - 1 - num_visible
    weights = packed[num_visible:, length:-1]
    sample = windows[length:]
    extended = jnp.concatenate([windows, jnp.ones_like(windows[:1])])
    inputs = jnp.matmul(packed, extended, precision=FULL)
    bias, first_input = inputs[:num_visible], inputs[num_visible:]
    first = probability = jax.nn.sigmoid(first_input)
    first_draw = draw * jnp.uint32(num_gibbs_steps)
    error = jnp.zeros_like(sample)
    for step in range(num_gibbs_steps):
        hidden = probability
        if sampling == Sampling.BERNOULLI:
            hidden = bernoulli(seed, first_draw + jnp.uint32(step), probability)
        error = sample - bias - jnp.matmul(weights.T, hidden, precision=FULL)
        # Only the visible units change between steps, so the hidden units' input follows from the first input, by v_k W
        # = v W - e W.
        probability = jax.nn.sigmoid(first_input - jnp.matmul(weights, error, precision=FULL))
    error = error * mask[None, :]
    change = (first - probability) * mask[None, :]
    scale = 1.0 / jnp.maximum(jnp.sum(mask), 1.0)
    gradient = jnp.matmul(jnp.concatenate([error, change]), extended.T, precision=FULL)
    rest = jnp.matmul(probability, error.T, precision=FULL)
    return Divergence(
        gradient=scale * (gradient + jnp.pad(rest, ((num_visible, 0), (length, 1)))),
        squared_error=jnp.sum(error * error, axis=1),
        activity=scale * jnp.sum(first * mask[None, :], axis=1),
    )
