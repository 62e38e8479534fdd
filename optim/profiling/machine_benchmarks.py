"""Benchmarks of this machine: copies in memory, calls, updates of a parameter server, and CRBM mini-batches."""

import mmap
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.limits import MEASURED_SHARE, last_level_cache, memory_allowed, working_set
from optim.core.provenance import cpu_name
from optim.profiling.document import CrbmCost, Machine, MeasuredValue, UpdateCost
from optim.profiling.fitting import fit_times, intervals, update_terms
from optim.profiling.timing import Clock, Timing, Work, present_load, time_interleaved

if TYPE_CHECKING:
    import jax

SHAPES = tuple(
    (batch, delays, visible, hidden)
    for batch in (256, 1024)
    for delays in (3, 10)
    for visible, hidden in ((2, 10), (2, 40), (8, 10), (8, 40))
)
"""Measured sizes of a CRBM: numbers of windows per batch, of delays, of visible units and of hidden units."""

BATCHES = 8
"""Number of mini-batches per timed epoch."""


def measure_crbm(clock: Clock, *, repeats: int = 7) -> CrbmCost:
    """Time epochs of contrastive divergence of several sizes, and fit ``a0 + a1 B n nv (nv + nh)`` per mini-batch."""
    import jax
    import jax.numpy as jnp

    from optim.kernels.crbm import Rates, initial_parameters, initial_state, train, window_ends

    seconds = []
    for batch, delays, visible, hidden in SHAPES:
        length = batch * BATCHES + delays
        series = jnp.asarray(np.random.default_rng(0).standard_normal((length, visible)), jnp.float32)
        ends = jnp.asarray(window_ends([length], delays))
        key = jax.random.key(0)
        state = initial_state(initial_parameters(key, num_visible=visible, num_hidden=hidden, num_delays=delays))
        cell = [state]

        def epoch(cell=cell, series=series, ends=ends, key=key, batch=batch) -> None:  # type: ignore[no-untyped-def]
            cell[0], errors = train(cell[0], series, ends, Rates(), key, num_epochs=1, batch_size=batch)
            errors.block_until_ready()

        (timing,) = time_interleaved([epoch], repeats=repeats, clock=clock)
        seconds.append(timing.median / BATCHES)
    shapes = np.array(SHAPES, dtype=np.float64)
    work = shapes[:, 0] * shapes[:, 1] * shapes[:, 2] * (shapes[:, 2] + shapes[:, 3])
    fit = fit_times(np.stack([np.ones_like(work), work], axis=1), np.array(seconds))
    return CrbmCost(coefficients=intervals(fit), error=fit.error)


CACHE_SHARE = 0.25
"""Share of the cache that the buffer of a copy within the cache may fill."""

MAX_BYTES = 2**31
"""Maximum size of a buffer in bytes."""

ROOF_S = 4.0
"""Time limit in seconds for all repeats of the measurement of copy bandwidths."""

FLOAT_BYTES = 4

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")

DISPATCHES = 1_000
"""Number of calls that are timed together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Size of the last-level cache, and size of the memory that the measurement may fill, in bytes."""

    cache: int
    allowed: int


def find_device(platform: str | None = None) -> "jax.Device":
    """Return JAX's first device of a platform, such as ``gpu``; by default the device of new arrays.

    Raises
    ------
    InvalidOptionError
        If JAX has no such device.
    """
    import jax
    import jax.numpy as jnp

    if platform is None:
        return jnp.zeros(()).device
    try:
        return jax.devices(platform)[0]
    except RuntimeError:
        raise InvalidOptionError(
            f"JAX has no {platform} here and computes on {jax.default_backend()}; leave --device out, or install JAX for the {platform}"
        ) from None


