"""Random draws of the moves, compiled."""

import numpy as np

from optim.core.compile_cache import compiled, inner


@compiled(inline="always")
def uniform(random):
    """Return the next number in [0, 1) of a splitmix64 sequence whose state is ``random[0]``."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inner
def draw_noise(noise, ps_noise, random):
    """Multiply prices by noise of a random strength, one factor a slot and one a class: the same job finds new places."""
    strength = uniform(random)
    for side in (noise, ps_noise):
        for c in range(side.shape[1]):
            side[0, c] = 1.0 + strength * (2.0 * uniform(random) - 1.0)
    for t in range(noise.shape[0] - 1, -1, -1):
        factor = 1.0 + strength * (2.0 * uniform(random) - 1.0)
        for side in (noise, ps_noise):
            for c in range(side.shape[1]):
                side[t, c] = factor * side[0, c]


@inner
def holds(listed, count, j):
    """Tell whether job j is among the first so many listed."""
    return (listed[:count] == j).any()
