"""A kernel's contest: the kernel and other ways of doing the same, ready to run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from optim.kernels.parameter_server import AbstractOptimiser, Adagrad, Adam, Momentum, Sgd

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
RowArray = np.ndarray[Any, np.dtype[np.int32]]
"""Rows of a table, by number."""

Calls = dict[str, Callable[[], Any]]
"""One update by each side, by its name."""

RATE = 0.01
JAX = "jax"
"""The side that is the kernel."""

RULES: Mapping[str, AbstractOptimiser] = MappingProxyType(
    {
        "sgd": Sgd(learning_rate=RATE),
        "momentum": Momentum(learning_rate=RATE),
        "adagrad": Adagrad(learning_rate=RATE),
        "adam": Adam(learning_rate=RATE),
    }
)
"""The optimisers that rows are measured with, all at the contest's rate."""


class Held:
    """An array, or several, that a function replaces at every call, and waits for."""

    def __init__(self, function: Callable[..., Any], held: Any, *fixed: Any) -> None:
        self.function, self.held, self.fixed = function, held, fixed

    def __call__(self) -> None:
        """Replace what is held."""
        self.held = jax.block_until_ready(self.function(self.held, *self.fixed))


def furthest(first: Any, *others: Any) -> float:
    """Return the largest difference of any array from the first."""
    known = np.asarray(first, np.float64)
    return max(float(np.abs(np.asarray(other, np.float64) - known).max()) for other in others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The sides of a case, ready to run.

    Parameters
    ----------
    calls
        One update by each side; the kernel is `JAX`.
    found, others
        The kernel's parameters, and those of sides that are compared with it; NumPy's come first.
    shards
        Arrays that the parameters lie in, one thread each.
    close
        End what the sides have started.
    """

    calls: Calls
    found: Callable[[], Any]
    others: tuple[Callable[[], Any], ...]
    shards: int = 1
    close: Callable[[], None] = lambda: None

    def error(self) -> float:
        """Return the largest difference from NumPy's parameters, asked for when all have run equally often."""
        reference, *others = (np.asarray(other()) for other in self.others)
        return furthest(reference, self.found(), *others)

    def checksum(self) -> float:
        """Return the mean of the kernel's parameters."""
        return float(np.asarray(self.found()).mean(dtype=np.float64))
