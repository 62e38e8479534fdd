"""Back-tests under a deadline, in one zone or several: policies from the same ticks, and the least cost that anybody could have had."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.errors import InvalidOptionError, unknown_name
from optim.core.policies import causal_names, find_policy, policy, shipped_names
from optim.core.progress import Progress
from optim.core.stopping import Interruption
from optim.core.user_code import is_file_reference, load_class_from_file
from optim.execution import Engine
from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.billing import Billing, bill_stay
from optim.models.bidding.market.prices import HOUR_S
from optim.models.bidding.market.zones import Optimum, ZoneJob, ZoneMarket
from optim.simulation.spot.backtest import AbstractStarts, Row, StartRows, ratio, time_text
from optim.simulation.spot.policies import check_policies
from optim.simulation.spot.zones.engine import ZoneRun, facts_of, run_zones
from optim.simulation.spot.zones.policy import ZoneFacts, ZonePolicy
from optim.solvers.bidding.zones import least_cost

OPTIMUM = "optimum"
"""The reference: the least cost with all traces known."""


def zone_policy(name: str) -> Callable[[ZoneFacts], ZonePolicy]:
    """Return the class of a policy: by name, or a user's by ``./mine.py:MyPolicy``.

    Raises
    ------
    InvalidOptionError
        If there is none.
    """
    if is_file_reference(name):
        return load_class_from_file(name, ZonePolicy, "a policy over zones")
    entry = find_policy("zones", name)
    if entry is None or entry.is_reference:
        raise unknown_name("policy over zones", name, causal_names("zones"))
    return entry.make


def check_zone_policies(names: Sequence[str]) -> None:
    """Raise `InvalidOptionError` if a policy over zones, or the reference, is unknown."""
    check_policies([name for name in names if not is_file_reference(name)], shipped_names("zones"), " over zones")
    for name in names:
        if is_file_reference(name):
            zone_policy(name)


@dataclass(frozen=True, kw_only=True)
class ZoneStarts:
    """What runs from where.

    Parameters
    ----------
    market, job
        The traces and the job.
    billing
        The rule of the bill.
    probe_s
        Seconds that a probe is charged.
    firsts
        The ticks to start from, in order; None draws them.
    """

    market: ZoneMarket
    job: ZoneJob
    billing: Billing = Billing.PER_SECOND
    probe_s: int = 60
    firsts: tuple[int, ...] | None = None

    @property
    def num_starts(self) -> int:
        """The number of ticks, from the first on, that leave the traces long enough for the deadline."""
        return max(0, len(self.market) - self.job.num_ticks(self.market.tick_s) + 1)

    def first_at(self, time_s: int) -> int:
        """Return the first tick at a time or later.

        Raises
        ------
        InvalidOptionError
            If it doesn't leave the traces long enough for the deadline.
        """
        first = int(np.searchsorted(self.market.time_s, time_s))
        if time_s < self.market.time_s[0] or first >= self.num_starts:
            begin, end = (time_text(int(self.market.time_s[tick])) for tick in (0, max(0, self.num_starts - 1)))
            raise InvalidOptionError(
                f"a job can't start at {time_text(time_s)}: the traces and the deadline allow {begin} to {end}"
            )
        return first


class ZoneBacktest(AbstractStarts):
    """Run policies from ticks that leave the traces long enough for the deadline.

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
        if world.num_starts < 1:
            market, ticks = world.market, world.job.num_ticks(world.market.tick_s)
            raise InvalidOptionError(
                f"the traces are shorter than the deadline of {world.job.deadline_s / HOUR_S:.4g} h: {len(market)} ticks "
                f"of {market.tick_s} s, {ticks} are needed; give a nearer deadline or longer traces"
            )

    def run_start(self, index: int) -> StartRows:
        """Run all policies from one tick; the reference is checked before it is told."""
        world, market, job = self._world, self._world.market, self._world.job
        if world.firsts is None:
            first = int(np.random.default_rng([self._seed, index]).integers(0, world.num_starts))
        else:
            first = world.firsts[index]
        best, facts = None, facts_of(market, job, world.billing)
        if OPTIMUM in self._policies:
            best = optimum(world, first)
            problems = check_optimum(market, job, best, world.billing)
            if problems:
                return StartRows(index=index, rows=(), error=f"the least cost isn't proven: {problems[0]}")
        names = dict.fromkeys(("on-demand", *(name for name in self._policies if name != OPTIMUM)))
        runs = {
            name: run_zones(market, job, zone_policy(name)(facts), first, billing=world.billing, probe_s=world.probe_s)
            for name in names
        }
        rows = []
        for name in self._policies:
            if name == OPTIMUM and best is not None:
                row, units = _row_of_optimum(world, best), best.plan_units
            else:
                row, units = _row_of_run(world, runs[name], name), runs[name].units
            rows.append(
                replace(
                    row,
                    billing=world.billing.value,
                    ratio_to_on_demand=ratio(units, runs["on-demand"].units),
                    ratio_to_optimum=None if best is None else ratio(units, best.units),
                )
            )
        return StartRows(index=index, rows=tuple(rows))


@policy(
    "optimum",
    world="zones",
    summary="Knows all traces: the least cost under the deadline of any policy that acts at ticks, by dynamic programming; "
    "a potential over all situations proves it, checked from the traces before the row is printed.",
    is_reference=True,
)
def optimum(world: ZoneStarts, first: int) -> Optimum:
    """Return the least cost from a tick on, by dynamic programming over all traces, with its proof."""
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
        What runs.
    policies
        Names of policies, classes of one's own, and `optimum`; without it no row has a `ratio_to_optimum`.
    starts, seed
        How many starts, and what they are drawn by; where the world names its starts there are as many as it names.
    engine
        Where starts are run, in this process by default; the answer is the same for any.
    stop, progress
        Ends the run early, after the starts that are running; hears how many are done.
    """
    check_zone_policies(policies)
    starts = starts if world.firsts is None else len(world.firsts)
    return ZoneBacktest(world, policies, seed).yield_rows(starts, engine, stop, progress)


def _row_of_run(world: ZoneStarts, run: ZoneRun, name: str) -> Row:
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
