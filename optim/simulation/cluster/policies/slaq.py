"""SLAQ: assign GPUs to the jobs with the largest loss decrease predicted for the next epoch.

References
----------
Peng, Bao, Chen, Wu, Guo, "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018,
section 3.1.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.errors import check_in
from optim.core.policies import policy
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.placing import assign_gpus, marginal_widths
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View

MIN_POINTS = 3
"""Minimum number of losses to fit three coefficients."""

FLOORS = 200
"""Number of values of b2 to try between 0 and the smallest loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """Coefficients of a loss curve, all nonnegative."""

    b0: float
    b1: float
    b2: float

    def at(self, step: float) -> float:
        """Return the loss at a step."""
        return 1 / (self.b0 * step + self.b1) + self.b2


def fit_loss(losses: FloatArray) -> LossCurve | None:
    """Fit a curve to the losses at steps 0, 1, ...; return None if they are too few or don't decrease.

    The curve is l = 1 / (b0 step + b1) + b2. For each value of b2 on a grid, weighted linear least squares of 1 / (l - b2)
    gives b0 and b1; the weights make errors of l count equally. The fit with the smallest error is returned.
    """
    count = len(losses)
    if count < MIN_POINTS or losses[-1] >= losses[0] or losses.min() <= 0:
        return None
    steps = np.arange(count, dtype=float)
    b2 = losses.min() * (1 - np.geomspace(1e-4, 1, FLOORS))[:, None]
    rest = losses - b2
    weight = rest**4  # squared weights: d(1 / rest) = -d(rest) / rest**2 to first order
    zeroth, first, second = weight.sum(axis=1), weight @ steps, weight @ steps**2
    target, slope = (weight / rest).sum(axis=1), (weight / rest) @ steps
    determinant = zeroth * second - first**2
    with np.errstate(divide="ignore", invalid="ignore"):
        b0, b1 = (zeroth * slope - first * target) / determinant, (second * target - first * slope) / determinant
        error = ((1 / (b0[:, None] * steps + b1[:, None]) + b2 - losses) ** 2).sum(axis=1)
    error = np.where((b0 > 0) & (b1 > 0) & np.isfinite(error), error, np.inf)
    best = int(error.argmin())
    if not np.isfinite(error[best]):
        return None
    return LossCurve(b0=float(b0[best]), b1=float(b1[best]), b2=float(b2[best, 0]))


UNKNOWN = 1e6
"""Value of the first GPU of a job that has too few losses for a fit, so large that this job precedes all other jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaqOptions:
    """Options.

    Parameters
    ----------
    epoch_s
        Seconds between reassignments of GPUs.

    Raises
    ------
    InvalidOptionError
        If `epoch_s` is outside its range.
    """

    epoch_s: float = 300.0

    def __post_init__(self) -> None:
        """Check the range."""
        check_in("[1, 86400]", self, "epoch_s")


@policy(
    "slaq",
    world="cluster",
    options=SlaqOptions,
    summary="Assign each GPU to the job whose loss it decreases most; needs loss curves.",
    source="Zhang, Stafman, Or, Freedman, SLAQ: Quality-Driven Scheduling for Distributed Machine Learning, SoCC 2017, section 4",
)
class Slaq(PlanningPolicy):
    """Assign each GPU to the job with the largest predicted loss decrease in the next epoch, relative to that so far."""

    assumptions = (
        "epochs of 300 s; loss curves have the form of Optimus; jobs with fewer than three known losses get a GPU first; speed is "
        "proportional to the number of GPUs, up to the gang"
    )
    reads_losses = True
    plans_at_events = True

    def __init__(self, options: SlaqOptions, jobs: Workload) -> None:
        del jobs
        self.options = options

    def rules(self, options: EngineOptions) -> Rules:
        """Return rules under which jobs may change their width."""
        return replace(super().rules(options), is_elastic=True)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Discard all fitted curves."""
        super().begin(cluster, seed)
        self.curves: dict[int, tuple[int, LossCurve | None]] = {}

    def plan(self, view: View) -> Plan:
        """Reassign GPUs at the end of an epoch, or when GPUs are idle while jobs wait."""
        step = round(self.options.epoch_s * US)
        again = (view.now_us // step + 1) * step
        if view.now_us % step and not (len(view.waiting) and view.room().num_free):
            return Plan(gpus=dict(view.running), again_us=again if len(view.jobs) else None)
        gain, there = self._gain(view, step), int(view.cluster.gpus[view.is_up].sum())
        most = {job: int(view.max_gpus[job]) for job in view.jobs.tolist()}
        return Plan(gpus=assign_gpus(view, marginal_widths(most, there, gain)), again_us=again)

    def _gain(self, view: View, step: int) -> Callable[[int, int], float]:
        """Return a function for the gain of a job from one additional GPU in an epoch of `step` microseconds."""
        served = view.served_us
        facts = {job: self._facts(view, job, int(served[job])) for job in view.jobs.tolist()}

        def gain(job: int, width: int) -> float:
            curve, steps, pace, drop = facts[job]
            if curve is None:
                return UNKNOWN if width == 0 else 1 / (UNKNOWN * (width + 1))
            ahead = pace * step / int(view.gpus[job])
            return max((curve.at(steps + width * ahead) - curve.at(steps + (width + 1) * ahead)) / drop, 1e-12)

        return gain

    def _facts(self, view: View, job: int, served: int) -> tuple[LossCurve | None, float, float, float]:
        """Return a job's curve, steps done, steps per microsecond on its gang, and loss decrease so far."""
        losses = view.losses(job)
        known, curve = self.curves.get(job, (0, None))
        if known != len(losses):
            curve = fit_loss(losses)
            self.curves[job] = (len(losses), curve)
        steps = len(losses) - 1
        drop = float(losses[0] - losses[-1]) if len(losses) else 0.0
        return curve if drop > 0 else None, float(steps), steps / max(served, 1), drop
