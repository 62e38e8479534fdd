"""What a parameter server costs: adding and applying pushes, and carrying them through shared memory."""

import mmap
from dataclasses import dataclass
from functools import partial

import numpy as np

from optim.core.memory import MEASURED_SHARE
from optim.workloads.profiles.document import Interval, UpdateCost
from optim.workloads.profiles.fitting import fit_times
from optim.workloads.profiles.speed import intervals, update_terms
from optim.workloads.profiles.timing import Clock, Timing, Work, time_interleaved

PUSHES = (1, 2, 4, 8, 16)
FLOAT_BYTES = 4
CACHE_LIMIT = 0.7
"""A working set of up to such a share of the cache counts as in it."""

IN_CACHE_SIZES = (2**12, 2**14, 2**16, 2**18)
"""Parameters of the shards that are measured in the cache."""

BEYOND_SETS, BEYOND_STEP = 3, 1.2
"""Working sets that are measured beyond the cache for each number of pushes, and how far beyond its edge they begin."""

SHORT_REPEATS = 10
"""How many times as often the short updates are timed."""

POINT_S = 0.4
"""Seconds that the repeats of one update may take."""

MOST_SET_BYTES, EDGES = 2**29, 4
"""The largest working set beyond the cache: so many bytes, or so many times the cache's edge where that is more."""

TERMS = ("a start", "a push", "a byte", "a push's byte")
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


def update_points(cache_bytes: int, allowed_bytes: int) -> list[tuple[int, int]]:
    """Return (pushes, parameters) of the updates to time: on both sides of the cache's edge, as far as memory allows.

    Beyond the edge working sets go in equal factors from just above it to the largest that a share of the memory holds,
    for every number of pushes; there are none where that share is smaller than the cache.
    """
    edge = CACHE_LIMIT * cache_bytes
    inside = [(w, n) for n in IN_CACHE_SIZES for w in PUSHES if _set_bytes(w, n) <= min(edge, allowed_bytes)]
    low, high = BEYOND_STEP * edge, min(max(MOST_SET_BYTES, EDGES * edge), MEASURED_SHARE * allowed_bytes)
    sets = np.geomspace(low, high, BEYOND_SETS).tolist() if high > low else []
    return inside + [(w, int(size // ((w + 2) * FLOAT_BYTES))) for size in sets for w in PUSHES]


def _set_bytes(pushes: int, size: int) -> int:
    """Return the bytes of pushes, parameters and sum."""
    return (pushes + 2) * size * FLOAT_BYTES


def measure_update(cache_bytes: int, clock: Clock, *, allowed_bytes: int, repeats: int = 9) -> UpdateCost:
    """Time the kernel that adds W pushes and applies their mean by gradient descent, and fit it on both sides of the cache.

    Where fewer points than coefficients are on a side, because memory or cache is small, one fit stands for both; the
    cost says so in `untold`.
    """
    points = update_points(cache_bytes, allowed_bytes)
    seconds = np.array(
        [_time_update(w, n, clock, repeats * (SHORT_REPEATS if n in IN_CACHE_SIZES else 1)).median for w, n in points]
    )
    pushes, num_bytes = np.array(points, dtype=np.float64).T * np.array([[1.0], [FLOAT_BYTES]])
    is_inside = (pushes + 2) * num_bytes <= CACHE_LIMIT * cache_bytes
    terms = update_terms(pushes, num_bytes)
    sides = {"in the cache": is_inside, "beyond the cache": ~is_inside}
    few = [side for side, own in sides.items() if own.sum() < terms.shape[1]]
    untold = [f"times {side} from the others: {int(sides[side].sum())} points" for side in few]
    fits = [fit_times(terms[own], seconds[own]) for own in ([np.ones_like(is_inside)] if few else sides.values())]
    untold += [f"{TERMS[merged]} from the rest" for fit in fits for merged in fit.untold]
    errors = np.abs(np.concatenate([fit.errors for fit in fits]))
    return UpdateCost(
        in_cache=intervals(fits[0]),
        beyond=intervals(fits[-1]),
        cache_bytes=float(cache_bytes),
        error=float(np.median(errors)) if np.isfinite(np.median(errors)) else 1.0,
        untold=sorted(set(untold)),
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

    return time_interleaved([update], repeats=repeats, clock=clock, budget_s=POINT_S)[0]


def measure_link(clock: Clock, *, repeats: int = 15) -> LinkFigures:
    """Time carrying pushes of several sizes through shared memory, as between two processes of one machine."""
    room = np.frombuffer(mmap.mmap(-1, max(COPY_SIZES)), dtype=np.uint8)
    source = np.ones(max(COPY_SIZES), dtype=np.uint8)
    carried: list[Work] = [partial(np.copyto, room[:size], source[:size]) for size in COPY_SIZES]
    timings = time_interleaved(carried, repeats=repeats, clock=clock)
    return fit_link(np.repeat(COPY_SIZES, repeats), np.concatenate([timing.seconds for timing in timings]))


def fit_link(num_bytes: np.ndarray, seconds: np.ndarray) -> LinkFigures:
    """Fit ``start_s + bytes / rate`` by the median of all slopes, which a few disturbed copies don't move.

    References
    ----------
    Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", Journal of the American Statistical
    Association 63 (1968), DOI 10.1080/01621459.1968.10480934.
    """
    from scipy.stats import theilslopes  # half a second, at each start of a benchmark

    slope, start, low, high = theilslopes(seconds, num_bytes)
    tiny = np.finfo(np.float64).tiny
    value, fast, slow = (MEGABITS_A_BYTE / max(float(s), tiny) for s in (slope, low, high))
    return LinkFigures(start_s=max(0.0, float(start)), mbps=Interval(value=value, low=slow, high=fast))
