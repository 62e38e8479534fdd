"""Windows of concatenated series: which samples have enough history, and the gather that builds them."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from optim.core.errors import InvalidOptionError
from optim.kernels.crbm.parameters import CrbmParameters


def window_ends(lengths: Sequence[int] | np.ndarray, num_delays: int) -> np.ndarray:
    """Return the positions of all samples with `num_delays` earlier samples in the same segment.

    Parameters
    ----------
    lengths
        Lengths of the segments, in the order in which they are concatenated; a series with gaps is several segments.
    num_delays
        Number of frames of history.

    Returns
    -------
    numpy.ndarray
        Increasing positions, int32. A segment of n samples has max(0, n - num_delays) of them.

    Raises
    ------
    InvalidOptionError
        If a length or the number of delays is negative, or the segments hold more samples than int32 can count.
    """
    counts = np.asarray(lengths, dtype=np.int64)
    if num_delays < 0 or (counts < 0).any():
        raise InvalidOptionError(
            f"lengths and num_delays must be at least 0, got {counts.min(initial=0)} and {num_delays}"
        )
    total = int(counts.sum())
    if total > np.iinfo(np.int32).max:
        raise InvalidOptionError(f"{total} samples are too many for one array; train on parts")
    begins = np.cumsum(counts) - counts
    position = np.arange(total, dtype=np.int64)
    has_history = position - np.repeat(begins, counts) >= num_delays
    return position[has_history].astype(np.int32)


def windows_of(parameters: CrbmParameters, series: jax.Array, ends: jax.Array) -> jax.Array:
    """Return the windows for a CRBM as columns, see `gather_windows`.

    Raises
    ------
    InvalidOptionError
        If the series has another number of features than the CRBM.
    """
    if series.ndim != 2 or series.shape[1] != parameters.num_visible:
        raise InvalidOptionError(
            f"series must have shape (samples, {parameters.num_visible}) to fit the CRBM, got {series.shape}"
        )
    return gather_windows(series, ends, parameters.num_delays)


def gather_windows(series: jax.Array, ends: jax.Array, num_delays: int) -> jax.Array:
    """Return windows as columns: history, oldest frame first, then the sample itself.

    Parameters
    ----------
    series
        Shape (T, V): concatenated series.
    ends
        Shape (n,): positions of the windows' last samples. Positions below `num_delays` are raised to `num_delays`.
    num_delays
        Number d of frames of history.

    Returns
    -------
    jax.Array
        Windows, shape ((d + 1) V, n).
    """
    if series.ndim != 2 or (len(ends) and len(series) <= num_delays):
        raise InvalidOptionError(
            f"series must have shape (more than {num_delays}, V), got {series.shape}; give longer series"
        )
    num_visible = series.shape[1]

    def window(end: jax.Array) -> jax.Array:
        return lax.dynamic_slice(series, (end - num_delays, jnp.zeros_like(end)), (num_delays + 1, num_visible))

    rows = jax.vmap(window)(jnp.maximum(ends, num_delays))
    return rows.reshape(ends.shape[0], (num_delays + 1) * num_visible).T
