"""The study `deadline-folds`: policies with a deadline on held-out recordings.

A campaign is a recording of several zones over one period. There are two kinds of folds. Either one zone of a campaign is
held out, for all machine types, and hazards are learned from the campaign's other zones; or hazards are learned from one
campaign and policies tested on another. Jobs start at every tick that leaves enough time, by the rules of
`optim_studies.deadlines`. The runs overlap, so the confidence intervals are by cluster: all starts within one span of the
deadline's length, over all zones.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import BoolArray, FloatArray
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidProblemError, check_choices, check_in
from optim.core.files import prepare_folder, write_bytes
from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.prices import MICRO
from optim.models.bidding.market.spells import SpellHazards, fit_spells, resampled
from optim.models.bidding.market.zones import ZoneMarket
from optim.simulation.spot.backtest import OPTIMUM, PROGRAMME
from optim.simulation.spot.deadline_policy import DOUBT, LEVEL
from optim.simulation.spot.deadline_zones import least_mean_usd
from optim.simulation.spot.replay import Replay
from optim.simulation.spot.zones import facts_of
from optim.solvers.bidding.zones import least_cost
from optim.statistics import Interval
from optim.workloads.prices.availability_files import read_availability, series_zone
from optim_studies.deadline_windows import draw_windows
from optim_studies.deadlines import CHANGEOVERS_H, DEADLINES_H, ON_DEMAND_USD, TICK_S, WAYS, board_job, market_at

SETTINGS = tuple((deadline, changeover) for deadline in DEADLINES_H for changeover in CHANGEOVERS_H)

RIVALS = ("uniform-progress", "skynomad")
"""Baselines: the cheaper of these and the optimum bound the possible gain."""

CHECK_EVERY = 100
"""One of this many proofs of the optimum is checked."""

KINDS = ("right", "times-10", "times-0.1", "reversed", "prior", "own")
"""Hazards for policies: as learned; distorted; the prior; or the tested zone's, learned without holding it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldOptions:
    """Options of the study.

    Parameters
    ----------
    recordings
        A table of availability by campaign and zone; by default campaigns are generated.
    campaigns
        Names of two or more campaigns, separated by commas.
    every
        Ticks between starts.
    hazards
        Hazards for policies that use them: ``right``, as learned from the fold; these hazards ``times-10``, ``times-0.1``, or
        ``reversed`` in age; the ``prior``; or those of the tested zone (``own``), to show the value of knowing them.
    keep
        Folder in which costs are cached by recording, setting and policy; by default none.
    drawn_hours
        Length of a generated recording in hours.
    """

    recordings: str = ""
    campaigns: str = "aws-10-26-2022,aws-02-15-2023"
    every: int = 1
    hazards: str = "right"
    keep: str = ""
    drawn_hours: float = 240.0

    def __post_init__(self) -> None:
        check_in("[1, 10000]", self, "every")
        check_in("[71, 10000]", self, "drawn_hours")
        check_choices(self, {"hazards": list(KINDS)})


