"""Parameters of a CRBM, and padding of CRBMs of different sizes to one size."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from optim.core.errors import InvalidOptionError

INITIAL_DEVIATION = 0.01


class CrbmParameters(NamedTuple):
    """Parameters for V visible units, H hidden units and d frames of history; a window's history has D = d V entries.

    With a window's sample v and history u the dynamic biases are ``u A + a`` and ``u B + b``, and the energy is
    ``|v - uA - a|^2 / 2 - v W h - (uB + b) h``.

    Attributes
    ----------
    weights
        W, shape (V, H).
    autoregression
        A, shape (D, V); the rows are ordered by frame, oldest first, and within a frame by feature.
    conditioning
        B, shape (D, H), with rows in the same order as those of A.
    visible_bias
        a, shape (V,).
    hidden_bias
        b, shape (H,).
    """

    weights: jax.Array
    autoregression: jax.Array
    conditioning: jax.Array
    visible_bias: jax.Array
    hidden_bias: jax.Array

    @property
    def num_visible(self) -> int:
        """Number V of visible units."""
        return int(self.weights.shape[-2])

    @property
    def num_hidden(self) -> int:
        """Number H of hidden units."""
        return int(self.weights.shape[-1])

    @property
    def num_delays(self) -> int:
        """Number d of frames of history."""
        return int(self.autoregression.shape[-2]) // self.num_visible


def initial_parameters(
    key: jax.Array, num_visible: int, num_delays: int, num_hidden: int, deviation: float = INITIAL_DEVIATION
) -> CrbmParameters:
    """Return weights drawn from a normal distribution with standard deviation `deviation`, and zero biases, all float32.

    Raises
    ------
    InvalidOptionError
        If a size is below 1.
    """
    if min(num_visible, num_delays, num_hidden) < 1:
        sizes = f"{num_visible} visibles, {num_delays} delays and {num_hidden} hiddens"
        raise InvalidOptionError(f"each size must be at least 1, got {sizes}")
    keys = jax.random.split(key, 3)
    length = num_delays * num_visible
    shapes = ((num_visible, num_hidden), (length, num_visible), (length, num_hidden))
    weights, autoregression, conditioning = (
        deviation * jax.random.normal(one, shape, jnp.float32) for one, shape in zip(keys, shapes, strict=True)
    )
    return CrbmParameters(
        weights=weights,
        autoregression=autoregression,
        conditioning=conditioning,
        visible_bias=jnp.zeros(num_visible, jnp.float32),
        hidden_bias=jnp.zeros(num_hidden, jnp.float32),
    )


def pad_parameters(parameters: CrbmParameters, num_delays: int, num_hidden: int) -> CrbmParameters:
    """Return the same CRBM in larger arrays, with zeros for older frames and additional hidden units.

    Raises
    ------
    InvalidOptionError
        If the CRBM has more frames of history or hidden units than requested.
    """
    more_delays, more_hidden = num_delays - parameters.num_delays, num_hidden - parameters.num_hidden
    if min(more_delays, more_hidden) < 0:
        raise InvalidOptionError(
            f"a CRBM of {parameters.num_delays} delays and {parameters.num_hidden} hiddens can't be padded to "
            f"{num_delays} delays and {num_hidden} hiddens; choose the largest sizes of all CRBMs"
        )
    older, further = (more_delays * parameters.num_visible, 0), (0, more_hidden)
    return CrbmParameters(
        weights=jnp.pad(parameters.weights, ((0, 0), further)),
        autoregression=jnp.pad(parameters.autoregression, (older, (0, 0))),
        conditioning=jnp.pad(parameters.conditioning, (older, further)),
        visible_bias=parameters.visible_bias,
        hidden_bias=jnp.pad(parameters.hidden_bias, further),
    )


def trim_parameters(parameters: CrbmParameters, num_delays: int, num_hidden: int) -> CrbmParameters:
    """Return the CRBM without the frames of history and hidden units that `pad_parameters` added."""
    first = (parameters.num_delays - num_delays) * parameters.num_visible
    return CrbmParameters(
        weights=parameters.weights[:, :num_hidden],
        autoregression=parameters.autoregression[first:],
        conditioning=parameters.conditioning[first:, :num_hidden],
        visible_bias=parameters.visible_bias,
        hidden_bias=parameters.hidden_bias[:num_hidden],
    )


def parameter_mask(
    num_visible: int, num_delays: int, num_hidden: int, max_delays: int, max_hidden: int
) -> CrbmParameters:
    """Return a mask shaped as the padded CRBM: one for each parameter of the CRBM, zero for padding."""
    ones = jax.tree.map(jnp.ones_like, initial_parameters(jax.random.key(0), num_visible, num_delays, num_hidden))
    return pad_parameters(ones, max_delays, max_hidden)
