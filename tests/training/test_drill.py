"""The chaos test's rows, with machines in this process; `test_processes.py` kills real processes."""

import contextlib

import pytest

from optim.kernels.parameter_server import Adagrad
from optim.training import drill
from optim.training.applications import LogisticRegression
from optim.training.drill import DrillOptions, _is_equal, kill_servers
from optim.training.stages import ClusterOptions, Stage
from optim.training.trainer import ClockRow
from optim.training.transport import InProcess

CLASSES = LogisticRegression(num_observations=40, num_features=4, num_classes=2, num_partitions=4)


class Forgetful:
    """An application that isn't a function of its arguments: a gradient that is computed again differs."""

    num_partitions, num_parameters = CLASSES.num_partitions, CLASSES.num_parameters

    def __init__(self, clocks=range(10**6)):
        self.calls, self.clocks = 0, clocks

    def initial_parameters(self):
        return CLASSES.initial_parameters()

    def weight(self, partition):
        return CLASSES.weight(partition)

    def gradient(self, parameters, partition, clock):
        self.calls += 1
        gradient, loss = CLASSES.gradient(parameters, partition, clock)
        return gradient, loss + (self.calls if clock in self.clocks else 0)


class Local(InProcess, contextlib.nullcontext):
    """Machines in this process, with the interface of `Processes`."""

    def __init__(self, application, options):
        super().__init__(application)
        self.killed = []
        Local.last = self

    def __enter__(self):
        return self

    @property
    def process_ids(self):
        return {name: 1000 + place for place, name in enumerate(self.machines)}

    def kill(self, machine):
        self.killed.append((machine, self.process_ids[machine]))
        super().kill(machine)


def rows_of(monkeypatch, application, replay_mb=0.0, **options):
    monkeypatch.setattr(drill, "Processes", Local)
    cluster = ClusterOptions(num_shards=2, sync_every=3, replay_mb=replay_mb)
    return list(kill_servers(application, Adagrad(learning_rate=0.1), cluster, DrillOptions(**options)))


@pytest.mark.parametrize("replay_mb", [0.0, 1.0])
def test_each_kill_is_told_with_what_it_undid_and_the_losses_are_those_of_an_undisturbed_run(monkeypatch, replay_mb):
    rows = rows_of(monkeypatch, CLASSES, replay_mb, kills=4, transient=2, seed=1)
    assert [row.is_equal for row in rows] == [True] * 4
    assert [(row.machine, row.process_id) for row in rows] == Local.last.killed
    assert all(row.machine.startswith("spot-") for row in rows), "active servers are on transient machines"
    assert any(row.from_clock > row.to_clock for row in rows), "some kill undid something"
    for row in rows:
        assert row.to_clock <= row.from_clock <= row.to_clock + 3
        assert row.replayed_to == (row.from_clock if replay_mb else row.to_clock)
        assert row.clocks_compared - (row.from_clock - row.to_clock) in (4, 5)


def test_losses_that_differ_are_told(monkeypatch):
    assert not any(row.is_equal for row in rows_of(monkeypatch, Forgetful(), kills=2, transient=2, seed=1))


def test_losses_that_differ_are_told_also_where_they_lie_before_the_clock_that_all_went_back_to(monkeypatch):
    rows = rows_of(monkeypatch, Forgetful(clocks=(0,)), kills=2, transient=2, seed=1)
    assert all(row.to_clock > 0 for row in rows)
    assert not any(row.is_equal for row in rows)


def test_one_clock_that_differs_is_enough():
    def row(clock, loss):
        return ClockRow(clock=clock, loss=loss, stage=Stage.TRADITIONAL, reliable=1, transient=0, elapsed_s=0.0)

    assert _is_equal([row(1, 3.0), row(2, 2.0), row(2, 2.0)], [3.0, 2.0, 1.0])
    assert not _is_equal([row(1, 3.0), row(2, 9.0)], [3.0, 2.0])
    assert not _is_equal([row(1, 9.0), row(2, 2.0)], [3.0, 2.0])
