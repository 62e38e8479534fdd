"""The allocations of a plan's jobs, and rejected plans; tests of the command cover the execution."""

import math
import time

import pytest

import optim
from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.simulation.emulation import plan_run
from optim.simulation.emulation.job_run import JobPlan, JobRow, JobRun, PlanOptions, read_plan
from optim.simulation.emulation.plan_run import _check_processes, play_jobs, run_plan, summary_of


@pytest.fixture(scope="module")
def instance():
    """Six small jobs, of which the online algorithm admits some."""
    return optim.reference_instance("tiny-0")


@pytest.fixture(scope="module")
def plan(instance):
    """The online algorithm's plan."""
    return optim.solve(instance, "online").decision


def test_every_worker_of_the_plan_is_given_to_its_job(instance, plan):
    jobs = read_plan(instance, plan)
    assert [job.job for job in jobs] == plan.admitted.tolist()
    assert sum(workers for job in jobs for workers, _ in job.machines.values()) == plan.workers[:, 3].sum()
    assert sum(servers for job in jobs for _, servers in job.machines.values()) == plan.ps[:, 3].sum()
    assert [job.last_slot for job in jobs] == plan.completion.tolist()
    # Work is that of the job, not the plan's allotment: rounded up, it is the number that the solvers use.
    assert all(instance.work[job.job] - 1 < job.work <= instance.work[job.job] for job in jobs)
    assert all(job.last_slot < job.planned_slots <= job.last_slot + 1 for job in jobs)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("max_processes", 0),
        ("max_floats", 0),
        ("cores", 0.0),
        ("overrun", -1),
        ("seed", -1),
        ("slot_s", 0.0),
        ("gradient_s", 4.0),
    ],
)
def test_options_out_of_range_are_refused_by_name(name, wrong):
    with pytest.raises(InvalidOptionError, match=name):
        PlanOptions(**{name: wrong})


def test_too_many_processes_are_refused_before_any_starts(instance, plan, monkeypatch):
    monkeypatch.setattr(plan_run, "JobRun", None)
    with pytest.raises(UnsupportedProblemError, match="more than max_processes 2"):
        run_plan(instance, plan, PlanOptions(max_processes=2))


def test_processes_are_counted_in_the_fullest_slot_those_of_all_jobs_together():
    # Slot 0 has 3 + 1, slot 1 has 2 + 2 and 4 + 3, slot 2 has 1 + 5.
    jobs = [plan_of({0: (3, 1), 1: (2, 2)}, 1.0), plan_of({1: (4, 3), 2: (1, 5)}, 1.0)]
    with pytest.raises(
        UnsupportedProblemError, match="has 11 workers and servers in one slot, more than max_processes 10;"
    ):
        play_jobs(jobs, PlanOptions(max_processes=10))
    _check_processes(jobs, PlanOptions(max_processes=11))
    with pytest.raises(UnsupportedProblemError, match="has 6 workers and servers"):
        play_jobs([plan_of({2: (4, 2), 5: (1, 1)}, 1.0), plan_of({0: (2, 1)}, 1.0)], PlanOptions(max_processes=5))


class Told:
    """A run that records its calls, and fails on request."""

    def __init__(self, job, options, *, share, scale, clock):
        self.job, self.share, self.scale, self.clock, self.error = job, share, scale, clock, None
        self.settled_slot = -1

    def play(self, slot_now, last_slot, is_stopped):
        self.slot_now, self.last_slot, self.is_stopped = slot_now, last_slot, is_stopped
        if self.job.work < 0:
            self.error = ArithmeticError("no work")
        self.settled_slot = math.inf


def test_jobs_share_the_cores_of_the_slot_with_most_workers_and_have_some_slots_more(monkeypatch):
    monkeypatch.setattr(plan_run, "JobRun", Told)
    jobs = [plan_of({0: (3, 1), 1: (2, 2)}, 1.0), plan_of({1: (4, 3), 2: (1, 5)}, 1.0)]
    runs = play_jobs(jobs, PlanOptions(cores=1.5, overrun=7), scale=0.5)
    assert [run.job for run in runs] == jobs
    assert {(run.share, run.scale, run.last_slot, run.clock) for run in runs} == {(0.25, 0.5, 9, runs[0].clock)}
    assert not any(run.is_stopped() for run in runs)
    (alone,) = play_jobs([plan_of({2: (1, 1)}, 1.0)], PlanOptions(cores=1.5, overrun=0))
    assert (alone.share, alone.last_slot) == (1.0, 2)
    (stopped,) = play_jobs([plan_of({2: (1, 1)}, 1.0)], PlanOptions(), is_stopped=lambda: True)
    assert stopped.is_stopped()


class Late(Told):
    """A run whose machines start slowly, and that records when each slot began."""

    def play(self, slot_now, last_slot, is_stopped):
        self.seen, self.before = [], []
        while (slot := slot_now()) < 3:
            if self.settled_slot < slot:
                self.before.append(self.clock.monotonic())
                time.sleep(0.03 * self.job.work)
                self.seen.append((slot, self.clock.monotonic()))
                self.settled_slot = slot
            time.sleep(0.001)
        self.settled_slot = math.inf


