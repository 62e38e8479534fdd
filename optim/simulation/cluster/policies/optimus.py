"""Optimus: one more GPU to whoever's remaining time it shortens most."""

from collections.abc import Callable

from optim.core.policies import policy
from optim.models.cluster.workload import US
from optim.simulation.cluster.planning.policy import View
from optim.simulation.cluster.policies.slaq import Slaq, SlaqOptions

FIRST = 1e18
"""Worth of a job's first GPU: all start with one before any gets a second."""

CONVERGED = 0.001
"""A job is predicted to end when a step takes less than this share off its loss, or at its last planned step."""


@policy(
    "optimus",
    world="cluster",
    options=SlaqOptions,
    summary="One GPU at a time goes to the largest decrease of remaining time; needs loss curves.",
    source="Peng et al., Optimus, EuroSys 2018, sections 3 and 4.1",
)
class Optimus(Slaq):
    """Remaining steps from the fitted loss curve, over a speed that is as large as the width."""

    assumptions = (
        "workers and parameter servers are one kind of GPU; speed is linear up to the gang; a job of which less than three losses are "
        "known is taken to be halfway; GPUs are dealt out every 300 s and when some are idle and jobs wait"
    )

    def _gain(self, view: View, step: int) -> Callable[[int, int], float]:
        """Return by how much one GPU more than a width shortens a job's remaining time."""
        del step
        served = view.served_us
        left = {job: self._left(view, job, int(served[job])) for job in view.jobs.tolist()}

        def gain(job: int, width: int) -> float:
            if width == 0:
                return FIRST / (1 + job)
            alone = left[job] * int(view.gpus[job])
            return alone / width - alone / (width + 1)

        return gain

    def _left(self, view: View, job: int, served: int) -> float:
        """Return the predicted time that a job still needs on its gang, in microseconds."""
        curve, steps, pace, _ = self._facts(view, job, served)
        if curve is None or pace <= 0:
            return float(max(served, US))
        last = view.num_losses - 1
        ahead = steps + 1
        while ahead < last and curve.at(ahead) - curve.at(ahead + 1) >= CONVERGED * curve.at(ahead):
            ahead += 1
        return max(ahead - steps, 1.0) / pace
