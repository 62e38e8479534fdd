"""Timelines, replays by a clock that only sleeping advances, rounds of leases and plans of jobs come out as they were kept."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

import optim
from optim.simulation.emulation import lease_run
from optim.simulation.emulation.job_run import JobPlan, read_plan
from optim.simulation.emulation.lease_rounds import (
    LeaseOutcome,
    RoundOptions,
    freed,
    profile_model,
    run_rounds,
    total_error,
)
from optim.simulation.emulation.lease_run import (
    CLOCK,
    Replay,
    ReplayOptions,
    fit_scale,
    peak,
    processes_of,
    with_lateness,
)
from optim.simulation.emulation.timeline import record_start, record_timeline
from optim.training.transport import InProcess
from tests.simulation.emulation.test_lease_rounds import LEASE_MIN, Plan, app, instance_of
from tests.support.kept import assert_kept, digest, outcome, parts
from tests.support.policies import SPOT_POLICIES
from tests.support.spot.worlds import DAY_S, drawn_world, world

KEPT = Path(__file__).parent / "kept"
SPIKES = [(0, 40_000)] + [
    pair for time_s in range(9_000, 20 * DAY_S, 27_000) for pair in ((time_s, 500_000), (time_s + 600, 40_000))
]
SMALL = {"job_hours": 4.0, "baseline": 6, "max_spot": 8, "checkpoint_min": 3.0, "startup_min": 5.0}


class Clock:
    """A time that passes only while somebody sleeps, and whenever it is asked for a microsecond."""

    def __init__(self):
        self.now_s, self.naps = 100.0, []

    def perf_counter(self):
        self.now_s += 1e-6
        return self.now_s

    def sleep(self, seconds):
        assert 0 < seconds <= lease_run.NAP_S
        self.naps.append(seconds)
        self.now_s += seconds


def timeline_of(name, **options):
    return record_timeline(world(SPIKES, **{**SMALL, **options}), name, 0)


def told(line):
    """Return a timeline step by step."""
    steps = [
        (step.time_s, step.resumes_s, len(step.held), *step.held, *(number or 0 for _, number in step.changes))
        for step in line.steps
    ]
    times = [0, 3_600, 9_120, 20_000, line.over_s]
    return {
        "leases": [list(parts(lease).values()) for lease in line.leases],
        "steps": [len(steps), digest([number for step in steps for number in step])],
        "changes": " ".join(str(change) for step in line.steps for change, _ in step.changes),
        "work": [[step.work_done, step.work_saved, step.rate, step.work_until(step.time_s + 5_000)] for step in line.steps],
        "ends": [line.start_s, line.over_s, line.job_work],
        "bills": [[line.bill_usd(time), line.free_hours(time)] for time in times],
        "machines": [line.num_machines(step) for step in line.steps],
        "clocks": [list(line.clock_times(7, index)) for index in range(len(line.steps))],
        "scales": [peak(line, 1), peak(line, 3), fit_scale([line], 5), *(processes_of(lease, 3) for lease in line.leases)],
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(SPOT_POLICIES))
def test_a_timeline_and_its_scale_come_out_as_before(name):
    drawn = drawn_world(1, **{**SMALL, "job_hours": 2.0})
    found = {
        "spiky": told(timeline_of(name)),
        "lingering": told(timeline_of(name, linger=True, reliable=0, horizon=1.0)),
    }
    found |= {"drawn": told(record_timeline(drawn, name, drawn.history.begin_s + 7_000))}
    (found["start"],) = (line.start_s - drawn.history.begin_s for line in record_start(drawn, [name], 4, 1))
    found["few processes"] = outcome(fit_scale, [timeline_of(name)], 1)
    assert_kept(KEPT / f"timeline-{name}.json", found)


@pytest.mark.parametrize(
    ("name", "is_warned"),
    [("standard", True), ("standard-checkpoint", True), ("standard-agile", True), ("proteus", False)],
)
def test_a_replay_keeps_the_simulations_time_and_comes_out_as_before(name, is_warned, monkeypatch):
    """Nobody is late by this clock, so that each row comes when the simulation has it, to a nap's last look."""
    clock = Clock()
    monkeypatch.setattr(lease_run, "time", clock)
    options = ReplayOptions(clocks=12, hour_s=0.25, max_processes=5, is_warned=is_warned, seed=2)
    line = timeline_of(name)
    run = Replay(line, fit_scale([line], 5), options, connect=lambda app, _: contextlib.closing(InProcess(app)))
    rows, summary = list(run.rows()), run.summary()
    assert [row.seconds for row in rows] == pytest.approx([0.25 * row.hours for row in rows], abs=2e-3)
    assert sum(clock.naps) == pytest.approx(0.25 * rows[-1].hours, rel=0.01)
    found = {
        "rows": [[row.event, row.hours, row.machines, row.processes, row.clock, row.bill_usd, row.free_hours, row.lost_clocks] for row in rows],
        "summary": {key: value for key, value in parts(summary).items() if key not in ("seconds", "last_loss")},
    }  # fmt: skip
    assert_kept(KEPT / f"replay-{name}.json", found)
    late = [replace(row, seconds=row.seconds * 1.5 + number % 3 / 50) for number, row in enumerate(rows)]
    by_hand = with_lateness(summary, late, 0.25)
    clocks = [row for row in late if row.event == CLOCK]
    last = (clocks[-1].seconds - 0.25 * clocks[-1].hours) / (0.25 * clocks[-1].hours)
    assert by_hand.late_end == pytest.approx(last)
    assert by_hand.bill_if_late_usd == pytest.approx(summary.bill_usd * (1 + last))
    assert with_lateness(summary, rows, 0.0) == summary


def test_rounds_of_leases_come_out_as_before():
    instance = instance_of(
        app("a", 130.0, 3, elapsed_min=5.0), app("b", 45.0, 2), app("c", 320.0, 4, elapsed_min=30.0), gpus=6, free=5
    )

    def short(number, leases):
        return [LeaseOutcome(done_min=0.6 * lease.work_min(LEASE_MIN), clocks=number) for lease in leases]

    found = {"freed": freed(instance).slot_free}
    for label, play, fairness in (
        ("foreseen", profile_model(LEASE_MIN), 0.0),
        ("fair", profile_model(LEASE_MIN), 0.8),
        ("short", short, 0.5),
    ):
        rows, states = run_rounds(
            instance, Plan((0, 0, 2), (2, 0, 2)), RoundOptions(rounds=7, fairness=fairness), play, seed=3
        )
        found[label] = {
            "rows": [list(parts(row).values()) for row in rows], "error": total_error(rows),
            "states": [[s.left, s.minutes, s.apps_minutes, s.leases, s.finish_min, s.work_min, s.rho(instance.cluster)] for s in states.values()],
        }  # fmt: skip
    assert_kept(KEPT / "rounds.json", found)


def test_plans_of_jobs_come_out_as_before():
    found = {}
    for name in ("tiny-0",):
        instance = optim.reference_instance(name)
        for job in read_plan(instance, optim.solve(instance, "online").decision):
            speeds = [job.speed(workers) for workers in (0, 1, 2, 50)]
            found[f"{name} {job.name}"] = [job, job.last_slot, job.planned_slots, job.most, speeds]
    late = JobPlan(job=0, name="late", machines={1: (2, 1), 4: (1, 1)}, work=4.5, speeds=(1.0, 1.8))
    found["late"] = [late.planned_slots, replace(late, work=2.6).planned_slots, replace(late, work=1.8).planned_slots]
    assert_kept(KEPT / "jobs.json", found)
