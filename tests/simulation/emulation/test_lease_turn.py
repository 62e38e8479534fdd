"""Leases on real processes: clocks that fit into them, and progress that checkpoints carry from one to the next."""

import threading
from dataclasses import replace
from typing import ClassVar

import pytest

from optim.core.errors import UnsupportedProblemError
from optim.models.auction.fairness import AppProfile, Trial
from optim.simulation.emulation import auction_run, lease_rounds
from optim.simulation.emulation.auction_run import LeasedApp, LeaseRun, num_partitions, read_leases, run_together
from optim.simulation.emulation.job_run import PlanOptions
from optim.simulation.emulation.lease_rounds import RoundOptions, play_rounds
from optim.training.transport import InProcess
from tests.simulation.emulation.test_auction_run import instance_of as two_racks
from tests.simulation.emulation.test_lease_rounds import LEASE_MIN, Plan, app, instance_of

OPTIONS = PlanOptions(slot_s=1.5, gradient_s=0.05, cores=0.5)


def profile(demand, gang=1, work_min=120.0):
    trial = Trial(work_min=work_min, total_work_min=work_min, max_gpus=demand)
    return AppProfile(elapsed_min=0.0, active_apps=1.0, trials=(trial,), gang=gang)


@pytest.mark.parametrize(
    ("demand", "gang", "most", "expected"),
    [(1, 1, 8, 1), (3, 1, 8, 6), (4, 1, 2, 2), (16, 4, 99, 48), (12, 1, 99, 48), (4, 4, 99, 4), (4, 8, 99, 4)],
)
def test_all_numbers_of_gpus_have_equal_shares_where_that_takes_few_partitions(demand, gang, most, expected):
    assert num_partitions(profile(demand, gang), most) == expected


def test_an_apps_work_is_its_clocks_at_the_scale_of_time(tmp_path):
    """Work of six leases on one GPU takes 9 s: 30 clocks of six gradients, one per partition, of 0.05 s each."""
    job = LeasedApp(0, profile(3), OPTIONS, LEASE_MIN, 8, tmp_path)
    assert (job.clocks, job.gradient_s, job.left) == (30, pytest.approx(0.05), 1.0)
    job.done = 12
    assert job.left == pytest.approx(0.6)
    tiny = LeasedApp(0, profile(3, work_min=0.1), OPTIONS, LEASE_MIN, 8, tmp_path)
    assert (tiny.clocks, tiny.gradient_s * 6) == (1, pytest.approx(0.1 / LEASE_MIN * 1.5))


class Clockwork:
    """A trainer whose clocks take as long as a test specifies, measured by a clock that only it advances."""

    def __init__(self, seconds, monkeypatch):
        self.seconds, self.clock, self.now, self.stop_at = list(seconds), 0, 100.0, 0
        self.controller, self.is_done = self, True
        monkeypatch.setattr(auction_run.time, "perf_counter", lambda: self.now)

    def resume(self, clock):
        self.stop_at, self.is_done = clock, False

    def step(self):
        self.now += self.seconds[self.clock]
        self.clock, self.is_done = self.stop_at, True


@pytest.mark.parametrize(
    ("seconds", "clocks", "spent"),
    [
        ([0.5, 0.5, 0.5, 0.5], 3, 1.5),  # the third ends with the lease
        ([0.4, 0.4, 0.4, 0.4], 3, 1.2),  # 0.3 s are left, and a clock takes 0.4
        ([0.4, 0.4, 0.9, 0.1], 3, 1.7),  # the longer duration was not predictable
        ([2.0, 0.1], 1, 2.0),
    ],
)
def test_no_clock_is_begun_that_would_end_after_its_lease(seconds, clocks, spent, tmp_path, monkeypatch):
    job = LeasedApp(0, profile(3), OPTIONS, LEASE_MIN, 8, tmp_path)
    turn, trainer = LeaseRun(job, None, 1.0), Clockwork(seconds, monkeypatch)
    turn._train(trainer, lambda: False)
    assert (turn.clocks, trainer.clock) == (clocks, clocks)
    assert turn.spent_s == pytest.approx(spent)


