"""Pictures of bidding: a run's bids on the price path, the eviction table, costs of policies, and the frontier."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.models.bidding.market.billing import LedgerLine, Reason
from optim.models.bidding.market.evictions import EvictionTable
from optim.models.bidding.market.prices import HOUR_S, MICRO
from optim.simulation.spot.backtest import Summary
from optim.simulation.spot.engine import RunResult, run_policy
from optim.simulation.spot.policies import make_policy
from optim.simulation.spot.policy import Request, View, World
from optim.solvers.bidding.frontier import Frontier

WIDE = 5.0
"""Ratio of the highest to the lowest price above which the price axis is logarithmic."""

BLUE, RED, GREEN, ORANGE = "#2166ac", "#c4404f", "#3f9b5f", "#e0803a"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBid:
    """A bid that a policy placed, with the time of the request."""

    time_s: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBid:
    """A granted bid: price, begin and end of its allocation in hours since the start, and whether it was evicted."""

    bid_usd: float
    begin_h: float
    end_h: float
    is_evicted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRun:
    """A run with the bids that the policy placed."""

    result: RunResult
    bids: tuple[PlacedBid, ...]


def watch(world: World, policy: str, start_s: int) -> WatchedRun:
    """Run a policy from a start, and record its bids.

    Parameters
    ----------
    world
        Prices, the data learned from earlier prices, and the job.
    policy
        Name of the policy.
    start_s
        Start of the job, in seconds on the clock of the price history.
    """
    watched, bids = make_policy(policy, world), list[PlacedBid]()
    decide = watched.decide

    def decide_and_tell(view: View) -> Request | None:
        request = decide(view)
        if request is not None:
            bids.append(PlacedBid(time_s=view.now_s, request=request))
        return request

    watched.decide = decide_and_tell  # type: ignore[method-assign]  # the engine requires the policy's class
    return WatchedRun(result=run_policy(world, watched, start_s), bids=tuple(bids))


def busiest_markets(world: World, run: WatchedRun, number: int) -> tuple[int, ...]:
    """Return the `number` markets with the most bids in a run, or fewer; in a tie, lower indices first."""
    placed = [bid.request.market for bid in run.bids if bid.request.bid_micro is not None]
    count = np.bincount(np.array(placed, dtype=np.int64), minlength=world.history.num_markets)
    order = np.argsort(-count, kind="stable")[:number]
    return tuple(int(m) for m in order if count[m])


def held_bids(world: World, run: WatchedRun, market: int) -> tuple[HeldBid, ...]:
    """Return the granted bids in a market, with the times of their allocations according to the bill."""
    start, name = run.result.start_s, world.history.markets[market].name
    lines = {(line.begin_s, line.count): line for line in run.result.ledger if line.market == name}
    found = []
    for bid in run.bids:
        micro = bid.request.bid_micro
        if bid.request.market != market or micro is None:
            continue
        held: list[LedgerLine] = []
        while (line := lines.get((bid.time_s + HOUR_S * len(held), bid.request.count))) is not None:
            held.append(line)
            if line.reason is Reason.EVICTED_FREE:
                break
        if held:
            found.append(
                HeldBid(
                    bid_usd=micro / MICRO,
                    begin_h=(bid.time_s - start) / HOUR_S,
                    end_h=(held[-1].end_s - start) / HOUR_S,
                    is_evicted=held[-1].reason is Reason.EVICTED_FREE,
                )
            )
    return tuple(found)


def draw_bids(axes: Any, world: World, run: WatchedRun, market: int) -> None:
    """Draw a market's price during a run, with bars for allocated bids and crosses for evictions."""
    history, start = world.history, run.result.start_s
    path = history.paths[market]
    end = max(run.result.end_s, start + HOUR_S)
    first, last = max(0, path.index_at(start)), int(np.searchsorted(path.time_s, end))
    times = np.append(np.maximum(path.time_s[first:last], start), end)
    prices = np.append(path.price_micro[first:last], path.price_micro[last - 1]) / MICRO
    axes.step((times - start) / HOUR_S, prices, where="post", color="#555555", linewidth=1, label="price")
    bids = held_bids(world, run, market)
    axes.hlines(
        [bid.bid_usd for bid in bids],
        [bid.begin_h for bid in bids],
        [bid.end_h for bid in bids],
        color=BLUE,
        linewidth=2.5,
        alpha=0.7,
        label="bid, while allocated",
    )
    gone = [bid for bid in bids if bid.is_evicted]
    axes.plot(
        [bid.end_h for bid in gone],
        [bid.bid_usd for bid in gone],
        "X",
        color=RED,
        markersize=7,
        label="evicted (free hour)",
    )
    scale = "log" if prices.max() > WIDE * prices.min() else "linear"
    on_demand = history.markets[market].on_demand_micro / MICRO
    axes.set(yscale=scale, ylabel="$ per hour", title=f"{history.markets[market].name} (${on_demand:g} on demand)")


