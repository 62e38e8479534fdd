"""The memory's speed: passes over buffers that are larger than every cache, in the same run as the kernels.

A roof is the memory's maximum speed, estimated by the fastest measured pass. There are two candidates, each by the best
available loop: a pass in place (read a line and write it back), and a copy that bypasses the cache (read a line and write
another without fetching it). If the kernel is faster than both, its speed is the roof, so shares are at most 1.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optim.core.limits import last_level_cache, memory_allowed, working_set
from optim.core.provenance import machine_facts
from optim_studies.kernels import baselines
from optim_studies.kernels.baselines import FloatArray, StatefulCall, c_loops, ranges_of

MOST_BYTES = 2**30
"""Maximum working set of a roof, so that a row stays below 2 GB for any reported cache size."""

DEVICE_BYTES = 2**32
"""An accelerator's working set: much larger than its cache, and large enough that the time of a launch is negligible."""

FLOAT_BYTES = 4
IN_PLACE, COPY = "roof_in_place", "roof_copy"


def roof_bytes() -> int:
    """Return the roofs' working set: four caches, a quarter of the memory allowed, or `MOST_BYTES`, whichever is least."""
    return min(working_set(last_level_cache(), memory_allowed()), MOST_BYTES)


class Roofline:
    """Passes over a working set, by name: in place by XLA and by the best plain loop, and copies of one half to the other.

    Both count a read and a write of each element.

    Attributes
    ----------
    set_bytes
        Bytes of the working set.
    moved
        Bytes that each pass moves.
    by
        Language of the plain loops.
    """

    def __init__(self) -> None:
        is_on_cpu = jax.default_backend() == "cpu"
        self.set_bytes = roof_bytes() if is_on_cpu else DEVICE_BYTES
        elements = max(2, self.set_bytes // FLOAT_BYTES // 2)
        halves: FloatArray = np.ones(2 * elements if is_on_cpu else 2, np.float32)
        first, second = np.split(halves, 2)
        cores = int(machine_facts()["cpus_usable"])
        self._pool = ThreadPoolExecutor(cores)
        loops = c_loops(self._pool, cores)
        parts = ranges_of(2 * elements, cores), ranges_of(elements, cores)

        def spread(work: Callable[[int, int], Any], which: int) -> None:
            list(self._pool.map(lambda ends: work(*ends), parts[which]))

        self.by = "numba" if loops is None else "c"
        self.moved = {f"{IN_PLACE}_{self.by}": 16 * elements, COPY: 8 * elements, f"{IN_PLACE}_xla": 8 * elements}
        self._calls: dict[str, Callable[[], Any]] = {
            f"{IN_PLACE}_{self.by}": (lambda: loops.in_place(halves))
            if loops is not None
            else (lambda: spread(lambda a, b: baselines.in_place(halves, a, b), 0)),
            COPY: (lambda: loops.stream_copy(first, second))
            if loops is not None
            else (lambda: spread(lambda a, b: np.copyto(second[a:b], first[a:b]), 1)),
        }
        if is_on_cpu:  # half of the set, so that the row holds no third buffer of that size
            self._calls[f"{IN_PLACE}_xla"] = StatefulCall(
                jax.jit(lambda array: array + 1.0, donate_argnums=0), jnp.zeros(elements)
            )
        else:  # the roofs of an accelerator's memory are passes on the accelerator
            source = jnp.arange(elements, dtype=jnp.float32)
            # An argument: XLA folds a constant that a function closes over, and then only writes.
            copy = jax.jit(lambda _, x: jnp.copy(x), donate_argnums=0, keep_unused=True)
            self._calls = {
                f"{IN_PLACE}_xla": StatefulCall(jax.jit(lambda x: x + 1.0, donate_argnums=0), jnp.zeros(elements)),
                COPY: StatefulCall(lambda old: copy(old, source), jnp.zeros(elements)),
            }

    def calls(self) -> dict[str, Callable[[], Any]]:
        """Return the passes by name."""
        return dict(self._calls)

    def speeds(self, best_s: Mapping[str, float]) -> dict[str, float]:
        """Return bytes per second of the best pass in place and of the best copy, from the minimum time of each call."""
        best: dict[str, float] = {}
        for name in self._calls:
            kind = IN_PLACE if name.startswith(IN_PLACE) else COPY
            best[kind] = max(best.get(kind, 0.0), self.moved[name] / best_s[name])
        return best

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
