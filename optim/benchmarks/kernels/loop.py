"""Serial loops in Numba beside which the kernels are measured; they hold no lock, so threads may share the work."""

import numpy as np

from optim.core.compile_cache import compiled


@compiled
def dense_sgd(w, pushes, rate, start, stop):
    """Aggregate pushes and step against their mean, from element `start` to `stop`."""
    workers = len(pushes)
    scale = np.float32(rate / workers)
    for i in range(start, stop):
        total = pushes[0][i]
        for k in range(1, workers):
            total += pushes[k][i]
        w[i] -= scale * total


@compiled
def dense_adam(w, m, v, pushes, rate, first, second, epsilon, step, start, stop):
    """Aggregate pushes and apply Adam, from element `start` to `stop`."""
    workers = len(pushes)
    share = np.float32(1.0 / workers)
    one = np.float32(1.0)
    b1, b2, eps = np.float32(first), np.float32(second), np.float32(epsilon)
    scaled = np.float32(rate / (1.0 - first**step))
    correction = np.float32(1.0 / (1.0 - second**step))
    for i in range(start, stop):
        total = pushes[0][i]
        for k in range(1, workers):
            total += pushes[k][i]
        g = total * share
        m[i] = b1 * m[i] + (one - b1) * g
        v[i] = b2 * v[i] + (one - b2) * g * g
        w[i] -= scaled * m[i] / (np.sqrt(v[i] * correction) + eps)


@compiled
def dense_momentum(w, u, pushes, rate, decay, start, stop):
    """Aggregate pushes and apply the heavy ball, from element `start` to `stop`."""
    workers = len(pushes)
    share, step, kept = np.float32(1.0 / workers), np.float32(rate), np.float32(decay)
    for i in range(start, stop):
        total = pushes[0][i]
        for k in range(1, workers):
            total += pushes[k][i]
        u[i] = kept * u[i] + total * share
        w[i] -= step * u[i]


@compiled
def dense_adagrad(w, h, pushes, rate, epsilon, start, stop):
    """Aggregate pushes and apply Adagrad, from element `start` to `stop`."""
    workers = len(pushes)
    share, step, eps = np.float32(1.0 / workers), np.float32(rate), np.float32(epsilon)
    for i in range(start, stop):
        total = pushes[0][i]
        for k in range(1, workers):
            total += pushes[k][i]
        g = total * share
        h[i] += g * g
        w[i] -= step * g / (np.sqrt(h[i]) + eps)


@compiled
def sparse_sgd(table, rows, values, rate):
    """Apply every pushed row at once."""
    step = np.float32(rate)
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(table.shape[1]):
            table[row, j] -= step * values[i, j]


@compiled
def sparse_adagrad(table, squares, rows, values, rate, epsilon, first, sums):
    """Add up repeated rows where they are pushed first, then update each once; `first` and `sums` are scratch."""
    step, eps = np.float32(rate), np.float32(epsilon)
    for i in range(rows.shape[0] - 1, -1, -1):
        first[rows[i]] = i
    sums[:] = 0
    for i in range(rows.shape[0]):
        k = first[rows[i]]
        for j in range(table.shape[1]):
            sums[k, j] += values[i, j]
    for i in range(rows.shape[0]):
        row = rows[i]
        if first[row] != i:
            continue
        for j in range(table.shape[1]):
            g = sums[i, j]
            squares[row, j] += g * g
            table[row, j] -= step * g / (np.sqrt(squares[row, j]) + eps)


@compiled
def pull(table, rows, out):
    """Copy the rows asked for."""
    for i in range(rows.shape[0]):
        for j in range(table.shape[1]):
            out[i, j] = table[rows[i], j]


@compiled
def in_place(x, start, stop):
    """Add one to every element from `start` to `stop`."""
    for i in range(start, stop):
        x[i] += np.float32(1)


@compiled
def push(total, gradient, weight):
    """Add a weighted push."""
    share = np.float32(weight)
    for i in range(total.shape[0]):
        total[i] += share * gradient[i]


@compiled
def damped_sgd(w, gradients, weights, rate):
    """Apply gradients one after the other, each with its weight."""
    step = np.float32(rate)
    for i in range(w.shape[0]):
        value = w[i]
        for k in range(gradients.shape[0]):
            value -= step * weights[k] * gradients[k, i]
        w[i] = value


@compiled
def push_int8(total, left, gradient, noise, limit):
    """Round gradient and residual to levels by noise in [0, 1), and add those to the sum."""
    largest = np.float32(0)
    for i in range(left.shape[0]):
        left[i] += gradient[i]
        largest = max(largest, abs(left[i]))
    scale = np.float32(largest / limit) if largest > 0 else np.float32(1)
    for i in range(left.shape[0]):
        level = min(max(np.floor(left[i] / scale + noise[i]), -limit), limit)
        decoded = np.float32(level) * scale
        left[i] -= decoded
        total[i] += decoded


@compiled
def copy(source, target):
    """Copy an array."""
    for i in range(source.shape[0]):
        target[i] = source[i]
