"""The study `themis-lies`: frequency of profitable misreports over Themis' rounds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.auction.data import Cluster as Offered
from optim.models.auction.decision import PaymentRule
from optim.models.auction.fairness import AppProfile
from optim.models.cluster.metrics import AppFairness, app_fairness
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.policies.themis.apps import AppAgent
from optim.simulation.cluster.policies.themis.leases import Themis, ThemisOptions
from optim.simulation.cluster.policies.themis.placing import Entries
from optim.solvers.auction.mechanism import Bid, Offer
from optim.statistics import Interval, wilson
from optim_studies.themis import WorldOptions

LIES = ("rho", "table", "demand", "locality", "gang")
"""Reports that a lie distorts: fairness, the value of bids relative to no allocation, the number of usable GPUs, the slowdown
by spreading, or the gang size."""

CASES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "default": {},
        "locality": {"network_share": 1.0, "gang": 2, "spread": 2},
        "gangs": {"gang": 4},
        "contention": {"crowding": 4.0},
    }
)
"""Workloads of the study: changes of the default options, by the property that they emphasise."""

LEVELS = ("slot", "machine", "rack", "cluster")

FACTORS = (0.25, 4.0)
"""Factors of the distortion; each lie is tried with all of them."""

MIN_GAIN = 1e-3
"""Minimum share of the liar's time that a profitable lie saves."""


def _with_gang(profile: AppProfile, gang: int) -> AppProfile:
    """Return a profile with another gang size, and a demand in multiples of it."""
    needs = profile.needs
    if needs is None:
        return profile
    demand = max(1, round(needs.demand / gang)) * gang
    needs = replace(needs, demand=demand, total_demand=max(demand, needs.total_demand))
    return replace(profile, needs=needs, gang=gang, gangs=())


class _Liar(AppAgent):
    """An app that distorts its reports."""

    def __init__(self, honest: AppAgent, lie: str, factor: float) -> None:
        profile = honest.profile
        if lie == "demand" and profile.needs is not None:
            demand = max(1, round(profile.needs.demand * factor / profile.gang)) * profile.gang
            needs = replace(profile.needs, demand=demand, total_demand=max(demand, profile.needs.total_demand))
            profile = replace(profile, needs=needs)
        if lie == "locality":
            slowdowns = {level: 1.0 + factor * (getattr(profile.slowdown, level) - 1.0) for level in LEVELS}
            profile = replace(profile, slowdown=replace(profile.slowdown, **slowdowns))
        if lie == "gang":
            profile = _with_gang(profile, max(1, round(profile.gang * factor)))
        holdings = (honest.places, honest.expiring, honest.beside, honest.expiring_beside)
        super().__init__(honest.app, profile, *holdings)
        self._lie, self._factor = lie, factor

    def rho(self, cluster: Offered) -> float:
        """Return the reported rho, which a lie about rho distorts."""
        return super().rho(cluster) * (self._factor if self._lie == "rho" else 1.0)

    def bid(self, offer: Offer) -> Bid:
        """Return the bid, whose table a lie about the table distorts."""
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
        See `Themis`.
    liar, lie, factor
        Index of the lying app, the distorted report, and the factor of the distortion.
    """

    def __init__(self, options: ThemisOptions, jobs: Workload, liar: int, lie: str, factor: float) -> None:
        super().__init__(options, jobs)
        self._lies = (liar, lie, factor)

    def divide(self, offer: Offered, agents: Sequence[AppAgent]) -> Mapping[int, Entries]:
        """Hold an auction with the liar's distorted bids."""
        liar, lie, factor = self._lies
        reporting = [_Liar(agent, lie, factor) if agent.app == liar else agent for agent in agents]
        return super().divide(offer, reporting)


