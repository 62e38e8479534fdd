"""The study `zone-deadlines`: jobs with a deadline over several zones with prices and transfers, policies paired with `deadline-dp`.

Starts are drawn from recordings, or from spells drawn by the prior of `optim.models.bidding.market.spells`; what policies learn
comes from other recordings. Starts within a span of a deadline's length share most of what they see: they are one cluster of the intervals.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError, check_choices, check_in
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.prices import HOUR_S, MICRO
from optim.models.bidding.market.spells import SpellHazards, decision_s, prior_hazards
from optim.models.bidding.market.zones import UNITS_USD, Allocation, ZoneJob, ZoneMarket
from optim.simulation.spot.backtest import OPTIMUM
from optim.simulation.spot.deadline_policy import CHOICES, DeadlinePolicy, DeadlineView, Machines, SpellWatch
from optim.simulation.spot.deadline_zones import deadline_job, known_hazards
from optim.simulation.spot.policies import policy_class
from optim.simulation.spot.zone_policies import AdaptiveZones
from optim.simulation.spot.zones import Offer, ZoneFacts, ZonePolicy, ZoneView, facts_of, run_zones
from optim.solvers.bidding.zones import least_cost
from optim.statistics import Interval
from optim.workloads.prices.availability_files import (
    Egress,
    Link,
    ZoneOptions,
    job_of,
    market_of,
    read_availability,
    read_history,
)

REFERENCE = "deadline-dp"
"""The policy with which every other is paired."""

PARTS = ("all", "first-half", "second-half")
WRONG = ("", "tenfold", "tenth", "reversed")
DRAWN_TICKS, DRAWN_TICK_S = 1500, 600
ON_DEMAND_USD = 3.06


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneDeadlineOptions:
    """Options of the study.

    Parameters
    ----------
    availability, zones
        A table with prices, and zones of it, separated by commas; all by default. Without a table markets are drawn.
    history, history_zones
        A file or folder to learn from, and how names of zones to learn from begin, separated by commas; all by default.
    part
        Starts in all of the recordings, or in their first or second half.
    starts
        How many.
    job_hours, deadline_hours, changeover_hours
        The job.
    state_gb, egress_usd
        State that moves with the job, and dollars a GB between regions.
    price_spread
        Prices of each zone are multiplied by the exponential of a normal number times this, drawn once.
    wrong
        Hazards that are learned are taken ten times as high (``tenfold``), a tenth (``tenth``), or by ages reversed.
    billing
        The rule of the bill.
    """

    availability: str = ""
    zones: str = ""
    history: str = ""
    history_zones: str = ""
    part: str = "all"
    starts: int = 6
    job_hours: float = 12.0
    deadline_hours: float = 14.0
    changeover_hours: float = 0.1
    state_gb: float = 50.0
    egress_usd: float = 0.02
    price_spread: float = 0.0
    wrong: str = ""
    billing: str = Billing.PER_SECOND.value

    def __post_init__(self) -> None:
        check_in("[2, 1e5]", self, "starts")
        check_in("[0, 2]", self, "price_spread")
        check_in("[0, 1e6]", self, "egress_usd")
        check_choices(self, {"part": PARTS, "wrong": WRONG, "billing": [rule.value for rule in Billing]})
        if self.zones and not self.availability:
            raise InvalidOptionError("zones are those of a file: give --option availability=FILE")


SIZES: Mapping[str, ZoneDeadlineOptions] = MappingProxyType(
    {SMALL: ZoneDeadlineOptions(), FULL: ZoneDeadlineOptions(starts=100, job_hours=48.0, deadline_hours=52.0)}
)


class OneZoneTable(AdaptiveZones):
    """A table of one zone in several: it says whether spot machines are wanted, and `adaptive-zones` in which order."""

    def __init__(self, facts: ZoneFacts) -> None:
        super().__init__(facts)
        self._hazards = known_hazards(facts)
        self._watches = [SpellWatch(self._hazards) for _ in facts.zones]
        self._policy: DeadlinePolicy | None = None

    def choose(self, view: ZoneView) -> Sequence[Offer]:
        """Return the zones in order where the table takes spot machines, and what it does without."""
        self.look(view)
        for zone, seen in enumerate(view.seen):
            if seen is not None:
                self._watches[zone].see(seen[0] * self.facts.tick_s, is_available=seen[1])
        if self._policy is None:
            self._policy = DeadlinePolicy.of(deadline_job(self.facts, min(view.spot_micro)), self._hazards)
        held, order = view.held, self.order(view)
        absent, there = (self._places(view, order[0].zone, is_there) for is_there in (False, True))
        if held is not None and held.is_spot:
            best = order[0]
            is_better = best != held and not view.setup_left_s and self.memory.was_there(best.zone)
            return (best, held) if is_better else self._places(view, held.zone, True)
        return (*order, *absent) if there and there[0].is_spot else absent

    def _places(self, view: ZoneView, zone: int, is_there: bool) -> tuple[Offer, ...]:
        held = CHOICES[0 if view.held is None else 1 if view.held.is_spot else 2]
        told = DeadlineView(
            elapsed_s=view.elapsed_s,
            work_left_s=view.work_left_s,
            is_available=is_there,
            held=held,
            setup_left_s=0 if held is Machines.NONE else view.setup_left_s,
            spell_s=self._watches[zone].lasted_s(view.elapsed_s, is_available=is_there),
        )
        assert self._policy is not None
        chosen = self._policy.updated(self._watches[zone]).decide(told)
        if chosen is Machines.NONE:
            return ()
        if chosen is held and view.held is not None:
            return (view.held,)
        return (Offer(zone, True),) if chosen is Machines.SPOT else (self.on_demand(view),)


RIVALS: Mapping[str, Callable[[ZoneFacts], ZonePolicy]] = {"one-zone-table": OneZoneTable}
WAYS = (REFERENCE, "skynomad", "cheapest-zone", "uniform-progress-zones", "adaptive-zones", *RIVALS, OPTIMUM)


@dataclass(frozen=True, kw_only=True)
class ZoneWorld:
    """Where jobs run, and what is known of how spells end."""

    market: ZoneMarket
    job: ZoneJob
    hazards: SpellHazards | None
    firsts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Dollars of one run, the same if a bill's hours all cost what the last zone does, and whether the job was late."""

    usd: float
    last_price_usd: float
    is_late: bool


