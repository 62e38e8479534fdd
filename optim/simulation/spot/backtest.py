"""Back-tests: policies and references from the same random starts, each start a piece of work."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.execution import AbstractTask, Engine, run_in_order
from optim.core.progress import Progress
from optim.core.stopping import Interruption, StoppingCriterion
from optim.models.bidding.billing import Billing, billing_at
from optim.models.bidding.eviction import EvictionOptions, fit_evictions, without_evictions
from optim.models.bidding.price_history import HOUR_S, PriceHistory
from optim.simulation.spot.bill import RULES
from optim.simulation.spot.engine import run_policy
from optim.simulation.spot.options import SpotOptions
from optim.simulation.spot.oracle import Oracle, OracleResult
from optim.simulation.spot.oracle_check import ReferenceChecker
from optim.simulation.spot.policies import ORACLES, check_policies, make_policy
from optim.simulation.spot.result import RunResult
from optim.simulation.spot.rows import Row, over, row_of_oracle, row_of_run, time_text
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
    history: PriceHistory,
    train_until_s: int | None,
    options: SpotOptions,
    *,
    volatile: int | None = None,
    billing: Billing | None = None,
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
    billing
        The rules of bills and evictions; by default those in force when the second part begins.

    Raises
    ------
    InvalidOptionError
        If either part is shorter than a day, there aren't so many markets, or the rule is of traces of availability.
    """
    cut = (history.begin_s + history.end_s) // 2 if train_until_s is None else train_until_s
    day = 24 * HOUR_S
    if history.end_s - history.begin_s < 2 * day:
        raise InvalidOptionError(
            f"the prices span {(history.end_s - history.begin_s) / HOUR_S:.4g} h, and a day to learn from and one to run on "
            f"must be in them; give two days at least"
        )
    if not history.begin_s + day <= cut <= history.end_s - day:
        raise InvalidOptionError(
            f"the split must leave a day of prices on either side ({time_text(history.begin_s + day)} to "
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
    if billing not in RULES:
        raise InvalidOptionError(
            f"--billing {billing.value} goes with --availability; prices are billed by: {', '.join(rule.value for rule in RULES)}"
        )
    table = fit_evictions(known, EvictionOptions(at_equal=options.at_equal))
    if not billing.has_bids:
        table = without_evictions(table)
    world = World(history=test, table=table, options=options, billing=billing)
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
    """Run policies and references on the prices of a world; references are checked before they are told."""

    def __init__(self, world: World, policies: Sequence[str], seed: int, begins: Sequence[int] = ()) -> None:
        super().__init__(policies, seed)
        self._world, self._oracle, self._begins = world, Oracle(world), tuple(begins)
        self._checker = ReferenceChecker(world)
        history, least = world.history, round(HOUR_S * world.options.job_hours / 2)
        for begin in self._begins:
            if begin < history.begin_s or history.touches_gap(begin, begin + least):
                raise InvalidOptionError(
                    f"a job can't start at {time_text(begin)}: the prices of the test, from {time_text(history.begin_s)} to "
                    f"{time_text(history.end_s)}, end or have a gap within half of its hours"
                )
            if world.baseline_price(begin) is None:
                raise InvalidOptionError(f"{world.baseline.name} has no price at {time_text(begin)}; start later")

    def run_start(self, index: int) -> StartRows:
        """Run all policies from one start; starts that were drawn, and whose runs touch a gap of the prices, are drawn again."""
        if self._begins:
            return self._checked(index, self._begins[index], self._results(self._begins[index], stops=False), 0)
        history, options = self._world.history, self._world.options
        rng = np.random.default_rng([self._seed, index])
        least = round(HOUR_S * options.job_hours / 2)
        for redrawn in range(MOST_DRAWS):
            span = (history.end_s - least - history.begin_s) // options.tick_s
            start = history.begin_s + options.tick_s * int(rng.integers(0, max(1, span)))
            if history.touches_gap(start, start + least) or self._world.baseline_price(start) is None:
                continue
            results = self._results(start)
            if results:
                return self._checked(index, start, results, redrawn)
        raise InvalidOptionError(
            "the prices have hardly a time without gaps that is as long as the job; give longer ones"
        )

    def _results(self, start: int, *, stops: bool = True) -> dict[str, RunResult]:
        """Return every policy's run from a start; none at all if it stops at a run that touches a gap."""
        results = {}
        for name in dict.fromkeys(("on-demand", *(n for n in self._policies if n not in ORACLES))):
            results[name] = run_policy(self._world, make_policy(name, self._world), start)
            if stops and self._world.history.touches_gap(start, results[name].end_s):
                return {}
        return results

    def _checked(self, index: int, start: int, results: dict[str, RunResult], redrawn: int) -> StartRows:
        """Return the rows of a start, unless a reference isn't what it claims to be."""
        references = {name: self._oracle.solve(name, start) for name in ORACLES if name in self._policies}
        for name, found in references.items():
            problems = self._checker.problems(found)
            if problems:
                return StartRows(index=index, rows=(), error=f"{name} isn't proven: {problems[0]}")
        return StartRows(index=index, rows=self._rows(results, references, redrawn))

    def _rows(
        self, results: dict[str, RunResult], references: dict[str, OracleResult], redrawn: int
    ) -> tuple[Row, ...]:
        world = self._world
        baseline = results["on-demand"].cost_usd
        bound = references["oracle"].bound_usd if "oracle" in references else None
        paid = references["oracle-paid"].cost_usd if "oracle-paid" in references else None
        rows = {name: replace(row_of_run(result, redrawn), policy=name) for name, result in results.items()}
        rows |= {name: row_of_oracle(found, world.job_work, redrawn) for name, found in references.items()}
        return tuple(
            replace(
                rows[name],
                billing=world.billing.value,
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
    begins: Sequence[int] = (),
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
    begins
        Seconds since 1970 to start at instead of drawn ones.

    Raises
    ------
    InvalidOptionError
        If a policy is unknown, or there are no prices from a start on.
    """
    check_policies(policies)
    starts = len(begins) or starts
    return Backtest(world, policies, seed, begins).yield_rows(starts, engine, stop, progress)
