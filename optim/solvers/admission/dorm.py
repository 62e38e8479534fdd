"""Dorm: at every arrival and completion the cluster is divided anew by a mixed-integer programme."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.core.registry import register
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.drf import dominant_share, fill_progressively
from optim.solvers.admission.slots.board import Board
from optim.solvers.admission.slots.division import Division, DivisionLimits, DivisionProblem, divide
from optim.solvers.admission.slots.schedule import SlotState
from optim.solvers.admission.slots.slot_solver import AbstractSlotSolver
from optim.solvers.admission.slots.view import Allocation, JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class DormOptions:
    """Options of `dorm`.

    Parameters
    ----------
    theta1
        The summed loss of fairness is at most ``theta1 * 2 m`` with m resources, in [0, 1].
    theta2
        At most this share of the running jobs, rounded up, changes its allocation at once, in [0, 1].
    most_waiting
        How many waiting jobs a programme considers, the first by arrival: keeps programmes small. At least 1.
    full_columns
        Programmes with more integer columns are confined to the neighbourhood of their relaxation's
        optimum and of what is held (see `dorm_division`).
    node_limit
        Branch-and-bound nodes a programme: the limit that ends hard ones, the same on every machine.
    time_limit_s
        Seconds a programme: a safeguard only, since a limit by the clock differs between machines.
    relative_gap
        Gap at which a programme counts as solved.
    """

    theta1: float = 0.1
    theta2: float = 0.1
    most_waiting: int = 20
    full_columns: int = 100
    node_limit: int = 10
    time_limit_s: float = 30.0
    relative_gap: float = 0.02

    def __post_init__(self) -> None:
        check_in("[0, 1]", self, "theta1", "theta2")
        check_in("[1, inf)", self, "most_waiting", "node_limit")
        for name in ("time_limit_s", "relative_gap"):
            if not getattr(self, name) >= 0:
                raise InvalidOptionError(f"{name} must be at least 0, got {getattr(self, name)}")


class DormPolicy:
    """Hold what runs; at an event divide the cluster anew.

    Parameters
    ----------
    options
        Bounds and limits.
    """

    def __init__(self, options: DormOptions) -> None:
        self._options = options
        self.counts = {
            "programmes": 0, "confined": 0, "fallbacks": 0, "out_of_time": 0, "workers_not_placed": 0
        }  # fmt: skip

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        """Hold the running jobs where they are; if anything has happened, divide and place."""
        views = [view for view in state.jobs if view.can_progress]
        board = state.board
        for view in views:
            if view.job in state.previous:
                own = state.previous[view.job]
                wanted = min(int(own.workers.sum()), view.useful_workers)
                kept = board.hold(view, own, wanted)
                if kept < view.least_workers:
                    board.clear(view)
        held = board.allocations()
        views = self._considered(views, held, board)
        if not (state.is_event and views):
            return held
        self.counts["programmes"] += 1
        outcome = divide(self.division_problem(views, held, board), self._limits(state))
        self.counts["confined"] += outcome.is_confined
        self.counts["out_of_time"] += outcome.is_out_of_time
        if outcome.division is None:
            self.counts["fallbacks"] += 1
            return held
        return self._place(views, held, outcome.division, board)

    def _considered(self, views: Sequence[JobView], held: Mapping[int, Allocation], board: Board) -> list[JobView]:
        """Return the running jobs and the first of those waiting that some server could host."""
        result, waiting = [], 0
        for view in views:
            if view.job in held:
                result.append(view)
            elif waiting < self._options.most_waiting and all(
                limit.any() for limit in board.servers.class_limits(view)
            ):
                result.append(view)
                waiting += 1
        return result

    def division_problem(
        self, views: Sequence[JobView], held: Mapping[int, Allocation], board: Board
    ) -> DivisionProblem:
        """State the programme for a slot's jobs, what they hold, and the slot's servers."""
        servers = board.servers
        fair = board.empty()
        fill_progressively(fair, views)
        kept = [servers.class_counts(held[view.job]) if view.job in held else None for view in views]
        num_held = np.array([0 if own is None else own[0].sum() for own in kept], dtype=np.int64)
        worker_capacity, ps_capacity = servers.class_capacity()
        none = np.zeros(len(worker_capacity), dtype=np.int64), np.zeros(len(ps_capacity), dtype=np.int64)
        useful = np.array([view.useful_workers for view in views], dtype=np.int64)
        limits = [servers.class_limits(view) for view in views]
        return DivisionProblem(
            worker_demand=np.array([view.worker_demand for view in views], dtype=np.float64),
            ps_demand=np.array([view.ps_demand for view in views], dtype=np.float64),
            worker_limit=np.array([limit[0] for limit in limits], dtype=np.int64),
            ps_limit=np.array([limit[1] for limit in limits], dtype=np.int64),
            worker_capacity=worker_capacity,
            ps_capacity=ps_capacity,
            is_shared=servers.is_shared,
            ps_per_worker=np.array([view.ps_per_worker for view in views]),
            least=np.array([view.least_workers for view in views], dtype=np.int64),
            most=np.maximum(useful, num_held),
            fair=np.array([fair.count(view) for view in views], dtype=np.int64),
            is_running=(num_held > 0).astype(np.int64),
            held=Division(
                workers=np.array([none[0] if own is None else own[0] for own in kept]),
                ps=np.array([none[1] if own is None else own[1] for own in kept]),
            ),
            fairness_limit=self._options.theta1 * 2 * worker_capacity.shape[1],
            change_limit=math.ceil(self._options.theta2 * int((num_held > 0).sum())),
        )

    def _limits(self, state: SlotState) -> DivisionLimits:
        options = self._options
        return DivisionLimits(
            columns=options.full_columns,
            nodes=options.node_limit,
            time_s=min(options.time_limit_s, state.remaining_s),
            relative_gap=options.relative_gap,
            should_stop=state.should_stop,
        )

    def _place(
        self, views: Sequence[JobView], held: Mapping[int, Allocation], division: Division, board: Board
    ) -> Mapping[int, Allocation]:
        """Put a division onto single servers: jobs that don't change stay exactly where they are."""
        fresh = board.empty()
        changing = []
        for place, view in enumerate(views):
            workers, ps = division.workers[place], division.ps[place]
            own = board.servers.class_counts(held[view.job]) if view.job in held else None
            if own is not None and (own[0] == workers).all() and (own[1] == ps).all():
                fresh.hold(view, held[view.job], int(workers.sum()))
            elif workers.any():
                changing.append((view, workers, ps))
        # Coarse workers first: fine ones still fit into what is left over.
        changing.sort(key=lambda change: (-dominant_share(change[0], board.servers, 1), change[0].job))
        for view, workers, ps in changing:
            placed = fresh.place_by_class(view, held.get(view.job), workers, ps)
            self.counts["workers_not_placed"] += int(workers.sum()) - placed
            if placed < view.least_workers:
                fresh.clear(view)
        return fresh.allocations()


