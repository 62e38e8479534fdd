"""Compiled: the prices of up to three types of GPU at which the least finish-time ratio is largest.

At prices q (of all GPUs of a type, adding up to 1) job j pays for r steps a second the least that shares x with
``sum_k a_jk x_k >= r, sum_k x_k <= 1`` cost: the lower envelope of the points (a_jk, w_j q_k / G_k) and (0, 0) at r. If all jobs
together pay more than 1 for what a ratio needs, no shares reach that ratio; if they pay at most 1 at all prices, some do. What
they pay less 1 is concave in q and falls, convexly, with the ratio: so a polygon of prices shrinks by cuts through its centre
of gravity, and at each centre that pays too much Newton's method raises the ratio from below.

References
----------
Levin, "On an algorithm for the minimization of convex functions", Soviet Mathematics Doklady 6 (1965), for the centres.
"""

import numpy as np

from optim.core.compile_cache import compiled, inner

KINDS = 3
MOST_VERTICES = 256
"""Each of the prices looked at adds one at most."""
MOST_NEWTON = 60
TIE = 1e-12


@inner
def _charge(speed, relative, need, prices, x):
    """Return the least cost of a job's need and what one step a second more would cost; its shares go into `x`.

    Of equal costs the steeper counts: where a need is just a type's speed, that is how costs fall with the ratio. `speed` has 1 for the job's fastest type, and `need` is at most 1.
    """
    best, slope, low, high, part = np.inf, np.inf, -1, -1, np.inf  # the fastest type sets them all
    for k in range(KINDS):
        if speed[k] >= need:
            cost = relative[k] * prices[k]
            rate = cost / speed[k]
            if rate * need < best * (1 - TIE):
                best, slope, low, high, part = rate * need, rate, -1, k, need / speed[k]
            for i in range(KINDS):
                if 0.0 < speed[i] < need:
                    cheap = relative[i] * prices[i]
                    rate = (cost - cheap) / (speed[k] - speed[i])
                    total = cheap + rate * (need - speed[i])
                    if total < best * (1 - TIE) or (total <= best * (1 + TIE) and rate > slope):
                        best, slope, low, high = total, rate, i, k
                        part = (need - speed[i]) / (speed[k] - speed[i])
    x[:] = 0.0
    x[high] = part
    if low >= 0:
        x[low] = 1.0 - part
    return best, slope


@inner
def _bill(speed, relative, left, end, elapsed, ratio, prices, used):
    """Return what all needs of a ratio cost less 1, and its derivative by the ratio; the part of each type used goes into `used`."""
    used[:] = 0.0
    total, fall = -1.0, 0.0
    x = np.empty(KINDS)
    for job in range(len(left)):
        margin = ratio * end[job] - elapsed[job]
        need = min(1.0, left[job] / margin)
        cost, slope = _charge(speed[job], relative[job], need, prices, x)
        total += cost
        fall -= slope * need * end[job] / margin
        for k in range(KINDS):
            used[k] += relative[job, k] * x[k]
    return total, fall


@inner
def _clip(x, y, count, a, b, c):
    """Keep the part of a polygon with a x + b y >= c; return its number of vertices."""
    new_x, new_y = np.empty(MOST_VERTICES), np.empty(MOST_VERTICES)
    kept = 0
    for at in range(count):
        after = (at + 1) % count
        here, there = a * x[at] + b * y[at] - c, a * x[after] + b * y[after] - c
        if here >= 0:
            new_x[kept], new_y[kept] = x[at], y[at]
            kept += 1
        if (here > 0 > there) or (here < 0 < there):
            part = here / (here - there)
            new_x[kept], new_y[kept] = x[at] + part * (x[after] - x[at]), y[at] + part * (y[after] - y[at])
            kept += 1
    for at in range(kept):  # copying slices takes seconds to compile
        x[at], y[at] = new_x[at], new_y[at]
    return kept


@inner
def _centre(x, y, count):
    """Return the centre of gravity of a polygon, the mean of its vertices where it has no area."""
    area, sum_x, sum_y = 0.0, 0.0, 0.0
    for at in range(1, count - 1):
        u, v = x[at] - x[0], y[at] - y[0]
        s, t = x[at + 1] - x[0], y[at + 1] - y[0]
        part = u * t - v * s
        area += part
        sum_x += part * (u + s) / 3.0
        sum_y += part * (v + t) / 3.0
    if area > 0.0:
        return x[0] + sum_x / area, y[0] + sum_y / area
    return x[:count].mean(), y[:count].mean()


@compiled
def dearest_prices(speed, relative, left, end, elapsed, ratio, tol, seen):
    """Return the largest ratio that some prices prove necessary, from one that is; which ones do, and how many were looked at.

    Parameters
    ----------
    speed, relative
        Speeds over each job's fastest, and its gang over the GPUs of each type; shape (jobs, 3).
    left, end, elapsed
        Work left over the fastest speed, run time of the isolated counterpart, and time since the submission; shape (jobs,).
    ratio
        Where to begin.
    tol
        Excess of the bill over 1, at any prices, at which the search ends.
    seen
        The prices looked at, the last ones; shape (most, 3).
    """
    x, y = np.zeros(MOST_VERTICES), np.zeros(MOST_VERTICES)
    x[1], y[2] = 1.0, 1.0
    count, looked, proof = 3, 0, -1
    prices, used = np.empty(KINDS), np.empty(KINDS)
    most = len(seen)
    while looked < most and count > 0:
        prices[0], prices[1] = _centre(x, y, count)
        prices[2] = max(0.0, 1.0 - prices[0] - prices[1])
        for k in range(KINDS):
            seen[looked, k] = prices[k]
        looked += 1
        excess, fall = _bill(speed, relative, left, end, elapsed, ratio, prices, used)
        is_raised = excess > tol
        proof = looked - 1 if is_raised else proof
        for _ in range(MOST_NEWTON):
            if not is_raised or abs(excess) <= tol or fall >= 0.0:
                break
            ratio -= excess / fall
            excess, fall = _bill(speed, relative, left, end, elapsed, ratio, prices, used)
        a, b = used[0] - used[2], used[1] - used[2]
        highest = excess
        for at in range(count):
            highest = max(highest, excess + a * (x[at] - prices[0]) + b * (y[at] - prices[1]))
        if highest <= tol:
            break
        count = _clip(x, y, count, a, b, a * prices[0] + b * prices[1] - min(excess, 0.0))
    return ratio, proof, looked


@compiled
def shares_at(speed, relative, left, end, elapsed, ratio, seen, weight):
    """Return the shares that jobs would buy at some prices, averaged with weights; shape (jobs, 3)."""
    shares, x = np.zeros((len(left), KINDS)), np.empty(KINDS)
    for row in range(len(seen)):
        if weight[row] > 0.0:
            for job in range(len(left)):
                need = min(1.0, left[job] / (ratio * end[job] - elapsed[job]))
                _charge(speed[job], relative[job], need, seen[row], x)
                for k in range(KINDS):
                    shares[job, k] += weight[row] * x[k]
    return shares


@compiled
def usage_at(speed, relative, left, end, elapsed, ratio, seen):
    """Return the parts of the types' GPUs that the jobs would buy at each of some prices; shape (prices, 3)."""
    usage = np.empty((len(seen), KINDS))
    for row in range(len(seen)):
        _bill(speed, relative, left, end, elapsed, ratio, seen[row], usage[row])
    return usage
