"""Max-min fairness over types of GPU, in time shares."""

import numpy as np

from optim.models.cluster.time_shares import ShareProblem
from optim.models.cluster.world import FloatArray
from optim.simulation.cluster.planning.rounds import ShareRounds
from optim.simulation.cluster.planning.view import View
from optim.solvers.cluster.time_shares import max_min_shares


class MaxMin(ShareRounds):
    """The least throughput, relative to that of a 1/n share of every type, is as large as it can be."""

    name = "max-min"
    completed = (
        "shares are solved for when jobs came or went; a round gives GPUs by share over rounds received so far; gangs that find "
        "no place in theirs leave it to the next; placement by the engine's rule"
    )

    def shares(self, problem: ShareProblem) -> FloatArray:
        """Solve the linear programme."""
        return max_min_shares(problem).x

    def left_s(self, view: View) -> FloatArray:
        """Return ones: it doesn't look at what is left."""
        return np.ones(len(view.gpus))
