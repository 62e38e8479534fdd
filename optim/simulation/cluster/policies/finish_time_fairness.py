"""Finish-time fairness in time shares: the worst ratio to the isolated run is as small as it can be."""

from optim.models.cluster.time_shares import ShareProblem
from optim.models.cluster.workload import US
from optim.models.cluster.world import FloatArray
from optim.simulation.cluster.planning.policy import Sight
from optim.simulation.cluster.planning.rounds import ShareRounds
from optim.simulation.cluster.planning.view import View
from optim.solvers.cluster.time_shares import finish_time_shares


class FinishTimeFairness(ShareRounds):
    """The convex programme of Gavel's finish-time fairness policy, by linear programmes."""

    name = "finish-time-fairness"
    completed = (
        "a job's isolated counterpart has done the same work at the rate of a 1/n share of every type, n being the jobs of the time; "
        "rounds as in max-min"
    )
    sees = (Sight.RUN_TIMES,)

    def shares(self, problem: ShareProblem) -> FloatArray:
        """Solve for the least largest ratio."""
        return finish_time_shares(problem).x

    def left_s(self, view: View) -> FloatArray:
        """Return the work left."""
        return view.remaining_us / US
