"""What a machine can do at most: copying in and beyond the cache, and the cost of a call."""

import os
import platform
from pathlib import Path

import numpy as np

from optim.workloads.profiles.document import Machine
from optim.workloads.profiles.timing import Clock, present_load, time_interleaved

USUAL_CACHE = 32 * 2**20
"""Bytes of last-level cache where the system doesn't tell."""

ROOF_CACHES, CACHE_SHARE = 8, 0.25
"""A copy of so many caches runs in memory, one of such a share of a cache in the cache."""

MOST_BYTES = 2**31
"""No buffer is larger."""

FLOAT_BYTES = 4
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
DISPATCHES = 1_000
"""Calls behind one timing of a call."""


def last_level_cache() -> int:
    """Return the bytes of the largest cache."""
    largest = 0
    for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = size.read_text().strip()
        factor = {"K": 2**10, "M": 2**20}.get(text[-1:], 1)
        digits = text.rstrip("KM")
        largest = max(largest, int(digits) * factor if digits.isdecimal() else 0)
    return largest or USUAL_CACHE


def usable_cores() -> int:
    """Return the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_machine(clock: Clock, *, repeats: int = 30) -> tuple[Machine, int]:
    """Measure the copy roof in memory and in the cache, and the seconds of a call; return the last-level cache too.

    A donated ``x + 1`` reads and writes every byte once: the floor of every update.
    """
    import jax
    import jax.numpy as jnp

    load = present_load()
    cache = last_level_cache()
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    large = jnp.zeros(min(ROOF_CACHES * cache, MOST_BYTES) // FLOAT_BYTES, jnp.float32)
    small = jnp.zeros(int(CACHE_SHARE * cache) // FLOAT_BYTES, jnp.float32)
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
        [lambda: copy("large"), lambda: copy("small"), call], repeats=repeats, clock=clock
    )
    machine = Machine(
        cpu=_cpu_name(),
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
    return machine, cache


def _governor() -> str:
    try:
        return GOVERNOR.read_text().strip() or "unknown"
    except OSError:
        return "unknown"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
