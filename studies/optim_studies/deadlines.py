"""The study `deadlines`: a public benchmark of deadlines with spot availability, under its rules and score.

The benchmark ("Can't be late", https://github.com/FrontierCS/Frontier-CS, research/problems/cant_be_late) has a job of 48 h,
deadlines of 52 and 70 h, changeovers of 0.05 and 0.2 h and ticks of 600 s, over windows of eight zones in three mixes: twelve
variants. Its score is 0 at the cost of 48 h on demand, and 100 at the cost of 48 h of spot machines without a changeover. Its
written rules and its code differ (`RULES`); the study reports both scores.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import BoolArray
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidProblemError, check_choices, check_in
from optim.core.options import options_as_dict
from optim.core.policies import causal_names, policies_of
from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.prices import HOUR_S, MICRO
from optim.models.bidding.market.spells import SpellHazards, fit_spells
from optim.models.bidding.market.zones import UNITS_USD, ZoneJob, ZoneMarket
from optim.simulation.spot.backtest import OPTIMUM
from optim.simulation.spot.policies import policy_class
from optim.simulation.spot.zones import IN_ONE_ZONE, Offer, ZoneFacts, ZonePolicy, ZoneView, facts_of, run_zones
from optim.solvers.bidding.zones import least_cost
from optim.workloads.prices.availability_files import SpellHistory, ZoneOptions, job_of, read_history, read_windows
from optim.workloads.prices.trace_files import Polarity
from optim_studies.deadline_windows import draw_windows

LOG = logging.getLogger("optim.benchmarks.deadlines")  # the command shows this logger's remarks

WORK_H, DEADLINES_H, CHANGEOVERS_H, TICK_S = 48.0, (70.0, 52.0), (0.2, 0.05), 600
ON_DEMAND_USD, SPOT_USD, WRITTEN_SPOT_USD = 3.06, 0.9731, 0.9701
LATE_SCORE = -100_000.0
OTHER_ZONES = "other-zones"
MIXES = ("scarce", "plentiful", "mixed")

RULES = (
    f"as coded: work {WORK_H:g} h, deadlines {DEADLINES_H[1]:g} and {DEADLINES_H[0]:g} h, changeovers {CHANGEOVERS_H[1]:g} and {CHANGEOVERS_H[0]:g} h, "
    f"ticks of {TICK_S} s billed whole; {ON_DEMAND_USD} $/h on demand, {SPOT_USD} spot, the first tick's price where a file has prices; nothing is free; "
    "in a file 1 = not available; on demand is forced when ceil((work left + changeover) / tick) ticks or fewer are left, unless spot runs; lateness costs nothing",
    f"as written: {WRITTEN_SPOT_USD} $/h spot, in a file 1 = available, and a variant with a late run scores {LATE_SCORE:g}; else the same",
)
"""The benchmark's rules, as coded and as written. Its files follow the code: the written rules would invert each trace."""

VARIANTS = tuple(
    (mix, deadline, changeover) for mix in MIXES for deadline in DEADLINES_H for changeover in CHANGEOVERS_H
)

