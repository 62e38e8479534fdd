"""Time shares in rounds: max-min fairness over GPU types, and finish-time fairness."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_in
from optim.core.policies import policy
from optim.core.registry import Support
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.time_shares import ShareProblem
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus
from optim.simulation.cluster.planning.placing import on_one_type
from optim.simulation.cluster.planning.policy import Oracle, Plan, PlanningPolicy, View
from optim.solvers.cluster.time_shares import finish_time_shares, max_min_shares

GAVEL = "Narayanan et al., Gavel, OSDI 2020, sections 4 and 5"

NEVER_YET = 1e-3
"""Number of rounds credited to a job on a GPU type that never served it, so that such jobs are ordered by their shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOptions:
    """Options.

    Parameters
    ----------
    round_s
        Length of a round in seconds.

    Raises
    ------
    InvalidOptionError
        If `round_s` is outside its range.
    """

    round_s: float = 360.0

    def __post_init__(self) -> None:
        """Check the range."""
        check_in("[1, 86400]", self, "round_s")


class ShareRounds(PlanningPolicy):
    """Compute time shares after arrivals and ends of jobs, and realise them in rounds; placements change only at rounds."""

    plans_at_events = False

    def __init__(self, options: RoundOptions, jobs: Workload) -> None:
        self.options, self.jobs = options, jobs

    @abstractmethod
    def shares(self, problem: ShareProblem) -> FloatArray:
        """Return the share of time of each job on each type; shape (jobs, types)."""

    @abstractmethod
    def left_s(self, view: View) -> FloatArray:
        """Return the remaining work of each job, or ones if the policy ignores it."""

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Support gangs that fit on GPUs of one type."""
        return super().supports(jobs, cluster) and on_one_type(jobs, cluster)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget shares and rounds."""
        del seed
        kinds = int(cluster.kind.max()) + 1
        self.gpus = np.bincount(cluster.kind, weights=cluster.gpus, minlength=kinds).astype(np.int64)
        self.machines = [cluster.kind == kind for kind in range(kinds)]
        self.received = np.zeros((len(self.jobs), kinds))
        self.isolated_s, self.served = np.zeros(len(self.jobs)), np.zeros(len(self.jobs))
        self.active: IntArray = np.zeros(0, np.int64)
        self.x = np.zeros((0, kinds))
        self.solves = 0

    def plan(self, view: View) -> Plan:
        """Run the jobs furthest below their shares in the next round."""
        step = round(self.options.round_s * US)
        again = (view.now_us // step + 1) * step
        if not len(view.jobs):
            return Plan(gpus={})
        self.site = view.room().site
        self._account(view)
        if not np.array_equal(self.active, view.jobs):
            self.active = view.jobs
            self.x = self.shares(self._problem(view))
            self.solves += 1
        gpus = self._place(view)
        for job, held in gpus.items():
            self.received[job, view.cluster.kind[view.machine_of(held[0])]] += 1
        return Plan(gpus=gpus, again_us=again)

    def _problem(self, view: View) -> ShareProblem:
        jobs = view.jobs
        kinds = (
            view.gpu_type_slowdown_ppm[jobs]
            if view.gpu_type_slowdown_ppm.shape[1]
            else np.full((len(jobs), len(self.gpus)), PPM)
        )
        speed = np.where(kinds[:, : len(self.gpus)] > 0, PPM / np.maximum(kinds[:, : len(self.gpus)], 1), 0.0)
        speed *= [[self.site.could_hold(job, where) for where in self.machines] for job in jobs.tolist()]
        problem = ShareProblem(
            throughput=speed,
            width=view.gpus[jobs],
            gpus=self.gpus,
            elapsed_s=(view.now_us - view.submit_us[jobs]) / US,
            left=np.maximum(self.left_s(view)[jobs], 1e-6),
            isolated_s=self.isolated_s[jobs],
        )
        self.rate = problem.isolated
        return problem

    def _account(self, view: View) -> None:
        """Add to each job's isolated time the time that the work since the last round takes on its isolated share."""
        served = view.served_us / US
        if len(self.active):
            done = served[self.active] - self.served[self.active]
            self.isolated_s[self.active] += done / self.rate
        self.served[: len(served)] = served

    def _place(self, view: View) -> dict[int, Gpus]:
        """Assign GPUs by decreasing ratio of share to rounds received; jobs that continue on the same type keep their GPUs."""
        priority = self.x / np.maximum(self.received[self.active], NEVER_YET)
        order = np.argsort(-priority, axis=None, kind="stable")
        order = order[priority.ravel()[order] > 0]
        kinds = view.cluster.kind[view.is_up]
        left = np.bincount(kinds, view.cluster.gpus[view.is_up], minlength=len(self.gpus)).astype(np.int64)
        chosen: dict[int, int] = {}
        for at in order.tolist():
            job, kind = int(self.active[at // len(left)]), at % len(left)
            width = int(view.gpus[job])
            if job not in chosen and width <= left[kind]:
                chosen[job] = kind
                left[kind] -= width
        gpus = {
            job: held
            for job, held in view.running.items()
            if job in chosen and {int(view.cluster.kind[view.machine_of(gpu)]) for gpu in held} == {chosen[job]}
        }
        room = view.room([job for job in view.running if job not in gpus])
        for job, kind in chosen.items():
            if job not in gpus:
                self._start(room, job, view.cluster.kind == kind, gpus)
        for at in order.tolist():  # gangs that can't be placed leave their GPUs to other jobs
            job = int(self.active[at // len(left)])
            if job not in gpus and room.num_free:
                self._start(room, job, view.cluster.kind == at % len(left), gpus)
        return gpus

    @staticmethod
    def _start(room: FreeGpus, job: int, machines: "np.typing.NDArray[np.bool_]", gpus: dict[int, Gpus]) -> None:
        taken = room.place(job, machines=machines)
        if taken is not None:
            gpus[job] = taken

    def figures(self) -> Mapping[str, float]:
        """Return the number of solves for shares."""
        return {"solves": float(self.solves)}


@policy(
    "max-min",
    world="cluster",
    options=RoundOptions,
    summary="Maximise the minimum normalised throughput by time shares of GPU types, realised in rounds.",
    source=GAVEL,
)
class MaxMin(ShareRounds):
    """Maximise the minimum, over jobs, of the throughput relative to that of a 1/n share of every GPU type."""

    assumptions = (
        "shares are solved for after arrivals and departures; a round assigns GPUs by share over rounds received so far; gangs "
        "that can't be placed are skipped in that round; placement by the engine's rule"
    )

    def shares(self, problem: ShareProblem) -> FloatArray:
        """Solve the linear programme."""
        return max_min_shares(problem).x

    def left_s(self, view: View) -> FloatArray:
        """Return ones, since the policy ignores the remaining work."""
        return np.ones(len(view.gpus))


@policy(
    "finish-time-fairness",
    world="cluster",
    options=RoundOptions,
    summary="Minimise the largest finish-time ratio by time shares of GPU types, realised in rounds.",
    source=GAVEL,
)
class FinishTimeFairness(ShareRounds):
    """Solve the convex programme of Gavel's finish-time fairness policy by a sequence of linear programmes."""

    assumptions = (
        "a job's isolated counterpart does the same work at the rate of a 1/n share of every type, with n the current number of jobs; "
        "rounds as in max-min"
    )
    oracle_inputs = (Oracle.RUN_TIMES,)

    def shares(self, problem: ShareProblem) -> FloatArray:
        """Minimise the largest ratio."""
        return finish_time_shares(problem).x

    def left_s(self, view: View) -> FloatArray:
        """Return the remaining work."""
        return view.remaining_us / US
