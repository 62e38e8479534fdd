"""Back-tests: run policies and clairvoyant references from the same random starts, on prices or over zones."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.policies import clairvoyant_names, default_names, policies_of, policy
from optim.core.progress import Progress
from optim.core.stopping import Interruption, StoppingCriterion
from optim.execution import AbstractTask, Engine, run_in_order
from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.billing import AMAZON, Billing, bill_stay, billing_at
from optim.models.bidding.market.evictions import fit_evictions, without_evictions
from optim.models.bidding.market.prices import HOUR_S, PriceHistory
from optim.models.bidding.market.spells import SpellHazards
from optim.models.bidding.market.zones import Optimum, ZoneJob, ZoneMarket
from optim.simulation.spot.deadline_zones import least_mean_usd
from optim.simulation.spot.engine import RunResult, run_policy
from optim.simulation.spot.oracle import Oracle, OracleResult
from optim.simulation.spot.oracle_check import ReferenceChecker
from optim.simulation.spot.policies import check_policies, make_policy, policy_class
from optim.simulation.spot.policy import SpotOptions, World
from optim.simulation.spot.replay import Replay
from optim.simulation.spot.zones import IN_ONE_ZONE, ZoneRun, facts_of, run_zones
from optim.solvers.bidding.zones import least_cost
from optim.statistics import Interval, wilson

MEASURES = (
    "cost_usd",
    "bound_usd",
    "hours",
    "work_done",
    "cost_per_work",
    "free_hours",
    "paid_hours",
    "on_demand_hours",
    "evictions",
    "ratio_to_on_demand",
    "ratio_to_oracle",
    "ratio_to_oracle_paid",
    "ratio_to_optimum",
    "min_mean_usd",
    "probes",
    "deadline_met",
)
"""Fields of `Row` that `Summary` averages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Result of one policy from one start; a field that does not apply is None.

    Parameters
    ----------
    policy, start
        Name of the policy, and start time (UTC, ISO 8601).
    cost_usd, bound_usd
        Bill of the run in dollars. For a reference: cost of its plan, and its proven lower bound.
    hours, work_done, is_done
        Duration in hours, work done, and whether the job was completed within the horizon.
    cost_per_work
        Dollars per unit of work.
    on_demand_hours, paid_hours, free_hours
        Machine-hours of on-demand instances, of paid spot instances, and of spot instances that were not charged.
    evictions
        Number of evicted leases.
    deadline_met
        Whether the job met its deadline; None without a deadline.
    ratio_to_on_demand, ratio_to_oracle, ratio_to_oracle_paid
        Cost divided by the cost of the on-demand baseline, by the lower bound of `oracle`, and by the plan cost of
        `oracle-paid`.
    min_mean_usd
        Lower bound, in dollars, on the mean cost of any rule in one zone, if spells end with the hazards of
        `deadline-dp`. None if `deadline-dp` is not run, or if bills are by the hour and the tick does not divide an
        hour.
    ratio_to_optimum, probes
        Cost divided by the proven minimum, and number of probes; only in back-tests over zones.
    redrawn
        Number of starts that were drawn before this one and rejected because a run reached a gap in the prices.
    billing
        Name of the billing rule.
    file
        Name of the recording, in a comparison in which each recording is one start.
    """

    policy: str
    start: str
    cost_usd: float | None
    bound_usd: float | None = None
    hours: float | None
    work_done: float
    is_done: bool
    cost_per_work: float | None
    on_demand_hours: float = 0.0
    paid_hours: float = 0.0
    free_hours: float = 0.0
    evictions: int = 0
    deadline_met: bool | None = None
    ratio_to_on_demand: float | None = None
    ratio_to_oracle: float | None = None
    ratio_to_oracle_paid: float | None = None
    ratio_to_optimum: float | None = None
    min_mean_usd: float | None = None
    probes: int = 0
    redrawn: int = 0
    billing: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Comparison of a policy with another policy over the starts from which both completed the job.

    Parameters
    ----------
    starts
        Number of starts from which both policies completed the job.
    mean, low, high
        Cost of the policy minus cost of the other policy in dollars, paired by start: mean and 95 % interval (Student's
        t). None without a start; `low` and `high` are None with fewer than two.
    won
        Share of these starts in which the policy is strictly cheaper.
    """

    starts: int
    mean: float | None
    low: float | None
    high: float | None
    won: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of one policy over all starts.

    Parameters
    ----------
    policy
        Name of the policy.
    starts, redrawn
        Number of starts, and of starts that were drawn and rejected.
    done
        Number of starts from which this policy completed the job, within the deadline if there is one.
    common
        Number of starts from which all policies completed the job, apart from policies that never complete it.
    mean, low, high
        For each measure: the mean over the `common` starts, and the ends of its 95 % interval by Student's t. For
        `deadline_met` the mean is over all starts, and the interval is Wilson's. A mean is None if no row has a value; an
        interval is None with fewer than two values.
    paired
        For each other policy: the comparison of costs from the same starts, see `Paired`.
    """

    policy: str
    summary: bool = True
    starts: int
    done: int
    common: int
    redrawn: int
    mean: dict[str, float | None]
    low: dict[str, float | None]
    high: dict[str, float | None]
    paired: dict[str, Paired]


def time_text(time_s: int) -> str:
    """Return a time as ISO 8601."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def row_of_run(result: RunResult, redrawn: int = 0) -> Row:
    """Return the row of a policy's run."""
    return Row(
        policy=result.policy,
        start=time_text(result.start_s),
        cost_usd=result.cost_usd,
        hours=result.hours,
        work_done=result.work_done,
        is_done=result.is_done,
        cost_per_work=ratio(result.cost_usd, result.work_done),
        on_demand_hours=result.on_demand_hours,
        paid_hours=result.paid_hours,
        free_hours=result.free_hours,
        evictions=result.evictions,
        redrawn=redrawn,
    )


