"""Clocks of workers: bounded staleness, with bulk-synchronous and asynchronous running as its limits.

A worker's clock is the number of clocks that it has completed. The functions take NumPy or JAX arrays alike: on a host
the vector is a few numbers that no device should be asked for.

References
----------
Ho et al. (2013), More effective distributed ML via a stale synchronous parallel parameter server, NIPS.
"""

from typing import Any

ASYNCHRONOUS = 2**30
"""A staleness that never blocks; 0 is bulk-synchronous."""

_NEVER = 2**31 - 1


def slowest_clock(clocks: Any, live: Any) -> Any:
    """Return the least clock of the live workers, a number beyond all clocks if none is alive.

    Parameters
    ----------
    clocks
        Shape (workers,), int32: clocks completed.
    live
        Shape (workers,), bool.
    """
    return clocks.__array_namespace__().where(live, clocks, _NEVER).min()


def may_start(clocks: Any, live: Any, staleness: Any) -> Any:
    """Return which workers may start their next clock: live, and at most `staleness` ahead of the slowest.

    Worker p may start clock t = clocks[p] iff ``min over live q of clocks[q] >= t - staleness``.
    """
    return live & (slowest_clock(clocks, live) >= clocks - staleness)


def complete_clock(clocks: Any, worker: int) -> Any:
    """Return the clocks after `worker` has completed one more."""
    xp = clocks.__array_namespace__()
    return xp.where(xp.arange(clocks.shape[0]) == worker, clocks + 1, clocks)


def join(clocks: Any, live: Any, worker: int) -> tuple[Any, Any]:
    """Return clocks and live workers after one has joined: it starts at the slowest live one's clock.

    With no live worker it keeps the clock of its place.
    """
    xp = clocks.__array_namespace__()
    is_it = xp.arange(clocks.shape[0]) == worker
    start = xp.where(live.any(), slowest_clock(clocks, live), clocks)
    return xp.where(is_it, start, clocks).astype(clocks.dtype), live | is_it


def visible_clocks(clock: int, staleness: int) -> int:
    """Return how many clocks of every worker a read at `clock` must see: those up to ``clock - staleness - 1``."""
    return max(0, clock - staleness)
