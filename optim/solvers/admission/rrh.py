"""Risk-reward heuristic: admit jobs by slack, then rank them by yield against the other jobs' losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.errors import InvalidOptionError, check_in
from optim.core.registry import register
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.drf import dominant_share
from optim.solvers.admission.fifo import FixedWorkers, check_worker_range, keep_running
from optim.solvers.admission.slots import AbstractSlotSolver, Allocation, Board, JobView, SlotState


@dataclass(frozen=True, slots=True, kw_only=True)
class RrhOptions:
    """Options of `rrh`.

    Parameters
    ----------
    rate
        Discount rate per slot: a yield that takes RPT slots is worth ``yield / (1 + rate RPT)`` now. >= 0.
    alpha
        Weight of the discounted yield against the opportunity cost in the ranking, in [0, 1].
    threshold
        Minimal slack of an admitted job, in slots (exclusive).
    is_cost_shared
        Whether a job's opportunity cost is weighted by its share of the cluster; otherwise every job is
        assumed to delay all other jobs, as on a single machine.
    min_workers
        Minimal number of workers of a job. The number is uniform up to `max_workers`, capped by the useful maximum.
    max_workers
        Maximal number of workers of a job.
    """

    rate: float = 0.01
    alpha: float = 0.5
    threshold: float = 0.0
    is_cost_shared: bool = True
    min_workers: int = 1
    max_workers: int = 30

    def __post_init__(self) -> None:
        check_in("[0, inf)", self, "rate")
        check_in("[0, 1]", self, "alpha")
        if np.isnan(self.threshold):
            raise InvalidOptionError("threshold must be a number of slots, got nan")
        check_worker_range(self.min_workers, self.max_workers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RiskAndReward:
    """Expected gains and losses of a set of jobs if each ran from now on; one entry per job.

    Parameters
    ----------
    remaining
        RPT: slots until completion.
    present
        PV: yield at completion, discounted.
    decay
        Loss by completing one slot later.
    patience
        Slots of delay after which completing earns nothing.
    weight
        Share of the other jobs that a job delays while it runs.
    """

    remaining: FloatArray
    present: FloatArray
    decay: FloatArray
    patience: FloatArray
    weight: FloatArray

    def cost(self, i: int) -> float:
        """Return the opportunity cost of running job i: the other jobs' loss while they wait for it."""
        losses = self.decay * np.minimum(self.remaining[i], self.patience)
        losses[i] = 0.0
        return float(self.weight[i] * losses.sum())

    def slack(self, i: int) -> float:
        """Return the number of slots that job i may be delayed before its cost exceeds its reward."""
        reward = float(self.present[i]) - self.cost(i)
        if self.decay[i] > 0:
            return reward / float(self.decay[i])
        return np.inf if reward > 0 else -np.inf

    def rank(self, i: int, alpha: float) -> float:
        """Return the reward per slot of job i; higher goes first."""
        return float((alpha * self.present[i] - (1 - alpha) * self.cost(i)) / self.remaining[i])


