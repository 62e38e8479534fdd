"""A guard that bounds the damage of a wrong forecast.

Of each class of m_c servers m'_c = ceil(a m_c) are the guard's. There the paper's rule R keeps its books: every job of the
day is offered to it, and its decisions are those that it would make alone on these servers. The learned rule decides on
the other servers. A job that R admits at value v runs as R has it, unless the learned rule offers it a value of at least v;
then R's reservation stays in its books, and the room, which nobody uses, is open to the learned rule.

**Theorem.** Whatever the forecast,

1. the plan earns at least what R earns alone on its share of the servers, job by job;
2. if conditions C1 to C6 of R's price function hold with ratio kappa (`posted_prices.theorems`), then
   ``optimum <= kappa / rho * objective + wide``, where rho = min over classes of m'_c / m_c (>= a), and `wide` is the
   summed best value of the jobs that may use more of some class in a slot than the guard's servers of it hold.

Proof. 1: R's books hold rooms of which each is run by R's job, by jobs of the learned rule that were let in, or by none;
R's next decision takes only what its books show as free. So R's decisions don't depend on the forecast, and each job that
it admits at v earns at least v. 2: take an optimal point x of the packing LP over classes of the whole cluster, without the
schedules of wide jobs: its value is at least optimum - wide. Each of its schedules fits into m'_c servers of each class by
the definition of wide, and rho x uses at most rho m_c c <= m'_c c of each row. So the LP of R's share is worth at least
rho (optimum - wide), and at most kappa times what R earns, which is at most kappa times the objective.

The share's whole servers make rho larger than a, never smaller; a class of one server is all the guard's. Splitting the
servers is the construction of docs/mathematics/learned-prices.md, section 3; letting the learned rule use R's idle books is
what makes the guard cheap where the forecast is good.
"""

from dataclasses import dataclass, replace

import numpy as np

from optim.models.admission.instance import AdmissionInstance, IntArray, ServerClasses, as_int_array
from optim.solvers.admission.posted_prices.online_run import OnlineAlgorithm
from optim.solvers.admission.posted_prices.price_functions import ZeroStartPrice
from optim.solvers.admission.posted_prices.price_ranges import JobWorth, LowerScale, PriceRanges, price_ranges
from optim.solvers.admission.posted_prices.server_state import ClusterState
from optim.solvers.admission.posted_prices.theorems import RatioClaim, ratio_claim
from optim.solvers.admission.pricing.server_arrays import SERVER
from optim.solvers.admission.pricing.server_search import FoundSchedule

WHOLE_TOL = 1e-9
"""A share of a class this close to a whole number of servers is that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardClaim:
    """The second part of the theorem on one instance.

    Parameters
    ----------
    rule
        The paper's rule's claim, on the whole cluster's rows (its conditions are about single servers).
    rho
        Least share of a class that is the guard's.
    wide
        Summed best value of wide jobs.
    """

    rule: RatioClaim
    rho: float
    wide: float

    @property
    def ratio(self) -> float:
        """Kappa / rho."""
        return self.rule.ratio / self.rho

    @property
    def statement(self) -> str:
        """The claim in one sentence."""
        if self.rule.holds:
            return (
                f"no plan is worth more than {self.ratio:.6g} times this one plus {self.wide:.6g} "
                f"({self.rule.theorem} price on the guard's servers, C1 to C6 hold)"
            )
        return self.rule.statement


class Guard:
    """The paper's rule on its share of the servers.

    Parameters
    ----------
    instance
        Cluster and jobs.
    share
        a, in (0, 1].
    worth
        The jobs that U and the lower scale come from: the history's.
    function
        Its price function.
    """

    def __init__(self, instance: AdmissionInstance, share: float, worth: JobWorth, function: ZeroStartPrice) -> None:
        self._instance, self._function = instance, function
        self.alone = on_share(instance, share)
        self._bounds: PriceRanges = price_ranges(self.alone, LowerScale.UNIT_FREE_LAMBDA, worth=worth)
        self._rule = OnlineAlgorithm(self.alone, bounds=self._bounds, function=function)
        self._servers = tuple(
            _first_of_classes(whole, part)
            for whole, part in (
                (instance.worker_servers, self.alone.worker_servers),
                (instance.ps_servers, self.alone.ps_servers),
            )
        )
        self.earned = 0.0
        """What R earns alone."""

    def reserve(self, state: ClusterState) -> None:
        """Take the guard's servers out of the learned rule's cluster."""
        for side, servers in zip(state.sides, self._servers, strict=False):
            side.residual[:, :, servers] = 0.0

    def decide(self, job: int) -> FoundSchedule | None:
        """Let R decide on a job; return its schedule on the whole cluster's servers, None if it refuses."""
        decision = self._rule.decide(job)
        if not decision.is_accepted or decision.schedule is None:
            return None
        self.earned += decision.schedule.value
        rows = []
        for part, servers in zip((decision.schedule.workers, decision.schedule.ps), self._servers, strict=True):
            moved = part.copy()
            moved[:, SERVER] = servers[part[:, SERVER]]
            rows.append(moved)
        return replace(decision.schedule, workers=rows[0], ps=rows[1])

    def claim(self, worth: JobWorth) -> GuardClaim:
        """Return what the theorem says of this instance; `worth` is its own jobs'."""
        # The conditions are about jobs and single servers' rows, which are the same in the whole cluster.
        rule = ratio_claim(self._instance, self._bounds, self._function, worth=worth)
        rho, wide = least_share(self._instance, self.alone), wide_value(self._instance, self.alone)
        return GuardClaim(rule=rule, rho=rho, wide=wide)


