"""Real processes under simulated leases: the simulation's bill, an undisturbed run's losses, and no remaining process."""

import contextlib
import multiprocessing
import time
from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.simulation.emulation.lease_run import CLOCK, Replay, ReplayOptions, fit_scale, reference_run
from optim.simulation.emulation.timeline import Change, record_timeline
from optim.training.transport import InProcess
from tests.support.spot.worlds import DAY_S, drawn_world, world

OPTIONS = ReplayOptions(clocks=40, hour_s=0.0, max_processes=2)
SPIKES = [(0, 40_000)] + [
    pair for time_s in range(9_000, 20 * DAY_S, 27_000) for pair in ((time_s, 500_000), (time_s + 600, 40_000))
]
"""Every seven and a half hours all bids at the on-demand price are evicted, first within the third hour."""


def in_process(application, cluster):
    """Return a transport to machines in this process, which are quicker than processes."""
    del cluster
    return contextlib.closing(InProcess(application))


def play(timeline, options=OPTIONS, connect=None):
    """Return a timeline's replay: the rows, and the summary."""
    run = Replay(timeline, fit_scale([timeline], options.max_processes), options, connect=connect)
    return list(run.rows()), run.summary()


def spiky(policy):
    """Return a policy's timeline on a market that evicts once."""
    options = {"job_hours": 4.0, "baseline": 8, "max_spot": 8, "checkpoint_min": 3.0}
    return record_timeline(world(SPIKES, **options), policy, 0)


@pytest.fixture(scope="module")
def checkpointing():
    """A job on processes that loses its work since the last checkpoint: timeline, rows, and summary."""
    timeline = spiky("standard-checkpoint")
    return timeline, *play(timeline)


@pytest.fixture(scope="module")
def elastic():
    """The same machines under an elastic trainer, in this process."""
    timeline = spiky("standard-agile")
    return timeline, *play(timeline, connect=in_process)


def assert_billed(timeline, rows, summary):
    assert rows[-1].bill_usd == summary.bill_usd == timeline.result.cost_usd
    assert rows[-1].free_hours == summary.free_hours == timeline.result.free_hours > 0
    assert all(row.bill_usd == timeline.bill_usd(3600 * row.hours) for row in rows)
    assert multiprocessing.active_children() == []


def assert_losses(rows, options=OPTIONS):
    """Check that each row's loss is that of an undisturbed run at its clock, bit for bit, also for repeated clocks."""
    expected = reference_run(options, options.clocks).losses
    assert [row.loss for row in rows] == [expected[row.clock - 1] if row.clock else None for row in rows]
    assert rows[-1].clock == options.clocks


def test_an_elastic_job_loses_no_clock_and_no_bit_by_evictions(elastic):
    timeline, rows, summary = elastic
    assert_billed(timeline, rows, summary)
    assert_losses(rows)
    assert summary.evictions == 1
    assert summary.is_exact is True
    assert summary.lost_clocks == 0
    assert summary.gradients == OPTIONS.clocks * 8
    assert [row.clock for row in rows if row.event == CLOCK] == list(range(1, OPTIONS.clocks + 1))


@pytest.mark.prove
def test_a_checkpointing_job_does_again_what_it_lost(checkpointing):
    timeline, rows, summary = checkpointing
    assert_billed(timeline, rows, summary)
    assert_losses(rows)
    (restart,) = [row for row in rows if row.event == "restarted"]
    (saved,) = [row for row in rows if row.event == "saved" and row.hours < restart.hours][-1:]
    assert restart.clock == saved.clock > 0
    assert summary.lost_clocks == restart.lost_clocks > 0
    clocks = [row.clock for row in rows if row.event == CLOCK]
    again = list(range(restart.clock + 1, restart.clock + restart.lost_clocks + 1))
    assert sorted(clocks) == sorted([*range(1, OPTIONS.clocks + 1), *again])
    assert summary.gradients >= (OPTIONS.clocks + summary.lost_clocks) * 8
    assert summary.is_exact is True


def test_without_checkpoints_all_is_done_again():
    timeline = spiky("standard")
    rows, summary = play(timeline, connect=in_process)
    assert_billed(timeline, rows, summary)
    assert_losses(rows)
    (restart,) = [row for row in rows if row.event == "restarted"]
    assert (restart.clock, restart.loss) == (0, None)
    assert summary.lost_clocks > OPTIONS.clocks // 4


