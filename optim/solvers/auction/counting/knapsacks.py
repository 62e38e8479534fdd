"""Multiple-choice knapsacks over the number of GPUs, compiled: the optimum with all apps and without each."""

import numpy as np

from optim.core.compile_cache import compiled


@compiled
def count_tables(order, offset, size, weight, room):
    """Return T with T[k, u] the most welfare of the first k apps in an order with at most u GPUs."""
    table = np.zeros((len(order) + 1, room + 1))
    for k in range(len(order)):
        before, after = table[k], table[k + 1]
        after[:] = before
        for b in range(offset[order[k]], offset[order[k] + 1]):
            w = weight[b]
            for u in range(size[b], room + 1):
                value = before[u - size[b]] + w
                if value > after[u]:
                    after[u] = value
    return table


@compiled
def trace(table, order, offset, size, weight, apps, room, choice):
    """Choose rows of the first apps in an order that attain table[apps, room]; equal values keep the first row."""
    u = room
    for k in range(apps - 1, -1, -1):
        i, value = order[k], table[k + 1, u]
        choice[i] = -1
        if value == table[k, u]:
            continue
        for b in range(offset[i], offset[i + 1]):
            if size[b] <= u and table[k, u - size[b]] + weight[b] == value:
                choice[i] = b
                u -= size[b]
                break


@compiled
def best_choice(table, offset, size, weight):
    """Return a choice of rows that attains the optimum with all apps."""
    num_apps = len(offset) - 1
    choice = np.full(num_apps, -1, dtype=np.int64)
    trace(table, np.arange(num_apps), offset, size, weight, num_apps, table.shape[1] - 1, choice)
    return choice


@compiled
def best_without(head, tail, offset, size, weight, app, choice):
    """Fill in a choice that attains the optimum without one app; return that optimum."""
    num_apps, room = len(offset) - 1, head.shape[1] - 1
    order, after = np.arange(num_apps), num_apps - 1 - app
    value = head[app] + tail[after][::-1]
    split = value.argmax()
    trace(head, order, offset, size, weight, app, split, choice)
    choice[app] = -1
    trace(tail, order[::-1].copy(), offset, size, weight, after, room - split, choice)
    return value[split]


@compiled
def mark_better(app, level, rho, num_levels, marked):
    """Mark rows better than every earlier row of the same app whose locality is at least as wide.

    Rows of a locality beyond the last of `num_levels`, which name their machines, are marked whatever they are.
    """
    best = np.full(num_levels, np.inf)
    for k in range(len(app)):
        if k == 0 or app[k] != app[k - 1]:
            best[:] = np.inf
        if level[k] == num_levels:
            marked[k] = True
        elif rho[k] < best[level[k] :].min():
            marked[k] = True
            best[level[k]] = rho[k]