def row_of_oracle(result: OracleResult, job_work: float, redrawn: int) -> Row:
    """Return the row of a reference, whose plan does the work of the job."""
    cost = result.cost_usd if math.isfinite(result.cost_usd) else None
    return Row(
        policy=result.name,
        start=time_text(result.start_s),
        cost_usd=cost,
        bound_usd=result.bound_usd,
        hours=None if cost is None else result.hours,
        work_done=job_work if cost is not None else 0.0,
        is_done=cost is not None,
        cost_per_work=None if cost is None else cost / job_work,
        paid_hours=sum(piece.machine_hours for piece in result.plan if not piece.is_free),
        free_hours=sum(piece.machine_hours for piece in result.plan if piece.is_free),
        redrawn=redrawn,
    )


def summarise(
    policy: str,
    rows: Sequence[Row],
    others: Mapping[str, Sequence[Row]] | None = None,
    window_s: int | None = None,
) -> Summary:
    """Return means and intervals of a policy's rows over the common starts (see `Summary`).

    Parameters
    ----------
    policy, rows
        Name of the policy, and its rows.
    others
        Rows of the other policies in the comparison, from the same starts in the same order.
    window_s
        Length, in seconds, of the period that each run covers. Runs that begin in the same window of that length form
        one cluster, and intervals are computed over clusters. None if runs are independent.
    """
    compared = [each for each in ({policy: rows} | dict(others or {})).values() if any(row.is_done for row in each)]
    is_common = [all(row.is_done for row in start) for start in zip(rows, *compared, strict=True)]
    done = [row for row, counts in zip(rows, is_common, strict=True) if counts]
    spans = {name: _interval([getattr(row, name) for row in done], _clusters(done, window_s)) for name in MEASURES}
    spans["deadline_met"] = _share([row.deadline_met for row in rows])
    return Summary(
        policy=policy,
        starts=len(rows),
        done=sum(row.is_done for row in rows),
        common=len(done),
        redrawn=sum(row.redrawn for row in rows),
        mean={name: mean for name, (mean, _, _) in spans.items()},
        low={name: low for name, (_, low, _) in spans.items()},
        high={name: high for name, (_, _, high) in spans.items()},
        paired={name: compare(rows, other, window_s) for name, other in (others or {}).items() if name != policy},
    )


def summarise_all(rows: Sequence[Row], window_s: int | None = None) -> dict[str, Summary]:
    """Return each policy's summary, with comparisons with all other policies, whose starts have the same order."""
    of: dict[str, list[Row]] = {}
    for row in rows:
        of.setdefault(row.policy, []).append(row)
    return {name: summarise(name, own, of, window_s) for name, own in of.items()}