@cache
def world_of(options: ZoneDeadlineOptions, seed: int) -> ZoneWorld:
    """Return the market, read or drawn, the job and its starts.

    Raises
    ------
    InvalidOptionError
        If the recordings, or the half of them, are shorter than the deadline.
    """
    market = _drawn(seed) if not options.availability else _recorded(options)
    if options.price_spread:
        rng = np.random.default_rng([seed, 1])
        factors = np.exp(options.price_spread * rng.standard_normal(market.num_zones))
        prices = np.maximum(1, np.rint(market.spot_micro * factors)).astype(np.int64)
        market = replace(market, spot_micro=prices)
    regions = sorted(set(market.regions))
    egress = Egress(links={(a, b): Link(options.egress_usd) for a in regions for b in regions if a != b})
    hours = {name: getattr(options, name) for name in ("job_hours", "deadline_hours", "changeover_hours", "state_gb")}
    job = job_of(market, ZoneOptions(**hours), egress)
    ticks, half = job.num_ticks(market.tick_s), len(market) // 2
    low, high = {"all": (0, len(market)), "first-half": (0, half), "second-half": (half, len(market))}[options.part]
    if high - low < ticks:
        raise InvalidOptionError(
            f"{high - low} ticks of {market.tick_s} s are shorter than a deadline of {options.deadline_hours:g} h; "
            "give longer recordings, or part=all"
        )
    firsts = np.random.default_rng(seed).integers(low, high - ticks + 1, options.starts)
    return ZoneWorld(market=market, job=job, hazards=_hazards(options, market), firsts=tuple(sorted(map(int, firsts))))


def _recorded(options: ZoneDeadlineOptions) -> ZoneMarket:
    traces = read_availability(options.availability, on_demand_micro=round(MICRO * ON_DEMAND_USD))
    return market_of(traces, tuple(options.zones.split(",")) if options.zones else tuple(traces))


def _drawn(seed: int) -> ZoneMarket:
    """Return four zones of two regions at four prices, whose spells end by the prior."""
    prior, zones = prior_hazards(DRAWN_TICK_S), ("drawn-1a", "drawn-1b", "drawn-2a", "drawn-2b")
    flags = [prior.draw(DRAWN_TICKS, np.random.default_rng([seed, zone])) for zone in range(len(zones))]
    return ZoneMarket(
        zones=zones,
        regions=tuple(zone[:-1] for zone in zones),
        time_s=DRAWN_TICK_S * np.arange(DRAWN_TICKS, dtype=np.int64),
        tick_s=DRAWN_TICK_S,
        is_available=np.stack(flags, axis=1),
        spot_micro=np.tile(np.array([1_000_000, 1_100_000, 900_000, 1_500_000], dtype=np.int64), (DRAWN_TICKS, 1)),
        on_demand_micro=np.full(len(zones), round(MICRO * ON_DEMAND_USD)),
    )


def _hazards(options: ZoneDeadlineOptions, market: ZoneMarket) -> SpellHazards | None:
    """Return how spells end elsewhere or before, right or wrong."""
    hazards = None
    if options.history:
        history = read_history(options.history)
        begins = tuple(options.history_zones.split(",")) if options.history_zones else ("",)
        hazards = history.of(begins).learn(market)[0]
    if not options.wrong:
        return hazards
    hazards = hazards or prior_hazards(decision_s(market.tick_s))
    if options.wrong == "reversed":
        return replace(hazards, hazard=hazards.hazard[:, ::-1])
    factor = 10.0 if options.wrong == "tenfold" else 0.1
    return hazards.scaled(factor, factor)


