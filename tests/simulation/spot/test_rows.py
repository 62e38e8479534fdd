"""Rows and summaries by hand."""

import math
from dataclasses import replace

import pytest

from optim.simulation.spot.backtest import (
    compare,
    ratio,
    row_of_oracle,
    row_of_run,
    summarise,
    summarise_all,
    time_text,
)
from optim.simulation.spot.engine import RunResult
from optim.simulation.spot.oracle import OracleResult, PlanPiece

RUN = RunResult(
    policy="p",
    start_s=1_420_070_400,
    cost_micro=3_000_000,
    hours=4.0,
    work_done=6.0,
    is_done=True,
    evictions=2,
    on_demand_hours=1.0,
    paid_hours=2.0,
    free_hours=3.0,
    end_s=1_420_084_800,
    ledger=(),
)


def test_a_run_becomes_a_row_field_by_field():
    row = row_of_run(RUN, redrawn=5)
    assert (row.policy, row.start, row.redrawn) == ("p", "2015-01-01T00:00:00Z", 5)
    assert (row.cost_usd, row.hours, row.work_done, row.is_done) == (3.0, 4.0, 6.0, True)
    assert (row.cost_per_work, row.evictions, row.deadline_met) == (0.5, 2, None)
    assert (row.on_demand_hours, row.paid_hours, row.free_hours) == (1.0, 2.0, 3.0)


def test_a_reference_does_the_jobs_work_or_none():
    pieces = (
        PlanPiece(market=0, count=3, begin_s=0, end_s=3600, is_free=False),
        PlanPiece(market=0, count=2, begin_s=3600, end_s=5400, is_free=True),
    )
    found = {"name": "oracle", "start_s": 0, "bound_usd": 1.0, "shadow_price": 0.1}
    row = row_of_oracle(OracleResult(**found, cost_usd=2.0, hours=1.5, plan=pieces), 4.0, 1)
    assert (row.cost_usd, row.bound_usd, row.hours, row.cost_per_work) == (2.0, 1.0, 1.5, 0.5)
    assert (row.work_done, row.is_done, row.paid_hours, row.free_hours, row.redrawn) == (4.0, True, 3.0, 1.0, 1)
    none = row_of_oracle(OracleResult(**found, cost_usd=math.inf, hours=0.0, plan=()), 4.0, 0)
    assert (none.cost_usd, none.hours, none.cost_per_work, none.work_done, none.is_done) == (
        None,
        None,
        None,
        0.0,
        False,
    )
    assert none.bound_usd == 1.0


@pytest.mark.parametrize(
    ("cost", "reference", "expected"),
    [(3.0, 2.0, 1.5), (0.0, 2.0, 0.0), (3.0, 0.0, None), (3.0, math.inf, None), (None, 2.0, None), (3.0, None, None)],
)
def test_a_ratio_needs_something_on_either_side(cost, reference, expected):
    assert ratio(cost, reference) == expected


def test_the_interval_is_students_and_unfinished_runs_count_in_done_only():
    rows = [row_of_run(replace(RUN, cost_micro=cost)) for cost in (1_000_000, 2_000_000, 6_000_000)]
    rows.append(row_of_run(replace(RUN, cost_micro=9_000_000, is_done=False)))
    summary = summarise("p", rows)
    assert (summary.starts, summary.done) == (4, 3)
    assert summary.mean["cost_usd"] == pytest.approx(3.0)
    half = 4.302652729911275 * math.sqrt(7.0 / 3)  # Student's t, 2 degrees of freedom
    assert (summary.low["cost_usd"], summary.high["cost_usd"]) == pytest.approx((3.0 - half, 3.0 + half))


def test_one_start_has_a_mean_and_no_interval():
    mine = [row_of_run(replace(RUN, cost_micro=1_000_000))]
    one = summarise("p", mine)
    assert (one.low["cost_usd"], one.mean["cost_usd"], one.high["cost_usd"]) == (None, 1.0, None)
    pair = compare(mine, [row_of_run(RUN)])
    assert (pair.starts, pair.low, pair.mean, pair.high, pair.won) == (1, None, -2.0, None, 1.0)