def compare(rows: Sequence[Row], others: Sequence[Row], window_s: int | None = None) -> Paired:
    """Compare the costs of two policies from the same starts, in the same order; `window_s` as in `summarise`."""
    both = [(own, other) for own, other in zip(rows, others, strict=True) if own.is_done and other.is_done]
    more = [
        own.cost_usd - other.cost_usd for own, other in both if own.cost_usd is not None and other.cost_usd is not None
    ]
    mean, low, high = _interval(more, _clusters([own for own, _ in both], window_s))
    won = sum(one < 0 for one in more) / len(more) if more else None
    return Paired(starts=len(more), mean=mean, low=low, high=high, won=won)


def _clusters(rows: Sequence[Row], window_s: int | None) -> list[int] | None:
    """Return a cluster number for each row; None without `window_s`.

    Rows whose starts lie in the same window of length `window_s` form a cluster. A recording without a date has a clock
    that starts at 0; it forms a separate cluster because its overlap with other recordings is unknown.
    """
    if window_s is None:
        return None
    numbers: dict[int | str, int] = {}
    found = []
    for row in rows:
        begin_s = int(datetime.fromisoformat(row.start).timestamp())
        key = row.file if row.file is not None and begin_s == 0 else begin_s // window_s
        found.append(numbers.setdefault(key, len(numbers)))
    return found


def _interval(
    figures: Sequence[float | None], clusters: Sequence[int] | None = None
) -> tuple[float | None, float | None, float | None]:
    """Return mean and 95 % interval of the known values.

    The mean is None without a value; the interval is None with fewer than two values or two clusters.
    """
    is_there = [figure is not None for figure in figures]
    values = np.array([figure for figure in figures if figure is not None], dtype=np.float64)
    if not len(values):
        return None, None, None
    mean = float(values.mean())
    if clusters is None:
        if len(values) == 1:
            return mean, None, None
        found = Interval.of(values)
    else:
        own = [cluster for cluster, counts in zip(clusters, is_there, strict=True) if counts]
        if len(set(own)) == 1:
            return mean, None, None
        found = Interval.of_clusters(values, own)
    return mean, found.low, found.high


def _share(met: Sequence[bool | None]) -> tuple[float | None, float | None, float | None]:
    """Return the share of true values and its Wilson interval, whose width is positive even if all values agree."""
    values = [value for value in met if value is not None]
    mean, low, high = _interval(values)
    if mean is None or low is None:
        return mean, low, high
    ends = wilson(mean, len(values))
    return mean, float(ends[0]), float(ends[1])


def ratio(cost: float | None, reference: float | None) -> float | None:
    """Return a ratio; None if either value is unknown, or if the reference is 0 or infinite."""
    if cost is None or reference is None or not 0 < reference < math.inf:
        return None
    return cost / reference


