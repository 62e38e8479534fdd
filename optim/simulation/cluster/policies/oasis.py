"""OASiS: admit a job if its utility exceeds the price of its GPUs; prices rise with the GPUs already allocated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_in
from optim.core.policies import policy
from optim.models.admission.data import SigmoidUtility
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import Worth
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.placing import assign_gpus
from optim.simulation.cluster.planning.policy import Oracle, Plan, PlanningPolicy, View
from optim.workloads.admission.generator import UtilityMix

SCALES = (1.0, 0.1, 0.0)
"""Factors by which the final prices are multiplied to compute bounds; the smallest bound is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OasisOptions:
    """Options.

    Parameters
    ----------
    slot_s
        Length of a slot in seconds.
    patience
        Planning horizon of a job in multiples of its shortest run time, added to one day.
    delay
        Target delay of a job's utility, in multiples of its shortest run time.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    slot_s: float = 900.0
    patience: float = 3.0
    delay: float = 2.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[1, 86400]", self, "slot_s")
        check_in("[0, 100]", self, "patience")
        check_in("[0.1, 100]", self, "delay")


@policy(
    "oasis",
    world="cluster",
    options=OasisOptions,
    summary="Admit or reject jobs by prices of GPUs, with utilities sampled from the seed.",
    source="Bao, Peng, Wu, Li, Online Job Scheduling in Distributed Machine Learning Clusters, INFOCOM 2018, algorithms 1 and 2",
)
class Oasis(PlanningPolicy):
    """Assign each job on submission the schedule that maximises utility minus price, or reject it."""

    assumptions = (
        "GPUs are the only resource, and all machines are pooled; admission's UtilityMix samples utilities from the run's seed; 15-minute "
        "slots; prices range from L to U, bounds on the utility per GPU-slot; 48 completion times are tried, up to a day plus three run "
        "times ahead; each slot loses one restart; a job that isn't done by its schedule's end uses idle GPUs"
    )
    oracle_inputs = (Oracle.RUN_TIMES,)

    def __init__(self, options: OasisOptions, jobs: Workload) -> None:
        self.options, self.jobs = options, jobs

    def rules(self, options: EngineOptions) -> Rules:
        """Return rules under which jobs may run on fewer GPUs than their gang, and may be rejected."""
        self.pause_us = max(options.overhead_us, options.startup_us)
        return replace(super().rules(options), is_elastic=True, may_refuse=True)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Sample the utilities and set the range of prices."""
        self.slot = round(self.options.slot_s * US)
        self.useful = max(self.slot - self.pause_us, self.slot // 4)
        self.gpus = cluster.num_gpus
        shortest = self.jobs.duration_us / self.slot
        self.utility = UtilityMix().draw(self.options.delay * shortest + 1, np.random.default_rng(seed))
        worth = np.array([self._value(job, np.array([length]))[0] for job, length in enumerate(shortest.tolist())])
        work = np.maximum(self.jobs.gpus * shortest, 1.0)
        self.high = float(worth.max())
        self.low = max(float((worth / work).min()) / 2, self.high * 1e-9)
        self.used = np.zeros(1024, np.int64)
        self.schedule: dict[int, dict[int, int]] = {}
        self.admitted: list[int] = []
        self.earned, self.refused, self.late = 0.0, 0, 0
        self.done: set[int] = set()

    def _value(self, job: int, delay: FloatArray) -> FloatArray:
        """Return the utility of completing a job `delay` slots after its submission."""
        one: SigmoidUtility = self.utility[job]
        return np.asarray(one.theta1 / (1 + np.exp(np.clip(one.theta2 * (delay - one.theta3), -700, 700))))

    def _price(self, used: IntArray) -> FloatArray:
        """Return the price of a GPU-slot, given the number of GPUs already allocated in the slot."""
        return np.asarray(self.low * (self.high / self.low) ** (used / self.gpus))

    def plan(self, view: View) -> Plan:
        """Admit or reject new jobs, and allocate the GPUs that the admitted jobs' schedules need in this slot."""
        leave = [job for job in view.waiting.tolist() if job not in self.schedule and not self._admit(view, job)]
        self._count(view)
        now = view.now_us // self.slot
        again = (now + 1) * self.slot
        active = [job for job in self.admitted if job in set(view.jobs.tolist())]
        if view.now_us % self.slot and not self._is_idle(view, active, now):
            return Plan(gpus={j: g for j, g in view.running.items() if j not in leave}, again_us=again, leave=leave)
        widths = {job: self.schedule[job][now] for job in active if self.schedule[job].get(now)}
        left = self.gpus - sum(widths.values())
        for job in active:
            if now >= max(self.schedule[job]) + 1 and left > 0:
                widths[job] = min(int(view.gpus[job]), left)
                left -= widths[job]
        return Plan(gpus=assign_gpus(view, widths), again_us=again if active else None, leave=leave)

    def _is_idle(self, view: View, active: list[int], now: int) -> bool:
        """Return whether a job whose schedule is over waits while GPUs are idle."""
        late = [job for job in active if job not in view.running and now > max(self.schedule[job])]
        return bool(late) and view.room().num_free > 0

    def _admit(self, view: View, job: int) -> bool:
        """Assign a job its best schedule; return False if no schedule's utility exceeds its price."""
        first = -(-view.now_us // self.slot)
        gang, need = int(view.gpus[job]), int(view.remaining_us[job]) * int(view.gpus[job])
        units = -(-need // self.useful)  # GPU-slots
        shortest = -(-units // gang)
        most = shortest + int(self.options.patience * shortest) + 96
        self._reach(first + most + 1)
        used = self.used[first : first + most]
        price, room = self._price(used), np.minimum(gang, self.gpus - used)
        best, chosen = 0.0, None
        for length in np.unique(np.geomspace(shortest, most, 48).astype(np.int64)).tolist():
            order = np.argsort(price[:length], kind="stable")
            free = room[order]
            taken = np.minimum(free, np.maximum(0, units - (np.cumsum(free) - free)))
            if taken.sum() < units:
                continue
            cost = float(taken @ price[order])
            end = (first + length) - view.submit_us[job] / self.slot
            payoff = float(self._value(job, np.array([end]))[0]) - cost
            if payoff > best:
                best, chosen = payoff, (order, taken)
        if chosen is None:
            self.refused += 1
            return False
        order, taken = chosen
        self.used[first + order] += taken
        self.schedule[job] = {int(first + at): int(count) for at, count in zip(order, taken, strict=True) if count}
        self.admitted.append(job)
        return True

    def _reach(self, slots: int) -> None:
        if slots > len(self.used):
            self.used = np.concatenate([self.used, np.zeros(max(slots, 2 * len(self.used)), np.int64)])

    def _count(self, view: View) -> None:
        """Add up the utility of the jobs that ended since the last call."""
        there, is_done = {*view.jobs.tolist(), *view.held_back}, view.is_done
        for job in [job for job in self.admitted if job not in there]:
            self.admitted.remove(job)
            if is_done[job]:
                self._earn(job, view.now_us)

    def _earn(self, job: int, end_us: int) -> None:
        delay = (end_us - int(self.jobs.submit_us[job])) / self.slot
        self.earned += float(self._value(job, np.array([delay]))[0])
        self.late += end_us > (max(self.schedule[job]) + 1) * self.slot

    def bound(self) -> tuple[float, FloatArray]:
        """Return an upper bound on the total utility of these jobs, and the prices that prove it.

        For any prices, a bound is the sum of two terms: the jobs' best payoffs, and the prices of all GPU-slots ((D.10)
        of docs/mathematics/cluster.md).
        """
        last = self._price(self.used) * (self.used > 0)
        prices = [scale * last for scale in SCALES]
        values = [float(self.gpus * price.sum()) + sum(self._payoffs(price)) for price in prices]
        best = int(np.argmin(values))
        return values[best], prices[best]

    def worth(self) -> Worth:
        """Return the utilities, the total earned, and its upper bound."""
        theta = [(one.theta1, one.theta2, one.theta3) for one in self.utility]
        bound, price = self.bound()
        return Worth(theta=np.array(theta), slot_us=self.slot, price=price, utility=self.earned, bound=bound)

    def _payoffs(self, price: FloatArray) -> Iterator[float]:
        """Yield an upper bound on each job's payoff.

        A job that ends between two successive times of `ends` has at most the utility at the first time, and at least
        the cost up to the second.
        """
        for job in range(len(self.jobs)):
            first = int(self.jobs.submit_us[job] // self.slot)
            gang, units = int(self.jobs.gpus[job]), self.jobs.gpus[job] * self.jobs.duration_us[job] / self.slot
            shortest = self.jobs.duration_us[job] / self.slot
            last = max(len(price) - first, 1)
            ends = np.unique(np.append(np.geomspace(max(1, int(shortest)), last, 12).astype(np.int64), last))
            cost = []
            for end in ends.tolist():
                cheapest = np.sort(np.append(price, 0.0)[first : first + end + 1])  # slots after the last are free
                whole = int(units // gang)
                part = cheapest[: whole + 1]
                cost.append(
                    float(
                        gang * part[:whole].sum() + (units - gang * whole) * (part[whole] if len(part) > whole else 0.0)
                    )
                )
            begins = np.concatenate([[shortest], np.maximum(shortest, ends)])  # slots after the last end are free
            cost.append(0.0)
            yield float(np.maximum(0.0, self._value(job, begins) - np.array(cost)).max(initial=0.0))

    def figures(self) -> Mapping[str, float]:
        """Return utility, its bound, and the numbers of rejected and late jobs; unfinished jobs have utility 0."""
        return {
            "utility": self.earned,
            "utility_bound": self.bound()[0],
            "refused": float(self.refused),
            "late": float(self.late),
            "slot_s": self.options.slot_s,
        }