def test_work_that_is_done_ends_a_lease_and_so_does_who_asks(tmp_path, monkeypatch):
    job = LeasedApp(0, profile(3, work_min=4.0), OPTIONS, LEASE_MIN, 8, tmp_path)
    assert job.clocks == 1
    turn = LeaseRun(job, None, 1.0)
    turn._train(Clockwork([0.1, 0.1], monkeypatch), lambda: False)
    assert turn.clocks == 1
    stopped = LeaseRun(LeasedApp(0, profile(3), OPTIONS, LEASE_MIN, 8, tmp_path), None, 1.0)
    stopped._train(Clockwork([0.1] * 9, monkeypatch), lambda: True)
    assert stopped.clocks == 0


def test_what_one_lease_fails_with_is_raised_and_holds_up_no_other(monkeypatch, tmp_path):
    def play(self, slowdown, start, is_stopped):
        if self.share == 1.0:
            raise ArithmeticError("bad data")
        start.wait()

    monkeypatch.setattr(LeaseRun, "_play", play)
    job = LeasedApp(0, profile(3), OPTIONS, LEASE_MIN, 8, tmp_path)
    with pytest.raises(ArithmeticError, match="bad data"):
        run_together([LeaseRun(job, None, share) for share in (0.5, 1.0, 0.5)], lambda: False)


class Scripted:
    """Turns that complete given numbers of clocks, without processes."""

    def __init__(self, clocks, monkeypatch):
        self.clocks, self.shares = iter(clocks), []
        monkeypatch.setattr(lease_rounds, "run_together", self.play)
        monkeypatch.setattr(LeasedApp, "is_exact", lambda self: True)

    def play(self, turns, is_stopped):
        for turn in turns:
            self.shares.append(turn.share)
            turn.clocks = min(next(self.clocks), turn.job.clocks - turn.job.done)
            turn.job.done += turn.clocks
            turn.spent_s = 0.75


def test_rows_tell_what_was_foreseen_and_what_it_came_to(monkeypatch, tmp_path):
    """One app of 30 clocks, four minutes each; two GPUs for a lease of 20 minutes and then three are ten and fifteen of them."""
    scripted = Scripted([5, 15, 99], monkeypatch)
    instance, told = instance_of(app("a", 120.0, 3)), []
    options = replace(OPTIONS, cores=1.6)
    rows, (found,) = play_rounds(
        instance, Plan((0, 0, 2)), options, RoundOptions(rounds=5), tmp_path, on_slot=told.append
    )
    assert told == [0, 1, 2]
    assert [(row.clocks, row.planned_min, row.realised_min) for row in rows] == [
        (5, 40.0, pytest.approx(20.0)),
        (15, 60.0, pytest.approx(60.0)),
        (10, pytest.approx(40.0), pytest.approx(40.0)),
    ]
    assert [row.error for row in rows] == pytest.approx([-0.5, 0.0, 0.0])
    assert scripted.shares == pytest.approx([0.8, 1.6 / 3, 1.6 / 3])
    assert (found.planned_leases, found.realised_leases, found.is_exact) == (3, 3, True)
    assert (found.planned_min, found.realised_min) == pytest.approx((120.0, 120.0))
    assert (found.planned_finish_min, found.realised_finish_min) == pytest.approx((40 + 20 / 3, 50.0))
    # Both alone with the cluster: rho is the time over that of three GPUs.
    assert (found.planned_rho, found.realised_rho) == pytest.approx(((40 + 20 / 3) / 40, 50 / 40))


def test_a_round_of_more_processes_than_allowed_is_refused(tmp_path):
    instance = instance_of(app("a", 120.0, 3))
    with pytest.raises(UnsupportedProblemError, match="a round has 4 workers and servers, more than max_processes 3"):
        play_rounds(instance, Plan((0, 0, 3)), replace(OPTIONS, max_processes=3), RoundOptions(rounds=2), tmp_path)


