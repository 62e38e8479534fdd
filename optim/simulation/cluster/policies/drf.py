"""Dominant resource fairness: serve the user with the smallest dominant share next."""

from dataclasses import dataclass

import numpy as np

from optim.core.policies import policy
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.planning.placing import capacity, demands, users_of
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View


@dataclass(frozen=True, slots=True, kw_only=True)
class DrfOptions:
    """Options: none."""


@policy(
    "drf",
    world="cluster",
    options=DrfOptions,
    summary="Serve the user with the smallest dominant share of GPUs, vCPUs and memory next.",
    source="Ghodsi et al., Dominant Resource Fairness, NSDI 2011, algorithm 1",
)
class Drf(PlanningPolicy):
    """Progressive filling by complete gangs over GPUs, vCPUs and memory, without preemption."""

    assumptions = (
        "users are those of the table (else virtual clusters, else apps), with equal weights; a gang is one task; a user whose first "
        "job can't be placed is skipped until the next event"
    )

    def __init__(self, options: DrfOptions, jobs: Workload) -> None:
        del options, jobs

    def plan(self, view: View) -> Plan:
        """Place one gang at a time, always of the user with the smallest dominant share."""
        gpus, room, waiting = dict(view.running), view.room(), view.waiting
        if not len(waiting) or (room.site.is_plain and not room.num_free):
            return Plan(gpus=gpus)
        user, part = users_of(view), demands(view) / capacity(view.cluster)
        running = np.fromiter(gpus, np.int64, len(gpus))
        names, at = np.unique(user[np.concatenate([waiting, running])], return_inverse=True)
        used = np.zeros((len(names), 3))
        np.add.at(used, at[len(waiting) :], part[running])
        queue: dict[int, list[int]] = {}
        for job, owner in zip(waiting[::-1].tolist(), at[: len(waiting)][::-1].tolist(), strict=True):
            queue.setdefault(owner, []).append(job)
        share = np.full(len(names), np.inf)
        share[list(queue)] = used.max(axis=1)[list(queue)]
        while np.isfinite(share).any():
            owner = int(share.argmin())
            job = queue[owner][-1]
            taken = room.place(job)
            if taken is None:
                share[owner] = np.inf
                continue
            gpus[job] = taken
            used[owner] += part[job]
            queue[owner].pop()
            share[owner] = used[owner].max() if queue[owner] else np.inf
        return Plan(gpus=gpus)
