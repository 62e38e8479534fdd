"""How closely a replay follows the simulation's times."""

import pytest

from optim.simulation.emulation.lease_run import CLOCK, TrainingRow, TrainingSummary, with_lateness

SUMMARY = TrainingSummary(
    policy="p", hours=2.0, is_done=True, bill_usd=8.0, free_hours=0.0, evictions=0, clocks=4, lost_clocks=0,
    gradients=16, processes_started=2, last_loss=0.1, is_exact=True, seconds=21.0,
)  # fmt: skip


def row(hours, seconds, event=CLOCK, policy="p"):
    return TrainingRow(
        policy=policy, event=event, hours=hours, machines=1, processes=1, clock=1, loss=0.5, bill_usd=0.0,
        free_hours=0.0, seconds=seconds,
    )  # fmt: skip


def test_lateness_is_a_share_of_the_jobs_time_at_the_replays_scale():
    rows = [
        row(0.5, 5.0),
        row(1.0, 10.4),
        row(1.5, 14.8),
        row(2.0, 21.0),
        row(2.0, 99.0, "done"),
        row(2.0, 99.0, policy="q"),
    ]
    found = with_lateness(SUMMARY, rows, 10.0)
    # Off by 0, 0.4, 0.2 and 1.0 of 20 seconds.
    assert found.late_median == pytest.approx(0.3 / 20)
    assert found.late_p90 == pytest.approx((0.4 + 0.7 * 0.6) / 20)
    assert found.late_end == pytest.approx(0.05)
    assert found.bill_if_late_usd == pytest.approx(8.4)


def test_who_is_early_saves_nothing_and_without_a_scale_nothing_was_to_be_kept():
    early = with_lateness(SUMMARY, [row(2.0, 19.0)], 10.0)
    assert (early.late_end, early.bill_if_late_usd) == (pytest.approx(-0.05), 8.0)
    assert with_lateness(SUMMARY, [row(2.0, 19.0)], 0.0) == SUMMARY
    assert with_lateness(SUMMARY, [], 10.0) == SUMMARY
