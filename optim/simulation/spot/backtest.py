"""Back-tests: policies and references from the same random starts, each start a piece of work."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.execution import AbstractTask, Engine, run_in_order
from optim.core.progress import Progress
from optim.core.stopping import Interruption, StoppingCriterion
from optim.models.bidding.availability import AvailabilityTrace
from optim.models.bidding.eviction import EvictionOptions, fit_evictions
from optim.models.bidding.price_history import HOUR_S, PriceHistory
from optim.simulation.spot.deadline import DeadlineJob, run_deadline
from optim.simulation.spot.engine import run_policy
from optim.simulation.spot.options import SpotOptions
from optim.simulation.spot.oracle import Oracle
from optim.simulation.spot.policies import ORACLES, check_policies, make_policy
from optim.simulation.spot.result import RunResult
from optim.simulation.spot.rows import Row, over, row_of_oracle, row_of_run
from optim.simulation.spot.world import World

MOST_DRAWS = 1000
"""Draws of one start until none of its runs touches a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRows:
    """The rows of one start, or why it has none: its process died."""

    index: int
    rows: tuple[Row, ...]
    error: str | None = None


def make_world(
    history: PriceHistory, train_until_s: int | None, options: SpotOptions, *, volatile: int | None = None
) -> World:
    """Split a history in time: policies know the first part, and run on the second.

    Parameters
    ----------
    history
        All prices.
    train_until_s
        Where it is split; in the middle by default.
    options
        The job.
    volatile
        Keep only so many markets, those of the largest variance of price over on-demand in the first part.

    Raises
    ------
    InvalidOptionError
        If either part is shorter than a day, or there aren't so many markets.
    """
    cut = (history.begin_s + history.end_s) // 2 if train_until_s is None else train_until_s
    day = 24 * HOUR_S
    if not history.begin_s + day <= cut <= history.end_s - day:
        raise InvalidOptionError(
            f"the split must leave a day of prices on either side ({history.begin_s + day} to {history.end_s - day} "
            f"seconds since 1970), got {cut}; choose another --train-until"
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
    table = fit_evictions(known, EvictionOptions(at_equal=options.at_equal))
    world = World(history=test, table=table, options=options)
    _ = world.baseline, world.reliable  # wrong types are refused before any work
    return world


class AbstractStarts(AbstractTask[int, StartRows]):
    """Run policies from numbered random starts; a start's number and the seed say all about it."""

    def __init__(self, policies: Sequence[str], seed: int) -> None:
        self._policies, self._seed = tuple(policies), seed

    @property
    def title(self) -> str:
        """What progress shows."""
        return f"{len(self._policies)} policies from random starts"

    @abstractmethod
    def run_start(self, index: int) -> StartRows:
        """Run all policies from one start."""

    def do(self, piece: int, stop: StoppingCriterion, progress: Progress) -> StartRows:
        """Run all policies from one start; it is too short to be stopped."""
        del stop, progress
        return self.run_start(piece)

    def lost(self, piece: int, reason: str) -> StartRows:
        """Say what became of a start whose process died."""
        return StartRows(index=piece, rows=(), error=reason)

    def is_failure(self, result: StartRows) -> bool:
        """Return whether the start's process died."""
        return result.error is not None

    def name(self, piece: int) -> str:
        """Return which start it is."""
        return f"start {piece}"

    def yield_rows(
        self, starts: int, engine: Engine | None, stop: Interruption | None, progress: Progress | None
    ) -> Iterator[StartRows]:
        """Yield the rows of so many starts in order."""
        return run_in_order(self, range(starts), engine, stop, progress)


class Backtest(AbstractStarts):
    """Run policies and references on the prices of a world."""

    def __init__(self, world: World, policies: Sequence[str], seed: int) -> None:
        super().__init__(policies, seed)
        self._world, self._oracle = world, Oracle(world)

    def run_start(self, index: int) -> StartRows:
        """Run all policies from one start; starts whose runs touch a gap of the prices are drawn again."""
        history, options = self._world.history, self._world.options
        rng = np.random.default_rng([self._seed, index])
        least = round(HOUR_S * options.job_hours / 2)
        for redrawn in range(MOST_DRAWS):
            span = (history.end_s - least - history.begin_s) // options.tick_s
            start = history.begin_s + options.tick_s * int(rng.integers(0, max(1, span)))
            if history.touches_gap(start, start + least) or self._world.baseline_price(start) is None:
                continue
            results = {}
            for name in dict.fromkeys(("on-demand", *(n for n in self._policies if n not in ORACLES))):
                results[name] = run_policy(self._world, make_policy(name, self._world), start)
                if history.touches_gap(start, results[name].end_s):
                    break
            else:
                return StartRows(index=index, rows=self._rows(start, results, redrawn))
        raise InvalidOptionError(
            "the prices have hardly a time without gaps that is as long as the job; give longer ones"
        )

    def _rows(self, start: int, results: dict[str, RunResult], redrawn: int) -> tuple[Row, ...]:
        world = self._world
        references = {name: self._oracle.solve(name, start) for name in ORACLES if name in self._policies}
        baseline = results["on-demand"].cost_usd
        bound = references["oracle"].bound_usd if "oracle" in references else None
        paid = references["oracle-paid"].cost_usd if "oracle-paid" in references else None
        rows = {name: replace(row_of_run(result, redrawn), policy=name) for name, result in results.items()}
        rows |= {name: row_of_oracle(found, world.job_work, redrawn) for name, found in references.items()}
        return tuple(
            replace(
                rows[name],
                ratio_to_on_demand=over(rows[name].cost_usd, baseline),
                ratio_to_oracle=over(rows[name].cost_usd, bound),
                ratio_to_oracle_paid=over(rows[name].cost_usd, paid),
            )
            for name in self._policies
        )


def run_backtest(
    world: World,
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
        Prices, knowledge and job.
    policies
        Names of policies and references.
    starts, seed
        How many starts, and what they are drawn by.
    engine
        Where starts are run, in this process by default; the answer is the same for any.
    stop, progress
        Ends the run early, after the starts that are running; hears how many are done.
    """
    check_policies(policies)
    return Backtest(world, policies, seed).yield_rows(starts, engine, stop, progress)


class _Deadlines(AbstractStarts):
    """Run policies under a deadline from random ticks out of the first `ticks`."""

    def __init__(
        self, trace: AvailabilityTrace, job: DeadlineJob, policies: Sequence[str], ticks: int, seed: int
    ) -> None:
        super().__init__(policies, seed)
        self._trace, self._job, self._ticks = trace, job, ticks

    def run_start(self, index: int) -> StartRows:
        """Run all policies from one tick."""
        first = int(np.random.default_rng([self._seed, index]).integers(0, self._ticks))
        names = dict.fromkeys(("on-demand", *self._policies))
        results = {name: run_deadline(self._trace, self._job, name, first) for name in names}
        baseline = results["on-demand"].cost_usd
        rows = (
            replace(row_of_run(results[name]), ratio_to_on_demand=over(results[name].cost_usd, baseline))
            for name in self._policies
        )
        return StartRows(index=index, rows=tuple(rows))


def run_deadlines(
    trace: AvailabilityTrace,
    job: DeadlineJob,
    policies: Sequence[str],
    *,
    starts: int,
    seed: int,
    engine: Engine | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Iterator[StartRows]:
    """Yield the rows of policies under a deadline, from random ticks that leave the trace long enough.

    Parameters are those of `run_backtest`, but for what is run: one zone's trace, and a job with a deadline.

    Raises
    ------
    InvalidOptionError
        If the trace is shorter than the deadline.
    """
    last = trace.end_s - round(HOUR_S * (job.deadline_h + job.changeover_h)) - trace.longest_tick_s
    ticks = int(np.searchsorted(trace.time_s, last, side="right"))
    if ticks < 1:
        raise InvalidOptionError(
            f"the trace of {trace.zone} is shorter than the deadline of {job.deadline_h:g} h; shorten it"
        )
    return _Deadlines(trace, job, policies, ticks, seed).yield_rows(starts, engine, stop, progress)
