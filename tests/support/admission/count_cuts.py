"""Count cuts by hand and at random, and their largest left-hand side by enumerating all counts."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from optim.core.arrays import IntArray
from optim.models.admission.decision import CountCut, Side
from optim.models.admission.instance import AdmissionInstance


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


def counts_of_job(instance: AdmissionInstance, cut: CountCut, job: int, side: Side | None = None) -> int:
    """Return the most units of a job, with the smallest of its demands, that the class' servers hold.

    They are those of the cut's side, or on shared servers of either.
    """
    if not instance.jobs.arrival[job] <= cut.slot <= instance.deadline[job]:
        return 0
    is_ps = (side or cut.side) is Side.PS
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


def gains_of(cut: CountCut) -> list[tuple[Side, IntArray]]:
    """Return the gains by side: of the cut's side, or on shared servers of workers and PSs."""
    return [(cut.side, cut.gain), *([] if cut.ps_gain is None else [(Side.PS, cut.ps_gain)])]


def gain_of(gains: IntArray, count: int) -> int:
    """Return the gain of a number of units."""
    return int(gains[min(count, len(gains)) - 1]) if count and len(gains) else 0


def most_left_side(instance: AdmissionInstance, cut: CountCut) -> int:
    """Return the exact maximum over counts that keep to the class' summed capacity."""
    servers = instance.ps_servers if cut.side is Side.PS else instance.worker_servers
    room = servers.capacity[cut.server_class, cut.slot] * servers.count[cut.server_class]
    own = [slice(int(instance.jobs.segment_offset[j]), int(instance.jobs.segment_offset[j + 1])) for j in cut.jobs]
    units, most, gains = [], [], []
    for side, gain in gains_of(cut):
        demand = instance.jobs.ps_demand if side is Side.PS else instance.jobs.worker_demand
        units += [demand[s].min(axis=0) for s in own]
        most += [counts_of_job(instance, cut, int(job), side) for job in cut.jobs]
        gains += list(gain)
    best = 0
    for counts in product(*(range(limit + 1) for limit in most)):
        if (np.array(counts) @ np.array(units) <= room).all():
            best = max(best, sum(gain_of(gain, count) for gain, count in zip(gains, counts, strict=True)))
    return best


def random_count_cut(instance: AdmissionInstance, rng: np.random.Generator) -> CountCut:
    """Draw a cut with the smallest valid right-hand side."""
    side = Side.WORKER if instance.has_shared_servers or rng.integers(2) else Side.PS
    servers = instance.worker_servers if side is Side.WORKER else instance.ps_servers

    def gains() -> IntArray:
        return np.cumsum(rng.integers(0, 3, (instance.num_jobs, int(rng.integers(1, 4)))), axis=1)

    cut = make_count_cut(
        side=side,
        server_class=int(rng.integers(servers.num_classes)),
        slot=int(rng.integers(instance.horizon)),
        jobs=np.arange(instance.num_jobs),
        gain=gains(),
        multiplier=float(rng.exponential(1.0)),
        ps_gain=gains() if instance.has_shared_servers else None,
    )
    return replace(cut, right_hand_side=most_left_side(instance, cut))
