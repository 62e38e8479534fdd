"""Windows of concatenated series: which samples have enough history, and the gather that builds them."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from optim.core.errors import InvalidOptionError


def window_ends(lengths: Sequence[int] | np.ndarray, num_delays: int) -> np.ndarray:
    """Return the positions of all samples with `num_delays` samples of their own segment before them.

    Parameters
    ----------
    lengths
        Lengths of the segments, in the order in which they are concatenated; a series with gaps is several segments.
    num_delays
        Frames of history.

    Returns
    -------
    numpy.ndarray
        int32, increasing. A segment of n samples gives max(0, n - num_delays).

    Raises
    ------
    InvalidOptionError
        If the segments hold more samples than int32 can count.
    """
    counts = np.asarray(lengths, dtype=np.int64)
    total = int(counts.sum())
    if total > np.iinfo(np.int32).max:
        raise InvalidOptionError(f"{total} samples are too many for one array; train on parts")
    begins = np.cumsum(counts) - counts
    position = np.arange(total, dtype=np.int64)
    has_history = position - np.repeat(begins, counts) >= num_delays
    return position[has_history].astype(np.int32)


def gather_windows(series: jax.Array, ends: jax.Array, num_delays: int) -> jax.Array:
    """Return windows as columns: history, oldest frame first, then the sample itself.

    Parameters
    ----------
    series
        Shape (T, V).
    ends
        Shape (n,): positions of the windows' last samples, from `num_delays` on; smaller ones are moved there.
    num_delays
        Frames of history, d.

    Returns
    -------
    jax.Array
        Shape ((d + 1) V, n).
    """
    num_visible = series.shape[1]

    def window(end: jax.Array) -> jax.Array:
        return lax.dynamic_slice(series, (end - num_delays, jnp.zeros_like(end)), (num_delays + 1, num_visible))

    rows = jax.vmap(window)(jnp.maximum(ends, num_delays))
    return rows.reshape(ends.shape[0], (num_delays + 1) * num_visible).T