def draw_evictions(axes: Any, table: EvictionTable) -> Any:
    """Draw the probability of an eviction within an hour, by market (row) and bid margin (column); return the image."""
    image = axes.imshow(table.beta, vmin=0.0, vmax=max(0.5, float(table.beta.max())), cmap="Reds", aspect="auto")
    labels = [f"{delta / MICRO:g}" for delta in table.deltas_micro.tolist()] + ["on-demand"]
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right")
    axes.set_yticks(range(len(table.markets)), table.markets)
    axes.set(xlabel="bid delta ($ above the current price)", title="evicted within the hour")
    return image


def draw_costs(axes: Any, summaries: Mapping[str, Summary]) -> None:
    """Draw each policy's mean cost with its 95 % interval, which requires several starts."""
    figures = {name: (s.mean["cost_usd"], s.high["cost_usd"]) for name, s in summaries.items()}
    known = {
        name: (mean, 0.0 if high is None else high - mean) for name, (mean, high) in figures.items() if mean is not None
    }
    means, spreads = [mean for mean, _ in known.values()], [spread for _, spread in known.values()]
    shades = [ORANGE if name.startswith("oracle") else BLUE for name in known]
    axes.barh(list(known), means, xerr=spreads, color=shades, error_kw={"elinewidth": 1, "capsize": 2})
    for place, (mean, spread) in enumerate(known.values()):
        axes.text(mean + spread, place, f"  ${mean:.1f}", va="center", fontsize="small")
    axes.invert_yaxis()
    axes.set(xlabel="USD per job (mean, 95 % interval by Student's t)")
    axes.margins(x=0.12)


def draw_frontier(axes: Any, frontier: Frontier, footprints: Mapping[str, tuple[float, float]]) -> None:
    """Draw the frontier, its proven lower bound, the line of the lowest cost per unit of work, and given footprints.

    Parameters
    ----------
    axes
        Axes to draw on.
    frontier
        The frontier; at least one of its points has positive work.
    footprints
        Work and cost of footprints (portfolios of bids) by name.
    """
    work = np.array([point.work for point in frontier.points])
    cost = np.array([point.cost for point in frontier.points])
    grid = np.linspace(0.0, float(work.max()), 200)
    ratio = float((cost[work > 0] / work[work > 0]).min())
    axes.plot(grid, [frontier.least_cost(float(w)) for w in grid], color="black", linewidth=1, label="proven bound")
    axes.plot(work, cost, "o", color=BLUE, markersize=4, label="optimal footprint at some work price")
    axes.plot(grid, ratio * grid, color=GREEN, linestyle="--", linewidth=1, label=f"${ratio:.4f} per unit of work")
    for (name, (w, c)), marker in zip(footprints.items(), "X^svD" * len(footprints), strict=False):
        axes.plot([w], [c], marker, color=RED, markersize=8, fillstyle="none", linestyle="none", label=name)
    axes.set(xlabel="expected work in the hour", ylabel="expected cost of the hour in USD")
    axes.legend(frameon=False, fontsize="small")