MAX_DRAWS = 1000
"""Maximum number of draws per start; a start is drawn again if one of its runs reaches a gap in the prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRows:
    """The rows of one start, or the error that prevented them: a failed check, or a process that died."""

    index: int
    rows: tuple[Row, ...]
    error: str | None = None


def make_world(
    history: PriceHistory,
    train_until_s: int | None,
    options: SpotOptions,
    *,
    volatile: int | None = None,
    billing: Billing | None = None,
) -> World:
    """Split a price history in time: policies learn from the first part and run on the second.

    Parameters
    ----------
    history
        All prices.
    train_until_s
        Time of the split in seconds since 1970; the middle of the history by default.
    options
        The job.
    volatile
        Number of markets to keep: those with the largest variance of price divided by on-demand price in the first
        part. All by default.
    billing
        Rules of bills and evictions; by default the rules in force when the second part begins.

    Raises
    ------
    InvalidOptionError
        If either part is shorter than a day, `volatile` exceeds the number of markets, or `billing` is a rule for
        availability traces.
    """
    cut = (history.begin_s + history.end_s) // 2 if train_until_s is None else train_until_s
    day = 24 * HOUR_S
    if history.end_s - history.begin_s < 2 * day:
        raise InvalidOptionError(
            f"the prices span {(history.end_s - history.begin_s) / HOUR_S:.4g} h; a day to learn from and a day to "
            f"run on are needed; provide at least two days"
        )
    if not history.begin_s + day <= cut <= history.end_s - day:
        raise InvalidOptionError(
            f"the split must leave at least a day of prices on either side ({time_text(history.begin_s + day)} to "
            f"{time_text(history.end_s - day)}), got {time_text(cut)}; choose another --train-until"
        )
    known, later = history.between(history.begin_s, cut), history.between(cut, history.end_s)
    if volatile is not None:
        if not 0 < volatile <= known.num_markets:
            raise InvalidOptionError(
                f"--volatile must be from 1 to the {known.num_markets} markets with prices before the split, got {volatile}"
            )
        order = np.argsort(-known.volatility(), kind="stable")
        known = known.with_markets(sorted(order[:volatile].tolist()))
    names = {market.name for market in known.markets}
    test = later.with_markets([m for m, market in enumerate(later.markets) if market.name in names])
    billing = billing_at(cut) if billing is None else billing
    if billing not in AMAZON:
        raise InvalidOptionError(
            f"--billing {billing.value} applies to --availability only; for prices choose one of: "
            f"{', '.join(rule.value for rule in AMAZON)}"
        )
    table = fit_evictions(known)
    if not billing.has_bids:
        table = without_evictions(table)
    world = World(history=test, table=table, options=options, billing=billing)
    _ = world.baseline, world.reliable  # reject unknown types before any work
    return world


class AbstractStarts(AbstractTask[int, StartRows]):
    """Run policies from numbered random starts; the number of a start and the seed determine it completely."""

    def __init__(self, policies: Sequence[str], seed: int) -> None:
        self._policies, self._seed = tuple(policies), seed

    @property
    def title(self) -> str:
        """Label for progress display."""
        return f"{len(self._policies)} policies from random starts"

    def with_ratios(self, rows: Mapping[str, Row], billing: Billing, **costs: float | None) -> tuple[Row, ...]:
        """Return the rows in order of the policies, with the ratio of their cost to each reference cost."""
        found = []
        for name in self._policies:
            ratios: dict[str, Any] = {
                f"ratio_to_{other}": ratio(rows[name].cost_usd, cost) for other, cost in costs.items()
            }
            found.append(replace(rows[name], billing=billing.value, **ratios))
        return tuple(found)

    @abstractmethod
    def run_start(self, index: int) -> StartRows:
        """Run all policies from one start."""

    def do(self, piece: int, stop: StoppingCriterion, progress: Progress) -> StartRows:
        """Run all policies from one start, which takes so little time that `stop` is not checked."""
        del stop, progress
        return self.run_start(piece)

    def lost(self, piece: int, reason: str) -> StartRows:
        """Return the result of a start whose process died."""
        return StartRows(index=piece, rows=(), error=reason)

    def is_failure(self, result: StartRows) -> bool:
        """Return whether the start has an error instead of rows."""
        return result.error is not None

    def name(self, piece: int) -> str:
        """Return the label of a start."""
        return f"start {piece}"

    def yield_rows(
        self, starts: int, engine: Engine | None, stop: Interruption | None, progress: Progress | None
    ) -> Iterator[StartRows]:
        """Yield the rows of `starts` starts in order."""
        return run_in_order(self, range(starts), engine, stop, progress)


class Backtest(AbstractStarts):
    """Run policies and references on the prices of a world; each reference is checked before it is reported."""

    def __init__(self, world: World, policies: Sequence[str], seed: int, begins: Sequence[int] = ()) -> None:
        super().__init__(policies, seed)
        self._world, self._oracle, self._begins = world, Oracle(world), tuple(begins)
        self._checker = ReferenceChecker(world)
        history, least = world.history, round(HOUR_S * world.options.job_hours / 2)
        for begin in self._begins:
            if begin < history.begin_s or history.touches_gap(begin, begin + least):
                raise InvalidOptionError(
                    f"cannot start at {time_text(begin)}: the test prices ({time_text(history.begin_s)} to "
                    f"{time_text(history.end_s)}) end or have a gap within half of the job's hours"
                )
            if world.baseline_price(begin) is None:
                raise InvalidOptionError(
                    f"{world.baseline.name} has no price at {time_text(begin)}; choose a later start"
                )

    def run_start(self, index: int) -> StartRows:
        """Run all policies from one start; draw the start again if a run reaches a gap in the prices."""
        if self._begins:
            return self._checked(index, self._begins[index], self._results(self._begins[index], stops=False), 0)
        history, options = self._world.history, self._world.options
        rng = np.random.default_rng([self._seed, index])
        least = round(HOUR_S * options.job_hours / 2)
        for redrawn in range(MAX_DRAWS):
            span = (history.end_s - least - history.begin_s) // options.tick_s
            start = history.begin_s + options.tick_s * int(rng.integers(0, max(1, span)))
            if history.touches_gap(start, start + least) or self._world.baseline_price(start) is None:
                continue
            results = self._results(start)
            if results:
                return self._checked(index, start, results, redrawn)
        raise InvalidOptionError(
            "found no start whose runs avoid the gaps in the prices; provide a longer history, or shorten the job"
        )

    def _results(self, start: int, *, stops: bool = True) -> dict[str, RunResult]:
        """Return every policy's run from a start; with `stops`, an empty dict if a run reaches a gap."""
        results = {}
        for name in dict.fromkeys(("on-demand", *(n for n in self._policies if n not in clairvoyant_names("spot")))):
            results[name] = run_policy(self._world, make_policy(name, self._world), start)
            if stops and self._world.history.touches_gap(start, results[name].end_s):
                return {}
        return results

    def _checked(self, index: int, start: int, results: dict[str, RunResult], redrawn: int) -> StartRows:
        """Return the rows of a start, or an error if the check of a reference fails."""
        world = self._world
        references = {
            name: self._oracle.solve(name, start) for name in clairvoyant_names("spot") if name in self._policies
        }
        for name, found in references.items():
            problems = self._checker.problems(found)
            if problems:
                return StartRows(index=index, rows=(), error=f"the check of {name} failed: {problems[0]}")
        rows = {name: replace(row_of_run(result, redrawn), policy=name) for name, result in results.items()}
        rows |= {name: row_of_oracle(found, world.job_work, redrawn) for name, found in references.items()}
        ratios = self.with_ratios(
            rows,
            world.billing,
            on_demand=results["on-demand"].cost_usd,
            oracle=references["oracle"].bound_usd if "oracle" in references else None,
            oracle_paid=references["oracle-paid"].cost_usd if "oracle-paid" in references else None,
        )
        return StartRows(index=index, rows=ratios)


