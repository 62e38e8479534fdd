"""A job small enough to be measured in tests."""

import numpy as np


class Quadratic:
    """Loss ``|w - c_p|^2 / 2`` over a few partitions; the gradient is ``w - c_p``."""

    num_partitions = 4
    num_parameters = 64

    def __init__(self):
        self.centre = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
        self.asked = []

    def initial_parameters(self):
        return np.zeros(64, dtype=np.float32)

    def gradient(self, parameters, partition, clock):
        self.asked.append((partition, clock))
        difference = parameters - self.centre[partition]
        return difference, float(0.5 * difference @ difference)


class SteppedClock:
    """A clock that takes its readings from a list of differences, over and over."""

    def __init__(self, *seconds):
        self._seconds, self._reads, self._now = seconds, 0, 0.0

    def __call__(self):
        # Every second reading ends a piece of work.
        if self._reads % 2:
            self._now += self._seconds[(self._reads // 2) % len(self._seconds)]
        self._reads += 1
        return self._now
