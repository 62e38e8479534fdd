"""What a parameter server costs: adding and applying pushes, and carrying them through shared memory."""

from dataclasses import dataclass
from functools import partial
from multiprocessing.shared_memory import SharedMemory

import numpy as np
from scipy.stats import theilslopes

from optim.workloads.profiles.document import Interval, UpdateCost
from optim.workloads.profiles.fitting import fit_times
from optim.workloads.profiles.speed import intervals, update_terms
from optim.workloads.profiles.timing import Clock, Timing, Work, time_interleaved

PUSHES = (1, 2, 4, 8, 16)
FLOAT_BYTES = 4
CACHE_LIMIT = 0.7
"""A working set of up to such a share of the cache counts as in it."""

IN_CACHE_SIZES, BEYOND_SIZES = (2**12, 2**14, 2**16, 2**18), (2**21, 2**22, 2**23)
"""Parameters of the shards that are measured on either side of the knee."""

SHORT_REPEATS = 10
"""How many times as often the short updates are timed."""

MOST_SHARD_BYTES = 2**29
COPY_SIZES = (2**14, 2**17, 2**20, 2**23)
"""Bytes of the pushes that are carried."""

MEGABITS_A_BYTE = 8 / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFigures:
    """Seconds of carrying bytes: ``start_s + bytes / rate``.

    Parameters
    ----------
    start_s
        Seconds of the shortest message.
    mbps
        Rate in megabits a second, with its interval.
    """

    start_s: float
    mbps: Interval


def measure_update(cache_bytes: int, clock: Clock, *, repeats: int = 9) -> UpdateCost:
    """Time the kernel that adds W pushes and applies their mean by gradient descent, and fit it on both sides of the cache."""
    points: list[tuple[int, int]] = [
        (w, n)
        for n in (*IN_CACHE_SIZES, *BEYOND_SIZES)
        for w in PUSHES
        if (w + 2) * n * FLOAT_BYTES <= MOST_SHARD_BYTES
    ]
    seconds = np.array(
        [_time_update(w, n, clock, repeats * (SHORT_REPEATS if n in IN_CACHE_SIZES else 1)).median for w, n in points]
    )
    pushes, num_bytes = np.array(points, dtype=np.float64).T * np.array([[1.0], [FLOAT_BYTES]])
    is_inside = (pushes + 2) * num_bytes <= CACHE_LIMIT * cache_bytes
    terms = update_terms(pushes, num_bytes)
    inside = fit_times(terms[is_inside], seconds[is_inside])
    beyond = fit_times(terms[~is_inside], seconds[~is_inside])
    return UpdateCost(
        in_cache=intervals(inside),
        beyond=intervals(beyond),
        cache_bytes=float(cache_bytes),
        error=float(np.median(np.abs(np.concatenate([inside.errors, beyond.errors])))),
    )


def _time_update(num_pushes: int, size: int, clock: Clock, repeats: int) -> Timing:
    import jax.numpy as jnp

    from optim.kernels.parameter_server import Sgd, apply_pushes

    optimiser = Sgd(learning_rate=0.1)
    held = jnp.zeros(size, jnp.float32)
    pushes = [jnp.full(size, 0.5, jnp.float32) for _ in range(num_pushes)]
    weights, version = jnp.ones(num_pushes, jnp.float32), jnp.zeros((), jnp.int32)

    def update() -> None:
        nonlocal held
        held, _ = apply_pushes(held, (), pushes, weights, version, optimiser=optimiser)
        held.block_until_ready()

    return time_interleaved([update], repeats=repeats, clock=clock)[0]


def measure_link(clock: Clock, *, repeats: int = 15) -> LinkFigures:
    """Time carrying pushes of several sizes through shared memory, as between two processes of one machine."""
    shared = SharedMemory(create=True, size=max(COPY_SIZES))
    try:
        room = np.ndarray(max(COPY_SIZES), dtype=np.uint8, buffer=shared.buf)
        source = np.ones(max(COPY_SIZES), dtype=np.uint8)

        carried: list[Work] = [partial(np.copyto, room[:size], source[:size]) for size in COPY_SIZES]
        timings = time_interleaved(carried, repeats=repeats, clock=clock)
        del room, carried
    finally:
        shared.close()
        shared.unlink()
    return fit_link(np.repeat(COPY_SIZES, repeats), np.concatenate([timing.seconds for timing in timings]))


def fit_link(num_bytes: np.ndarray, seconds: np.ndarray) -> LinkFigures:
    """Fit ``start_s + bytes / rate`` by the median of all slopes, which a few disturbed copies don't move.

    References
    ----------
    Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", Journal of the American Statistical
    Association 63 (1968), DOI 10.1080/01621459.1968.10480934.
    """
    slope, start, low, high = theilslopes(seconds, num_bytes)
    tiny = np.finfo(np.float64).tiny
    value, fast, slow = (MEGABITS_A_BYTE / max(float(s), tiny) for s in (slope, low, high))
    return LinkFigures(start_s=max(0.0, float(start)), mbps=Interval(value=value, low=slow, high=fast))
