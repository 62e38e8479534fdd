"""Back-tests over zones: policies from the same random ticks, beside the least cost that anybody could have had."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.execution import Engine
from optim.core.own_code import is_own, load_own
from optim.core.progress import Progress
from optim.core.stopping import Interruption
from optim.models.bidding.price_history import HOUR_S
from optim.models.bidding.zones.check import check_optimum
from optim.models.bidding.zones.market import Optimum, ZoneJob, ZoneMarket
from optim.simulation.spot.backtest import AbstractStarts, StartRows
from optim.simulation.spot.policies import check_policies
from optim.simulation.spot.rows import Row, over, time_text
from optim.simulation.spot.zones.engine import ZoneRun, facts_of, run_zones
from optim.simulation.spot.zones.policies import ZONE_POLICIES
from optim.simulation.spot.zones.policy import ZonePolicy
from optim.solvers.bidding.zones.optimum import least_cost

OPTIMUM = "optimum"
"""The reference: the least cost with all traces known."""


def zone_policy(name: str) -> type[ZonePolicy]:
    """Return a policy's class: by name, or one's own by ``./mine.py:MyPolicy``.

    Raises
    ------
    InvalidOptionError
        If there is none.
    """
    if is_own(name):
        return load_own(name, ZonePolicy, "a policy over zones")
    check_policies([name], ZONE_POLICIES, " over zones")
    return ZONE_POLICIES[name]


def check_zone_policies(names: Sequence[str]) -> None:
    """Raise `InvalidOptionError` if a policy over zones, or the reference, is unknown."""
    check_policies([name for name in names if not is_own(name)], (*ZONE_POLICIES, OPTIMUM), " over zones")
    for name in names:
        if is_own(name):
            zone_policy(name)


@dataclass(frozen=True, kw_only=True)
class ZoneStarts:
    """What runs from where: a market, a job, and what a probe is charged."""

    market: ZoneMarket
    job: ZoneJob
    probe_s: int = 60


class ZoneBacktest(AbstractStarts):
    """Run policies over zones from random ticks that leave the traces long enough for the deadline.

    Parameters
    ----------
    world
        What runs.
    policies
        Names; `optimum` is the reference.
    seed
        Of the starts.

    Raises
    ------
    InvalidOptionError
        If the traces are shorter than the deadline.
    """

    def __init__(self, world: ZoneStarts, policies: Sequence[str], seed: int) -> None:
        super().__init__(policies, seed)
        self._world = world
        self._ticks = len(world.market) - world.job.deadline
        if self._ticks < 1:
            hours = world.job.deadline * world.market.tick_s / HOUR_S
            raise InvalidOptionError(f"the traces are shorter than the deadline of {hours:.4g} h; shorten it")

    def run_start(self, index: int) -> StartRows:
        """Run all policies from one tick; the reference is checked before it is told."""
        world, market, job = self._world, self._world.market, self._world.job
        first = int(np.random.default_rng([self._seed, index]).integers(0, self._ticks))
        best = least_cost(market, job, first)
        problems = check_optimum(market, job, best)
        if problems:
            return StartRows(index=index, rows=(), error=f"the least cost isn't proven: {problems[0]}")
        baseline = run_zones(market, job, zone_policy("on-demand")(facts_of(market, job)), first).units
        rows = []
        for name in self._policies:
            if name == OPTIMUM:
                row, units = _row_of_optimum(market, job, best), best.units
            else:
                policy = zone_policy(name)(facts_of(market, job))
                run = run_zones(market, job, policy, first, probe_s=world.probe_s)
                row, units = _row_of_run(market, job, run, name), run.units
            rows.append(
                replace(row, ratio_to_on_demand=over(units, baseline), ratio_to_optimum=over(units, best.units))
            )
        return StartRows(index=index, rows=tuple(rows))


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
        What runs.
    policies
        Names of policies over zones, classes of one's own, and `optimum`.
    starts, seed
        How many starts, and what they are drawn by.
    engine
        Where starts are run, in this process by default; the answer is the same for any.
    stop, progress
        Ends the run early, after the starts that are running; hears how many are done.
    """
    check_zone_policies(policies)
    return ZoneBacktest(world, policies, seed).yield_rows(starts, engine, stop, progress)


def _row_of_run(market: ZoneMarket, job: ZoneJob, run: ZoneRun, name: str) -> Row:
    hours = market.tick_s / HOUR_S
    done = run.work_done * hours
    return Row(
        policy=name,
        start=time_text(int(market.time_s[run.first])),
        cost_usd=run.cost_usd,
        hours=run.ticks * hours,
        work_done=done,
        is_done=run.deadline_met,
        cost_per_work=over(run.cost_usd, done),
        on_demand_hours=run.ticks_held(is_spot=False) * hours * job.machines,
        paid_hours=run.ticks_held(is_spot=True) * hours * job.machines,
        evictions=run.evictions,
        probes=run.probes,
        deadline_met=run.deadline_met,
    )


def _row_of_optimum(market: ZoneMarket, job: ZoneJob, best: Optimum) -> Row:
    hours = market.tick_s / HOUR_S
    held = {kind: sum(s.end - s.begin for s in best.plan if s.is_spot == kind) * hours for kind in (True, False)}
    return Row(
        policy=OPTIMUM,
        start=time_text(int(market.time_s[best.first])),
        cost_usd=best.usd,
        bound_usd=best.usd,
        hours=best.plan[-1].end * hours,
        work_done=job.work * hours,
        is_done=True,
        cost_per_work=best.usd / (job.work * hours),
        on_demand_hours=held[False] * job.machines,
        paid_hours=held[True] * job.machines,
        deadline_met=True,
    )
