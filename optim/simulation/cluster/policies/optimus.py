"""Optimus: assign each GPU to the job whose remaining time it shortens most."""

from collections.abc import Callable

from optim.core.policies import policy
from optim.models.cluster.workload import US
from optim.simulation.cluster.planning.policy import View
from optim.simulation.cluster.policies.slaq import Slaq, SlaqOptions

FIRST = 1e18
"""Value of a job's first GPU, so large that every job gets one GPU before any job gets a second."""

CONVERGED = 0.001
"""Relative decrease of the loss per step below which a job is predicted to end, unless its last planned step is earlier."""


@policy(
    "optimus",
    world="cluster",
    options=SlaqOptions,
    summary="Assign each GPU to the job whose remaining time it shortens most; needs loss curves.",
    source="Peng et al., Optimus, EuroSys 2018, sections 3 and 4.1",
)
class Optimus(Slaq):
    """Predict a job's remaining time: remaining steps by the fitted loss curve, over a speed proportional to the width."""

    assumptions = (
        "workers and parameter servers use the same GPUs; speed is linear up to the gang; a job with fewer than three known losses "
        "is assumed to be halfway; GPUs are reassigned every 300 s, and when GPUs are idle while jobs wait"
    )

    def _gain(self, view: View, step: int) -> Callable[[int, int], float]:
        """Return a function for the amount by which one additional GPU shortens a job's remaining time."""
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
        """Return the predicted remaining time of a job on its gang, in microseconds."""
        curve, steps, pace, _ = self._facts(view, job, served)
        if curve is None or pace <= 0:
            return float(max(served, US))
        last = view.num_losses - 1
        ahead = steps + 1
        while ahead < last and curve.at(ahead) - curve.at(ahead + 1) >= CONVERGED * curve.at(ahead):
            ahead += 1
        return max(ahead - steps, 1.0) / pace
