"""What a machine can do at most: copying in and beyond the cache, and the cost of a call."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optim.core.memory import last_level_cache, memory_allowed, working_set
from optim.core.provenance import cpu_name
from optim.workloads.profiles.document import Machine
from optim.workloads.profiles.timing import Clock, present_load, time_interleaved

CACHE_SHARE = 0.25
"""A copy of such a share of a cache runs in it."""

MOST_BYTES = 2**31
"""No buffer is larger."""

ROOF_S = 4.0
"""Seconds that the roofs may take, all repeats together."""

FLOAT_BYTES = 4
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
DISPATCHES = 1_000
"""Calls behind one timing of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes of the last-level cache, and bytes that the measurement may fill."""

    cache: int
    allowed: int


def usable_cores() -> int:
    """Return the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_machine(
    clock: Clock, *, repeats: int = 30, cache: int | None = None, allowed: int | None = None
) -> tuple[Machine, Room]:
    """Measure the copy roof in memory and in the cache, and the seconds of a call; return cache and memory too.

    A donated ``x + 1.0`` reads and writes every byte once: the floor of every update.

    Parameters
    ----------
    clock
        Seconds.
    repeats
        At most; fewer where memory is slow.
    cache, allowed
        Bytes of the last-level cache, and bytes that may be filled; what the system tells if not given.
    """
    import jax
    import jax.numpy as jnp

    load = present_load()
    room = Room(cache=cache or last_level_cache(), allowed=allowed or memory_allowed())
    add = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    large = jnp.zeros(min(working_set(room.cache, room.allowed), MOST_BYTES) // FLOAT_BYTES, jnp.float32)
    small = jnp.zeros(int(min(CACHE_SHARE * room.cache, large.nbytes)) // FLOAT_BYTES, jnp.float32)
    scalar = jnp.zeros((), jnp.float32)
    held = {"large": large, "small": small, "scalar": scalar}
    sizes = {name: 2 * array.nbytes for name, array in held.items()}
    del large, small, scalar

    def copy(name: str) -> None:
        held[name] = add(held[name])
        held[name].block_until_ready()

    def call() -> None:
        for _ in range(DISPATCHES):
            held["scalar"] = add(held["scalar"])
        held["scalar"].block_until_ready()

    in_memory, in_cache, dispatch = time_interleaved(
        [lambda: copy("large"), lambda: copy("small"), call],
        repeats=repeats,
        clock=clock,
        budget_s=ROOF_S,
    )
    machine = Machine(
        cpu=cpu_name(),
        cores=usable_cores(),
        device=jax.devices()[0].platform,
        jax=jax.__version__,
        numpy=np.__version__,
        load=load,
        noise=in_memory.noise,
        copy_gb_s=in_memory.rate(sizes["large"] / 1e9),
        cache_gb_s=in_cache.rate(sizes["small"] / 1e9),
        dispatch_us=dispatch.interval(1e6 / DISPATCHES),
        governor=_governor(),
    )
    return machine, room


def _governor() -> str:
    try:
        return GOVERNOR.read_text().strip() or "unknown"
    except OSError:
        return "unknown"