@pytest.mark.prove
def test_leases_end_and_begin_real_processes_that_go_on_from_checkpoints(tmp_path):
    instance = instance_of(app("a", 60.0, 2), app("b", 60.0, 2))
    rows, apps = play_rounds(instance, Plan((0, 0, 1), (1, 0, 2)), OPTIONS, RoundOptions(rounds=2), tmp_path)
    assert {(row.round, row.app) for row in rows} == {(0, "a"), (0, "b"), (1, "a"), (1, "b")}
    assert all(row.clocks > 0 for row in rows)
    for row in apps:
        own = [each for each in rows if each.app == row.app]
        assert row.is_exact
        assert row.realised_min == pytest.approx(sum(each.realised_min for each in own))
        assert own[1].left_min == pytest.approx(60.0 - own[0].realised_min)


class Local(InProcess):
    """Machines in this process instead of processes; their results are recorded."""

    played: ClassVar[list] = []

    def __init__(self, application, options, *, max_machines):
        super().__init__(application)
        self.most = max_machines
        Local.played.append((application, application.slowdown.read(), self))

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.close()


def test_no_lease_begins_before_the_processes_of_all_are_up(tmp_path, monkeypatch):
    """The second lease's processes start late, when the first lease could have begun already."""
    has_begun, begun = threading.Event(), []

    class Late(Local):
        def __enter__(self):
            if len(Local.played) == 2:
                has_begun.wait(0.3)
            return super().__enter__()

    def train(turn, trainer, is_stopped):
        begun.append([each.start_s > 0 for each in turns])
        has_begun.set()

    monkeypatch.setattr(auction_run, "Processes", Late)
    monkeypatch.setattr(LeaseRun, "_train", train)
    Local.played.clear()
    instance = two_racks()
    (lease,) = read_leases(instance, Plan((0, 0, 1)))
    options = PlanOptions(slot_s=0.12, gradient_s=0.01)
    jobs = [LeasedApp(0, instance.profiles[0], options, LEASE_MIN, 8, tmp_path / name) for name in "ab"]
    turns = [LeaseRun(job, lease, 0.5) for job in jobs]
    run_together(turns, lambda: False)
    assert begun == [[True, True]] * 2


def test_a_lease_takes_its_placements_time_and_goes_on_from_the_last_ones_checkpoint(tmp_path, monkeypatch):
    """Four GPUs in two racks are as fast as 4 / 1.5: a third of a gradient is waiting, and each takes half as long again."""
    monkeypatch.setattr(auction_run, "Processes", Local)
    Local.played.clear()
    instance = two_racks()
    (lease,) = read_leases(instance, Plan((0, 0, 2), (0, 1, 2)))
    options = PlanOptions(slot_s=0.12, gradient_s=0.01)
    job = LeasedApp(0, instance.profiles[0], options, LEASE_MIN, 8, tmp_path)
    assert job.clocks > 2
    done, files = [], []
    for _ in range(2):
        turn = LeaseRun(job, lease, 0.5)
        run_together([turn], lambda: False)
        done.append((job.done, turn.clocks))
        files.append(sorted(tmp_path.glob("checkpoint-*.npz"))[-1].name)
    (first, clocks), (second, more) = done
    assert (first, second) == (clocks, clocks + more)
    assert min(clocks, more) > 0
    assert files == [f"checkpoint-{at:010d}.npz" for at in (first, second)]
    assert job.is_exact()
    for application, slowdown, transport in Local.played:
        assert application.compute_s == pytest.approx(job.gradient_s * 2 / 3)
        assert application.link_s == pytest.approx(job.gradient_s / 3)
        assert (application.share, slowdown, transport.most) == (0.5, pytest.approx(1.5), 5)
    job.record = replace(job.record, losses=job.record.losses[:-1])
    assert not job.is_exact()
