"""The study `online`: jobs with a deadline on generated traces of one zone, compared with a bound on all online rules.

The traces come from a two-state chain, given or fitted on a recorded zone. Every trace's minimum cost is proven. The dynamic
programme that knows the chain gives a lower bound on the mean cost of every online rule, randomised or not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError, check_in
from optim.core.options import options_as_dict
from optim.core.policies import causal_names
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.prices import MICRO
from optim.models.bidding.market.zones import ZoneJob, ZoneMarket
from optim.simulation.spot.policies import policy_class
from optim.simulation.spot.zones import facts_of, run_zones
from optim.solvers.bidding.zones import least_cost
from optim.workloads.prices.availability_files import ZoneOptions, job_of, read_availability, zone_named
from optim_studies.online_bound import AvailabilityChain, fit_chain, min_mean_usd

FAR_OFF = 5.0
"""Number of standard errors by which the mean of a policy, or of the minimum costs, may be on the wrong side of the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineOptions:
    """Options of the study.

    Parameters
    ----------
    availability, zone
        A file of recorded traces, and the zone whose chain and mean spot price are fitted.
    stays, comes
        The chain without a file: probabilities of availability after a tick with, and after a tick without availability.
    spot_usd, on_demand_usd
        Dollars per hour; with a file the spot price is the file's.
    tick_s
        Seconds per tick without a file.
    job_hours, deadline_hours, changeover_hours
        The job.
    traces
        Number of traces.
    """

    availability: str = ""
    zone: str = ""
    stays: float = 0.99
    comes: float = 0.07
    spot_usd: float = 0.92
    on_demand_usd: float = 3.06
    tick_s: int = 195
    job_hours: float = 12.0
    deadline_hours: float = 14.0
    changeover_hours: float = 0.1
    traces: int = 20

    def __post_init__(self) -> None:
        check_in("(0, 1e6]", self, "spot_usd", "on_demand_usd")
        check_in("[1, 86400]", self, "tick_s")
        check_in("[2, 1e6]", self, "traces")
        if bool(self.availability) != bool(self.zone):
            raise InvalidOptionError(
                "availability and zone require each other; give both, with --option zone=NAME for a zone of the file"
            )


SIZES: Mapping[str, OnlineOptions] = MappingProxyType(
    {SMALL: OnlineOptions(), FULL: OnlineOptions(job_hours=48.0, deadline_hours=52.0, traces=400)}
)


@dataclass(frozen=True, kw_only=True)
class OnlineWork(AbstractStudy):
    """Run all policies on generated traces of one zone."""

    options_type = OnlineOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Generate, run, prove, and compare with the bound."""
        del stop, progress
        options, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            chain, spot_micro, tick_s = _chain_of(options)
            market = market_on(np.ones(2, dtype=bool), options, spot_micro, tick_s)
            hours = (options.job_hours, options.deadline_hours, options.changeover_hours)
            job = job_of(market, ZoneOptions(job_hours=hours[0], deadline_hours=hours[1], changeover_hours=hours[2]))
        with clock.phase("solve"):
            bound = min_mean_usd(
                chain, job, spot_micro=spot_micro, on_demand_micro=round(MICRO * options.on_demand_usd), tick_s=tick_s
            )
        usd: dict[str, list[float]] = {name: [] for name in ("optimum", *causal_names("zones"))}
        problems: list[str] = []
        with clock.phase("verify"):
            for number in range(options.traces):
                flags = chain.draw(job.num_ticks(tick_s), np.random.default_rng([self.seed, number]))
                problems += _run_all(market_on(flags, options, spot_micro, tick_s), job, usd)
        return Finding(
            findings=_findings(chain, bound, usd),
            seconds=clock.seconds,
            problems=[*problems, *contradictions(bound, usd)],
            iterations=options.traces,
        )


def market_on(
    flags: "np.ndarray[Any, np.dtype[np.bool_]]", options: OnlineOptions, spot: int, tick_s: int
) -> ZoneMarket:
    """Return one zone that is available at given ticks, at constant prices."""
    size = len(flags)
    return ZoneMarket(
        zones=(options.zone or "drawn",),
        regions=("one",),
        time_s=tick_s * np.arange(size, dtype=np.int64),
        tick_s=tick_s,
        is_available=flags[:, None],
        spot_micro=np.full((size, 1), spot, dtype=np.int64),
        on_demand_micro=np.array([round(MICRO * options.on_demand_usd)], dtype=np.int64),
    )


def contradictions(bound: float, usd: Mapping[str, list[float]]) -> list[str]:
    """Return contradictions: a policy whose mean is surely below the bound, or minimum costs whose mean is surely above."""
    problems = []
    for name, values in usd.items():
        error = FAR_OFF * float(np.std(values, ddof=1)) / np.sqrt(len(values)) + 1e-9 * bound
        mean = float(np.mean(values))
        if (mean > bound + error) if name == "optimum" else (mean < bound - error):
            problems.append(
                f"{name} has a mean of {mean:.6g} dollars, which contradicts the lower bound of {bound:.6g} for online rules"
            )
    return problems


def _chain_of(options: OnlineOptions) -> tuple[AvailabilityChain, int, int]:
    """Return the chain, the spot price in micro-dollars and the tick, fitted or given."""
    if not options.availability:
        return (
            AvailabilityChain(stays=options.stays, comes=options.comes),
            round(MICRO * options.spot_usd),
            options.tick_s,
        )
    on_demand = round(MICRO * options.on_demand_usd)
    trace = zone_named(read_availability(options.availability, on_demand_micro=on_demand), options.zone)
    tick_s = max(1, round(float(np.median(np.diff(trace.time_s)))))
    return fit_chain(trace.is_available), round(float(trace.price_micro.mean())), tick_s


def _run_all(market: ZoneMarket, job: ZoneJob, usd: dict[str, list[float]]) -> Iterator[str]:
    """Run every policy on one trace, and prove its minimum cost; yield errors in the proof."""
    best = least_cost(market, job, 0)
    usd["optimum"].append(best.usd)
    for name in causal_names("zones"):
        usd[name].append(run_zones(market, job, policy_class(name, "zones")(facts_of(market, job)), 0).cost_usd)
    yield from check_optimum(market, job, best)


def _findings(chain: AvailabilityChain, bound: float, usd: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the results: means in dollars, and the bound over the mean of the minimum costs."""
    mean = {f"{name.replace('-', '_')}_usd": float(np.mean(values)) for name, values in usd.items()}
    least = mean["optimum_usd"]
    hours = {"stays": chain.stays, "comes": chain.comes, "there": chain.share}
    return {**hours, "bound_usd": bound, "bound_ratio": bound / least, **mean}


def _subjects(options: OnlineOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    drawn_from = sorted(options_as_dict(options).items())
    name = f"online-{options.zone or 'drawn'}-{options.job_hours:g}h-{seed}"
    yield StudySubject(name=name, topic="bidding", drawn_from=drawn_from), {}


SPEC = register_study(
    "online",
    "bidding",
    "jobs with a deadline on drawn traces of a zone, compared with a lower bound on online rules (bound_ratio: lower bound over minimum cost)",
    kind=OnlineWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("chain",),
    others="the study runs policies, not solvers",
    columns=("there", "optimum_usd", "bound_usd", "bound_ratio", "skynomad_usd", "greedy_spot_usd"),
)
