"""Back-tests: equal for any number of processes, never trained on the test data, with gaps drawn again."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.execution import local_engine
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.prices import PricePath, history_of
from optim.simulation.spot.backtest import Row, make_world, run_backtest, summarise, time_text
from optim.simulation.spot.oracle import Oracle
from optim.simulation.spot.policy import SpotOptions
from optim.workloads.prices.price_generator import PriceOptions, generate_prices

OPTIONS = SpotOptions(job_hours=2, baseline=8, max_spot=24)
NAMES = ("on-demand", "proteus", "standard-checkpoint", "oracle", "oracle-paid")


@pytest.fixture(scope="module")
def history():
    """Prices of two markets over ten days."""
    return generate_prices(PriceOptions(num_types=1, num_zones=2, days=10), 0)


@pytest.mark.prove
def test_the_number_of_processes_changes_nothing(history):
    world = make_world(history, None, OPTIONS)
    one, two = (
        [entry.rows for entry in run_backtest(world, NAMES, starts=6, seed=3, engine=local_engine(processes))]
        for processes in (1, 2)
    )
    assert one == two
    assert [row.policy for row in one[0]] == list(NAMES)


def test_policies_know_nothing_of_what_they_are_tested_on(history):
    world = make_world(history, None, OPTIONS)
    cut = world.history.begin_s
    changed = [
        PricePath(time_s=path.time_s, price_micro=np.where(path.time_s >= cut, path.price_micro * 7, path.price_micro))
        for path in history.paths
    ]
    other = make_world(history_of(history.markets, changed, end_s=history.end_s), cut, OPTIONS)
    assert np.array_equal(world.table.survival, other.table.survival)


def test_no_run_touches_a_gap_and_starts_that_would_are_counted():
    whole = generate_prices(PriceOptions(num_types=1, num_zones=2, days=10), 1)
    begin = whole.begin_s + 6 * 86_400
    paths = []
    for path in whole.paths:
        kept = (path.time_s < begin) | (path.time_s >= begin + 2 * 86_400)
        paths.append(PricePath(time_s=path.time_s[kept], price_micro=path.price_micro[kept]))
    gappy = history_of(whole.markets, paths, end_s=whole.end_s)
    assert len(gappy.gaps) == 1
    world = make_world(gappy, None, OPTIONS)
    rows = [row for entry in run_backtest(world, ("proteus",), starts=20, seed=0) for row in entry.rows]
    assert sum(row.redrawn for row in rows) > 0
    stamp = np.datetime64(int(begin), "s")
    for row in rows:
        start = np.datetime64(row.start.removesuffix("Z"))
        assert start + np.timedelta64(int(row.hours * 3600), "s") <= stamp or start >= stamp + np.timedelta64(47, "h")


def test_ratios_to_nothing_are_null(history):
    world = make_world(history, None, OPTIONS)
    (entry,) = run_backtest(world, NAMES, starts=1, seed=0)
    rows = {row.policy: row for row in entry.rows}
    if rows["oracle"].bound_usd == 0:
        assert rows["proteus"].ratio_to_oracle is None
    assert rows["on-demand"].ratio_to_on_demand == 1.0
    assert rows["proteus"].ratio_to_oracle_paid == pytest.approx(
        rows["proteus"].cost_usd / rows["oracle-paid"].cost_usd
    )


def test_references_tell_the_machine_hours_of_their_plans(history):
    world = make_world(history, None, OPTIONS)
    (entry,) = run_backtest(world, NAMES, starts=1, seed=0)
    rows = {row.policy: row for row in entry.rows}
    paid, free = rows["oracle-paid"], rows["oracle"]
    assert paid.paid_hours > 0
    assert paid.free_hours == 0
    assert (free.free_hours > 0) == (free.cost_usd == 0)


def test_a_summary_has_the_mean_and_its_interval():
    rows = [
        Row(policy="p", start="s", cost_usd=cost, hours=1.0, work_done=2.0, is_done=True, cost_per_work=cost / 2)
        for cost in (1.0, 3.0)
    ]
    rows.append(
        Row(policy="p", start="s", cost_usd=9.0, hours=9.0, work_done=1.0, is_done=False, cost_per_work=9.0, redrawn=2)
    )
    summary = summarise("p", rows)
    assert (summary.starts, summary.done, summary.redrawn) == (3, 2, 2)
    assert summary.mean["cost_usd"] == 2.0
    assert summary.high["cost_usd"] - 2.0 == pytest.approx(
        12.7062 * np.sqrt(2) / np.sqrt(2), abs=1e-3
    )  # Student's t, 1 degree of freedom
    assert summary.mean["deadline_met"] is None


def test_refuses_a_split_without_a_day_on_either_side(history):
    dates = r"\(\d{4}-\d\d-\d\dT[\d:]+Z to \d{4}-\d\d-\d\dT[\d:]+Z\), got \d{4}-\d\d-\d\dT[\d:]+Z; choose another --train-until"
    with pytest.raises(InvalidOptionError, match=dates):
        make_world(history, history.begin_s + 60, OPTIONS)
    with pytest.raises(InvalidOptionError, match="unknown policy 'clever'"):
        list(run_backtest(make_world(history, None, OPTIONS), ("clever",), starts=1, seed=0))


def test_a_start_is_a_tick_that_leaves_half_the_job_before_the_end(history):
    world = make_world(history, None, OPTIONS)
    for index in range(3):
        span = (world.history.end_s - 3600 - world.history.begin_s) // 120
        drawn = np.random.default_rng([7, index]).integers(0, span)
        start = world.history.begin_s + 120 * int(drawn)
        (entry,) = [own for own in run_backtest(world, ("on-demand",), starts=3, seed=7) if own.index == index]
        assert entry.rows[0].start == time_text(start)
        assert entry.rows[0].redrawn == 0


def test_ratios_are_to_the_plan_the_bound_and_on_demand(history):
    world = make_world(history, None, OPTIONS)
    (entry,) = run_backtest(world, ("proteus", "oracle", "oracle-paid"), starts=1, seed=2)
    rows = {row.policy: row for row in entry.rows}
    (alone,) = run_backtest(world, ("on-demand",), starts=1, seed=2)
    proteus = rows["proteus"]
    assert proteus.ratio_to_on_demand == pytest.approx(proteus.cost_usd / alone.rows[0].cost_usd)
    assert proteus.ratio_to_oracle_paid == pytest.approx(proteus.cost_usd / rows["oracle-paid"].cost_usd)
    bound = rows["oracle"].bound_usd
    assert proteus.ratio_to_oracle == (pytest.approx(proteus.cost_usd / bound) if bound > 0 else None)


def test_policies_know_the_first_half_and_only_markets_that_have_one(history):
    world = make_world(history, None, OPTIONS)
    assert world.history.begin_s == (history.begin_s + history.end_s) // 2
    assert world.history.end_s == history.end_s
    cut = history.begin_s + 3 * 86_400
    late = [
        PricePath(time_s=path.time_s[path.time_s > cut], price_micro=path.price_micro[path.time_s > cut])
        if place
        else path
        for place, path in enumerate(history.paths)
    ]
    gappy = history_of(history.markets, late, end_s=history.end_s)
    kept = make_world(gappy, cut, OPTIONS)
    assert [market.name for market in kept.history.markets] == [history.markets[0].name]


OWN = """
from optim.simulation.spot.policy import Policy, Recovery, Request

