"""One job of a plan: its machines in each slot, its clocks of training, and its row of results."""

import contextlib
import itertools
import math
import time

import pytest

from optim.core.errors import InvalidOptionError, NotAllowedError, TrainingError
from optim.simulation.emulation import job_run
from optim.simulation.emulation.job_run import MAX_FAILED, JobPlan, JobRun, PlanOptions
from optim.training.controller import Phase
from optim.training.stages import STORAGE, ClusterOptions, Fixed, Stage
from optim.training.trainer import Trainer, run_alone
from optim.training.transport import InProcess, Lost


class Local(InProcess, contextlib.nullcontext):
    """Machines in this process, with the interface of `Processes`."""

    def __init__(self, application, options, *, max_machines):
        super().__init__(application)
        self.most = max_machines

    def __enter__(self):
        return self


def run_of(machines, work, **options):
    """A job's run; with four workers each one is half as fast."""
    plan = JobPlan(job=1, name="j", machines=machines, work=work, speeds=(1.0, 2.0, 3.0, 2.0))
    return JobRun(plan, PlanOptions(**options))


class Fitted:
    """A run whose machines, in this process, start and stop on request."""

    def __init__(self, run):
        self.run = run
        cluster = ClusterOptions(num_shards=run.plan.most[1], policy=Fixed(fixed=Stage.SEPARATE))
        self.trainer = Trainer(run._played, run.optimiser, cluster, InProcess(run._played))
        self.trainer.controller.resume(0)
        self.events, self._apply = [], self.trainer.apply
        self.trainer.apply = self.apply

    def apply(self, event):
        self.events.append(event)
        self._apply(event)

    def fit(self, slot):
        self.run._fit(self.trainer, slot)

    def come(self):
        while (message := self.trainer.transport.receive()) is not None:
            self.trainer.controller.receive(message)

    @property
    def machines(self):
        return self.trainer.controller.machines


def test_a_job_has_in_each_slot_the_machines_that_its_plan_gives_it():
    run = run_of({0: (2, 1), 1: (4, 1), 3: (1, 2)}, 5.0)
    job = Fitted(run)
    job.fit(0)
    assert list(job.machines.joining) == ["worker-0", "worker-1", "server-2"]
    job.come()
    assert (job.machines.transient, job.machines.reliable) == (["worker-0", "worker-1"], ["server-2"])
    assert run.changes == 2
    job.fit(1)
    job.fit(1)  # the ordered machine is on its way
    assert list(job.machines.joining) == ["worker-3", "worker-4"]
    job.come()
    assert (len(job.machines.transient), len(job.machines.reliable), run.changes) == (4, 1, 3)
    job.fit(1)
    assert (len(job.machines.transient), run.changes) == (4, 3)
    job.fit(2)
    job.come()
    assert (job.machines.staying, run.changes) == ((), 5)
    assert job.trainer.controller.phase is Phase.STOPPED
    job.fit(3)
    job.come()
    assert (job.machines.transient, job.machines.reliable) == (["worker-5"], ["server-6", "server-7"])
    job.fit(9)  # late jobs keep their last
    assert (len(job.machines.staying), len(job.machines.joining), run.changes) == (3, 0, 7)
    assert all(event.machines for event in job.events), (
        "a request for no machine brings the run to a boundary without need"
    )
    assert {event.clock for event in job.events} == {0}, "all happens now"
    run._played.slowdown.close()


def test_machines_that_are_one_too_many_leave_and_are_those_that_came_last():
    run = run_of({0: (3, 2), 1: (2, 1)}, 5.0)
    job = Fitted(run)
    job.fit(0)
    job.come()
    job.fit(1)
    job.come()
    assert job.machines.staying == ("server-3", "worker-0", "worker-1")
    assert run.changes == 4
    run._played.slowdown.close()


def test_a_gradient_takes_as_much_longer_as_its_workers_are_slower_than_linear():
    run = run_of({0: (1, 1), 1: (4, 1)}, 5.0)
    job, paces = Fitted(run), []
    for slot in (0, 1, 1):
        job.fit(slot)
        paces.append(run._played.slowdown.read())
        job.come()
    assert paces == [1.0, 1.0, 2.0], "four workers have the speed of two, once they are there"
    run._played.slowdown.close()


