"""Dominant resource fairness: every slot is allocated from scratch by progressive filling."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from optim.core.registry import register
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.slots import AbstractSlotSolver, Allocation, Board, JobView, SlotServers, SlotState


@dataclass(frozen=True, slots=True, kw_only=True)
class DrfOptions:
    """Options of `drf` (none)."""


def dominant_share(view: JobView, servers: SlotServers, workers: int) -> float:
    """Return the largest share of any resource used by a job with `workers` workers and their PSs.

    Hosts of workers and hosts of PSs are separate pools unless servers are shared. Quotients of integers
    are rounded once, so that equal shares compare equal.
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

    A step is one worker and the PS that it requires, if any. With integral chunks per slot, it is the number of
    workers up to the next amount of progress. Ties go to the job listed first. A job stops growing when a step
    adds no progress or doesn't fit. On shared servers, whether a step fits depends on the round-robin position,
    so the failed jobs are tried again until none grows.
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
    """Allocate every slot by progressive filling."""

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        """Fill the empty board."""
        fill_progressively(state.board, state.jobs)
        return state.board.allocations()


@register("drf", problem="admission")
class DrfSolver(AbstractSlotSolver[DrfPolicy]):
    """Dominant resource fairness, the rule of YARN and Mesos.

    In every slot, progressive filling starts from an empty cluster. The active job with the lowest dominant
    share ``max_r usage_i^r / total^r`` gets one more worker, and one more PS if Z(Y) increases, until no
    job can grow (Y = N_i, or no unit fits). Placement is round-robin. Every job is accepted;
    utilities play no part.

    Notes
    -----
    The filling is that of the first reference; the second reference compares with it. Details added
    here:

    - hosts of workers and hosts of PSs are separate pools of resources unless servers are shared;
    - equal shares are served by arrival, then by position;
    - a job stops growing at its first step that doesn't fit round-robin; on shared servers, where that depends on
      the round-robin position, failed jobs are tried again, by dominant share, until none grows;
    - a job gets at most the workers that complete it in the slot;
    - with integral chunks per slot, a job grows by the workers that finish one more chunk;
    - workers may move between slots, since moves are free in this problem.

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
        """Return the rule, which has no state."""
        return DrfPolicy()