COLUMNS = tuple(f"{mix} {deadline:g}h {changeover:g}" for mix, deadline, changeover in VARIANTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineOptions:
    """Options of the study.

    Parameters
    ----------
    folder
        Folder of windows, one file per window, in folders by zone; by default windows are generated.
    zones, windows
        Number of generated zones, and of windows per zone.
    max_windows
        Maximum windows per zone of a folder, evenly spaced; by default all.
    polarity
        Meaning of a 1 in a file: ``unavailable``, as in the benchmark's files, or ``available``.
    skip_bad
        Whether to skip unreadable files.
    history
        Traces from which policies learn how spells end: ``other-zones``, the windows of all other zones, for any type; or
        files or folders of traces, separated by commas, without the zones that a window's path names; by default none.
    history_zones
        Prefixes of the zones of the history to use, separated by commas; by default all.
    """

    folder: str = ""
    zones: int = 4
    windows: int = 25
    max_windows: int | None = None
    polarity: str = Polarity.UNAVAILABLE.value
    skip_bad: bool = False
    history: str = ""
    history_zones: str = ""

    def __post_init__(self) -> None:
        check_in("[2, 100]", self, "zones")
        check_in("[1, 10000]", self, "windows", "max_windows")
        check_choices(self, {"polarity": [each.value for each in Polarity]})


SIZES: Mapping[str, DeadlineOptions] = MappingProxyType(
    {SMALL: DeadlineOptions(windows=2), FULL: DeadlineOptions(zones=8)}
)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A recording: its zone, file, changeover (None for all), and availability."""

    zone: str
    file: str
    changeover_h: float | None
    market: ZoneMarket


class Guaranteed(ZonePolicy):
    """A policy with the guarantee of the benchmark's code that the job meets its deadline.

    On demand is forced while ``ceil((remaining work + changeover) / tick)`` ticks or fewer are left, unless spot machines are
    allocated. Policies that are never late decide so themselves; `forced` counts the ticks in which a policy decided otherwise.
    """

    def __init__(self, facts: ZoneFacts, inner: ZonePolicy) -> None:
        super().__init__(facts)
        self.inner, self.forced = inner, 0

    def decide(self, view: ZoneView) -> Sequence[Offer]:
        """Return the policy's decision, or machines on demand."""
        answer, tick_s = self.inner.decide(view), self.facts.tick_s
        needed = -(-(view.work_left_s + int(self.facts.job.setup_s[0, 0])) // tick_s)
        if view.left_s // tick_s > needed or (view.held is not None and view.held.is_spot):
            return answer
        sure = Offer(0, False)
        self.forced += not answer or answer[0] != sure
        return (sure,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Cost of one run in dollars at the coded and the written spot price, and whether it was late."""

    usd: float
    written_usd: float
    is_late: bool


def score(mean_usd: float, spot_usd: float) -> float:
    """Return the benchmark's score of a mean cost: 0 for on-demand machines only, 100 for spot machines only at this price."""
    dearest, cheapest = WORK_H * ON_DEMAND_USD, WORK_H * spot_usd
    return 100.0 * min(1.0, max(0.0, (dearest - mean_usd) / (dearest - cheapest)))


def mixes_of(windows: Sequence[Window]) -> dict[str, tuple[str, ...]]:
    """Return the zones of each mix: the less available half, the other half, and all."""
    shares: dict[str, list[float]] = {}
    for window in windows:
        shares.setdefault(window.zone, []).append(float(window.market.is_available.mean()))
    order = sorted(shares, key=lambda zone: (np.mean(shares[zone]), zone))
    half = len(order) // 2
    return {"scarce": tuple(order[:half]), "plentiful": tuple(order[half:]), "mixed": tuple(order)}


def place_of(file: str) -> tuple[str, float | None]:
    """Return a file's zone and changeover by its folders, ``.../overhead=0.05/real/us-west-2a_k80_8/traces/random_start/1.json``."""
    parts = Path(file).parts[:-1]
    named = [part for part in parts if part not in ("traces", "random_start", "real") and "overhead=" not in part]
    told = [part.split("overhead=")[1].split("+")[0] for part in parts if "overhead=" in part]
    try:
        return (named[-1] if named else "one zone"), (float(told[-1]) if told else None)
    except ValueError as error:
        raise InvalidProblemError(f"{file}: {told[-1]!r} isn't a changeover in hours; rename the folder") from error


@cache
def windows_of(options: DeadlineOptions, seed: int) -> tuple[Window, ...]:
    """Return the windows, read or generated."""
    if not options.folder:
        drawn = draw_windows(options.zones, count=options.windows, hours=max(DEADLINES_H), tick_s=TICK_S, seed=seed)
        return tuple(
            Window(zone=zone, file=f"{zone}/{number}", changeover_h=None, market=market_at(zone, flags))
            for number, (zone, _, flags) in enumerate(drawn)
        )
    read = read_windows(
        options.folder,
        least_s=round(max(DEADLINES_H) * HOUR_S),
        tick_s=TICK_S,
        skip_bad=options.skip_bad,
        on_demand_micro=round(MICRO * ON_DEMAND_USD),
        spot_micro=round(MICRO * SPOT_USD),
        polarity=Polarity(options.polarity),
    )
    by_place: dict[tuple[str, float | None], list[tuple[str, ZoneMarket]]] = {}
    for file, market in read:
        by_place.setdefault(place_of(file), []).append((file, market))
    found = []
    for (zone, changeover_h), mine in by_place.items():
        count = min(options.max_windows or len(mine), len(mine))
        for row in np.unique(np.rint(np.linspace(0, len(mine) - 1, count)).astype(int)):
            file, market = mine[row]
            first = replace(market, spot_micro=np.broadcast_to(market.spot_micro[:1], market.spot_micro.shape))
            found.append(Window(zone=zone, file=file, changeover_h=changeover_h, market=first))
    return tuple(found)


def hazards_of(options: DeadlineOptions, windows: Sequence[Window]) -> dict[str, SpellHazards | None]:
    """Return the hazards of spells for each window's file, learned from the history; None without a history.

    Raises
    ------
    InvalidProblemError
        If the history has no zone with one of these prefixes.
    """
    if not options.history:
        return dict.fromkeys(window.file for window in windows)
    if options.history == OTHER_ZONES:
        of_zone = {
            zone: fit_spells(
                (each.market.is_available[:, 0] for each in windows if _location(each.zone) != _location(zone)),
                TICK_S,
                source=OTHER_ZONES,
            )
            for zone in sorted({window.zone for window in windows})
        }
        return {window.file: of_zone[window.zone] for window in windows}
    told: dict[str, Any] = {"polarity": Polarity(options.polarity), "skip_bad": options.skip_bad}
    read = [read_history(path, **told) for path in options.history.split(",")]
    chosen = SpellHistory([trace for each in read for trace in each.traces]).of(tuple(options.history_zones.split(",")))
    if not chosen.traces:
        raise InvalidProblemError(
            f"{options.history}: no zone begins with {options.history_zones}; choose another prefix"
        )
    return {window.file: chosen.learn(window.market, window.file)[0] for window in windows}


def _location(zone: str) -> str:
    """Return the zone in a folder's name: ``us-west-2a`` of ``us-west-2a_v100_1``."""
    return zone.split("_", maxsplit=1)[0]


def market_at(zone: str, flags: BoolArray, begin_s: int = 0) -> ZoneMarket:
    """Return the market of one zone at the benchmark's prices; `begin_s` is in seconds since 1970."""
    size = len(flags)
    return ZoneMarket(
        zones=(zone,),
        regions=(zone,),
        time_s=begin_s + TICK_S * np.arange(size, dtype=np.int64),
        tick_s=TICK_S,
        is_available=flags[:, None],
        spot_micro=np.full((size, 1), round(MICRO * SPOT_USD), dtype=np.int64),
        on_demand_micro=np.array([round(MICRO * ON_DEMAND_USD)], dtype=np.int64),
    )


def board_job(market: ZoneMarket, deadline_h: float, changeover_h: float) -> ZoneJob:
    """Return the benchmark's job."""
    options = ZoneOptions(job_hours=WORK_H, deadline_hours=deadline_h, changeover_hours=changeover_h)
    return job_of(market, options)


def run_window(
    window: Window, name: str, job: ZoneJob, problems: list[str], hazards: SpellHazards | None = None
) -> tuple[Outcome, int]:
    """Return the outcome of a policy, or of the proven minimum cost, on a window, and the number of forced ticks."""
    market, forced = window.market, 0
    if name == OPTIMUM:
        best = least_cost(market, job, 0, Billing.WHOLE_TICKS)
        problems += [f"{window.file}: {text}" for text in check_optimum(market, job, best, Billing.WHOLE_TICKS)]
        stays, usd, is_late = best.plan, best.usd, False
    else:
        facts = replace(facts_of(market, job, Billing.WHOLE_TICKS, hazards), keeps_tick=True)
        made = Guaranteed(facts, policy_class(name, "zones")(facts))
        run = run_zones(market, job, made, 0, billing=Billing.WHOLE_TICKS)
        stays, usd, is_late, forced = run.stays, run.units / UNITS_USD, not run.deadline_met, made.forced
    spot_ticks = sum(-(-(stay.end_s - stay.begin_s) // TICK_S) for stay in stays if stay.is_spot)
    less = spot_ticks * TICK_S / HOUR_S * (SPOT_USD - WRITTEN_SPOT_USD)
    return Outcome(usd=usd, written_usd=usd - less, is_late=is_late), forced


@dataclass(frozen=True, kw_only=True)
class DeadlineWork(AbstractStudy):
    """Run one policy on all windows of all variants."""

    options_type = DeadlineOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Run, and compute the scores."""
        clock = PhaseClock()
        problems: list[str] = []
        with clock.phase("build"):
            windows = windows_of(self.chosen, self.seed)
            hazards = hazards_of(self.chosen, windows)
        settings = [(deadline, changeover) for deadline in DEADLINES_H for changeover in CHANGEOVERS_H]
        outcomes: dict[tuple[str, float, float], list[Outcome]] = {}
        forced = done = 0
        progress.start(f"{self.solver} on {len(windows)} windows", len(windows) * len(settings))
        with clock.phase("solve"):
            for window in windows:
                for deadline, changeover in settings:
                    done += 1
                    if window.changeover_h not in (None, changeover):
                        continue
                    if stop(SolveState(elapsed_s=clock.elapsed_s, iterations=done)) is not None:
                        return Finding(
                            seconds=clock.seconds, problems=["it was stopped"], iterations=done, is_whole=False
                        )
                    job = board_job(window.market, deadline, changeover)
                    outcome, overruled = run_window(window, self.solver, job, problems, hazards[window.file])
                    outcomes.setdefault((window.zone, deadline, changeover), []).append(outcome)
                    forced += overruled
                progress.update(done)
        progress.finish()
        findings, measures = _scores(outcomes, mixes_of(windows))
        late = sum(outcome.is_late for mine in outcomes.values() for outcome in mine)
        return Finding(
            findings={**findings, "late": late, "forced": forced},
            measures=measures,
            parameters={"windows": len(windows)},
            seconds=clock.seconds,
            problems=problems,
            iterations=done,
        )


def _scores(
    outcomes: Mapping[tuple[str, float, float], Sequence[Outcome]], mixes: Mapping[str, Sequence[str]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the scores, and the mean dollars of each variant and of each zone."""
    coded, written, usd = {}, {}, {}
    for column, (mix, deadline, changeover) in zip(COLUMNS, VARIANTS, strict=True):
        mine = [each for zone in mixes[mix] for each in outcomes.get((zone, deadline, changeover), ())]
        if not mine:
            continue
        usd[f"{column} usd"] = float(np.mean([each.usd for each in mine]))
        coded[column] = round(score(usd[f"{column} usd"], SPOT_USD), 2)
        is_late = any(each.is_late for each in mine)
        mean = float(np.mean([each.written_usd for each in mine]))
        written[column] = LATE_SCORE if is_late else round(score(mean, WRITTEN_SPOT_USD), 2)
    for (zone, deadline, changeover), found in outcomes.items():
        usd[f"{zone} {deadline:g}h {changeover:g} usd"] = float(np.mean([each.usd for each in found]))
    means = {
        name: round(float(np.mean(list(each.values()))), 2) for name, each in (("mean", coded), ("as_written", written))
    }
    return {**means, **coded}, usd


def _subjects(options: DeadlineOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    windows = windows_of(options, seed)
    for text in RULES:
        LOG.info("%s", text)
    mixes = mixes_of(windows)
    for mix, zones in mixes.items():
        shares = [float(window.market.is_available.mean()) for window in windows if window.zone in zones]
        text = f", machines in {100 * np.mean(shares):.0f} % of the ticks" if shares else ""
        LOG.info("%s: %s; %d windows%s", mix, ", ".join(zones) or "no zone", len(shares), text)
    scored = [
        any(window.zone in mixes[mix] and window.changeover_h in (None, changeover) for window in windows)
        for mix, _, changeover in VARIANTS
    ]
    if not all(scored):
        LOG.info("means are over the %d variants that have windows, not over all %d", sum(scored), len(VARIANTS))
    drawn_from = (
        sorted(options_as_dict(options).items()),
        [window.market.is_available.tobytes() for window in windows],
    )
    name = f"deadlines-{Path(options.folder).name or 'drawn'}-{len(windows)}"
    yield StudySubject(name=name, topic="bidding", drawn_from=drawn_from), {}


WAYS = (
    *(name for name in causal_names("zones") if IN_ONE_ZONE in policies_of("zones")[name].traits),
    OPTIMUM,
)

SPEC = register_study(
    "deadlines",
    "bidding",
    "a public benchmark of deadlines over spot availability: scores, 0 for on demand and 100 for spot alone (mean: over the variants, at most twelve, that have windows)",
    kind=DeadlineWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=WAYS,
    others="the study runs policies, not solvers",
    columns=("mean", "as_written", *COLUMNS, "late"),
)
