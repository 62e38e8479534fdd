"""Dominant resource fairness: every slot is shared out again by progressive filling."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from optim.core.registry import register
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.slots import AbstractSlotSolver, Allocation, Board, JobView, SlotServers, SlotState


@dataclass(frozen=True, slots=True, kw_only=True)
class DrfOptions:
    """Options of `drf`: there are none."""


def dominant_share(view: JobView, servers: SlotServers, workers: int) -> float:
    """Return the largest share of any resource that a job with so many workers, and their PSs, uses.

    Hosts of workers and hosts of PSs are separate pools unless servers are shared. Quotients of whole
    numbers are rounded once, so that equal shares compare equal.
    """
    ps = int(view.ps_needed[workers])
    of_workers = [workers * demand for demand in view.worker_demand.tolist()]
    of_ps = [ps * demand for demand in view.ps_demand.tolist()]
    if servers.is_shared:
        uses = zip((a + b for a, b in zip(of_workers, of_ps, strict=True)), servers.worker_total, strict=True)
        return max(used / total if total else 0.0 for used, total in uses)
    pools = (*zip(of_workers, servers.worker_total, strict=True), *zip(of_ps, servers.ps_total, strict=True))
    return max(used / total if total else 0.0 for used, total in pools)


def fill_progressively(board: Board, views: Iterable[JobView]) -> None:
    """Give workers one step at a time to the job with the lowest dominant share that can still grow.

    A step is one worker and the PS that it makes necessary, if any; where whole chunks must be finished
    within a slot, it is the number of workers up to the next amount of progress. Ties go to the job
    listed first. A job whose step is of no use grows no more, and neither does one whose step doesn't fit,
    but on shared servers: where a step fits depends there on where the turn stands, so that all who were
    refused are asked again until nobody grows.
    """
    listed = [view for view in views if view.can_progress]
    heap = [(0.0, place) for place in range(len(listed))]
    while heap:
        has_grown = False
        refused: list[tuple[float, int]] = []
        while heap:
            share, place = heapq.heappop(heap)
            view = listed[place]
            count = board.count(view)
            goal = view.next_count(count)
            if count == goal or count >= view.useful_workers:
                continue
            if board.add(view, goal - count):
                has_grown = True
                heapq.heappush(heap, (dominant_share(view, board.servers, goal), place))
            else:
                refused.append((share, place))
        heap = refused if has_grown and board.servers.is_shared else []


class DrfPolicy:
    """Share out every slot by progressive filling."""

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        """Fill the empty board."""
        fill_progressively(state.board, state.jobs)
        return state.board.allocations()


@register("drf", problem="admission")
class DrfSolver(AbstractSlotSolver[DrfPolicy]):
    """Dominant resource fairness, the rule of YARN and Mesos.

    In every slot, progressive filling from an empty cluster: the active job with the lowest dominant
    share ``max_r usage_i^r / total^r`` gets one more worker, and one more PS when Z(Y) steps up, until no
    job can grow (Y = N_i, or nothing fits). Placement is round-robin. Every job is accepted;
    utilities play no part.

    Notes
    -----
    The filling is that of the first reference, as the rival of the evaluation in the second. Completed
    here:

    - hosts of workers and hosts of PSs are separate pools of resources unless servers are shared;
    - equal shares are served by arrival, then by position;
    - a job stops growing at its first step that round-robin finds no room for; on shared servers, where that depends
      on where the turn stands, those refused are asked again, by dominant share, until none grows;
    - no job gets more workers than complete it in the slot;
    - where a slot's workers must finish whole chunks, a job grows by the workers that finish one more;
    - workers may move between slots, as the problem charges nothing for it.

    References
    ----------
    Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica, "Dominant Resource Fairness: Fair Allocation of
    Multiple Resource Types", NSDI 2011, Algorithm 1.
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, evaluation section.
    """

    summary = "dominant resource fairness by progressive filling (rival)"
    options_type = DrfOptions

    def make_policy(self, instance: AdmissionInstance, options: DrfOptions, rng: np.random.Generator) -> DrfPolicy:
        """Return the rule; it has no memory."""
        return DrfPolicy()
