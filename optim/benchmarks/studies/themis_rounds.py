"""Themis round after round: what its knobs do, how rivals fare on the same apps, and whether lies pay."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.core.ranges import check_in
from optim.models.auction.fairness import AppProfile
from optim.models.auction.instance import Cluster as Offered
from optim.models.cluster.app_fairness import AppFairness, app_fairness
from optim.models.cluster.log import Run
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import play
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.policies.themis import Themis, ThemisOptions
from optim.simulation.cluster.policies.themis_apps import AppAgent
from optim.simulation.cluster.policies.themis_places import Entries
from optim.solvers.auction.agent import Bid, Offer
from optim.workloads.cluster.themis_apps import ThemisOptions as AppOptions
from optim.workloads.cluster.themis_apps import draw_apps

LIES = ("rho", "table", "demand", "locality", "gang")
"""What a liar distorts: its reported fairness, what its bids are worth beside having nothing, how many GPUs it can use, how much
it is slowed down by spreading, or how many GPUs it needs together."""

CASES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "default": {},
        "locality": {"network_share": 1.0, "gang": 2, "spread": 2},
        "gangs": {"gang": 4},
        "contention": {"crowding": 4.0},
    }
)
"""Worlds of the study of lies, by what they have more of than those drawn by default."""

LEVELS = ("slot", "machine", "rack", "cluster")

FACTORS = (0.25, 4.0)
"""By how much: each kind of lie is tried with all of them."""

T_95 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)
"""Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom."""


LEAST_GAIN = 1e-3
"""A lie that saves a smaller share of the liar's time than this doesn't count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """Apps and cluster of a world.

    Parameters
    ----------
    apps, machines, gpus
        Apps, machines, and GPUs of each; racks of four machines.
    gap_min
        Mean minutes between arrivals.
    network_share, gang
        Share of the apps that the network slows down when they spread, and GPUs of every trial, 0 to draw each app's.
    shrink
        How many times shorter than published the apps' jobs are.
    draws
        Worlds drawn; figures are means over them with 95 % intervals.
    """

    apps: int = 12
    machines: int = 4
    gpus: int = 4
    gap_min: float = 10.0
    network_share: float = 0.4
    gang: int = 0
    shrink: float = 20.0
    draws: int = 3

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[2, 1000]", self, "apps", "machines")
        check_in("[1, 64]", self, "gpus")
        check_in("[0, 1e6]", self, "gap_min")
        check_in("[1, 1e4]", self, "shrink")
        check_in("[2, 10]", self, "draws")
        check_in("[0, 1]", self, "network_share")
        check_in("[0, 64]", self, "gang")

    @property
    def cluster(self) -> Cluster:
        """The machines."""
        racks = np.arange(self.machines) // 4
        return Cluster(gpus=np.full(self.machines, self.gpus), rack=racks)

    def jobs(self, seed: int) -> Workload:
        """Draw the apps of a world."""
        apps = AppOptions(apps=self.apps, gap_min=self.gap_min, network_share=self.network_share, gang=self.gang)
        drawn = draw_apps(apps, seed)
        return replace(drawn, duration_us=np.maximum(US, (drawn.duration_us / self.shrink).astype(np.int64)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and half the width of its 95 % interval."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Return the mean of independent values, at least two."""
        array = np.asarray(values, dtype=float)
        spread = float(array.std(ddof=1)) / math.sqrt(len(array))
        return cls(mean=float(array.mean()), half=spread * T_95[min(len(array) - 2, len(T_95) - 1)])


def run_policy(jobs: Workload, cluster: Cluster, policy: str, options: Mapping[str, Any], seed: int) -> Run:
    """Play a world under a policy of the catalogue."""
    run = play(jobs, cluster, make_policy(policy, jobs, options), EngineOptions(), seed)
    assert run is not None, "nobody asks for a stop"
    return run


def figures_of(jobs: Workload, cluster: Cluster, run: Run) -> dict[str, float]:
    """Return an apps' figures of a run."""
    fair = app_fairness(jobs, cluster, run)
    return {
        "rho_max": float(fair.rho.max()),
        "rho_share_above_1": float((fair.rho > 1).mean()),
        "rho_space_max": float(fair.rho_space.max()),
        "gpu_hours": run.held_gpu_us / 3600 / US,
        "app_hours": float(fair.seconds.mean()) / 3600,
    }


def measured(
    options: WorldOptions, policy: str, settings: Mapping[str, Any], seed: int, *, beside: str | None = None
) -> dict[str, Interval]:
    """Return the figures of a policy over the worlds of a seed, with 95 % intervals.

    `beside` names a policy that plays the same worlds: `times_fairer` is how many times the worst rho is larger than there,
    `gpu_time` how many times less GPU-time this one takes.
    """
    rows = []
    for draw in range(options.draws):
        number = seed * options.draws + draw
        jobs, cluster = options.jobs(number), options.cluster
        row = figures_of(jobs, cluster, run_policy(jobs, cluster, policy, settings, number))
        if beside is not None:
            other = figures_of(jobs, cluster, run_policy(jobs, cluster, beside, {}, number))
            row["times_fairer"] = row["rho_max"] / other["rho_max"]
            row["gpu_time"] = other["gpu_hours"] / row["gpu_hours"]
        rows.append(row)
    return {name: Interval.of([row[name] for row in rows]) for name in rows[0]}


def _with_gang(profile: AppProfile, gang: int) -> AppProfile:
    """Return a profile that says a gang, and a demand in multiples of it."""
    needs = profile.needs
    if needs is None:
        return profile
    demand = max(1, round(needs.demand / gang)) * gang
    needs = replace(needs, demand=demand, total_demand=max(demand, needs.total_demand))
    return replace(profile, needs=needs, gang=gang, gangs=())


class _Liar(AppAgent):
    """An app that distorts what it says."""

    def __init__(self, honest: AppAgent, lie: str, factor: float) -> None:
        profile = honest.profile
        if lie == "demand" and profile.needs is not None:
            demand = max(1, round(profile.needs.demand * factor / profile.gang)) * profile.gang
            needs = replace(profile.needs, demand=demand, total_demand=max(demand, profile.needs.total_demand))
            profile = replace(profile, needs=needs)
        if lie == "locality":
            told = {level: 1.0 + factor * (getattr(profile.slowdown, level) - 1.0) for level in LEVELS}
            profile = replace(profile, slowdown=replace(profile.slowdown, **told))
        if lie == "gang":
            profile = _with_gang(profile, max(1, round(profile.gang * factor)))
        super().__init__(honest.app, profile, honest.places, honest._expiring)
        self._lie, self._factor = lie, factor

    def rho(self, cluster: Offered) -> float:
        """Report a fairness."""
        return super().rho(cluster) * (self._factor if self._lie == "rho" else 1.0)

    def bid(self, offer: Offer) -> Bid:
        """Bid a table."""
        bid = super().bid(offer)
        if self._lie != "table" or not len(bid.table):
            return bid
        values = [bid.table.rho.max(initial=0.0), *(rho for _, rho in bid.table.named)]
        empty = max(bid.table.empty_rho * self._factor, float(max(values)) * (1 + 1e-9))
        return replace(bid, table=replace(bid.table, empty_rho=empty))


class LyingThemis(Themis):
    """Themis with one app that lies.

    Parameters
    ----------
    options, jobs
        As those of `Themis`.
    liar, lie, factor
        Number of the app, what it distorts, and by how much.
    """

    def __init__(self, options: ThemisOptions, jobs: Workload, liar: int, lie: str, factor: float) -> None:
        super().__init__(options, jobs)
        self._lies = (liar, lie, factor)

    def divide(self, offer: Offered, agents: Sequence[AppAgent]) -> Mapping[int, Entries]:
        """Hold an auction in which the liar speaks for itself."""
        liar, lie, factor = self._lies
        told = [_Liar(agent, lie, factor) if agent.app == liar else agent for agent in agents]
        return super().divide(offer, told)


@dataclass(frozen=True, slots=True, kw_only=True)
class LieOptions(WorldOptions):
    """Sizes of the study of lies.

    Parameters
    ----------
    repeats
        How often each world is played with another draw of lots and leftovers, with the truth and with each lie.
    fairness
        f of the rounds.
    """

    apps: int = 6
    machines: int = 2
    shrink: float = 60.0
    repeats: int = 4
    fairness: float = 0.5

    def __post_init__(self) -> None:
        """Check the ranges."""
        WorldOptions.__post_init__(self)
        check_in("[2, 100]", self, "repeats")
        check_in("[0, 1]", self, "fairness")


@dataclass(frozen=True, slots=True, kw_only=True)
class LieFinding:
    """What lies came to under one rule.

    Parameters
    ----------
    profitable, low, high
        Share of lies that pay, and its 95 % interval (Wilson's). A lie pays if the liar's time to its end falls on average
        over the repeats, by more than chance explains (Student's t, one-sided 2.5 %) and by a thousandth at least.
    harmful
        Share of lies that cost the liar in the same sense.
    gain, gain_half
        Mean share of its time that the liar saves (`saved`), over all lies, with half the width of its 95 % interval.
    paid_gain, paid_half
        The same over the lies that pay; the half is 0 where fewer than two do.
    best_gain
        Largest of the means over repeats among lies that pay; 0 if none does.
    lies
        Lies tried.
    """

    profitable: float
    low: float
    high: float
    harmful: float
    gain: float
    gain_half: float
    paid_gain: float
    paid_half: float
    best_gain: float
    lies: int


def world_of(options: LieOptions, case: str) -> LieOptions:
    """Return the worlds of a case: apps that all want nearness, on narrower machines; wide gangs; or all at once."""
    more = dict(CASES[case])
    spread, crowding = int(more.pop("spread", 1)), more.pop("crowding", 1.0)
    return replace(
        options,
        machines=options.machines * spread,
        gpus=max(1, options.gpus // spread),
        gap_min=options.gap_min / crowding,
        apps=round(options.apps * math.sqrt(crowding)),
        network_share=more.get("network_share", options.network_share),
        gang=int(more.get("gang", options.gang)),
    )


def search_lies(options: LieOptions, rule: str, seed: int) -> LieFinding:
    """Let the first app of each world lie in every way, and hold its time against that of the truth."""
    settings = ThemisOptions(rule=rule, fairness=options.fairness, lease_min=5.0)
    gains: list[Interval] = []
    for draw in range(options.draws):
        jobs = options.jobs(seed * options.draws + draw)
        liar = int(np.argmax(np.bincount(jobs.app)))  # many trials: much to gain

        def seconds(policy: Themis, number: int, jobs: Workload = jobs, liar: int = liar) -> float:
            run = play(jobs, options.cluster, policy, EngineOptions(), number)
            assert run is not None, "nobody asks for a stop"
            fair: AppFairness = app_fairness(jobs, options.cluster, run)
            return float(fair.seconds[liar])

        honest = [seconds(Themis(settings, jobs), number) for number in range(options.repeats)]
        for lie in LIES:
            for factor in FACTORS:
                told = [
                    seconds(LyingThemis(settings, jobs, liar, lie, factor), number) for number in range(options.repeats)
                ]
                gains.append(Interval.of([saved(lied, true) for lied, true in zip(told, honest, strict=True)]))
    return summed_up(gains)


def saved(lied: float, true: float) -> float:
    """Return the share of its time that a lie saves; what it costs is told as a share of the longer time.

    Examples
    --------
    >>> saved(6.0, 8.0), saved(8.0, 6.0)
    (0.25, -0.25)
    """
    return (true - lied) / max(true, lied)


def summed_up(gains: Sequence[Interval]) -> LieFinding:
    """Return what gains of lies come to."""
    count = len(gains)
    paid = [found.mean for found in gains if found.mean - found.half > LEAST_GAIN]
    low, high = wilson(len(paid), count)
    whole = Interval.of([found.mean for found in gains])
    size = Interval.of(paid) if len(paid) > 1 else Interval(mean=sum(paid), half=0.0)
    return LieFinding(
        profitable=len(paid) / count,
        low=low,
        high=high,
        harmful=sum(found.mean + found.half < -LEAST_GAIN for found in gains) / count,
        gain=whole.mean,
        gain_half=whole.half,
        paid_gain=size.mean,
        paid_half=size.half,
        best_gain=max(paid, default=0.0),
        lies=count,
    )


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson, JASA 1927).

    Examples
    --------
    >>> [round(end, 3) for end in wilson(0, 20)]
    [0.0, 0.161]
    """
    share, weight = hits / count, z * z / count
    middle = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / count + weight / count / 4) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)
