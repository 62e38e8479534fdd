"""AlloX: jobs to types of GPU and places in line, by a matching of least mean completion time."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optim.core.ranges import check_in
from optim.core.registry import Support
from optim.models.cluster.workload import PPM, Workload
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.planning.filling import on_one_type
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, Sight
from optim.simulation.cluster.planning.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class AlloxOptions:
    """Options.

    Parameters
    ----------
    most_jobs
        How many waiting jobs are matched: those with the least GPU-time left.

    Raises
    ------
    InvalidOptionError
        If it is outside its range.
    """

    most_jobs: int = 64

    def __post_init__(self) -> None:
        """Check the range."""
        check_in("[1, 2000]", self, "most_jobs")


class Allox(PlanningPolicy):
    """A job that is k-th from the end of a type's line delays k jobs, itself included: least sum of k x its time there."""

    name = "allox"
    source = "Le, Sun, Chowdhury, Liu, AlloX: Compute Allocation in Hybrid Clusters, EuroSys 2020, section 4"
    completed = (
        "a type of GPU is one machine that is as fast as its GPUs together, so that a gang's time there is its GPU-time over them; "
        "the 64 waiting jobs with least GPU-time left are matched; no preemption; no filter by user"
    )
    sees = (Sight.RUN_TIMES,)

    def __init__(self, options: AlloxOptions, jobs: Workload) -> None:
        del jobs
        self.options = options

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Serve gangs that find their GPUs among those of one type."""
        return on_one_type(jobs, cluster)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Count the GPUs of each type."""
        del seed
        self.gpus = np.bincount(cluster.kind, weights=cluster.gpus)
        self.matchings = 0

    def plan(self, view: View) -> Plan:
        """Match the waiting jobs, and start the first in each line."""
        from scipy.optimize import linear_sum_assignment

        gpus, room, waiting = dict(view.running), view.room(), view.waiting
        if room.site.is_plain:
            waiting = waiting[view.gpus[waiting] <= room.num_free]
        if not len(waiting):
            return Plan(gpus=gpus)
        left = view.remaining_us[waiting] * view.gpus[waiting]
        waiting = waiting[np.lexsort((waiting, left))][: self.options.most_jobs]
        work = (view.remaining_us[waiting] * view.gpus[waiting]).astype(float)
        kinds = view.kind_ppm[waiting] if view.kind_ppm.shape[1] else np.full((len(waiting), len(self.gpus)), PPM)
        slow = np.where((kinds > 0) & (self.gpus > 0), kinds / PPM, np.inf)
        time = work[:, None] * slow / np.maximum(self.gpus, 1)
        count = len(waiting)
        cost = (time[:, :, None] * np.arange(1, count + 1)).reshape(count, -1)
        cost = np.where(np.isfinite(cost), cost, 1e3 * np.nanmax(np.where(np.isfinite(cost), cost, np.nan)))
        rows, places = linear_sum_assignment(cost)
        self.matchings += 1
        for row, place in sorted(zip(rows.tolist(), places.tolist(), strict=True), key=lambda pair: -(pair[1] % count)):
            job, kind = int(waiting[row]), place // count
            taken = room.place(job, machines=view.cluster.kind == kind)
            if taken is not None:
                gpus[job] = taken
        return Plan(gpus=gpus)

    def figures(self) -> Mapping[str, float]:
        """Return how many matchings were made."""
        return {"matchings": float(self.matchings)}