class RrhPolicy:
    """Admit by slack on arrival; in every slot run the admitted jobs by rank.

    Parameters
    ----------
    options
        Rate, weight and threshold.
    fixed
        Each job's number of workers.
    """

    def __init__(self, options: RrhOptions, fixed: FixedWorkers) -> None:
        self._options = options
        self._fixed = fixed
        self._workers: dict[int, int] = {}
        self._admitted: dict[int, bool] = {}

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        """Admit or reject the newcomers one by one, then place the admitted jobs by rank while they fit."""
        for view in state.jobs:
            if view.job not in self._admitted:
                self._workers[view.job] = self._fit_workers(view, state.board)
                self._admitted[view.job] = self._is_worthwhile(view, state)
        pool = [view for view in state.jobs if self._admitted[view.job]]
        risks = self._risk_and_reward(pool, state)
        for place in sorted(range(len(pool)), key=lambda i: (-risks.rank(i, self._options.alpha), i)):
            if risks.present[place] > 0:
                self._run(pool[place], state)
        return state.board.allocations()

    def _fit_workers(self, view: JobView, board: Board) -> int:
        """Return a job's fixed number of workers, capped by the empty cluster's capacity unless that makes no progress."""
        number = self._fixed.draw(view)
        alone = board.max_alone(view, number)
        return alone if alone >= view.min_workers else number

    def _is_worthwhile(self, view: JobView, state: SlotState) -> bool:
        if not view.can_progress:
            return False
        rivals = [other for other in state.jobs if self._admitted.get(other.job, False)]
        risks = self._risk_and_reward([*rivals, view], state)
        return risks.present[-1] > 0 and risks.slack(len(rivals)) > self._options.threshold

    def _run(self, view: JobView, state: SlotState) -> None:
        """Place a job's fixed number of workers, old servers first; none if not all fit, except on too small a cluster."""
        wanted = min(self._workers[view.job], view.useful_workers)
        if view.job in state.previous:
            keep_running(state.board, view, state.previous[view.job], wanted)
        else:
            state.board.add(view, wanted)
        if state.board.count(view) < wanted and state.board.max_alone(view, wanted) >= wanted:
            state.board.clear(view)

    def _risk_and_reward(self, views: Sequence[JobView], state: SlotState) -> RiskAndReward:
        """Return the jobs' risks and rewards."""
        size = len(views)
        remaining, value, decay, patience, weight = (np.zeros(size) for _ in range(5))
        for i, view in enumerate(views):
            workers = self._workers[view.job]
            slots = -(-view.remaining // int(view.progress[workers]))
            finish = state.slot + slots - 1
            remaining[i] = slots
            value[i] = _value_at(view, finish)
            decay[i] = max(0.0, value[i] - _value_at(view, finish + 1))
            patience[i] = max(0, view.deadline + 1 - finish)
            weight[i] = dominant_share(view, state.board.servers, workers) if self._options.is_cost_shared else 1.0
        return RiskAndReward(
            remaining=remaining,
            present=value / (1 + self._options.rate * remaining),
            decay=decay,
            patience=patience,
            weight=weight,
        )


def _value_at(view: JobView, slot: int) -> float:
    return float(view.value[slot]) if slot < len(view.value) else 0.0


@register("rrh", problem="admission")
class RrhSolver(AbstractSlotSolver[RrhPolicy]):
    """Risk-reward heuristic: a job's yield against the other jobs' loss while they wait for it.

    With a fixed number of workers, job i needs RPT_i more slots. If it runs from now on it completes with yield_i, and
    one slot of delay then costs it decay_i. A competitor j loses value by waiting, until it is worthless:

        PV_i   = yield_i / (1 + rate RPT_i)
        cost_i = share_i * sum over j != i of decay_j * min(RPT_i, slots until j is worthless)

    On arrival job i is admitted if its slack ``(PV_i - cost_i) / decay_i`` exceeds a threshold; in every
    slot the admitted jobs run in order of ``(alpha PV_i - (1 - alpha) cost_i) / RPT_i`` while they fit.

    Notes
    -----
    The formulas follow the idea of the first reference, but their details may differ from the paper. The second
    reference compares with this heuristic. Details added here:

    - decay is the finite difference of the utility at the expected completion slot, and may be 0; then
      the slack is infinite, of the sign of ``PV_i - cost_i``;
    - the factor share_i, the job's dominant share of the cluster: a job that takes a tenth of the cluster
      doesn't stop all other jobs. Without it (`is_cost_shared` off) the formula is the one for a single machine,
      and rejects far too many jobs of a large cluster;
    - competitors are the admitted jobs that are not complete; newcomers of a slot are judged one by one;
    - the number of workers is drawn as by `fifo`, but capped by the empty cluster's capacity;
    - a job runs with that number, on its old servers first, or pauses: if a job doesn't fit, the next by
      rank is tried. A job shrinks only if the slot's full cluster is too small;
    - an admitted job that can no longer earn a value is dropped.

    References
    ----------
    Irwin, Grit, Chase, "Balancing Risk and Reward in a Market-Based Task Service", HPDC 2004.
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, evaluation section.
    """

    summary = "risk-reward heuristic: admission by slack, ranking by yield and opportunity cost (rival)"
    options_type = RrhOptions

    def make_policy(self, instance: AdmissionInstance, options: RrhOptions, rng: np.random.Generator) -> RrhPolicy:
        """Return a new heuristic."""
        return RrhPolicy(options, FixedWorkers(options.min_workers, options.max_workers, rng))