SIZES: Mapping[str, FoldOptions] = MappingProxyType(
    {SMALL: FoldOptions(every=72, drawn_hours=120.0), FULL: FoldOptions()}
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """Availability by tick of one zone and type in one campaign, and its start in seconds."""

    campaign: str
    series: str
    begin_s: int
    flags: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Campaigns to test on and to learn from; if they are equal, each zone is held out in turn."""

    trained: str
    tested: str

    @property
    def name(self) -> str:
        """Name of the fold."""
        return f"{self.tested}-other-zones" if self.trained == self.tested else f"{self.tested}-from-{self.trained}"


@cache
def recordings_of(options: FoldOptions, seed: int) -> tuple[Recording, ...]:
    """Return the recordings of the campaigns, read and sampled at ticks, or generated.

    Raises
    ------
    InvalidProblemError
        If a campaign has fewer than two zones.
    """
    found: list[Recording] = []
    campaigns = options.campaigns.split(",")
    if not options.recordings:
        for number, campaign in enumerate(campaigns):
            drawn = draw_windows(3, count=1, hours=options.drawn_hours, tick_s=TICK_S, seed=seed + 1000 * number)
            found += [Recording(campaign=campaign, series=zone, begin_s=0, flags=flags) for zone, _, flags in drawn]
        return tuple(found)
    read = read_availability(options.recordings, on_demand_micro=round(MICRO * ON_DEMAND_USD))
    for name in read:
        campaign, kind = name.split("/")[0], name.split("/")[-1]
        if campaign in campaigns and kind == "availability":
            trace = read[name]
            flags = resampled(trace, TICK_S)
            found.append(Recording(campaign=campaign, series=name, begin_s=int(trace.time_s[0]), flags=flags))
    for campaign in campaigns:
        if len({series_zone(each.series) for each in found if each.campaign == campaign}) < 2:
            raise InvalidProblemError(
                f"{options.recordings}: campaign {campaign!r} has fewer than two zones; choose another campaign"
            )
    return tuple(found)


def hazards_for(
    fold: Fold, tested: Recording, recordings: Sequence[Recording], kind: str = "right"
) -> SpellHazards | None:
    """Return a policy's hazards for a recording, learned from the fold, or for ``own`` from the recording itself."""
    if kind == "prior":
        return None
    zone = series_zone(tested.series)
    learned = [
        each.flags
        for each in recordings
        if (each is tested if kind == "own" else each.campaign == fold.trained)
        and (kind == "own" or fold.trained != fold.tested or series_zone(each.series) != zone)
    ]
    hazards = fit_spells(learned, TICK_S, source=fold.name)
    if kind == "reversed":
        return replace(hazards, hazard=hazards.hazard[:, ::-1])
    factor = {"times-10": 10.0, "times-0.1": 0.1}.get(kind, 1.0)
    return hazards.scaled(factor, factor)


def starts_of(market: ZoneMarket, deadline_h: float, every: int) -> range:
    """Return the ticks at which jobs start: every `every`-th tick that leaves the time of the deadline."""
    return range(0, len(market) - round(deadline_h * 3600) // TICK_S + 1, every)


def run_starts(
    name: str, market: ZoneMarket, setting: tuple[float, float], hazards: SpellHazards | None, every: int
) -> tuple[FloatArray, list[str]]:
    """Return the cost in dollars of a policy, or the proven minimum cost, from each start; and errors.

    Lateness is an error, since every policy of one zone must be on time.
    """
    job = board_job(market, *setting)
    problems: list[str] = []
    costs: list[float] = []
    starts = starts_of(market, setting[0], every)
    if name == OPTIMUM:
        for number, first in enumerate(starts):
            best = least_cost(market, job, first, Billing.WHOLE_TICKS)
            costs.append(best.bound_usd)
            if number % CHECK_EVERY == 0:
                problems += check_optimum(market, job, best, Billing.WHOLE_TICKS)
        return np.array(costs), problems
    replay = Replay(market, job, billing=Billing.WHOLE_TICKS, hazards=hazards)
    for first in starts:
        run = replay.run(name, first)
        costs.append(run.cost_usd)
        if not run.deadline_met:
            problems.append(f"{name} is late from tick {first}")
    return np.array(costs), problems


def kept_costs(
    options: FoldOptions, name: str, tested: Recording, setting: tuple[float, float], hazards: SpellHazards | None
) -> tuple[FloatArray, list[str]]:
    """Return the result of `run_starts` for a recording, from the cache folder if present."""
    market = market_at(tested.series, tested.flags, tested.begin_s)
    if name != PROGRAMME:
        hazards = None
    if not options.keep:
        return _run_once(name, tested, setting, hazards, options.every)
    told = b"" if hazards is None else hazards.hazard.tobytes() + repr((LEVEL, DOUBT)).encode()
    digest = hashlib.sha256(tested.flags.tobytes() + told + repr((name, setting, options.every)).encode())
    path = Path(options.keep) / f"{name}-{digest.hexdigest()[:24]}.npy"
    if path.exists():
        costs = np.load(path, allow_pickle=False)
        if len(costs) == len(starts_of(market, setting[0], options.every)):
            return costs, []
    costs, problems = _run_once(name, tested, setting, hazards, options.every)
    if not problems:
        prepare_folder(path)
        buffer = BytesIO()
        np.save(buffer, costs)
        write_bytes(path, buffer.getvalue())
    return costs, problems


@cache
def _run_once(
    name: str, tested: Recording, setting: tuple[float, float], hazards: SpellHazards | None, every: int
) -> tuple[FloatArray, list[str]]:
    """Return the result of `run_starts`, cached in memory for the policies common to all comparisons."""
    return run_starts(name, market_at(tested.series, tested.flags, tested.begin_s), setting, hazards, every)


@dataclass(frozen=True, kw_only=True)
class FoldWork(AbstractStudy):
    """Run one policy on the recordings of a fold in all settings."""

    options_type = FoldOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Run the policy, and compare its costs with those of `deadline-dp` start by start."""
        clock, options = PhaseClock(), self.chosen
        recordings = recordings_of(options, self.seed)
        fold = folds_of(options)[self.subject.name]
        tested = [each for each in recordings if each.campaign == fold.tested]
        problems: list[str] = []
        findings: dict[str, float] = {}
        measures: dict[str, float] = {}
        done = num_starts = 0
        progress.start(f"{self.solver}, {fold.name}", len(SETTINGS) * len(tested))
        for setting in SETTINGS:
            column = column_of(setting)
            runs: dict[str, list[FloatArray]] = {}
            spans: list[int] = []
            least: list[float] = []
            for each in tested:
                if stop(SolveState(elapsed_s=clock.elapsed_s, iterations=done)) is not None:
                    return Finding(seconds=clock.seconds, problems=["it was stopped"], iterations=done, is_whole=False)
                hazards = hazards_for(fold, each, recordings, options.hazards)
                with clock.phase("solve"):
                    for name in self._compared:
                        costs, wrong = kept_costs(options, name, each, setting, hazards)
                        runs.setdefault(name, []).append(costs)
                        problems += [f"{each.series}: {text}" for text in wrong]
                size = len(runs[self.solver][-1])
                begin = each.begin_s + TICK_S * options.every * np.arange(size)
                spans += (begin // round(setting[0] * 3600)).tolist()
                if self.solver == PROGRAMME:
                    market = market_at(each.series, each.flags, each.begin_s)
                    facts = facts_of(market, board_job(market, *setting), Billing.WHOLE_TICKS, hazards)
                    least += [least_mean_usd(facts, int(market.spot_micro[0, 0])) or 0.0] * size
                done += 1
                progress.update(done)
            findings |= self._findings(column, {name: np.concatenate(costs) for name, costs in runs.items()}, spans)
            if least:
                findings[f"{column} least"] = round(float(np.mean(least)), 2)
            num_starts += len(spans)
            measures[f"{column} clusters"] = len(set(spans))
        progress.finish()
        return Finding(
            findings=findings,
            measures=measures,
            parameters={"starts": num_starts, "recordings": len(tested)},
            seconds=clock.seconds,
            problems=problems,
            iterations=done,
        )

    @property
    def _compared(self) -> tuple[str, ...]:
        """Return the policies whose costs a row needs; for the optimum also the baselines."""
        names = (self.solver, PROGRAMME, *(RIVALS if self.solver == OPTIMUM else ()))
        return tuple(dict.fromkeys(names))

    def _findings(self, column: str, costs: Mapping[str, FloatArray], spans: Sequence[int]) -> dict[str, float]:
        """Return a setting's mean cost, its excess over `deadline-dp` in dollars, and the share of the possible gain."""
        own, base = costs[self.solver], costs[PROGRAMME]
        found = {column: round(float(own.mean()), 2)}
        if self.solver != PROGRAMME:
            half = Interval.of_clusters(own - base, spans).half if len(set(spans)) > 1 else float("nan")
            found |= {f"{column} more": round(float((own - base).mean()), 2), f"{column} ±": round(half, 2)}
        if self.solver == OPTIMUM:
            won = room_won({name: float(each.mean()) for name, each in costs.items()})
            found[f"{column} room"] = round(100.0 * won, 1)
        return found


def column_of(setting: tuple[float, float]) -> str:
    """Return the name of a setting's column."""
    return f"{setting[0]:g}h {setting[1]:g}"


def room_won(usd: Mapping[str, float]) -> float:
    """Return the share of the gap between the cheaper baseline and the optimum that `deadline-dp` closes, from mean costs by policy."""
    best = min(usd[name] for name in RIVALS)
    return (best - usd[PROGRAMME]) / (best - usd[OPTIMUM])


def folds_of(options: FoldOptions) -> dict[str, Fold]:
    """Return the folds by name: each campaign with held-out zones, and each pair of campaigns."""
    campaigns = options.campaigns.split(",")
    folds = [Fold(trained=one, tested=one) for one in campaigns]
    folds += [Fold(trained=one, tested=other) for one in campaigns for other in campaigns if one != other]
    return {fold.name: fold for fold in folds}


def _subjects(options: FoldOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    recordings = recordings_of(options, seed)
    told = [(each.series, each.flags.tobytes()) for each in recordings]
    for name in folds_of(options):
        drawn_from = (name, options.every, options.hazards, told)
        yield StudySubject(name=name, topic="bidding", drawn_from=drawn_from), {}


SPEC = register_study(
    "deadline-folds",
    "bidding",
    "deadlines on held-out recordings: mean cost in US dollars by deadline and changeover, and extra cost over deadline-dp",
    kind=FoldWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=WAYS,
    others="the study runs policies, not solvers",
    columns=tuple(f"{column_of(setting)}{part}" for setting in SETTINGS for part in ("", " more", " ±", " room")),
)