def run_backtest(
    world: World,
    policies: Sequence[str],
    *,
    starts: int,
    seed: int,
    engine: Engine | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
    begins: Sequence[int] = (),
) -> Iterator[StartRows]:
    """Yield the rows of each start in order.

    Parameters
    ----------
    world
        Prices during the run, estimates of evictions from earlier prices, and the job.
    policies
        Names of policies and references.
    starts, seed
        Number of starts, and seed of the random draws.
    engine
        Execution engine, this process by default; the result is the same for every engine.
    stop, progress
        `stop` ends the run early, after the starts in progress; `progress` receives the number of completed starts.
    begins
        Start times in seconds since 1970, instead of random ones.

    Raises
    ------
    InvalidOptionError
        If a policy is unknown, or the prices after one of the start times are missing, end too early or have a gap.
    """
    check_policies(policies)
    starts = len(begins) or starts
    return Backtest(world, policies, seed, begins).yield_rows(starts, engine, stop, progress)


PROGRAMME = "deadline-dp"
"""The policy whose hazards define `min_mean_usd`."""

OPTIMUM = "optimum"
"""The reference over zones: the minimum cost with all traces known."""


def default_zone_policies(num_zones: int) -> tuple[str, ...]:
    """Return the sorted names of the policies that run under a deadline by default."""
    if num_zones > 1:
        return default_names("zones")
    return tuple(name for name, entry in policies_of("zones").items() if IN_ONE_ZONE in entry.traits)


