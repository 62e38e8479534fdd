"""The cheapest of many single servers for units of one demand, compiled.

Room is ``min_r floor(residual_r / demand_r)``, exactly: residuals and demands are whole numbers a, b of
1e-6 units held as floats, and for whole a, b with a + b <= 2^53 the rounded quotient a / b can't reach
the next whole number k: it lies at least 1 / b below k, more than half the distance between floats there
(at most k / 2^53, and k b <= a + b).

Ties are broken by (price, capacity of the server, residual of the server, number of the server), the two
vectors in lexicographic order, so that renaming servers changes no decision.
"""

import numpy as np

from optim.core.compile_cache import inner

MICRO = 1e6
ZERO, NONE = np.int64(0), np.int64(-1)
YES, NO = np.bool_(True), np.bool_(False)
"""A literal as an argument would make the compiler compile a function for it alone."""


@inner
def measure_servers(s, t, side, scratch):
    """Fill in what a unit of segment s costs on each server in slot t and how many units it holds."""
    unit, room = scratch.unit, scratch.room
    limit = side.limit[s, :, t]
    for h in range(len(unit)):
        unit[h] = 0.0
        room[h] = limit[side.class_of_server[h]]
    for r in range(side.demand.shape[1]):
        need = side.demand[s, r]
        if need <= 0.0:
            continue
        amount = need / MICRO
        cost, left = side.price[t, r], side.residual[t, r]
        for h in range(len(unit)):
            unit[h] += cost[h] * amount
            held = np.floor(left[h] / need)
            room[h] = held if held < room[h] else room[h]


@inner
def _is_before(a, b, has_order, unit, rank, residual):
    """Tell whether server a comes before server b: by price and, with `has_order`, by the rest of the order."""
    if unit[a] != unit[b] or not has_order:
        return unit[a] < unit[b]
    if rank[a] != rank[b]:
        return rank[a] < rank[b]
    for r in range(residual.shape[0]):
        if residual[r, a] != residual[r, b]:
            return residual[r, a] < residual[r, b]
    return a < b


@inner
def _push(server, size, heap, has_order, unit, rank, residual):
    """Add a server to a heap of `size` with its last server at the top."""
    position = size
    while position > 0:
        parent = (position - 1) // 2
        if not _is_before(heap[parent], server, has_order, unit, rank, residual):
            break
        heap[position] = heap[parent]
        position = parent
    heap[position] = server


@inner
def _replace_top(server, size, heap, has_order, unit, rank, residual):
    """Put a server in the place of the heap's top and restore the heap."""
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        if child + 1 < size and _is_before(heap[child], heap[child + 1], has_order, unit, rank, residual):
            child += 1
        if not _is_before(server, heap[child], has_order, unit, rank, residual):
            break
        heap[position] = heap[child]
        position = child
    heap[position] = server


@inner
def cheapest(count, ceiling, has_order, scratch, rank, residual):
    """Put the first servers that together hold `count` units (or all) into the heap's array, in order.

    One pass keeps the best so far in a heap with the last of them at its top, so that most servers are
    compared once. Without `has_order` servers of equal price come in any order: that suffices for costs.

    Returns
    -------
    int
        How many servers.
    """
    unit, room, heap = scratch.unit, scratch.room, scratch.heap
    size = ZERO
    held = 0.0
    for h in range(len(unit)):
        if room[h] < 1.0 or unit[h] >= ceiling:
            continue
        if held >= count and not _is_before(h, heap[0], has_order, unit, rank, residual):
            continue
        _push(h, size, heap, has_order, unit, rank, residual)
        size += 1
        held += room[h]
        while held - room[heap[0]] >= count:
            held -= room[heap[0]]
            size -= 1
            _replace_top(heap[size], size, heap, has_order, unit, rank, residual)
    for end in range(size - 1, 0, -1):
        last = heap[end]
        first = heap[0]
        _replace_top(last, end, heap, has_order, unit, rank, residual)
        heap[end] = first
    return size
