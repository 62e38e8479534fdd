"""First in, first out: every job runs with a fixed number of workers, in order of arrival."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.registry import register
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.slots import AbstractSlotSolver, Allocation, Board, JobView, SlotState


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoOptions:
    """Options of `fifo`.

    Parameters
    ----------
    min_workers
        Minimal number of workers of a job. The number is uniform up to `max_workers`, capped by the useful maximum.
    max_workers
        Maximal number of workers of a job.
    """

    min_workers: int = 1
    max_workers: int = 30

    def __post_init__(self) -> None:
        check_worker_range(self.min_workers, self.max_workers)


def check_worker_range(least: int, most: int) -> None:
    """Raise unless the options `min_workers` and `max_workers` are a valid range."""
    if not 1 <= least <= most:
        raise InvalidOptionError(f"worker counts must satisfy 1 <= min_workers <= max_workers, got {least} and {most}")


class FixedWorkers:
    """Each job's fixed number of workers, drawn once when the job is first seen.

    Draws are made in order of arrival, so that a job's number doesn't depend on later jobs.

    Parameters
    ----------
    least, most
        Smallest and largest number of workers that may be drawn.
    rng
        Source of the numbers.
    """

    def __init__(self, least: int, most: int, rng: np.random.Generator) -> None:
        self._least, self._most, self._rng = least, most, rng
        self._sampled_workers: dict[int, int] = {}

    def draw(self, view: JobView) -> int:
        """Return a job's number of workers: at most N_i, and enough to make progress."""
        if view.job not in self._sampled_workers:
            number = int(self._rng.integers(self._least, self._most + 1))
            self._sampled_workers[view.job] = max(view.min_workers, min(number, len(view.progress) - 1))
        return self._sampled_workers[view.job]

    def wanted(self, view: JobView) -> int:
        """Return the number of workers in this slot: at most as many as complete the job."""
        return min(self.draw(view), view.useful_workers)


def keep_running(board: Board, view: JobView, previous: Allocation, workers: int) -> int:
    """Keep a job on its servers and restore it to `workers` as far as they fit; return its number of workers.

    A job with too few workers to make progress is removed from the board and pauses.
    """
    board.hold(view, previous, workers)
    count = board.add_up_to(view, workers)
    if count < view.min_workers:
        board.clear(view)
        return 0
    return count


class FifoPolicy:
    """Start jobs in order of arrival and keep them to completion.

    Parameters
    ----------
    fixed
        Each job's number of workers.
    """

    def __init__(self, fixed: FixedWorkers) -> None:
        self._fixed = fixed
        self._running: dict[int, None] = {}

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        """Keep the running jobs, in order of their start, then start queued jobs until the head doesn't fit."""
        board = state.board
        views = {view.job: view for view in state.jobs}
        self._running = {job: None for job in self._running if job in views}
        for job in self._running:
            self._resume(views[job], state)
        for view in state.jobs:
            if view.job in self._running or not view.can_progress:
                continue
            wanted = self._fixed.wanted(view)
            if not board.add(view, wanted):
                alone = board.max_alone(view, wanted)
                if alone < view.min_workers:
                    continue
                if alone == wanted or not board.add(view, alone):
                    break
            self._running[view.job] = None
        return board.allocations()

    def _resume(self, view: JobView, state: SlotState) -> None:
        wanted = self._fixed.wanted(view)
        if view.job in state.previous:
            keep_running(state.board, view, state.previous[view.job], wanted)
        elif state.board.add_up_to(view, wanted) < view.min_workers:
            state.board.clear(view)


@register("fifo", problem="admission")
class FifoSolver(AbstractSlotSolver[FifoPolicy]):
    """First in, first out, the default of Hadoop and Spark.

    Jobs queue by arrival. Each job has a fixed number of workers. The head starts once its workers and their Z(Y) PSs fit,
    placed round-robin, and keeps them to completion. While the head doesn't fit, no later job starts. Every job is
    accepted; utilities play no part.

    Notes
    -----
    The reference compares with this rule, but its text doesn't fix every detail.
    Added here:

    - the number of workers is uniform on 1 to 30, capped by N_i;
    - with integral chunks per slot, a number too small for one chunk is raised to the smallest
      number that makes progress;
    - in its last slot a job keeps only the workers that complete it;
    - a head wider than the empty cluster of the slot starts with the workers that fit; if none
      fits, the next job becomes the head for the slot;
    - if a running job's workers no longer fit (capacity falls, or its next demand segment needs
      more), the job moves to other servers, or loses workers, or pauses; running jobs go first, in
      order of their start, and return to their fixed number when it fits.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, evaluation section.
    """

    summary = "first in, first out with fixed worker counts (rival)"
    options_type = FifoOptions

    def make_policy(self, instance: AdmissionInstance, options: FifoOptions, rng: np.random.Generator) -> FifoPolicy:
        """Return a new queue."""
        return FifoPolicy(FixedWorkers(options.min_workers, options.max_workers, rng))
