"""An application that reports properties of its process; its module imports little, so JAX is present only if it was before."""

import os
import sys

from tests.support.training.oracle import CountingApplication


class ReportsProcess(CountingApplication):
    """An application whose loss reports properties of its process: a number in its environment, and whether JAX is imported."""

    def gradient(self, parameters, partition, clock):
        gradient, _ = super().gradient(parameters, partition, clock)
        return gradient, float(os.environ["OPTIM_TOLD"]) + 0.5 * ("jax" in sys.modules)