def played(monkeypatch, run, last_slot=3000, is_stopped=lambda: False):
    begun = time.monotonic()
    monkeypatch.setattr(job_run, "Processes", Local)
    run.play(lambda: int((time.monotonic() - begun) / run.options.slot_s), last_slot, is_stopped)
    run.finished_s = None if run.finished_s is None else run.finished_s - begun
    return run


def test_a_job_trains_all_its_clocks_to_the_bits_of_an_undisturbed_run(monkeypatch):
    run = played(monkeypatch, run_of({0: (1, 1), 1: (2, 1)}, 1.5, slot_s=0.1, gradient_s=0.01))
    assert run.error is None
    # On machines that take turns its gradients take no less than a worker's time for all of the work.
    assert run.finished_s >= 0.1 * 1.5
    row = run.row(7.0, lambda slots: 10.0 - slots)
    assert (row.job, row.application, row.is_exact) == ("j", "LogisticRegression", True)
    assert (row.clocks, row.gradients) == (run.clocks, run.clocks * run.application.num_partitions)
    assert row.realised_slots == run.finished_s / 0.1
    assert (row.planned_utility, row.realised_utility) == (7.0, 10.0 - row.realised_slots)
    assert row.last_loss < row.first_loss


def test_a_job_that_loses_all_its_machines_goes_on_within_the_slot(monkeypatch):
    made = []

    class Losing(Local):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    looks = itertools.count()

    def is_stopped():
        look = next(looks)
        if look == 40:
            assert run.settled_slot == 0, "in the midst of its work"
            for machine in set(made[0].machines) - {STORAGE}:
                made[0].kill(machine)
        return look > 2000

    monkeypatch.setattr(job_run, "Processes", Losing)
    run = JobRun(run_of({0: (2, 1)}, 1.0).plan, PlanOptions(slot_s=1.0, gradient_s=0.01), share=0.02, clock=Ticking())
    run.play(lambda: 0, 3, is_stopped)
    assert run.error is None
    assert run.finished_s is not None
    assert run.row(1.0, lambda slots: 1.0).is_exact
    assert run.changes > 2, "machines were ordered a second time"


@pytest.mark.parametrize("ends", [{"last_slot": 1}, {"is_stopped": lambda: True}])
def test_a_job_that_ends_early_earns_nothing(monkeypatch, ends):
    run = played(monkeypatch, run_of({0: (1, 1)}, 99.0, slot_s=0.05, gradient_s=0.01), **ends)
    assert (run.error, run.finished_s) == (None, None)
    assert run.record.num_computed < run.clocks * run.application.num_partitions
    row = run.row(7.0, lambda slots: 10.0)
    assert (row.realised_slots, row.error, row.realised_utility, row.is_exact) == (None, None, 0.0, None)


def test_a_job_tells_the_runs_own_time_and_the_slot_that_it_is_ready_for(monkeypatch):
    clock = Ticking()
    run = run_of({0: (1, 1), 1: (2, 1)}, 2.5, slot_s=1.0, gradient_s=0.1)
    run = JobRun(run.plan, run.options, share=0.02, clock=clock)
    monkeypatch.setattr(job_run, "Processes", Local)
    asked = []

    def slot_now():
        asked.append(run.settled_slot)
        return int(clock.now)

    run.play(slot_now, 9, lambda: False)
    assert run.error is None
    # Its gradients take all elapsed time: with two workers in one process, which alternate, no less.
    assert run.finished_s == clock.now == pytest.approx(2.5)
    assert asked[0] == -1, "before its machines are up"
    assert set(asked) == {-1, 0, 1, 2}
    assert run.settled_slot == math.inf, "a finished machine delays no other"


