"""The cheapest units over classes where they don't cost the same each, compiled: cuts of counts charge by any function.

One class after the other: `layers[c]` holds the least costs on the first c classes. Costs of a class are those of
its units plus a curve, whose entry n is what n units cost more; the last entry holds for more units, too.
"""

import numpy as np

from optim.core.compile_cache import inner

INFINITE = np.inf
ZERO = np.int64(0)


@inner
def units_cost(units, cost, curve):
    """Return what so many units of one class cost."""
    return units * cost + curve[min(units, len(curve) - 1)]


@inner
def fill_layers(most, cost, low, high, curve, layers):
    """Fill ``layers[c, n]`` with the least cost of n units on the first c classes.

    Parameters
    ----------
    most
        Most units in all.
    cost, low, high
        Cost of a unit, fewest and most units, by class.
    curve
        Shape (classes, counts).
    layers
        At least ``classes + 1`` by ``most + 1``.

    Returns
    -------
    tuple
        The fewest and the most units there may be; fewest > most where there is no way.
    """
    layers[0, : most + 1] = INFINITE
    layers[0, 0] = 0.0
    fewest, reached = ZERO, ZERO
    for c in range(len(cost)):
        layers[c + 1, : most + 1] = INFINITE
        if low[c] > high[c]:
            return ZERO + 1, ZERO
        for units in range(low[c], min(high[c], most - fewest) + 1):
            pays = units_cost(units, cost[c], curve[c])
            for n in range(fewest + units, min(most, reached + units) + 1):
                layers[c + 1, n] = min(layers[c + 1, n], layers[c, n - units] + pays)
        fewest += low[c]
        reached = min(most, reached + high[c])
    return fewest, reached


@inner
def take_layers(units, cost, low, curve, layers, out):
    """Add how many units of each class the least cost of so many has, the last class first."""
    n = units
    for c in range(len(cost) - 1, -1, -1):
        own = low[c]
        while layers[c, n - own] + units_cost(own, cost[c], curve[c]) != layers[c + 1, n]:
            own += 1
        out[c] += own
        n -= own


@inner
def fill_pair_layers(most, most_ps, costs, lows, highs, curves, fronts, layers):
    """Fill ``layers[c, Z, Y]`` with the least cost of Y workers and Z PSs on the first c classes of shared servers.

    Parameters
    ----------
    most, most_ps
        Most workers and PSs in all.
    costs, lows, highs, curves
        Of workers and of PSs, each as in `fill_layers`.
    fronts
        Where each class' frontier begins, and the frontiers one after the other: the most PSs beside 0, 1, ... workers,
        negative where those don't fit.
    layers
        At least ``classes + 1`` by ``most_ps + 1`` by ``most + 1``.
    """
    start, front = fronts
    layers[0, : most_ps + 1, : most + 1] = INFINITE
    layers[0, 0, 0] = 0.0
    for c in range(len(start)):
        layers[c + 1, : most_ps + 1, : most + 1] = INFINITE
        for y in range(lows[0][c], min(most, highs[0][c]) + 1):
            beside = front[start[c] + y]
            pays = units_cost(y, costs[0][c], curves[0][c])
            for z in range(lows[1][c], min(most_ps, highs[1][c], beside) + 1):
                cost = pays + units_cost(z, costs[1][c], curves[1][c])
                for ps in range(z, most_ps + 1):
                    before, after = layers[c, ps - z], layers[c + 1, ps]
                    for workers in range(y, most + 1):
                        candidate = before[workers - y] + cost
                        after[workers] = candidate if candidate < after[workers] else after[workers]


@inner
def take_pair_layers(workers, ps, costs, lows, highs, curves, fronts, layers, out_workers, out_ps):
    """Write the workers and PSs of each class in a cheapest way to have so many in all, the last class first.

    `layers` are filled for at least so many; nothing is written where there is no way.
    """
    start, front = fronts
    if layers[len(start), ps, workers] == INFINITE:
        return
    for c in range(len(start) - 1, -1, -1):
        is_found = False
        for y in range(lows[0][c], min(workers, highs[0][c]) + 1):
            beside = front[start[c] + y]
            pays = units_cost(y, costs[0][c], curves[0][c])
            for z in range(lows[1][c], min(ps, highs[1][c], beside) + 1):
                cost = pays + units_cost(z, costs[1][c], curves[1][c])
                if layers[c, ps - z, workers - y] + cost == layers[c + 1, ps, workers]:
                    out_workers[c], out_ps[c] = y, z
                    workers -= y
                    ps -= z
                    is_found = True
                    break
            if is_found:
                break