@dataclass(frozen=True, slots=True, kw_only=True)
class LieOptions(WorldOptions):
    """Sizes of the study of lies.

    Parameters
    ----------
    repeats
        Number of runs of each workload, with different random priorities and leftovers, for the truth and for each lie.
    fairness
        Themis' parameter f.
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
    """Statistics of lies under one rule.

    The lies of one workload share its apps and draws. Each workload therefore counts once, by the mean over its lies, and intervals
    are those of means over workloads (Student's t).

    Parameters
    ----------
    profitable, low, high
        Share of profitable lies, and its 95 % interval. If all workloads have the same share, this is Wilson's interval, with one
        trial per lie, or one per workload if all lies pay or none does. A lie pays if the liar's time falls on average over
        the repeats, significantly (Student's t, one-sided 2.5 %) and by at least a thousandth.
    harmful
        Share of lies that cost the liar in the same sense.
    gain, gain_half
        Mean share of its time that the liar saves (`saved`), over all lies, with half the width of its 95 % interval.
    paid_gain, paid_half
        Mean share saved by profitable lies, over the workloads with such lies, with half the width of its 95 % interval; the
        half is 0 for fewer than two workloads.
    best_gain
        Largest of the means over repeats among profitable lies; 0 if there are none.
    lies
        Number of lies.
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
    """Return the options of a case's workloads, which change the study's options by `CASES`."""
    more = dict(CASES[case])
    width_factor, load_factor = int(more.pop("spread", 1)), more.pop("crowding", 1.0)
    return replace(
        options,
        machines=options.machines * width_factor,
        gpus=max(1, options.gpus // width_factor),
        gap_min=options.gap_min / load_factor,
        apps=round(options.apps * math.sqrt(load_factor)),
        network_share=more.get("network_share", options.network_share),
        gang=int(more.get("gang", options.gang)),
    )


def search_lies(options: LieOptions, rule: str, seed: int) -> LieFinding:
    """Try every lie of the first app of each workload, and compare its time with that under the truth."""
    settings = ThemisOptions(rule=rule, fairness=options.fairness, lease_min=5.0)
    gains: list[list[Interval]] = []
    for draw in range(options.draws):
        jobs = options.jobs(seed * options.draws + draw)
        liar = int(np.argmax(np.bincount(jobs.app)))  # the app with the most trials can gain the most

        def seconds(policy: Themis, number: int, jobs: Workload = jobs, liar: int = liar) -> float:
            run = simulate(jobs, options.cluster, policy, EngineOptions(), number)
            assert run is not None, "no stop is requested"
            fair: AppFairness = app_fairness(jobs, options.cluster, run)
            return float(fair.seconds[liar])

        honest = [seconds(Themis(settings, jobs), number) for number in range(options.repeats)]
        gains.append([])
        for lie in LIES:
            for factor in FACTORS:
                lied_seconds = [
                    seconds(LyingThemis(settings, jobs, liar, lie, factor), number) for number in range(options.repeats)
                ]
                gains[-1].append(
                    Interval.of([saved(lied, true) for lied, true in zip(lied_seconds, honest, strict=True)])
                )
    return summed_up(gains)


def saved(lied: float, true: float) -> float:
    """Return the share of its time that a lie saves; a loss is a share of the longer time.

    Examples
    --------
    >>> saved(6.0, 8.0), saved(8.0, 6.0)
    (0.25, -0.25)
    """
    return (true - lied) / max(true, lied)


def summed_up(gains: Sequence[Sequence[Interval]]) -> LieFinding:
    """Return the statistics of the gains of lies, by workload, for at least two workloads."""
    paid = [[interval.mean for interval in world if interval.mean - interval.half > MIN_GAIN] for world in gains]
    harmful = [sum(interval.mean + interval.half < -MIN_GAIN for interval in world) / len(world) for world in gains]
    shares = [len(world_gains) / len(world) for world_gains, world in zip(paid, gains, strict=True)]
    low, high = _interval_of_share(shares, sum(map(len, gains)))
    mean_gain = Interval.of([_mean([interval.mean for interval in world]) for world in gains])
    sizes = [_mean(world_gains) for world_gains in paid if world_gains]
    size = Interval.of(sizes) if len(sizes) > 1 else Interval(mean=sum(sizes), half=0.0)
    return LieFinding(
        profitable=_mean(shares),
        low=low,
        high=high,
        harmful=_mean(harmful),
        gain=mean_gain.mean,
        gain_half=mean_gain.half,
        paid_gain=size.mean,
        paid_half=size.half,
        best_gain=max((gain for world_gains in paid for gain in world_gains), default=0.0),
        lies=sum(map(len, gains)),
    )


def _interval_of_share(shares: Sequence[float], lies: int) -> tuple[float, float]:
    """Return the 95 % interval of a share from the shares of several workloads; Wilson's interval if these are equal."""
    first = shares[0]
    if all(share == first for share in shares):
        trials = len(shares) if first in (0.0, 1.0) else lies
        low, high = wilson(round(first * trials) / trials, trials)
        return float(low), float(high)
    interval = Interval.of(shares)
    return max(0.0, interval.low), min(1.0, interval.high)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


SIZES: Mapping[str, LieOptions] = MappingProxyType(
    {SMALL: LieOptions(draws=2, repeats=2, apps=4, shrink=120.0), FULL: LieOptions(draws=8, repeats=6)}
)


@dataclass(frozen=True, kw_only=True)
class LieWork(AbstractStudy):
    """Search for profitable lies under one payment rule."""

    options_type = LieOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Simulate the truth and every lie."""
        del stop
        clock, rule = PhaseClock(), str(self.labels["rule"])
        progress.start(f"lies under {rule}", None)
        with clock.phase("solve"):
            finding = search_lies(world_of(self.chosen, str(self.labels["case"])), rule, self.seed)
        progress.finish()
        return Finding(findings=options_as_dict(finding), seconds=clock.seconds, iterations=finding.lies)


def _rules(options: LieOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    for case in CASES:
        world = world_of(options, case)
        sizes = {"apps": world.apps, "gpus": world.machines * world.gpus, "machines": world.machines}
        name = f"liars-{case}-{world.apps}-{seed}"
        subject = StudySubject(name=name, topic="auction", drawn_from=world, parameters=sizes)
        for rule in PaymentRule:
            yield subject, {"case": case, "rule": rule.value}


SPEC = register_study(
    "themis-lies",
    "auction",
    "how often a lie pays across Themis' rounds under each payment rule (95 % intervals, Student's t; Wilson if workloads agree)",
    kind=LieWork,
    sizes=SIZES,
    subjects=_rules,
    ways=("simulation",),
    others="the study simulates the policies itself",
    columns=(
        "case",
        "rule",
        "profitable",
        "low",
        "high",
        "harmful",
        "gain",
        "gain_half",
        "paid_gain",
        "paid_half",
        "best_gain",
    ),
)