class Ticking:
    """A clock that advances by sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_a_job_begins_when_all_its_machines_are_up_and_not_with_the_first():
    run = run_of({0: (2, 1), 2: (1, 1)}, 5.0)
    job = Fitted(run)
    job.trainer.controller.resume(run.clocks)
    for slot in (0, 1, 2):
        job.fit(slot)
        job.come()
        assert (job.trainer.clock, job.trainer.controller.stop_at) == (0, 0)
        assert job_run._is_up(job.trainer)
    run._played.slowdown.close()


def test_a_slot_waits_for_those_who_join_and_for_what_they_start_from():
    run = run_of({0: (1, 1), 1: (2, 1)}, 5.0)
    job = Fitted(run)
    job.fit(0)
    assert not job_run._is_up(job.trainer)
    phases = []
    while (message := job.trainer.transport.receive()) is not None:
        job.trainer.controller.receive(message)
        phases.append((job.trainer.controller.phase, bool(job.machines.joining), job_run._is_up(job.trainer)))
    assert (Phase.REBUILDING, False, False) in phases, "here, but without its parameters"
    assert phases[-1] == (Phase.RUNNING, False, True)
    run._played.slowdown.close()


def test_what_a_job_fails_with_is_kept_and_nobody_waits_for_it(monkeypatch):
    run = run_of({0: (1, 1)}, 1.0)

    def refuse(*_, **__):
        raise TrainingError("no memory is left")

    monkeypatch.setattr(job_run, "Processes", refuse)
    run.play(lambda: 0, 20, lambda: False)
    assert str(run.error) == "no memory is left"
    assert run.settled_slot == math.inf


def test_the_error_is_of_the_time_since_the_first_slot():
    run = run_of({1: (1, 1), 2: (1, 1)}, 1.5, slot_s=4.0)
    run._played.slowdown.close()
    run.finished_s = 4.0 * 2.8
    row = run.row(7.0, lambda slots: slots)
    assert (row.planned_slots, row.realised_slots) == (2.5, 2.8)
    assert row.error == pytest.approx(1.8 / 1.5 - 1.0)
    assert (row.first_loss, row.clocks, row.is_exact) == (None, 0, None)


class Dying(Local):
    """Machines whose processes end while starting, except those with the numbers `up_at`."""

    started = 0
    up_at = frozenset()

    def start(self, machine):
        type(self).started += 1
        if type(self).started in self.up_at:
            super().start(machine)
        else:
            self.lost = [*getattr(self, "lost", []), Lost(machine, "with exit code 7")]

    def receive(self, wait_s=None):
        return self.lost.pop(0) if getattr(self, "lost", None) else super().receive(wait_s)


@pytest.mark.parametrize(("up_at", "started"), [((), MAX_FAILED + 1), ((4,), MAX_FAILED + 4)])
def test_a_job_whose_processes_end_as_they_start_is_given_up(monkeypatch, up_at, started):
    """Otherwise its processes would be restarted endlessly; a successful start resets the count of failures."""
    monkeypatch.setattr(job_run, "Processes", Dying)
    monkeypatch.setattr(Dying, "started", 0)
    monkeypatch.setattr(Dying, "up_at", frozenset(up_at))
    run = run_of({0: (1, 1)}, 5.0)
    run.play(lambda: 0, 0, lambda: Dying.started > 50)
    assert isinstance(run.error, NotAllowedError)
    assert f"{MAX_FAILED} processes of job j in a row ended while starting, the last with exit code 7" in str(run.error)
    assert Dying.started <= started + 1


def test_all_jobs_train_what_is_named_and_else_three_applications_in_turn():
    def kinds(name):
        options = PlanOptions(application=name)
        return [type(job_run.make_job(job, 4, options)[0]).__name__ for job in range(4)]

    assert kinds("neural-network") == ["NeuralNetwork"] * 4
    assert kinds("topic-model") == ["TopicModel"] * 4
    assert kinds(None) == ["MatrixFactorisation", "LogisticRegression", "TopicModel", "MatrixFactorisation"]
    with pytest.raises(InvalidOptionError, match="unknown application 'chess'"):
        PlanOptions(application="chess")


def test_the_network_of_a_job_learns_and_is_seeded_by_the_job():
    (network, optimiser), (other, _) = (
        job_run.make_job(job, 4, PlanOptions(application="neural-network")) for job in (1, 2)
    )
    losses = run_alone(network, optimiser, 20).losses
    assert losses[-1] < 0.8 * losses[0]
    assert (network.seed, other.seed) == (1, 2)
