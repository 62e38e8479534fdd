"""An application that tells what its process sees; its module imports little, so that JAX is there only if it was before."""

import os
import sys

from tests.support.training.oracle import CountingApplication


class ReportsProcess(CountingApplication):
    """An application whose loss tells what its process sees: a number in its surroundings, and JAX without being asked."""

    def gradient(self, parameters, partition, clock):
        gradient, _ = super().gradient(parameters, partition, clock)
        return gradient, float(os.environ["OPTIM_TOLD"]) + 0.5 * ("jax" in sys.modules)
