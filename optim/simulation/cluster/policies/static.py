"""A static partition of the machines among virtual clusters, without lending."""

import numpy as np

from optim.core.arrays import IntArray
from optim.core.policies import policy
from optim.core.registry import SUPPORTED, Support
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.options import Placement
from optim.simulation.cluster.planning.free_gpus import SimulationContext
from optim.simulation.cluster.planning.placing import fill, quotas_by_gpu_time
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View
from optim.simulation.cluster.policies.orders import FifoOptions


def divide(jobs: Workload, cluster: Cluster) -> IntArray:
    """Return the virtual cluster that owns each machine; shape (machines,).

    Machines are assigned in order of decreasing size. Each goes to the virtual cluster that lacks most GPUs for its widest
    gang. Once all gangs fit, it goes to the virtual cluster that lacks most GPUs of its share of the trace's GPU-hours.
    """
    lack = np.zeros(len(jobs.groups))
    np.maximum.at(lack, jobs.group, jobs.gpus)
    short = quotas_by_gpu_time(jobs, cluster)
    owner = np.empty(cluster.num_machines, np.int64)
    for machine in np.lexsort((np.arange(cluster.num_machines), -cluster.gpus)):
        group = int(lack.argmax() if (lack > 0).any() else short.argmax())
        owner[machine] = group
        lack[group] -= cluster.gpus[machine]
        short[group] -= cluster.gpus[machine]
    return owner


@policy(
    "static",
    world="cluster",
    options=FifoOptions,
    summary="Partition the machines among virtual clusters, each first come, first served.",
    source="any cluster that is partitioned among teams",
)
class Static(PlanningPolicy):
    """Run jobs first come, first served on the machines of their virtual cluster."""

    knows_quotas = True
    assumptions = (
        "a virtual cluster gets machines for its widest gang, then machines up to its share of the trace's GPU-hours; "
        "the largest machines are assigned first"
    )

    def __init__(self, options: FifoOptions, jobs: Workload) -> None:
        self.options, self.jobs = options, jobs

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Return whether every virtual cluster's widest gang fits on its machines."""
        owner = divide(jobs, cluster)
        site = SimulationContext(jobs, cluster, Placement.BEST_FIT, spread=False)
        asked = np.column_stack([jobs.group, -jobs.gpus, site.alike])
        for row in np.unique(asked, axis=0, return_index=True)[1].tolist():
            mine = owner == jobs.group[row]
            if not site.could_hold(row, mine):
                name, gang = jobs.groups[jobs.group[row]], int(jobs.gpus[row])
                room = np.where(mine, jobs.room_on(cluster, row), 0)
                most = room.max() if gang <= site.max_of[row] else room.sum()
                said = f"virtual cluster {name[:20]!r} has a gang of {gang} GPUs, but its machines hold {most}"
                return Support(False, f"{said}; use a larger cluster, or a policy that shares machines")
        return SUPPORTED

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Partition the machines."""
        del seed
        self.owner = divide(self.jobs, cluster)
        self.quota = np.bincount(self.owner, cluster.gpus, len(self.jobs.groups)).astype(np.float64)

    def plan(self, view: View) -> Plan:
        """Place each virtual cluster's jobs on its machines."""
        gpus, room, waiting = dict(view.running), view.room(), view.waiting
        group = view.group
        room.restrict_machines(lambda job: self.owner == group[job])
        for each in np.unique(group[waiting]).tolist():
            if self._has_free(room.free, each):
                fill(view, room, waiting[group[waiting] == each].tolist(), gpus, not self.options.backfill)
        return Plan(gpus=gpus)

    def _has_free(self, free: IntArray, group: int) -> bool:
        return self.jobs.share_milli.min() < 1000 or bool(free[self.owner == group].any())
