"""Multiple-choice knapsacks over the number of GPUs, compiled: the optimum with all apps and without each."""

import numpy as np

from optim.core.compile_cache import compiled

ZERO = np.int64(0)
"""A literal as an argument would make the compiler compile a function for it alone."""


@compiled
def head_tables(offset, size, weight, room):
    """Return T with T[i, u] the most welfare of apps 0, ..., i-1 with at most u GPUs."""
    num_apps = len(offset) - 1
    table = np.zeros((num_apps + 1, room + 1))
    for i in range(num_apps):
        before, after = table[i], table[i + 1]
        after[:] = before
        for b in range(offset[i], offset[i + 1]):
            k, w = size[b], weight[b]
            for u in range(k, room + 1):
                value = before[u - k] + w
                if value > after[u]:
                    after[u] = value
    return table


@compiled
def tail_tables(offset, size, weight, room):
    """Return T with T[i, u] the most welfare of apps i, ..., n-1 with at most u GPUs."""
    num_apps = len(offset) - 1
    table = np.zeros((num_apps + 1, room + 1))
    for i in range(num_apps - 1, -1, -1):
        before, after = table[i + 1], table[i]
        after[:] = before
        for b in range(offset[i], offset[i + 1]):
            k, w = size[b], weight[b]
            for u in range(k, room + 1):
                value = before[u - k] + w
                if value > after[u]:
                    after[u] = value
    return table


@compiled
def _trace_head(table, offset, size, weight, apps, room, choice):
    """Choose rows of apps 0, ..., apps-1 that attain table[apps, room]; equal values keep the first row."""
    u = room
    for i in range(apps - 1, -1, -1):
        choice[i] = -1
        value = table[i + 1, u]
        if value == table[i, u]:
            continue
        for b in range(offset[i], offset[i + 1]):
            k = size[b]
            if k <= u and table[i, u - k] + weight[b] == value:
                choice[i] = b
                u -= k
                break


@compiled
def _trace_tail(table, offset, size, weight, first, room, choice):
    """Choose rows of apps first, ..., n-1 that attain table[first, room]."""
    u = room
    for i in range(first, len(offset) - 1):
        choice[i] = -1
        value = table[i, u]
        if value == table[i + 1, u]:
            continue
        for b in range(offset[i], offset[i + 1]):
            k = size[b]
            if k <= u and table[i + 1, u - k] + weight[b] == value:
                choice[i] = b
                u -= k
                break


@compiled
def best_choice(head, offset, size, weight):
    """Return a choice of rows that attains the optimum with all apps."""
    num_apps, room = len(offset) - 1, head.shape[1] - 1
    choice = np.full(num_apps, -1, dtype=np.int64)
    _trace_head(head, offset, size, weight, num_apps, room, choice)
    return choice


@compiled
def best_without(head, tail, offset, size, weight, app, choice):
    """Fill in a choice that attains the optimum without one app; return that optimum."""
    room = head.shape[1] - 1
    best, split = -1.0, ZERO
    for u in range(room + 1):
        value = head[app, u] + tail[app + 1, room - u]
        if value > best:
            best, split = value, u
    _trace_head(head, offset, size, weight, app, split, choice)
    choice[app] = -1
    _trace_tail(tail, offset, size, weight, app + 1, room - split, choice)
    return best
