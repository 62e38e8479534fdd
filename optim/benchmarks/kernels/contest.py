"""A kernel's contest: the kernel and other ways of doing the same, ready to run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
RowArray = np.ndarray[Any, np.dtype[np.int32]]
"""Rows of a table, by number."""

RATE = 0.01
JAX = "jax"
"""The side that is the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The sides of a case, ready to run.

    Parameters
    ----------
    calls
        One update by each side; the kernel is `JAX`.
    error
        Largest difference of the kernel's parameters from NumPy's, asked for when both have run equally often.
    checksum
        Mean of the kernel's parameters.
    shards
        Arrays that the parameters lie in, one thread each.
    close
        End what the sides have started.
    """

    calls: dict[str, Callable[[], Any]]
    error: Callable[[], float]
    checksum: Callable[[], float]
    shards: int = 1
    close: Callable[[], None] = lambda: None