def usable_cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_machine(
    clock: Clock, *, repeats: int = 30, cache: int | None = None, allowed: int | None = None
) -> tuple[Machine, Buffers]:
    """Measure the copy bandwidth in memory and in the cache, and the time of a call; also return the buffer sizes.

    The copy is ``x + 1.0`` with a donated x, which reads and writes every byte once, as every update must.

    Parameters
    ----------
    clock
        Clock in seconds.
    repeats
        Maximum number of repeats; fewer are made if memory is slow.
    cache, allowed
        Size of the last-level cache, and size of the memory that may be filled, in bytes; by default as the system reports them.
    """
    import jax
    import jax.numpy as jnp

    load = present_load()
    buffers = Buffers(cache=cache or last_level_cache(), allowed=allowed or memory_allowed())
    add = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    large = jnp.zeros(min(working_set(buffers.cache, buffers.allowed), MAX_BYTES) // FLOAT_BYTES, jnp.float32)
    small = jnp.zeros(int(min(CACHE_SHARE * buffers.cache, large.nbytes)) // FLOAT_BYTES, jnp.float32)
    scalar = jnp.zeros((), jnp.float32)
    arrays = {"large": large, "small": small, "scalar": scalar}
    sizes = {name: 2 * array.nbytes for name, array in arrays.items()}
    del large, small, scalar

    def copy(name: str) -> None:
        arrays[name] = add(arrays[name])
        arrays[name].block_until_ready()

    def call() -> None:
        for _ in range(DISPATCHES):
            arrays["scalar"] = add(arrays["scalar"])
        arrays["scalar"].block_until_ready()

    in_memory, in_cache, dispatch = time_interleaved(
        [lambda: copy("large"), lambda: copy("small"), call],
        repeats=repeats,
        clock=clock,
        budget_s=ROOF_S,
    )
    machine = Machine(
        cpu=cpu_name(),
        cores=usable_cores(),
        device=find_device().device_kind,
        jax=jax.__version__,
        numpy=np.__version__,
        load=load,
        noise=in_memory.noise,
        copy_gb_s=in_memory.rate(sizes["large"] / 1e9),
        cache_gb_s=in_cache.rate(sizes["small"] / 1e9),
        dispatch_us=dispatch.interval(1e6 / DISPATCHES),
        governor=_governor(),
    )
    return machine, buffers


def _governor() -> str:
    try:
        return GOVERNOR.read_text().strip() or "unknown"
    except OSError:
        return "unknown"


PUSHES = (1, 2, 4, 8, 16)

CACHE_LIMIT = 0.7
"""Maximum size of a working set that counts as within the cache, as a share of the cache (the cache's edge)."""

IN_CACHE_SIZES = (2**12, 2**14, 2**16, 2**18)
"""Numbers of parameters per shard for the measurement within the cache."""

BEYOND_SETS, BEYOND_STEP = 3, 1.2
"""Number of working sets beyond the cache per number of pushes, and ratio of the smallest working set to the cache's edge."""

SHORT_REPEATS = 10
"""Factor on the repeats of short updates."""

POINT_S = 0.4
"""Time limit in seconds for the repeats of one update."""

MAX_SET_BYTES, EDGES = 2**29, 4
"""Size of the largest working set beyond the cache: the larger of MAX_SET_BYTES and EDGES times the cache's edge."""

TERMS = ("the time per update", "the time per push", "the time per byte", "the time per pushed byte")

COPY_SIZES = (2**14, 2**17, 2**20, 2**23)
"""Sizes of the transferred pushes in bytes."""

MEGABITS_A_BYTE = 8 / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFigures:
    """Seconds of a transfer: ``start_s + bytes / rate``.

    Parameters
    ----------
    start_s
        Seconds that a transfer takes regardless of its size.
    mbps
        Rate in megabits per second, with its interval.
    """

    start_s: float
    mbps: MeasuredValue


def update_points(cache_bytes: int, allowed_bytes: int) -> list[tuple[int, int]]:
    """Return the numbers of pushes and parameters of the updates to time, within the cache and beyond it.

    Beyond the cache, for every number of pushes, working sets grow by equal factors from just above the cache's edge to the
    largest that fits a share of the memory; there are none if this share is smaller than the cache.
    """
    edge = CACHE_LIMIT * cache_bytes
    inside = [(w, n) for n in IN_CACHE_SIZES for w in PUSHES if _set_bytes(w, n) <= min(edge, allowed_bytes)]
    low, high = BEYOND_STEP * edge, min(max(MAX_SET_BYTES, EDGES * edge), MEASURED_SHARE * allowed_bytes)
    sets = np.geomspace(low, high, BEYOND_SETS).tolist() if high > low else []
    return inside + [(w, int(size // ((w + 2) * FLOAT_BYTES))) for size in sets for w in PUSHES]


def _set_bytes(pushes: int, size: int) -> int:
    """Return the size of an update's working set in bytes: pushes, parameters and sum."""
    return (pushes + 2) * size * FLOAT_BYTES


def measure_update(cache_bytes: int, clock: Clock, *, allowed_bytes: int, repeats: int = 9) -> UpdateCost:
    """Time the kernel that adds W pushes and applies their mean by gradient descent; fit times in and beyond the cache.

    If there are fewer points than coefficients in or beyond the cache, because memory or cache is small, one fit covers all
    points, and `untold` reports this.
    """
    points = update_points(cache_bytes, allowed_bytes)
    seconds = np.array(
        [_time_update(w, n, clock, repeats * (SHORT_REPEATS if n in IN_CACHE_SIZES else 1)).median for w, n in points]
    )
    pushes, num_bytes = np.array(points, dtype=np.float64).T * np.array([[1.0], [FLOAT_BYTES]])
    is_inside = (pushes + 2) * num_bytes <= CACHE_LIMIT * cache_bytes
    terms = update_terms(pushes, num_bytes)
    sides = {"in the cache": is_inside, "beyond the cache": ~is_inside}
    few = [side for side, is_side in sides.items() if is_side.sum() < terms.shape[1]]
    untold = [f"times {side} from the others: {int(sides[side].sum())} points" for side in few]
    fits = [
        fit_times(terms[is_side], seconds[is_side])
        for is_side in ([np.ones_like(is_inside)] if few else sides.values())
    ]
    untold += [f"{TERMS[merged]} from the rest" for fit in fits for merged in fit.unidentifiable]
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
    parameters = jnp.zeros(size, jnp.float32)
    pushes = [jnp.full(size, 0.5, jnp.float32) for _ in range(num_pushes)]
    weights, version = jnp.ones(num_pushes, jnp.float32), jnp.zeros((), jnp.int32)

    def update() -> None:
        nonlocal parameters
        parameters, _ = apply_pushes(parameters, (), pushes, weights, version, optimiser=optimiser)
        parameters.block_until_ready()

    return time_interleaved([update], repeats=repeats, clock=clock, budget_s=POINT_S)[0]


def measure_link(clock: Clock, *, repeats: int = 15) -> LinkFigures:
    """Time transfers of several sizes from shared memory to the device and back; return the fit of the slower direction.

    The fit describes transfers between two processes of one machine. Arrays of a CPU are already in shared memory, so
    that pulls are free.
    """
    import jax

    source, destination = (np.frombuffer(mmap.mmap(-1, max(COPY_SIZES)), dtype=np.uint8) for _ in range(2))
    pulled: dict[int, Any] = {}

    def pull(size: int) -> None:
        pulled[size] = jax.device_put(source[:size]).block_until_ready()

    def push(size: int) -> None:  # new arrays each time, since JAX caches an array's host copy
        np.copyto(destination[:size], jax.device_get(pulled[size]))

    ways: list[Work] = [partial(way, size) for way in (pull, push) for size in COPY_SIZES]
    seconds = np.array([timing.seconds for timing in time_interleaved(ways, repeats=repeats, clock=clock)])
    num_bytes = np.repeat(COPY_SIZES, repeats)
    links = [fit_link(num_bytes, way.ravel()) for way in np.split(seconds, 2)]
    return min(links, key=lambda link: link.mbps.value)


def fit_link(num_bytes: np.ndarray, seconds: np.ndarray) -> LinkFigures:
    """Fit ``start_s + bytes / rate`` by the median of all slopes, which is robust against a few disturbed transfers.

    References
    ----------
    Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", Journal of the American Statistical
    Association 63 (1968), DOI 10.1080/01621459.1968.10480934.
    """
    from scipy.stats import theilslopes  # imported here, since it would add half a second to each start

    slope, start, low, high = theilslopes(seconds, num_bytes)
    tiny = np.finfo(np.float64).tiny
    value, fast, slow = (MEGABITS_A_BYTE / max(float(s), tiny) for s in (slope, low, high))
    return LinkFigures(start_s=max(0.0, float(start)), mbps=MeasuredValue(value=value, low=slow, high=fast))
