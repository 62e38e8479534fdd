"""The plots of bidding agree with the bill, and need no display."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest

import optim
from optim.models.bidding.market.billing import Reason
from optim.report.bidding import busiest_markets, draw_bids, draw_costs, draw_evictions, draw_frontier, held_bids, watch
from optim.simulation.spot.backtest import Row, summarise
from optim.simulation.spot.engine import run_policy
from optim.simulation.spot.policies import make_policy
from optim.solvers.bidding.frontier import FrontierOptions, trace_frontier
from tests.support.spot.worlds import drawn_world


@pytest.fixture(scope="module")
def world():
    """A job of three hours on restless prices."""
    return drawn_world(4, job_hours=3, baseline=16, max_spot=48)


@pytest.fixture
def axes():
    """Return axes on a canvas that needs no display."""
    from matplotlib.figure import Figure

    return Figure().subplots()


@pytest.mark.parametrize("policy", ["proteus", "standard-checkpoint"])  # the second one keeps all leases by inheritance
def test_watching_changes_nothing(world, policy):
    start = int(world.history.begin_s) + 86_400
    assert watch(world, policy, start).result == run_policy(world, make_policy(policy, world), start)


def test_bids_are_held_as_long_as_the_bill_says(world):
    run = watch(world, "proteus", int(world.history.begin_s) + 86_400)
    evicted, hours = 0, 0.0
    for market in range(world.history.num_markets):
        bids = held_bids(world, run, market)
        evicted += sum(bid.is_evicted for bid in bids)
        assert all(0 <= bid.begin_h < bid.end_h for bid in bids)
    free = [line for line in run.result.ledger if line.reason is Reason.EVICTED_FREE]
    assert evicted == len(free)
    hours = sum(line.machine_hours for line in run.result.ledger)
    assert hours == pytest.approx(run.result.on_demand_hours + run.result.paid_hours + run.result.free_hours)


def test_the_busiest_market_has_most_bids(world):
    run = watch(world, "proteus", int(world.history.begin_s) + 86_400)
    markets = busiest_markets(world, run, 2)
    placed = [sum(bid.request.market == m for bid in run.bids) for m in range(world.history.num_markets)]
    assert placed[markets[0]] == max(placed)


@pytest.mark.parametrize(("seconds", "hours"), [(60, 1.0), (5400, 1.5)])
def test_prices_are_drawn_over_the_run_and_an_hour_at_least(world, axes, seconds, hours):
    run = watch(world, "proteus", int(world.history.begin_s) + 86_400)
    short = replace(run, result=replace(run.result, end_s=run.result.start_s + seconds), bids=())
    draw_bids(axes, world, short, 0)
    drawn = axes.lines[0].get_xdata()
    assert (drawn[0], drawn[-1]) == (0.0, hours)


def test_all_pictures_are_drawn(world, axes):
    run = watch(world, "proteus", int(world.history.begin_s) + 86_400)
    draw_bids(axes, world, run, busiest_markets(world, run, 1)[0])
    assert axes.get_title().startswith("c3.xlarge")
    axes.clear()
    image = draw_evictions(axes, world.table)
    assert np.asarray(image.get_array()).shape == world.table.beta.shape
    assert (axes.get_xlabel(), axes.get_title()) == ("bid delta ($ above the current price)", "evicted within the hour")
    axes.clear()
    rows = [
        Row(policy="p", start="s", cost_usd=c, hours=1.0, work_done=1.0, is_done=True, cost_per_work=c)
        for c in (1.0, 3.0)
    ]
    draw_costs(axes, {"p": summarise("p", rows)})
    assert [text.get_text() for text in axes.texts] == ["  $2.0"]
    axes.clear()
    instance = optim.reference_instance("spot-vector")
    best = optim.solve(instance, "dinkelbach").decision.counts
    draw_frontier(axes, trace_frontier(instance, best, FrontierOptions()), {"greedy": (9.0, 2.0)})
    labels = axes.get_legend_handles_labels()[1]
    assert labels[-2:] == ["$0.2046 per unit of work", "greedy"]
    bound, footprints, tangent, greedy = axes.get_lines()
    most = footprints.get_xdata().max()
    assert [line.get_xdata()[[0, -1]].tolist() for line in (bound, tangent)] == [[0.0, most]] * 2
    assert tangent.get_ydata()[0] == 0.0
    assert (greedy.get_xdata(), greedy.get_ydata()) == ([9.0], [2.0])
    axes.figure.savefig(BytesIO(), format="png")