def on_share(instance: AdmissionInstance, share: float) -> AdmissionInstance:
    """Return the instance on the guard's servers only."""

    def part(servers: ServerClasses) -> ServerClasses:
        count = np.ceil(share * servers.count - WHOLE_TOL).astype(np.int64)
        return replace(servers, count=as_int_array(np.maximum(1, count).tolist()))

    workers = part(instance.worker_servers)
    ps = workers if instance.has_shared_servers else part(instance.ps_servers)
    return replace(instance, worker_servers=workers, ps_servers=ps)


def least_share(instance: AdmissionInstance, alone: AdmissionInstance) -> float:
    """Return rho, the least share of a class' servers that is the guard's."""
    pairs = ((instance.worker_servers, alone.worker_servers), (instance.ps_servers, alone.ps_servers))
    return float(min((part.count / whole.count).min(initial=1.0) for whole, part in pairs))


def wide_value(instance: AdmissionInstance, alone: AdmissionInstance) -> float:
    """Return the summed best value of jobs that may use more of a class in a slot than the guard's servers hold."""
    most_ps = np.array([table[-1] for table in instance.ps_needed], dtype=np.int64)
    sides = (
        (instance.workers_per_server, instance.max_workers, instance.worker_servers, alone.worker_servers),
        (instance.ps_per_server, most_ps, instance.ps_servers, alone.ps_servers),
    )
    needed = [_servers_needed(held, most[instance.segment_job], whole) for held, most, whole, _ in sides]
    if instance.has_shared_servers:
        needed = [needed[0] + needed[1]]
    is_wide = np.zeros(instance.num_jobs, dtype=np.bool_)
    for servers, (_, _, whole, part) in zip(needed, sides, strict=False):
        exceeds = np.minimum(servers, whole.count[None, :, None]) > part.count[None, :, None]
        np.logical_or.at(is_wide, instance.segment_job, exceeds.any(axis=(1, 2)))
    return float(instance.value.max(axis=1, initial=0.0)[is_wide].sum())


def _servers_needed(held: IntArray, most: IntArray, servers: ServerClasses) -> IntArray:
    """Return the servers of each class that the most a schedule may use there fills, shape (segments, classes, slots)."""
    wanted = np.minimum(most[:, None, None], held * servers.count[None, :, None])
    return np.asarray(-(-wanted // np.maximum(held, 1)))


def _first_of_classes(whole: ServerClasses, part: ServerClasses) -> IntArray:
    """Return the numbers that the first servers of each class have in the whole cluster."""
    first = np.concatenate([[0], np.cumsum(whole.count)[:-1]])
    ranges = [np.arange(start, start + count) for start, count in zip(first.tolist(), part.count.tolist(), strict=True)]
    return np.concatenate(ranges).astype(np.int64)
