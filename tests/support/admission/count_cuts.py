"""Count cuts made by hand and drawn at random, and their largest left-hand side by trying all counts."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.proof import CountCut, Side


def make_count_cut(**fields: Any) -> CountCut:
    """Return "of jobs 0 and 1 at most one has three workers or more" in class 0, slot 0."""
    known: dict[str, Any] = {
        "side": Side.WORKER,
        "server_class": 0,
        "slot": 0,
        "jobs": np.array([0, 1]),
        "gain": np.array([[0, 0, 1], [0, 0, 1]]),
        "right_hand_side": 1,
        "multiplier": 1.0,
    }
    return CountCut(**(known | fields))


def counts_of_job(instance: AdmissionInstance, cut: CountCut, job: int) -> int:
    """Return the most units of a job, with the smallest of its demands, that the class' servers hold."""
    if not instance.jobs.arrival[job] <= cut.slot <= instance.deadline[job]:
        return 0
    is_ps = cut.side is Side.PS
    servers = instance.ps_servers if is_ps else instance.worker_servers
    own = slice(int(instance.jobs.segment_offset[job]), int(instance.jobs.segment_offset[job + 1]))
    unit = (instance.jobs.ps_demand if is_ps else instance.jobs.worker_demand)[own].min(axis=0)
    room = servers.capacity[cut.server_class, cut.slot]
    most = int(instance.ps_needed[job][-1] if is_ps else instance.max_workers[job])
    share = instance.max_share_per_server or Fraction(1)
    on_one = 0
    while (
        on_one < most
        and ((on_one + 1) * unit <= room).all()
        and (on_one == 0 or all((on_one + 1) * int(u) <= share * int(c) for u, c in zip(unit, room, strict=True)))
    ):
        on_one += 1
    return min(most, on_one * int(servers.count[cut.server_class]))


def most_left_side(instance: AdmissionInstance, cut: CountCut) -> int:
    """Return the exact maximum over counts that keep to the class' summed capacity."""
    is_ps = cut.side is Side.PS
    servers = instance.ps_servers if is_ps else instance.worker_servers
    demand = instance.jobs.ps_demand if is_ps else instance.jobs.worker_demand
    room = servers.capacity[cut.server_class, cut.slot] * servers.count[cut.server_class]
    own = [slice(int(instance.jobs.segment_offset[j]), int(instance.jobs.segment_offset[j + 1])) for j in cut.jobs]
    units = np.array([demand[s].min(axis=0) for s in own])
    best = 0
    for counts in product(*(range(counts_of_job(instance, cut, int(job)) + 1) for job in cut.jobs)):
        if (np.array(counts) @ units <= room).all():
            gains = (int(g[min(n, len(g)) - 1]) for n, g in zip(counts, cut.gain, strict=True) if n)
            best = max(best, sum(gains))
    return best


def random_count_cut(instance: AdmissionInstance, rng: np.random.Generator) -> CountCut:
    """Draw a cut with the smallest valid right-hand side."""
    side = Side.WORKER if instance.has_shared_servers or rng.integers(2) else Side.PS
    servers = instance.worker_servers if side is Side.WORKER else instance.ps_servers
    cut = make_count_cut(
        side=side,
        server_class=int(rng.integers(servers.num_classes)),
        slot=int(rng.integers(instance.horizon)),
        jobs=np.arange(instance.num_jobs),
        gain=np.cumsum(rng.integers(0, 3, (instance.num_jobs, int(rng.integers(1, 4)))), axis=1),
        multiplier=float(rng.exponential(1.0)),
    )
    return replace(cut, right_hand_side=most_left_side(instance, cut))
