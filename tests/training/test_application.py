"""An application of one's own is four methods, and trains like any other."""

import numpy as np
import pytest

from optim.kernels.parameter_server import Sgd
from optim.training.application import UserApplication
from optim.training.trainer import run_alone

TARGETS = np.arange(12.0).reshape(2, 2, 3)


class Means(UserApplication):
    """Two partitions of unlike sizes, each with a matrix to come close to."""

    def sizes(self):
        return [1, 3]

    def start(self):
        return np.zeros((2, 3))

    def loss(self, parameters, partition, clock):
        return 0.5 * float(((parameters - TARGETS[partition]) ** 2).sum())

    def slope(self, parameters, partition, clock):
        assert parameters.shape == (2, 3)
        return parameters - TARGETS[partition]


def test_it_converges_to_the_mean_weighted_by_sizes():
    record = run_alone(Means(), Sgd(learning_rate=0.5), 40)
    np.testing.assert_allclose(record.parameters.reshape(2, 3), (TARGETS[0] + 3 * TARGETS[1]) / 4, rtol=1e-5)
    first = [0.5 * (target**2).sum() for target in TARGETS]
    assert record.losses[0] == pytest.approx((first[0] + 3 * first[1]) / 4)
    assert (Means().num_partitions, Means().num_parameters, Means().weight(1)) == (2, 6, 3.0)