@cache
def outcome_of(options: ZoneDeadlineOptions, seed: int, name: str, number: int) -> tuple[Outcome, tuple[str, ...]]:
    """Return what a policy, or the proven least cost, comes to from a start, and what is wrong with the proof."""
    world, billing = world_of(options, seed), Billing(options.billing)
    market, job, first = world.market, world.job, world.firsts[number]
    if name == OPTIMUM:
        best = least_cost(market, job, first, billing)
        problems = tuple(check_optimum(market, job, best, billing))
        return _outcome(market, job, first, best.plan, best.usd, is_late=False), problems
    facts = facts_of(market, job, billing, world.hazards)
    made = RIVALS[name](facts) if name in RIVALS else policy_class(name, "zones")(facts)
    run = run_zones(market, job, made, first, billing=billing)
    return _outcome(market, job, first, run.stays, run.units / UNITS_USD, is_late=not run.deadline_met), ()


def _outcome(
    market: ZoneMarket, job: ZoneJob, first: int, stays: Sequence[Allocation], usd: float, *, is_late: bool
) -> Outcome:
    """Return an outcome; all hours of a kind cost in it what they do in the last zone in the last tick, transfers nothing."""
    last = stays[-1]
    tick = first + (last.end_s - 1) // market.tick_s
    prices = {True: market.spot_micro[tick, last.zone], False: market.on_demand_micro[last.zone]}
    micro = sum((stay.end_s - stay.begin_s) * int(prices[stay.is_spot]) for stay in stays)
    return Outcome(usd=usd, last_price_usd=micro * job.machines / HOUR_S / MICRO, is_late=is_late)


@dataclass(frozen=True, kw_only=True)
class ZoneDeadlineWork(AbstractStudy):
    """Run one policy from all starts, and pair it with `deadline-dp`."""

    options_type = ZoneDeadlineOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Run, prove the least costs, and compare."""
        clock, options = PhaseClock(), self.chosen
        with clock.phase("build"):
            world = world_of(options, self.seed)
        found: dict[str, list[Outcome]] = {name: [] for name in (self.solver, REFERENCE, OPTIMUM)}
        problems: list[str] = []
        progress.start(f"{self.solver} from {options.starts} starts", options.starts)
        with clock.phase("solve"):
            for number in range(options.starts):
                if stop(SolveState(elapsed_s=clock.elapsed_s, iterations=number)) is not None:
                    return Finding(
                        seconds=clock.seconds, problems=["it was stopped"], iterations=number, is_whole=False
                    )
                for name, mine in found.items():
                    outcome, wrong = outcome_of(options, self.seed, name, number)
                    mine.append(outcome)
                    problems += [f"start {world.firsts[number]}: {text}" for text in wrong]
                problems += _contradictions(self.solver, found, world.firsts[number])
                progress.update(number + 1)
        progress.finish()
        return Finding(
            findings=_findings(found[self.solver], found[REFERENCE], found[OPTIMUM], world),
            seconds=clock.seconds,
            problems=problems,
            iterations=options.starts,
        )


def _contradictions(name: str, found: Mapping[str, Sequence[Outcome]], first: int) -> Iterator[str]:
    """Yield that a policy was late, or cost less than the proven least, from the last start."""
    mine, least = found[name][-1], found[OPTIMUM][-1]
    if mine.is_late:
        yield f"start {first}: {name} is late"
    elif mine.usd < least.usd * (1.0 - 1e-9):
        yield f"start {first}: {name} costs {mine.usd:.6g} dollars, less than the least, {least.usd:.6g}"


def _findings(
    mine: Sequence[Outcome], reference: Sequence[Outcome], least: Sequence[Outcome], world: ZoneWorld
) -> dict[str, float]:
    """Return means, what is paid above the least, and dollars more than the reference with a 95 % interval by cluster."""
    usd, other, best = (np.array([each.usd for each in rows]) for rows in (mine, reference, least))
    span = world.job.num_ticks(world.market.tick_s)
    clusters = [first // span for first in world.firsts]
    found = {
        "usd": float(usd.mean()),
        "above_optimum": float(usd.mean() / best.mean() - 1.0),
        "more_usd": float((usd - other).mean()),
        "last_price_usd": float(np.mean([each.last_price_usd for each in mine])),
        "late": float(sum(each.is_late for each in mine)),
        "clusters": float(len(set(clusters))),
    }
    if len(set(clusters)) > 1:
        interval = Interval.of_clusters(usd - other, clusters)
        found |= {"more_low": interval.low, "more_high": interval.high}
    return found


def _subjects(options: ZoneDeadlineOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    drawn_from = sorted(options_as_dict(options).items())
    count = len(options.zones.split(",")) if options.zones else "all"
    name = f"zone-deadlines-{count}-{options.part}-{options.starts}-{seed}"
    yield StudySubject(name=name, topic="bidding", drawn_from=drawn_from), {}


SPEC = register_study(
    "zone-deadlines",
    "bidding",
    "jobs with a deadline over zones with prices and transfers (above_optimum: of the mean; more_usd: than deadline-dp, 95 % by cluster)",
    kind=ZoneDeadlineWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=WAYS,
    others="the study runs policies, and solves nothing",
    columns=("usd", "above_optimum", "more_usd", "more_low", "more_high", "last_price_usd", "late"),
)