@pytest.mark.parametrize(
    ("policy", "is_warned"),
    [
        ("proteus", True),
        ("proteus", False),
        pytest.param("bidbrain-checkpoint", True, marks=pytest.mark.prove),
        ("standard-checkpoint", True),
    ],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.prove)])
def test_whatever_comes_and_goes_bill_and_losses_are_right(seed, policy, is_warned):
    drawn = drawn_world(seed, job_hours=6.0, baseline=16, max_spot=48)
    timeline = record_timeline(drawn, policy, drawn.history.begin_s)
    options = ReplayOptions(clocks=30, hour_s=0.0, max_processes=12, is_warned=is_warned)
    rows, summary = play(timeline, options, in_process)
    assert timeline.result.is_done
    assert_losses(rows, options)
    assert summary.is_exact is True
    assert rows[-1].bill_usd == timeline.result.cost_usd
    assert rows[-1].free_hours == pytest.approx(timeline.result.free_hours, rel=1e-12)
    assert max(row.processes for row in rows) <= options.max_processes
    restarts = [step for step in timeline.steps if (Change.RESTARTED, None) in step.changes]
    back_to = [timeline.clock_of(step.work_saved, options.clocks) for step in restarts]
    assert [row.clock for row in rows if row.event == Change.RESTARTED] == back_to
    if policy == "proteus" and timeline.result.evictions:
        computed_once = options.clocks * max(8, options.max_processes)
        assert (summary.gradients == computed_once) is is_warned  # the work of a killed machine is done again


def test_the_death_of_whoever_is_killed_is_known_before_the_job_goes_on(monkeypatch):
    """There are more machines than partitions: the death of a machine without a partition delays no clock."""
    drawn, kill, killed = drawn_world(0, job_hours=6.0, baseline=16, max_spot=48), Replay._kill, []

    def watched(run, number):
        names, machines = set(run._names[number]), run._trainer.controller.machines
        undone = kill(run, number)
        killed.append(len(names))
        assert not names & {*machines.staying, *machines.leaving, *machines.joining}
        return undone

    monkeypatch.setattr(Replay, "_kill", watched)
    options = ReplayOptions(clocks=30, hour_s=0.0, max_processes=12, is_warned=False)
    timeline = record_timeline(drawn, "proteus", drawn.history.begin_s)
    with contextlib.closing(Replay(timeline, fit_scale([timeline], 12), options, connect=in_process).rows()) as rows:
        assert any(killed for _ in rows)


def test_the_same_start_is_told_the_same_in_processes_and_in_this_one(checkpointing):
    def told(rows):
        return [replace(row, seconds=0.0) for row in rows]

    timeline, rows, _ = checkpointing
    assert told(play(timeline, connect=in_process)[0]) == told(rows)


def test_a_replay_that_is_stopped_or_closed_leaves_no_process(elastic):
    answers = iter([False] * 40)
    run = Replay(elastic[0], 8, OPTIONS, is_stopped=lambda: next(answers, True))
    rows = list(run.rows())
    assert 0 < len(rows) < len(elastic[1])
    assert multiprocessing.active_children() == []
    assert run.summary().is_exact is None
    rows = Replay(elastic[0], 8, OPTIONS).rows()
    assert next(rows).processes > 0
    assert multiprocessing.active_children() != []
    rows.close()
    assert multiprocessing.active_children() == []


def test_seconds_are_those_since_the_rows_began():
    begun = time.perf_counter()
    rows, summary = play(spiky("standard"), replace(OPTIONS, clocks=2), in_process)
    elapsed = time.perf_counter() - begun
    seconds = [0.0, *(row.seconds for row in rows), summary.seconds, elapsed]
    assert seconds == sorted(seconds)
    assert rows[-1].seconds > rows[0].seconds > 0.0


def test_the_seed_draws_the_data():
    one, other = (reference_run(ReplayOptions(clocks=2, seed=seed), 2).parameters for seed in (0, 1))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("wrong", [{"clocks": 0}, {"hour_s": -1.0}, {"max_processes": 0}, {"seed": -1}])
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError, match=f"{next(iter(wrong))} must be at least"):
        ReplayOptions(**wrong)
