"""Compiled placement of units on servers: in turn, or on their previous servers. All numbers are integers."""

# numba has no types for mypy, and compiled loops take their arrays one by one.
# mypy: disable-error-code="untyped-decorator, no-any-return"

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import IntArray


@compiled
def _room(
    server: int, free: IntArray, unit: IntArray, limit: IntArray, allocated: IntArray, other_allocated: IntArray,
    other_unit: IntArray, share: IntArray,
) -> int:  # fmt: skip
    """Return how many more units fit on a server, given its free capacity, the job's limit and the cap on the job's share."""
    num_units = limit[server] - allocated[server]
    for r in range(len(unit)):
        if unit[r] > 0:
            num_units = min(num_units, free[server, r] // unit[r])
    if num_units <= 0 or len(share) == 0:
        return num_units
    allowed = num_units
    for r in range(len(unit)):
        residual = share[server, r] - unit[r] * allocated[server] - other_unit[r] * other_allocated[server]
        if residual < 0:
            allowed = 0
        elif unit[r] > 0:
            allowed = min(allowed, residual // unit[r])
    # A single unit is always allowed: a share below one unit's demand must not exclude the job.
    if allowed < 1 and allocated[server] == 0 and other_allocated[server] == 0:
        return 1
    return allowed


@compiled
def take_in_turn(
    count: int, cursor: int, units: IntArray, free: IntArray, unit: IntArray, limit: IntArray, allocated: IntArray,
    other_allocated: IntArray, other_unit: IntArray, share: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """Place up to `count` units, one per turn on the next server with capacity.

    Adds them to `units`; returns the number placed and the position of the next turn.
    """
    num_servers = len(limit)
    server, misses, placed = cursor, 0, 0
    while placed < count and misses < num_servers:
        if _room(server, free, unit, limit, allocated, other_allocated, other_unit, share) > 0:
            for r in range(len(unit)):
                free[server, r] -= unit[r]
            allocated[server] += 1
            units[server] += 1
            placed += 1
            misses = 0
            cursor = (server + 1) % num_servers
        else:
            misses += 1
        server = (server + 1) % num_servers
    return placed, cursor


@compiled
def _give_back(units: IntArray, free: IntArray, unit: IntArray, allocated: IntArray) -> None:
    """Undo the placement of `take_in_turn`."""
    for server in range(len(units)):
        if units[server] > 0:
            allocated[server] -= units[server]
            for r in range(len(unit)):
                free[server, r] += units[server] * unit[r]


@compiled
def add_in_turn(
    workers: int, ps: int, worker_cursor: int, ps_cursor: int, worker_free: IntArray, ps_free: IntArray,
    worker_unit: IntArray, ps_unit: IntArray, worker_limit: IntArray, ps_limit: IntArray,
    allocated_workers: IntArray, allocated_ps: IntArray, share: IntArray,
) -> tuple[bool, int, int]:  # fmt: skip
    """Place the workers and PSs in turn, or none of them; return whether they fit, and the new cursors."""
    new_workers = np.zeros_like(allocated_workers)
    placed, next_worker = take_in_turn(
        workers, worker_cursor, new_workers, worker_free, worker_unit, worker_limit, allocated_workers, allocated_ps,
        ps_unit, share,
    )  # fmt: skip
    if placed == workers:
        new_ps = np.zeros_like(allocated_ps)
        placed, next_ps = take_in_turn(
            ps, ps_cursor, new_ps, ps_free, ps_unit, ps_limit, allocated_ps, allocated_workers, worker_unit, share
        )
        if placed >= ps:
            return True, next_worker, next_ps
        _give_back(new_ps, ps_free, ps_unit, allocated_ps)
    _give_back(new_workers, worker_free, worker_unit, allocated_workers)
    return False, worker_cursor, ps_cursor


@compiled
def keep_units(
    count: int, previous: IntArray, free: IntArray, unit: IntArray, limit: IntArray, allocated: IntArray,
    other_allocated: IntArray, other_unit: IntArray, share: IntArray,
) -> int:  # fmt: skip
    """Place up to `count` units on their previous servers, as far as each server has capacity; return the number."""
    placed = 0
    for server in range(len(previous)):
        if previous[server] == 0 or placed == count:
            continue
        units = min(previous[server], count - placed)
        units = min(units, _room(server, free, unit, limit, allocated, other_allocated, other_unit, share))
        if units > 0:
            for r in range(len(unit)):
                free[server, r] -= units * unit[r]
            allocated[server] += units
            placed += units
    return placed