@dataclass(frozen=True, kw_only=True)
class ZoneStarts:
    """Traces, job and possible starts of a back-test under a deadline.

    Parameters
    ----------
    market, job
        The traces and the job.
    billing
        Billing rule.
    probe_s
        Seconds charged for a successful probe.
    firsts
        Start ticks, in order; None to draw them.
    hazards
        Hazards of the ends of spells, for policies that use them; None if no hazards were learned.
    """

    market: ZoneMarket
    job: ZoneJob
    billing: Billing = Billing.PER_SECOND
    probe_s: int = 60
    firsts: tuple[int, ...] | None = None
    hazards: SpellHazards | None = None

    @property
    def num_starts(self) -> int:
        """Number of ticks, counted from tick 0, from which the traces are long enough for the deadline."""
        return max(0, len(self.market) - self.job.num_ticks(self.market.tick_s) + 1)

    def first_at(self, time_s: int) -> int:
        """Return the first tick at `time_s` or later.

        Raises
        ------
        InvalidOptionError
            If the traces from that tick are shorter than the deadline.
        """
        first = int(np.searchsorted(self.market.time_s, time_s))
        if time_s < self.market.time_s[0] or first >= self.num_starts:
            begin, end = (time_text(int(self.market.time_s[tick])) for tick in (0, max(0, self.num_starts - 1)))
            raise InvalidOptionError(
                f"a job cannot start at {time_text(time_s)}: the traces and the deadline allow starts from {begin} to {end}"
            )
        return first


class ZoneBacktest(AbstractStarts):
    """Run policies from ticks at which the remaining traces are long enough for the deadline.

    Parameters
    ----------
    world
        Traces, job and possible starts.
    policies
        Names of policies; `optimum` is the reference.
    seed
        Seed of the random starts.

    Raises
    ------
    InvalidOptionError
        If the traces are shorter than the deadline.
    """

    def __init__(self, world: ZoneStarts, policies: Sequence[str], seed: int) -> None:
        super().__init__(policies, seed)
        self._world = world
        settings: dict[str, Any] = {"billing": world.billing, "probe_s": world.probe_s, "hazards": world.hazards}
        self._replay = Replay(world.market, world.job, **settings)
        if world.num_starts < 1:
            market, ticks = world.market, world.job.num_ticks(world.market.tick_s)
            raise InvalidOptionError(
                f"the deadline of {world.job.deadline_s / HOUR_S:.4g} h needs {ticks} ticks, but the traces have "
                f"{len(market)} ticks of {market.tick_s} s; choose an earlier deadline or longer traces"
            )

    def run_start(self, index: int) -> StartRows:
        """Run all policies from one tick; the reference is checked before it is reported."""
        world, market, job = self._world, self._world.market, self._world.job
        if world.firsts is None:
            first = int(np.random.default_rng([self._seed, index]).integers(0, world.num_starts))
        else:
            first = world.firsts[index]
        best, facts = None, facts_of(market, job, world.billing, world.hazards)
        if OPTIMUM in self._policies:
            best = optimum(world, first)
            problems = check_optimum(market, job, best, world.billing)
            if problems:
                return StartRows(index=index, rows=(), error=f"the check of the minimum cost failed: {problems[0]}")
        rows = {}
        for name in dict.fromkeys(("on-demand", *(name for name in self._policies if name != OPTIMUM))):
            if self._replay.can(name):
                run = self._replay.run(name, first)
            else:
                made = policy_class(name, "zones")(facts)
                run = run_zones(market, job, made, first, billing=world.billing, probe_s=world.probe_s)
            rows[name] = _row_of_zone_run(world, run, name)
        if best is not None:
            rows[OPTIMUM] = _row_of_optimum(world, best)
        ratios = self.with_ratios(
            rows,
            world.billing,
            on_demand=rows["on-demand"].cost_usd,
            optimum=None if best is None else best.bound_usd,
        )
        if PROGRAMME in self._policies:
            least = least_mean_usd(facts, int(market.spot_micro[first, 0]))
            ratios = tuple(replace(row, min_mean_usd=least) for row in ratios)
        return StartRows(index=index, rows=ratios)


class FileBacktest(AbstractStarts):
    """Run policies from the first tick of each of several recordings.

    Parameters
    ----------
    worlds
        Name, traces and job of each recording.
    policies, seed
        As for `ZoneBacktest`.
    """

    def __init__(self, worlds: Sequence[tuple[str, ZoneStarts]], policies: Sequence[str], seed: int) -> None:
        super().__init__(policies, seed)
        self._names = [name for name, _ in worlds]
        self._runs = [ZoneBacktest(replace(world, firsts=(0,)), policies, seed) for _, world in worlds]

    def run_start(self, index: int) -> StartRows:
        """Run all policies on one recording."""
        found = self._runs[index].run_start(0)
        return replace(found, index=index, rows=tuple(replace(row, file=self._names[index]) for row in found.rows))

    def name(self, piece: int) -> str:
        """Return the label of a recording."""
        return self._names[piece]