def test_a_missed_deadline_counts_in_the_share_that_was_met_and_in_no_other_mean():
    met = [replace(row_of_run(replace(RUN, cost_micro=cost)), deadline_met=True) for cost in (2_000_000, 4_000_000)]
    idle = row_of_run(replace(RUN, cost_micro=0, hours=9.0, work_done=0.0, is_done=False))
    idle = replace(idle, deadline_met=False)
    summary = summarise("p", [idle, *met, idle])
    assert (summary.starts, summary.done) == (4, 2)
    assert (summary.mean["deadline_met"], summary.mean["cost_usd"], summary.mean["hours"]) == (0.5, 3.0, 4.0)
    assert summary.mean["work_done"] == RUN.work_done
    never = summarise("p", [idle, idle])
    others = {name: mean for name, mean in never.mean.items() if name != "deadline_met"}
    assert (never.done, never.mean["deadline_met"], set(others.values())) == (0, 0.0, {None})


def test_times_are_written_in_universal_time():
    assert time_text(86_399) == "1970-01-01T23:59:59Z"


def test_policies_are_compared_start_by_start_where_both_are_done():
    mine = [row_of_run(replace(RUN, policy="mine", cost_micro=cost)) for cost in (1_000_000, 5_000_000, 3_000_000)]
    yours = [row_of_run(replace(RUN, policy="yours", cost_micro=cost)) for cost in (2_000_000, 7_000_000, 3_000_000)]
    mine.append(row_of_run(replace(RUN, policy="mine", cost_micro=90_000_000, is_done=False)))
    yours.append(row_of_run(replace(RUN, policy="yours", cost_micro=1_000_000)))
    found = compare(mine, yours)
    assert (found.starts, found.won) == (3, pytest.approx(2 / 3))  # an equal bill is no win
    half = 4.302652729911275 * 1.0 / math.sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx((-1.0, -1.0 - half, -1.0 + half))
    assert compare(yours, mine).won == 0.0
    assert compare(mine[3:], yours[3:]).mean is None
    summaries = summarise_all([row for pair in zip(mine, yours, strict=True) for row in pair])
    assert summaries["mine"].paired == {"yours": found}
    assert summaries["yours"].paired["mine"].mean == pytest.approx(1.0)


def test_means_are_over_the_starts_that_all_policies_have_done_but_those_that_never_did_any():
    def row(policy, usd, is_done):
        return row_of_run(replace(RUN, policy=policy, cost_micro=round(1e6 * usd), is_done=is_done))

    # Start 1, which `some` doesn't run, is expensive: without it `all` costs less, as in each single start.
    done = {
        "all": [(1, True), (9, True), (3, True)],
        "some": [(2, True), (0, False), (4, True)],
        "none": [(0, False)] * 3,
    }
    rows = [row(policy, *runs[start]) for start in range(3) for policy, runs in done.items()]
    found = summarise_all(rows)
    assert {name: (one.starts, one.done, one.common) for name, one in found.items()} == {
        "all": (3, 3, 2),
        "some": (3, 2, 2),
        "none": (3, 0, 0),
    }
    assert (found["all"].mean["cost_usd"], found["some"].mean["cost_usd"]) == (2.0, 3.0)
    assert found["none"].mean["cost_usd"] is None
    assert found["all"].paired["some"].mean == -1.0


def test_recordings_without_a_date_are_clusters_of_their_own():
    row = replace(row_of_run(RUN), start="1970-01-01T00:00:00Z")
    rows = [replace(row, file=file, cost_usd=cost) for file, cost in (("a", 1.0), ("b", 2.0), ("c", 6.0))]
    apart = summarise("p", rows, window_s=3600)
    # Of three independent costs, mean 3 and standard deviation sqrt(7): half a width of 4.303 sqrt(7 / 3).
    assert apart.high["cost_usd"] == pytest.approx(3.0 + 4.302653 * math.sqrt(7 / 3), rel=1e-6)
    dated = [replace(each, start="2023-01-01T00:00:00Z") for each in rows]
    assert summarise("p", dated, window_s=3600).high["cost_usd"] is None
    assert summarise("p", [replace(each, file=None) for each in rows], window_s=3600).high["cost_usd"] is None
