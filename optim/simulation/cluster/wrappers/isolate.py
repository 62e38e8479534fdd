"""Isolate wide gangs from small jobs: each has machines of its own."""

from dataclasses import dataclass

import numpy as np

from optim.core.ranges import check_in
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy
from optim.simulation.cluster.planning.room import BoolArray, Room
from optim.simulation.cluster.planning.view import View
from optim.simulation.cluster.wrappers.wrapper import Wrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolateOptions:
    """Options.

    Parameters
    ----------
    wide
        Gangs from so many GPUs on are wide.
    share
        Share of the machines for the others; 0 for their share of the trace's GPU-hours.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    wide: int = 4
    share: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[2, 1000000]", self, "wide")
        check_in("[0, 1]", self, "share")


class Isolate(Wrapper):
    """Jobs below `wide` GPUs go to the last machines, all others to the first; a gang that its part can't hold goes anywhere."""

    wrap = "isolate"

    def __init__(self, options: IsolateOptions, inner: PlanningPolicy, jobs: Workload) -> None:
        super().__init__(inner)
        self.options, self.jobs = options, jobs

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Divide the machines."""
        super().begin(cluster, seed)
        is_wide = self.jobs.gpus >= self.options.wide
        work = self.jobs.gpus.astype(float) * self.jobs.duration_us
        share = self.options.share or float(work[~is_wide].sum() / work.sum())
        small = min(
            max(round(share * cluster.num_machines), int((~is_wide).any())), cluster.num_machines - int(is_wide.any())
        )
        self.is_small = np.arange(cluster.num_machines) >= cluster.num_machines - max(small, 0)
        self.limits = [self.is_small, ~self.is_small]

    def plan(self, view: View) -> Plan:
        """Confine each job to its part."""

        def prepare(room: Room) -> None:
            widths = room.site.widths

            def part(job: int) -> BoolArray | None:
                is_wide = int(widths[job] >= self.options.wide)
                return self.limits[is_wide] if room.site.could_hold(job, self.limits[is_wide]) else None

            room.confine(part)

        view.prepare.append(prepare)
        return self.inner.plan(view)