@policy(
    "optimum",
    world="zones",
    summary="Minimum cost under the deadline of any policy that acts at ticks, with all traces known. Found by "
    "dynamic programming; a dual potential proves it and is checked before the row is printed.",
    is_default=True,
    is_reference=True,
    traits=[IN_ONE_ZONE],
)
def optimum(world: ZoneStarts, first: int) -> Optimum:
    """Return the minimum cost from a tick on, by dynamic programming over all traces, with its proof."""
    return least_cost(world.market, world.job, first, world.billing)


def run_over_zones(
    world: ZoneStarts,
    policies: Sequence[str],
    *,
    starts: int,
    seed: int,
    engine: Engine | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Iterator[StartRows]:
    """Yield the rows of each start in order.

    Parameters
    ----------
    world
        Traces, job and possible starts.
    policies
        Names of policies, user-defined classes, and `optimum`. Without `optimum` no row has a `ratio_to_optimum`.
    starts, seed
        Number of starts, and seed of the random draws. If `world.firsts` is given, its length is the number of starts.
    engine
        Execution engine, this process by default; the result is the same for every engine.
    stop, progress
        `stop` ends the run early, after the starts in progress; `progress` receives the number of completed starts.
    """
    check_policies(policies, "zones")
    starts = starts if world.firsts is None else len(world.firsts)
    return ZoneBacktest(world, policies, seed).yield_rows(starts, engine, stop, progress)


def run_over_files(
    worlds: Sequence[tuple[str, ZoneStarts]],
    policies: Sequence[str],
    *,
    seed: int = 0,
    engine: Engine | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Iterator[StartRows]:
    """Yield the rows of each recording in order: policies run from its first tick.

    Parameters
    ----------
    worlds
        Name, traces and job of each recording.
    policies, seed, engine, stop, progress
        As for `run_over_zones`.
    """
    check_policies(policies, "zones")
    return FileBacktest(worlds, policies, seed).yield_rows(len(worlds), engine, stop, progress)


def _row_of_zone_run(world: ZoneStarts, run: ZoneRun, name: str) -> Row:
    machines, spot_s = world.job.machines, run.held_s(is_spot=True)
    done = run.work_done_s / HOUR_S
    return Row(
        policy=name,
        start=time_text(int(world.market.time_s[run.first])),
        cost_usd=run.cost_usd,
        hours=run.end_s / HOUR_S,
        work_done=done,
        is_done=run.deadline_met,
        cost_per_work=ratio(run.cost_usd, done),
        on_demand_hours=run.held_s(is_spot=False) / HOUR_S * machines,
        paid_hours=(spot_s - run.free_s) / HOUR_S * machines,
        free_hours=run.free_s / HOUR_S * machines,
        evictions=run.evictions,
        probes=run.probes,
        deadline_met=run.deadline_met,
    )


def _row_of_optimum(world: ZoneStarts, best: Optimum) -> Row:
    machines, market, job = world.job.machines, world.market, world.job
    held = {kind: sum(s.end_s - s.begin_s for s in best.plan if s.is_spot == kind) / HOUR_S for kind in (True, False)}
    free = sum(bill_stay(market, job, best.first, stay, world.billing).free_s for stay in best.plan) / HOUR_S
    work = job.work_s / HOUR_S
    return Row(
        policy=OPTIMUM,
        start=time_text(int(market.time_s[best.first])),
        cost_usd=best.usd,
        bound_usd=best.bound_usd,
        hours=best.plan[-1].end_s / HOUR_S,
        work_done=work,
        is_done=True,
        cost_per_work=best.usd / work,
        on_demand_hours=held[False] * machines,
        paid_hours=(held[True] - free) * machines,
        free_hours=free * machines,
        evictions=sum(stay.is_lost for stay in best.plan),
        deadline_met=True,
    )
