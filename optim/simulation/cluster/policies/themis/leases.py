"""Themis: rounds of partial-allocation auctions for leases, and its greedy form without auctions.

An app may use its leased GPUs for any of its jobs. When leases end or GPUs become free for another reason, a round starts: apps
report rho, and the free GPUs are divided among them. Between rounds, an app can only start jobs on GPUs that its other jobs
have released.

Assumptions: agents know the remaining work (the paper's agents ask the app's tuner). An app without GPUs reports rho with the
GPUs whose leases have just ended, or else with one gang. Freed GPUs of aligned leases stay idle until the next round. Apps run
their longest jobs first. Grants of equal machines are exchanged so that fewer jobs migrate.

In the greedy form, an app takes complete gangs, on machines with most free GPUs first, to keep its jobs together.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import check_choices, check_in
from optim.core.policies import policy
from optim.core.registry import Support
from optim.models.auction.data import Cluster as Offered
from optim.models.auction.data import EmptyValue, Horizon
from optim.models.auction.decision import PaymentRule
from optim.models.auction.fairness import AppProfile, IdealTime
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.free_gpus import Gpus
from optim.simulation.cluster.planning.placing import WITHOUT_HOSTS, on_one_type
from optim.simulation.cluster.planning.policy import Oracle, Plan, PlanningPolicy, View
from optim.simulation.cluster.policies.themis.apps import (
    MINUTE_US,
    AgentBatch,
    AppAgent,
    AppTracker,
    GpuTypes,
    Profiles,
    count_gpus,
    live_apps,
)
from optim.simulation.cluster.policies.themis.placing import (
    MIN_LOSSES,
    TUNERS,
    AppTuner,
    Entries,
    chosen_gpus,
    minimise_migrations,
    split,
)
from optim.solvers.auction.mechanism import AgentGroup, Arbiter, ArbiterOptions, Round

NO_TUNER = "none"

NEEDS_LOSSES = (
    f"a tuner needs trials that report at least {MIN_LOSSES} losses; add loss curves to the jobs, or omit the tuner"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOptions:
    """Options of policies that lease.

    Parameters
    ----------
    lease_min
        Length of a lease in minutes.
    aligned
        Whether all leases end together, at multiples of their length; otherwise leases end individually, and freed GPUs are
        offered at once.
    ideal
        Definition of the ideal time in rho: `time-share` (the paper's) or `space-share`.
    tuner, eta
        Tuner of an app's trials: `none` (all trials run to their end), `halving` or `hyperband` (one trial in `eta` continues
        after each step), or `curves`. Tuners kill trials by their reported losses, at rounds and whenever a trial ends.
    """

    lease_min: float = 20.0
    aligned: bool = True
    ideal: str = IdealTime.TIME_SHARE.value
    tuner: str = NO_TUNER
    eta: int = 3

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[0.01, 1e5]", self, "lease_min")
        check_in("[2, 100]", self, "eta")
        check_choices(self, {"ideal": [reading.value for reading in IdealTime], "tuner": (NO_TUNER, *TUNERS)})

    @property
    def lease_us(self) -> int:
        """Length of a lease in integer microseconds."""
        return round(self.lease_min * MINUTE_US)


class LeasingPolicy(PlanningPolicy):
    """A policy that leases GPUs to apps; `divide` allocates the free GPUs.

    Parameters
    ----------
    options, jobs
        Options of the leases, and the jobs, each of which is visible from its submission.
    """

    oracle_inputs: ClassVar[tuple[Oracle, ...]] = (Oracle.RUN_TIMES,)
    places_itself = True

    def __init__(self, options: LeaseOptions, jobs: Workload) -> None:
        self.options, self._points = options, jobs.loss.shape[1]

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Support gangs that fit on one GPU type, with enough vCPUs and memory; a tuner also needs trials with losses."""
        if self.options.tuner != NO_TUNER and jobs.loss.shape[1] < MIN_LOSSES:
            return Support(False, NEEDS_LOSSES)
        if jobs.strains_hosts(cluster):
            return Support(False, WITHOUT_HOSTS)
        return on_one_type(jobs, cluster)

    def rules(self, options: EngineOptions) -> Rules:
        """Return rules that allow rejecting jobs, since tuners kill trials."""
        return replace(super().rules(options), may_refuse=self.options.tuner != NO_TUNER)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget earlier runs."""
        self.cluster, self.seed = cluster, seed
        self.machine_of: list[int] = np.repeat(np.arange(cluster.num_machines), cluster.gpus).tolist()
        self.rack_of: list[int] = cluster.rack.tolist()
        _, rack = np.unique(cluster.rack, return_inverse=True)
        self._rack = rack.astype(np.int64)
        self.census = AppTracker()
        self.rounds = 0
        self._leases: dict[int, dict[int, int]] = {}  # for each app, the end of the lease of each of its GPUs
        self._assigned: dict[int, dict[int, Gpus]] = {}  # for each app, the GPUs of each of its jobs
        self._was_live: set[int] = set()
        self._was_up = np.ones(cluster.num_machines, np.bool_)
        self._tuners: dict[int, AppTuner] = {}
        self._paused: dict[int, frozenset[int]] = {}

    @abstractmethod
    def divide(self, offer: Offered, agents: Sequence[AppAgent]) -> Mapping[int, Entries]:
        """Return (machine, GPUs) entries for each app's number: the app's part of the free GPUs on offer."""

    def plan(self, view: View) -> Plan:
        """End leases, run a round if one is due, and place jobs on the GPUs of their apps."""
        now, lease = view.now_us, self.options.lease_us
        remaining = view.remaining_us
        active = np.flatnonzero(np.bincount(view.app[view.jobs]))
        live = set(active.tolist())
        self.census.update(view, remaining, len(live))
        touched = self._drop_ended(view, live) | self._drop_down(view)
        is_repaired = bool((view.is_up & ~self._was_up).any())
        self._was_up = view.is_up
        has_arrivals = not live <= self._was_live  # an app without live jobs that submits new jobs counts as an arrival
        self._was_live = live
        expiring = self._expire(now)
        is_freed = bool(expiring) or not touched <= live or is_repaired
        for app in [app for app in self._leases if app not in live]:
            del self._leases[app]
        is_due = now % lease == 0 if self.options.aligned else is_freed or has_arrivals
        touched |= set(expiring)
        is_live = np.zeros(len(view.app), np.bool_)
        is_live[view.jobs] = True
        work = remaining
        killed: list[int] = []
        if self.options.tuner != NO_TUNER:
            work, killed = self._review(view, remaining, is_live, sorted(live if is_due else touched & live))
            touched |= {int(view.app[job]) for job in killed}
        if is_due and live:
            touched |= self._hold_round(view, np.flatnonzero(is_live), work, expiring)
        for app in sorted(touched & live):
            jobs = np.array(self.census.totals[app].jobs)
            self._split(view, app, jobs[is_live[jobs]], remaining)
        again = None
        if live:
            ends = [end for gpus in self._leases.values() for end in gpus.values()]
            again = (now // lease + 1) * lease if self.options.aligned else min(ends, default=None)
        gpus = {job: held for jobs in self._assigned.values() for job, held in jobs.items()}
        return Plan(gpus=gpus, again_us=again, leave=killed)

    def _review(
        self, view: View, remaining: IntArray, is_live: "np.ndarray[Any, np.dtype[np.bool_]]", apps: Sequence[int]
    ) -> tuple[IntArray, list[int]]:
        """Let tuners review their trials; return the expected work of each trial, and the killed trials."""
        work, served = remaining.copy(), view.served_us
        killed: list[int] = []
        for app in apps:
            totals = self.census.totals[app]
            is_new = app not in self._tuners
            if is_new:
                self._tuners[app] = TUNERS[self.options.tuner](tuple(totals.jobs), self.options.eta, self._points)
            mine = [job for job in totals.jobs if is_live[job]]
            whole = served[mine] + remaining[mine]
            progress = dict(zip(mine, (served[mine] / whole).tolist(), strict=True))
            found = self._tuners[app].review(progress, view.losses)
            for job, total in zip(mine, whole.tolist(), strict=True):
                if job in found.expected:
                    work[job] = round(total * found.expected[job])
            killed += sorted(found.killed)
            is_live[list(found.killed)] = False
            self._paused[app] = found.paused
            for job in found.killed | found.paused:
                self._assigned.get(app, {}).pop(job, None)
            if is_new:  # in the ideal time, only the work that the tuner is expected to allow counts
                totals.work_min *= max(0.0, sum(found.expected.values())) / len(mine)
        return work, killed

    def _drop_ended(self, view: View, live: set[int]) -> set[int]:
        """Remove jobs that no longer run; return their apps."""
        touched = set()
        for app, jobs in self._assigned.items():
            for job in [job for job in jobs if job not in view.running]:
                del jobs[job]
                touched.add(app)
        for app in [app for app in self._assigned if app not in live]:
            del self._assigned[app]
        return touched

    def _drop_down(self, view: View) -> set[int]:
        """End the leases of GPUs whose machine is down; return their apps."""
        touched = set()
        if not view.is_up.all():
            for app, leases in self._leases.items():
                for gpu in [gpu for gpu in leases if not view.is_up[self.machine_of[gpu]]]:
                    del leases[gpu]
                    touched.add(app)
        return touched

    def _expire(self, now: int) -> dict[int, list[int]]:
        """Remove GPUs whose leases have ended; return them by app."""
        expiring: dict[int, list[int]] = {}
        for app, leases in self._leases.items():
            gone = [gpu for gpu, end in leases.items() if end <= now]
            if gone:
                expiring[app] = gone
                for gpu in gone:
                    del leases[gpu]
        return expiring

    def _hold_round(self, view: View, jobs: IntArray, work: IntArray, expiring: Mapping[int, list[int]]) -> set[int]:
        """Offer the free GPUs to the apps, one type at a time, fastest first; return the apps that got GPUs."""
        kinds = GpuTypes(view, jobs, work)
        served: set[int] = set()
        apps = () if kinds.is_one else np.unique(view.app[jobs]).tolist()
        for kind in kinds.by_speed(apps):
            able = kinds.usable(jobs, kind)
            if len(able):
                served |= self._offer(view, able, work, expiring, (kinds, kind))
        return served

    def _offer(
        self,
        view: View,
        jobs: IntArray,
        work: IntArray,
        expiring: Mapping[int, list[int]],
        offered: tuple[GpuTypes, int],
    ) -> set[int]:
        """Offer the free GPUs of a type to the apps of some jobs; return the apps that got GPUs."""
        _, kind = offered
        taken = {gpu for leases in self._leases.values() for gpu in leases}
        free: dict[int, list[int]] = {machine: [] for machine in range(self.cluster.num_machines)}
        usable: list[bool] = (view.is_up & (self.cluster.kind == kind)).tolist()
        for gpu, machine in enumerate(self.machine_of):
            if gpu not in taken and usable[machine]:
                free[machine].append(gpu)
        if not any(free.values()):
            return set()
        offer = Offered(
            machine_rack=self._rack,
            slot_machine=np.arange(self.cluster.num_machines),
            slot_gpus=self.cluster.gpus,
            slot_free=np.array([len(gpus) for gpus in free.values()], np.int64),
        )
        agents = self._agents(view, jobs, work, expiring, offered)
        if not (agents.wanted() > 0).any():
            return set()
        grants = self.divide(offer, agents)
        self.rounds += 1
        in_use = {
            app: [gpu for held in jobs.values() for gpu in held]
            for app, jobs in self._assigned.items()
            if app in grants
        }
        if self.options.aligned:
            there = np.where(view.is_up & (self.cluster.kind == kind), self.cluster.gpus, 0)
            grants = minimise_migrations(self.cluster.rack, there, grants, in_use, self.machine_of)
        lease = self.options.lease_us
        end = (view.now_us // lease + 1) * lease if self.options.aligned else view.now_us + lease
        for app in sorted(grants, key=lambda app: (not in_use.get(app), app)):  # apps with running jobs choose first
            chosen = chosen_gpus(grants[app], free, in_use.get(app, ()))
            for gpu in chosen:
                free[self.machine_of[gpu]].remove(gpu)
                self._leases.setdefault(app, {})[gpu] = end
        return set(grants)

    def _agents(
        self,
        view: View,
        jobs: IntArray,
        work: IntArray,
        expiring: Mapping[int, list[int]],
        offered: tuple[GpuTypes, int],
    ) -> AgentGroup[AppAgent]:
        """Return the agents of some jobs' apps in the auction of a GPU type."""
        kinds, kind = offered
        paused = frozenset().union(*self._paused.values())
        is_paused = np.isin(jobs, list(paused)) if paused else np.zeros(len(jobs), np.bool_)
        live = live_apps(view, jobs, work, is_paused)
        slowness, ideal = kinds.slowness[live.apps, kind], IdealTime(self.options.ideal)
        known = Profiles(view, live, self.census, ideal, slowness)

        def agent_of(row: int) -> AppAgent:
            return self._agent(int(live.apps[row]), known.of(row), expiring, offered)

        if not kinds.is_one or live.is_mixed.any():
            return AgentGroup([agent_of(row) for row in range(len(live.apps))])
        where = (self.machine_of, self.cluster.num_machines)
        held, gone = count_gpus(live.apps, self._leases, *where), count_gpus(live.apps, expiring, *where)
        return AgentBatch(live, self.census, view.now_us, ideal, slowness, held, gone, agent_of)

    def _agent(
        self, app: int, profile: AppProfile, expiring: Mapping[int, list[int]], offered: tuple[GpuTypes, int]
    ) -> AppAgent:
        """Return an app's agent in the auction of a GPU type."""
        kinds, kind = offered
        held, gone = self._places(self._leases.get(app, ())), self._places(expiring.get(app, ()))
        if kinds.is_one:
            return AppAgent(app, profile, held, gone)
        beside = [kinds.beside(app, places, kind, profile.demand) for places in (held, gone)]
        return AppAgent(app, profile, kinds.own(held, kind), kinds.own(gone, kind), *beside)

    def _places(self, gpus: "Sequence[int] | Mapping[int, int]") -> Entries:
        """Return GPUs as (machine, number of GPUs) entries."""
        counts: dict[int, int] = {}
        for gpu in gpus:
            counts[self.machine_of[gpu]] = counts.get(self.machine_of[gpu], 0) + 1
        return tuple(sorted(counts.items()))

    def _split(self, view: View, app: int, jobs: IntArray, remaining: IntArray) -> None:
        """Place an app's jobs on its GPUs by decreasing remaining work, each on one type, fastest first."""
        leases, gangs = self._leases.get(app, {}), view.gpus
        jobs = jobs[~np.isin(jobs, list(self._paused.get(app, ())))]
        order = jobs[np.lexsort((jobs, -remaining[jobs]))]
        if not len(order):
            self._assigned[app] = {}
            return
        if gangs[order].max() == gangs[order].min():
            order = order[: len(leases)]  # later jobs can't get GPUs
        before = self._assigned.get(app, {})
        if len(set(self.cluster.kind.tolist())) == 1:
            waiting = list(zip(order.tolist(), gangs[order].tolist(), strict=True))
            self._assigned[app] = split(leases, before, waiting, self.machine_of, self.rack_of)
            return
        self._assigned[app] = self._split_by_kind(view, app, order, remaining)

    def _split_by_kind(self, view: View, app: int, order: IntArray, remaining: IntArray) -> dict[int, Gpus]:
        """Return the placement of an app's jobs: running jobs stay, other jobs take the fastest type on which they fit."""
        kinds, before = GpuTypes(view, order, remaining), self._assigned.get(app, {})
        leases = self._leases.get(app, {})
        stays = {job for job, held in before.items() if leases.keys() >= set(held)}
        found: dict[int, Gpus] = {}
        for kind in kinds.by_speed([app]):
            mine = [gpu for gpu in leases if self.cluster.kind[self.machine_of[gpu]] == kind]
            running = {job: held for job, held in before.items() if held and held[0] in set(mine)}
            able = [job for job in kinds.usable(order, kind).tolist() if job not in found and job not in stays]
            waiting = [(job, int(view.gpus[job])) for job in able]
            found |= split(mine, running, waiting, self.machine_of, self.rack_of)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisOptions(LeaseOptions):
    """Options.

    Parameters
    ----------
    fairness
        f in [0, 1]: only the fraction 1 - f of the apps, those with the worst rho, may bid.
    rule
        Payment rule: floor, nearest, ceil, lottery or none. Under lottery, winning no GPUs has the value 0.
    horizon
        Time for which bids value GPUs: `hold` (until the app ends) or `lease` (one lease).
    nodes
        Maximum number of linear programmes in an auction's main tree, and in the tree of each payment.
    """

    fairness: float = 0.8
    rule: str = PaymentRule.FLOOR.value
    horizon: str = Horizon.HOLD.value
    nodes: int = 50

    def __post_init__(self) -> None:
        """Check the ranges."""
        LeaseOptions.__post_init__(self)
        check_in("[0, 1]", self, "fairness")
        check_in("[1, 100000]", self, "nodes")
        known = {"rule": [rule.value for rule in PaymentRule], "horizon": [horizon.value for horizon in Horizon]}
        check_choices(self, known)