def test_the_clock_stands_still_until_the_machines_of_a_slot_are_up_those_of_all_jobs(monkeypatch):
    monkeypatch.setattr(plan_run, "JobRun", Late)
    options, told, held = PlanOptions(slot_s=0.05, gradient_s=0.0), [], []
    jobs = [plan_of({0: (1, 1)}, work) for work in (1.0, 3.0)]
    runs = play_jobs(jobs, options, on_slot=told.append, on_paused=held.append)
    for run in runs:
        assert [slot for slot, _ in run.seen] == [0, 1, 2]
        assert [time for _, time in run.seen] == run.before, "none of the awaited time has passed"
        assert run.before[0] == 0.0
        assert all(slot * 0.05 <= time for slot, time in run.seen)
    assert runs[0].before == runs[1].before, "a slot begins for all at once"
    assert told[:3] == [0, 1, 2]
    assert held[0] >= 3 * 0.09
    assert len(held) == 1


def test_a_job_that_fails_ends_the_others_and_is_raised(monkeypatch):
    class Patient(Told):
        def play(self, slot_now, last_slot, is_stopped):
            super().play(slot_now, last_slot, is_stopped)
            while not is_stopped():
                time.sleep(0.001)

    monkeypatch.setattr(plan_run, "JobRun", Patient)
    with pytest.raises(ArithmeticError, match="no work"):
        play_jobs([plan_of({0: (1, 1)}, work) for work in (1.0, -1.0)], PlanOptions())


def test_a_plan_without_jobs_plays_nothing():
    assert play_jobs([], PlanOptions(max_processes=1)) == ()


@pytest.mark.parametrize("wrong", [{"slot_s": 0.0}, {"gradient_s": 4.0}, {"overrun": -1}])
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError):
        PlanOptions(**wrong)


def plan_of(machines, work, **fields):
    """A job's plan, at linear speed by default."""
    return JobPlan(job=0, name="j", machines=machines, work=work, **{"speeds": (1.0, 2.0, 3.0), **fields})


def test_a_plan_is_done_when_its_speeds_say():
    machines = {1: (2, 1), 3: (1, 1), 4: (3, 1)}
    assert plan_of(machines, 4.5).planned_slots == 4.5
    assert plan_of(machines, 3.0).planned_slots == 4.0
    assert plan_of(machines, 3.0, speeds=(1.0, 1.5, 1.75)).planned_slots == pytest.approx(4 + 0.5 / 1.75)
    assert plan_of(machines, 99.0).planned_slots == 5.0


@pytest.mark.parametrize("work", [2.0, 7.7])
def test_a_jobs_gradients_add_up_to_its_own_work_at_the_scale_of_time(work):
    run = JobRun(plan_of({0: (2, 1), 1: (3, 1)}, work, link_share=0.25), PlanOptions(slot_s=4.0), share=0.4)
    played, gradients = run._played, run.clocks * run.application.num_partitions
    assert run.application.num_partitions == 6, "integral for two workers and for three"
    assert gradients * (played.compute_s + played.link_s) == pytest.approx(4.0 * work)
    assert played.link_s == pytest.approx((played.compute_s + played.link_s) / 4)
    assert played.share == 0.4
    assert played.compute_s + played.link_s >= 0.05
    played.slowdown.close()


def test_vectors_have_the_jobs_size_at_the_scale_of_time_and_an_end():
    def floats(number, scale):
        run = JobRun(plan_of({0: (1, 1)}, 1.0, gradient_floats=number), PlanOptions(max_floats=20_000), scale=scale)
        run._played.slowdown.close()
        return run.application.num_parameters

    assert floats(10**6, 0.01) == 10_000
    assert floats(10**6, 1.0) == 20_000
    assert floats(10, 1.0) == floats(0, 1.0) > 10, "the needs of the application"


def test_many_numbers_of_workers_share_a_multiple_of_the_most():
    run = JobRun(plan_of({k: (k, 1) for k in (3, 5, 7)}, 9.0, speeds=tuple(map(float, range(1, 8)))), PlanOptions())
    run._played.slowdown.close()
    assert run.application.num_partitions == 28


def row(planned, realised, utility):
    """A job's row, of which only these count here."""
    return JobRow(
        job="j", application="a", planned_slots=planned, realised_slots=realised,
        error=None if realised is None else realised / planned - 1, planned_utility=10.0, realised_utility=utility,
        clocks=1, gradients=1, changes=0, first_loss=None, last_loss=None, is_exact=None,
    )  # fmt: skip


def test_errors_are_summed_up_with_what_they_do_to_utility():
    found = summary_of([row(2.0, 2.2, 10.0), row(2.0, 1.0, 12.0), row(4.0, 4.0, 9.0), row(4.0, None, 0.0)])
    assert (found.jobs, found.unfinished) == (4, 1)
    assert found.median_error == pytest.approx(0.1)
    assert found.max_error == pytest.approx(0.5)
    assert found.mean_error == pytest.approx(-0.4 / 3)
    assert (found.planned_utility, found.realised_utility) == (40.0, 31.0)
    assert summary_of([row(1.0, None, 0.0)]).median_error is None


def test_three_kinds_of_jobs_take_turns_and_have_data_of_their_own():
    runs = [
        JobRun(
            plan=JobPlan(job=job, name="j", machines={0: (1, 1)}, work=1.0, speeds=(1.0,)), options=PlanOptions(seed=2)
        )
        for job in range(4)
    ]
    assert [type(run.application.application).__name__ for run in runs] == [
        "MatrixFactorisation",
        "LogisticRegression",
        "TopicModel",
        "MatrixFactorisation",
    ]
    assert [run.application.application.seed for run in runs] == [2000, 2001, 2002, 2003]
