"""The memory's speed: passes over buffers that no cache holds, in the same run as what is measured against them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

TIMES_THE_CACHE = 8
"""A buffer of so many third-level caches is read from memory and not from the cache."""

ASSUMED_CACHE = 32 << 20
CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")


def third_level_cache() -> int:
    """Return bytes of the largest cache of the first core, a usual size where the system doesn't tell."""
    sizes = []
    for path in CACHE_FOLDER.glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes, default=ASSUMED_CACHE)


class Roof:
    """Two passes over donated buffers: one array in place, and a copy of one into another.

    Both count a read and a write of each element. A pass in place writes lines that it has just read; a copy fetches
    the lines of its target before it overwrites them, so it shows less on most processors.
    """

    def __init__(self) -> None:
        elements = TIMES_THE_CACHE * third_level_cache() // 4
        self.moved = 8 * elements
        self._source, self._target = jnp.ones(elements), jnp.zeros(elements)
        self._in_place = jax.jit(lambda array: array + 1.0, donate_argnums=0)
        self._copy = jax.jit(lambda target, source: source * 1.5, donate_argnums=0, keep_unused=True)

    def in_place(self) -> None:
        """Add to every element of an array."""
        self._target = self._in_place(self._target)
        self._target.block_until_ready()

    def copy(self) -> None:
        """Write one array, scaled, into another."""
        self._target = self._copy(self._target, self._source)
        self._target.block_until_ready()

    def calls(self) -> dict[str, Callable[[], Any]]:
        """Return the passes by name."""
        return {"roof_in_place": self.in_place, "roof_copy": self.copy}