@policy(
    "themis",
    world="cluster",
    options=ThemisOptions,
    summary="Auction GPU leases to apps in rounds, one auction per GPU type, fastest first; tuners kill trials by their losses.",
    source="Mahajan et al., Themis, NSDI 2020",
)
class Themis(LeasingPolicy):
    """Lease GPUs to apps in rounds of auctions.

    Parameters
    ----------
    options, jobs
        Options of the auctions, and the jobs, each of which is visible from its submission.
    """

    assumptions: ClassVar[str] = (
        "apps report rho with the GPUs whose lease has just ended, and run their longest jobs first; equal machines are exchanged so that "
        "fewer jobs migrate"
    )

    def __init__(self, options: ThemisOptions, jobs: Workload) -> None:
        super().__init__(options, jobs)
        nodes = {"main_nodes": options.nodes, "payment_nodes": options.nodes}
        is_lottery = options.rule == PaymentRule.LOTTERY
        self._arbiter = Arbiter(
            ArbiterOptions(
                fairness=options.fairness,
                lease_min=options.lease_min,
                horizon=Horizon(options.horizon),
                empty_value=EmptyValue.ZERO if is_lottery else EmptyValue.POSITIVE,
                solver_options={"rule": options.rule, **nodes},
            )
        )

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget earlier runs."""
        super().begin(cluster, seed)
        self._seconds: list[float] = []
        self._undecided = self._payments = self._leftover = self._rows = 0

    def divide(self, offer: Offered, agents: Sequence[AppAgent]) -> Mapping[int, Entries]:
        """Run an auction."""
        held = self._arbiter.hold(offer, agents, seed=self.seed, round_number=self.rounds)
        self.note(held)
        asked = agents.made if isinstance(agents, AgentBatch) else agents
        found = {agent.app: _merged(agent.grant.entries) for agent in asked if agent.grant is not None}
        return dict(sorted(found.items()))

    def note(self, held: Round) -> None:
        """Record the statistics of a round."""
        plan = held.solution.decision
        self._seconds.append(held.solve_s)
        self._undecided += held.undecided
        self._payments += plan.num_winners
        self._leftover += int(plan.placement[:, 2].sum() - plan.grants[:, 2].sum())
        self._rows += sum(held.rows.values())

    def figures(self) -> Mapping[str, float]:
        """Return statistics of the auctions: number, milliseconds, bid rows, payments, undecided payments, unsold GPUs."""
        seconds = self._seconds or [0.0]
        return {
            "auctions": float(self.rounds),
            "auction_ms_mean": 1000 * sum(seconds) / len(seconds),
            "auction_ms_max": 1000 * max(seconds),
            "bid_rows": float(self._rows),
            "payments": float(self._payments),
            "payments_left_open": float(self._undecided),
            "gpus_left_over": float(self._leftover),
        }


def _merged(entries: Entries) -> Entries:
    """Sum entries of the same machine."""
    counts: dict[int, int] = {}
    for machine, count in entries:
        counts[machine] = counts.get(machine, 0) + count
    return tuple(sorted(counts.items()))


@policy(
    "themis-greedy",
    world="cluster",
    options=LeaseOptions,
    summary="Give the app with the largest rho all GPUs that it can use, in each round.",
    source="Mahajan et al., Themis, NSDI 2020 (the strawman)",
)
class ThemisGreedy(LeasingPolicy):
    """Serve apps by decreasing rho."""

    assumptions: ClassVar[str] = "an app takes complete gangs, from the machines with the most free GPUs first"

    def divide(self, offer: Offered, agents: Sequence[AppAgent]) -> Mapping[int, Entries]:
        """Give apps the GPUs that they can use, by decreasing rho; of apps with equal rho, the lower number comes first."""
        free = offer.slot_free.copy()
        grants: dict[int, Entries] = {}
        for agent in sorted(agents, key=lambda agent: (-agent.rho(offer), agent.app)):
            wanted = min(agent.wanted(), int(free.sum())) // agent.gang * agent.gang
            taken: list[tuple[int, int]] = []
            for machine in sorted(range(len(free)), key=lambda m: (-int(free[m]), m)):
                count = min(wanted, int(free[machine]))
                if count:
                    taken.append((machine, count))
                    free[machine] -= count
                    wanted -= count
            if taken:
                grants[agent.app] = tuple(sorted(taken))
        return grants
