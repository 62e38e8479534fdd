"""A plain CRBM, window by window and sum by sum; it shares no code and no layout with the kernels."""

import itertools

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def random_parameters(rng, num_visible, num_delays, num_hidden, scale=0.5):
    """W, A, B, a, b in float64."""
    length = num_visible * num_delays
    shapes = [(num_visible, num_hidden), (length, num_visible), (length, num_hidden), (num_visible,), (num_hidden,)]
    return [scale * rng.standard_normal(shape) for shape in shapes]


def windows(series, ends, num_delays):
    """Histories, oldest frame first, and samples: one row per window."""
    history = [np.concatenate([series[t - lag] for lag in range(num_delays, 0, -1)]) for t in ends]
    return np.array(history), np.array([series[t] for t in ends])


def energy(parameters, v, u, h):
    W, A, B, a, b = parameters
    visible, hidden = a + u @ A, b + u @ B
    return 0.5 * np.sum((v - visible) ** 2) - v @ W @ h - hidden @ h


def free_energy_by_enumeration(parameters, v, u):
    states = itertools.product((0.0, 1.0), repeat=parameters[4].size)
    return -np.log(sum(np.exp(-energy(parameters, v, u, np.array(state))) for state in states))


def statistics(parameters, u, v, hidden_of, num_gibbs_steps):
    """Mean statistics of CD-k, one window after another; `hidden_of(step, p)` gives all hiddens that are passed on."""
    W, A, B, a, b = parameters
    n = len(v)
    hidden_bias = np.array([b + u[i] @ B for i in range(n)])
    p0 = np.array([sigmoid(v[i] @ W + hidden_bias[i]) for i in range(n)])
    p, vk = p0, v
    for step in range(num_gibbs_steps):
        hidden = hidden_of(step, p)
        vk = np.array([W @ hidden[i] + u[i] @ A + a for i in range(n)])
        p = np.array([sigmoid(vk[i] @ W + hidden_bias[i]) for i in range(n)])
    gradients = [np.zeros_like(one) for one in parameters]
    for i in range(n):
        e, r = v[i] - vk[i], p0[i] - p[i]
        terms = (np.outer(v[i], p0[i]) - np.outer(vk[i], p[i]), np.outer(u[i], e), np.outer(u[i], r), e, r)
        gradients = [total + term / n for total, term in zip(gradients, terms, strict=True)]
    return gradients, np.sum((v - vk) ** 2, axis=0), p0.mean(axis=0)