class Mine(Policy):
    name, recovery, has_reliable = "mine", Recovery.NOTHING, False

    def __init__(self, world):
        self._count = world.options.baseline

    def decide(self, view):
        return None if view.leases else Request(market=0, count=self._count, bid_micro=10**7)
"""


def test_a_policy_of_ones_own_is_run_by_file_and_class(history, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    world = make_world(history, None, OPTIONS)
    (entry,) = run_backtest(world, (f"{file}:Mine", "on-demand"), starts=1, seed=0)
    mine, on_demand = entry.rows
    assert (mine.policy, mine.is_done, mine.evictions) == (f"{file}:Mine", True, 0)
    assert mine.cost_usd < on_demand.cost_usd
    assert mine.hours == on_demand.hours
    with pytest.raises(InvalidOptionError, match=r"mine\.py has no class Other; it has Mine$"):
        list(run_backtest(world, (f"{file}:Other",), starts=1, seed=0))


def moved_to(history, begin_s):
    """Return the same prices at another date."""
    shift = begin_s - history.begin_s
    paths = [PricePath(time_s=path.time_s + shift, price_micro=path.price_micro) for path in history.paths]
    return history_of(history.markets, paths, end_s=history.end_s + shift)


def test_rules_follow_the_date_at_which_the_test_begins(history):
    changes = 1_512_086_400  # 1 December 2017
    assert make_world(history, None, OPTIONS).billing is Billing.AWS_2009
    old, new = (moved_to(history, changes - days * 86_400) for days in (6, 5))
    assert make_world(old, changes - 60, OPTIONS).billing is Billing.AWS_2009
    assert make_world(new, changes, OPTIONS).billing is Billing.AWS_2017
    assert make_world(new, changes, OPTIONS, billing=Billing.AWS_2009).billing is Billing.AWS_2009
    with pytest.raises(InvalidOptionError, match="--billing whole-ticks applies to --availability"):
        make_world(history, None, OPTIONS, billing=Billing.WHOLE_TICKS)


def test_since_december_2017_prices_evict_nobody_and_nothing_is_free(history):
    world = make_world(moved_to(history, 1_700_000_000), None, OPTIONS)
    assert (world.table.beta == 0).all()
    lowest = min(int(path.price_micro.min()) for path in world.history.paths) / 1e6
    for entry in run_backtest(world, NAMES, starts=4, seed=0):
        assert entry.error is None
        rows = {row.policy: row for row in entry.rows}
        for row in rows.values():
            assert (row.evictions, row.free_hours, row.billing) == (0, 0.0, "aws-2017")
            assert row.cost_usd >= rows["oracle"].bound_usd * (1 - 1e-9)
        assert rows["oracle"].bound_usd > 0
        assert rows["oracle"].cost_usd >= 8 * 1.9 * lowest
        assert rows["on-demand"].cost_usd == pytest.approx(8 * 2 * 0.21)  # to the second


def test_a_reference_that_is_not_proven_is_not_shown(history, monkeypatch):
    world, solve = make_world(history, None, OPTIONS), Oracle.solve
    monkeypatch.setattr(Oracle, "solve", lambda self, name, start: replace(solve(self, name, start), bound_usd=50.0))
    (entry,) = run_backtest(world, NAMES, starts=1, seed=0)
    assert entry.rows == ()
    assert entry.error is not None
    assert entry.error.startswith("the check of oracle failed: bound 50.0 $ exceeds")


def test_starts_can_be_named(history):
    world = make_world(history, None, OPTIONS)
    begins = [world.history.begin_s + 7200, world.history.begin_s + 60]
    rows = [entry.rows[0] for entry in run_backtest(world, ("standard",), starts=9, seed=0, begins=begins)]
    assert [row.start for row in rows] == [time_text(begin) for begin in begins]
    for begin in (world.history.begin_s - 1, world.history.end_s - 60):
        with pytest.raises(InvalidOptionError, match="cannot start at"):
            run_backtest(world, ("standard",), starts=1, seed=0, begins=[begin])


def test_the_job_is_measured_by_a_type_that_there_is(history):
    other = history_of(
        [replace(market, instance_type=f"p3.{k}xlarge") for k, market in enumerate(history.markets)],
        history.paths,
        end_s=history.end_s,
    )
    assert make_world(other, None, OPTIONS).baseline.instance_type == "p3.0xlarge"
    assert make_world(history, None, OPTIONS).baseline.instance_type == "c3.xlarge"
    with pytest.raises(InvalidOptionError, match=r"baseline_type 'c3\.xlarge' has no market"):
        make_world(other, None, replace(OPTIONS, baseline_type="c3.xlarge"))


@pytest.mark.parametrize("days", [0, 1, 1.9])
def test_prices_of_less_than_two_days_are_refused_with_what_is_needed(days):
    times = np.array([0, round(days * 43_200)])[: 1 + (days > 0)]
    history = history_of(
        generate_prices(PriceOptions(num_types=1, num_zones=1, days=10), 0).markets,
        [PricePath(time_s=times, price_micro=np.full(len(times), 1000))],
        end_s=round(days * 86_400),
    )
    with pytest.raises(InvalidOptionError, match=rf"the prices span {24 * days:g} h; .*; provide at least two days"):
        make_world(history, None, OPTIONS)
