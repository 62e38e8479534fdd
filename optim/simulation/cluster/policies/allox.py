"""AlloX: assign jobs to GPU types and queue positions by the matching that minimises mean completion time."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import check_in
from optim.core.policies import policy
from optim.core.registry import Support
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import PPM, Workload
from optim.simulation.cluster.planning.placing import on_one_type
from optim.simulation.cluster.planning.policy import Oracle, Plan, PlanningPolicy, View


@dataclass(frozen=True, slots=True, kw_only=True)
class AlloxOptions:
    """Options.

    Parameters
    ----------
    max_jobs
        Maximum number of waiting jobs to match; jobs with the least remaining GPU-time come first.

    Raises
    ------
    InvalidOptionError
        If `max_jobs` is outside its range.
    """

    max_jobs: int = 64

    def __post_init__(self) -> None:
        """Check the range."""
        check_in("[1, 2000]", self, "max_jobs")


@policy(
    "allox",
    world="cluster",
    options=AlloxOptions,
    summary="Match waiting jobs to GPU types and to positions in the queue behind the running jobs.",
    source="Le, Sun, Chowdhury, Liu, AlloX: Compute Allocation in Hybrid Clusters, EuroSys 2020, section 4",
)
class Allox(PlanningPolicy):
    """Minimise the sum of k x run time, since the k-th job from the end of a type's queue delays k jobs, itself included."""

    assumptions = (
        "each GPU type is modelled as one machine with the speed of all its GPUs: a gang's time is its GPU-time divided by their number, "
        "and the machine is free when its running jobs end; the 64 waiting jobs with the least remaining GPU-time are matched; "
        "no preemption; the paper's filter by user is left out"
    )
    oracle_inputs = (Oracle.RUN_TIMES,)

    def __init__(self, options: AlloxOptions, jobs: Workload) -> None:
        del jobs
        self.options = options

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Support gangs that fit on GPUs of one type."""
        return on_one_type(jobs, cluster)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Find the machines of each type."""
        del seed
        self.machines = [cluster.kind == kind for kind in range(int(cluster.kind.max()) + 1)]
        self.matchings = 0

    def plan(self, view: View) -> Plan:
        """Match the waiting jobs, and start the first of each queue."""
        from scipy.optimize import linear_sum_assignment

        gpus, room, waiting = dict(view.running), view.room(), view.waiting
        if not len(waiting) or (room.site.is_plain and not room.num_free):
            return Plan(gpus=gpus)
        left = view.remaining_us[waiting] * view.gpus[waiting]
        waiting = waiting[np.lexsort((waiting, left))][: self.options.max_jobs]
        up = [machines & view.is_up for machines in self.machines]
        can = np.array([[room.site.could_hold(job, where) for where in up] for job in waiting.tolist()])
        waiting, can = waiting[can.any(axis=1)], can[can.any(axis=1)]
        if not len(waiting):
            return Plan(gpus=gpus)
        time, free_in = self._times(view, waiting, up)
        count = len(waiting)
        cost = free_in[:, None] + time[:, :, None] * np.arange(1, count + 1)  # the k-th job from the end delays k jobs
        cost = np.where(can[:, :, None], cost, np.inf).reshape(count, -1)
        rows, places = linear_sum_assignment(cost)
        self.matchings += 1
        for row, place in sorted(zip(rows.tolist(), places.tolist(), strict=True), key=lambda pair: -(pair[1] % count)):
            job, kind = int(waiting[row]), place // count
            taken = room.place(job, machines=self.machines[kind])
            if taken is not None:
                gpus[job] = taken
        return Plan(gpus=gpus)

    @staticmethod
    def _times(view: View, waiting: IntArray, up: list[BoolArray]) -> tuple[FloatArray, FloatArray]:
        """Return each waiting job's time on each GPU type, and for each type the time until its running jobs have ended."""
        there = np.maximum(1, [int(view.cluster.gpus[machines].sum()) for machines in up])
        remaining = view.remaining_us * view.gpus.astype(float)
        kinds = (
            view.gpu_type_slowdown_ppm
            if view.gpu_type_slowdown_ppm.shape[1]
            else np.full((len(view.gpus), len(up)), PPM)
        )
        work = remaining[:, None] * kinds[:, : len(up)] / PPM / there
        busy = np.zeros(len(up))
        for job, held in view.running.items():
            kind = int(view.cluster.kind[view.machine_of(held[0])])
            busy[kind] += work[job, kind]
        return work[waiting], busy

    def figures(self) -> Mapping[str, float]:
        """Return the number of matchings."""
        return {"matchings": float(self.matchings)}