@register("dorm", problem="admission")
class DormSolver(AbstractSlotSolver[DormPolicy]):
    """Dorm: dynamic partitions by a utilisation-fairness programme.

    At each arrival and completion a mixed-integer programme (`dorm_division`) divides the cluster: the
    most utilisation, summed over the resources, such that the summed difference of the jobs' dominant
    shares from those of dominant resource fairness is at most ``theta1 * 2 m``, and at most a share
    `theta2` of the running jobs changes its allocation. Running jobs keep at least one worker. In
    between, allocations are held. Every job is accepted; utilities play no part.

    Notes
    -----
    The programme is rebuilt from memory of the first reference: its idea is certain, its details are not.
    Completed here:

    - a job's share counts its workers, not its PSs, so that it is linear; shares of dominant resource
      fairness are those of the progressive filling of `drf` in the same slot;
    - utilisation counts b/B of a PS for each worker, so that nothing is gained by idle PSs;
    - a waiting job starts if the programme gives it workers, at most N_i and no more than complete it;
    - identical servers are one class in the programme; totals are placed class by class, round-robin,
      on the job's old servers first; what doesn't split onto single servers goes to any server with
      room, or nowhere (`workers_not_placed` counts those);
    - the limit theta1 * 2 m is not rounded, that on changes is rounded up;
    - allocations are divided anew also when a capacity changes, a job enters another demand segment;
      a job that can't be held then moves, shrinks or pauses as the board's `hold` says;
    - a programme without a solution within its limits leaves the allocations held (`fallbacks` counts
      those): newcomers wait for the next event. Programmes end by nodes, which is the same on every
      machine; if `out_of_time` isn't zero, the clock has ended one and another run may differ.

    References
    ----------
    Sun, Wen, Ta, Yan, "Towards Distributed Machine Learning in Shared Clusters: A Dynamically-Partitioned
    Approach", SMARTCOMP 2017, DOI 10.1109/SMARTCOMP.2017.7947053, arXiv 1704.06738.
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, evaluation section.
    """

    summary = "Dorm: division by a utilisation-fairness programme at each event (rival)"
    options_type = DormOptions

    def make_policy(self, instance: AdmissionInstance, options: DormOptions, rng: np.random.Generator) -> DormPolicy:
        """Return a fresh policy."""
        return DormPolicy(options)

    def policy_counts(self, policy: DormPolicy) -> Mapping[str, float]:
        """Return how many programmes were solved, and how they ended."""
        return policy.counts
