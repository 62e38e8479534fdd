"""Stored pushes: replaying them after a server's death restores its bits, and only missing gradients are computed again."""

import numpy as np
import pytest

from optim.kernels.parameter_server import Adagrad, Adam, Momentum, Sgd
from optim.training.applications import LogisticRegression, MatrixFactorisation
from optim.training.controller import Phase
from optim.training.dataflow import PushLog
from optim.training.messages import Push, Pushed, Pushes
from optim.training.stages import ClusterOptions
from optim.training.trainer import Action, Event, Trainer
from tests.support.training.oracle import CountingApplication

P, SIZE = 3, 7
BEGIN = (
    Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0",)),
    Event(clock=0, action=Action.ADD_TRANSIENT, machines=("t0", "t1", "t2")),
)
DEATH = Event(clock=8, action=Action.KILL, machines=("t1",), after_messages=4)
"""Of a server: the backup's last copy is of clock 6, for one is made at every sixth."""

RULES = {
    "descent": Sgd(learning_rate=0.1),
    "momentum": Momentum(learning_rate=0.1),
    "adagrad": Adagrad(learning_rate=0.1),
    "adam": Adam(learning_rate=0.1),
}


def options(replay_mb, **others):
    return ClusterOptions(num_shards=2, sync_every=6, replay_mb=replay_mb, **others)


def from_scratch(rule, start, gradients, weights):
    """Return the parameters after some clocks' gradients, shape (clocks, P, n), in float64 and without any kernel."""
    w = start.astype(np.float64)
    u, h, m, v = (np.zeros_like(w) for _ in range(4))
    for step, clock in enumerate(gradients, start=1):
        g = np.tensordot(weights, clock.astype(np.float64), axes=1) / weights.sum()
        match rule:
            case "descent":
                w = w - 0.1 * g
            case "momentum":
                u = 0.9 * u + g
                w = w - 0.1 * u
            case "adagrad":
                h = h + g * g
                w = w - 0.1 * g / (np.sqrt(h) + 1e-10)
            case "adam":
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
                w = w - 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return w


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("staleness", [0, 2])
def test_a_killed_server_comes_back_by_replay_with_the_bits_it_had(rule, staleness, monkeypatch):
    """Gradients differ at every call: computed again, none of them would be the one that was lost."""
    if staleness and rule != "descent":
        pytest.skip("staleness needs a rule without slots")
    taken, seen = {}, {}
    application = CountingApplication(P, SIZE, rng=np.random.default_rng(1))
    application.weight = lambda partition: 1.0 + partition
    trainer = Trainer(application, RULES[rule], options(1.0, staleness=staleness))
    receive, flow = trainer.controller.receive, trainer.controller.flow

    def noted(message):
        if (
            isinstance(message, Pushed)
            and message.generation == trainer.controller.generation
            and flow.is_next(message)
        ):
            taken[message.clock, message.partition] = message.gradient.copy()
        receive(message)
        bits = seen.setdefault(flow.read_clock, flow.parameters.copy())
        assert np.array_equal(bits, flow.parameters), "a clock came back with other parameters"

    monkeypatch.setattr(trainer.controller, "receive", noted)
    record = trainer.run(12, [*BEGIN, DEATH])
    (back,) = record.rollbacks
    assert (back.to_clock, back.replayed_to) == (6, back.from_clock)
    assert back.from_clock >= 8
    gradients = np.array([[taken[clock, partition] for partition in range(P)] for clock in range(12)])
    expected = from_scratch(rule, application.initial_parameters(), gradients, 1.0 + np.arange(P))
    assert record.parameters == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_with_replay_only_what_was_under_way_is_computed_again():
    job = LogisticRegression(num_observations=60, num_features=6, num_classes=3, num_partitions=P), RULES["adam"]
    calm = Trainer(*job, options(0.0)).run(12, BEGIN)
    again, replayed = (Trainer(*job, options(room)).run(12, [*BEGIN, DEATH]) for room in (0.0, 1.0))
    assert again.equals(calm)
    assert replayed.equals(calm)
    (back,) = again.rollbacks
    assert (back.to_clock, back.replayed_to) == (6, 6)
    assert again.num_computed - calm.num_computed >= P * (back.from_clock - 6) >= 2 * P
    assert 0 <= replayed.num_computed - calm.num_computed < P


def test_where_there_is_room_for_a_part_the_rest_is_computed_again():
    job = LogisticRegression(num_observations=60, num_features=6, num_classes=3, num_partitions=P), RULES["adam"]
    calm = Trainer(*job, options(0.0)).run(12, BEGIN)
    a_clock = P * len(calm.parameters) * 4 / 1e6
    early = Event(clock=4, action=Action.KILL, machines=("t1",), after_messages=4)
    record = Trainer(*job, options(1.5 * a_clock)).run(12, [*BEGIN, early])
    (back,) = record.rollbacks
    assert (back.to_clock, back.replayed_to) == (0, 1)
    assert record.equals(calm)


@pytest.mark.parametrize("pushes", [Pushes.ROWS, Pushes.AUTO])
def test_pushes_by_rows_are_replayed_with_their_bits(pushes):
    job = MatrixFactorisation(num_users=20, num_items=9, num_ratings=200, num_factors=2, num_partitions=P)
    calm, hurt = (
        Trainer(job, RULES["adagrad"], options(1.0, pushes=pushes)).run(12, events)
        for events in (BEGIN, [*BEGIN, DEATH])
    )
    assert hurt.rollbacks[0].replayed_to > hurt.rollbacks[0].to_clock
    assert hurt.equals(calm)
    assert hurt.num_computed - calm.num_computed < P


def test_when_all_machines_die_those_that_come_later_replay():
    job = LogisticRegression(num_observations=60, num_features=6, num_classes=3, num_partitions=P), RULES["adagrad"]
    calm = Trainer(*job, options(0.0)).run(12, BEGIN)
    everybody = Event(clock=8, action=Action.KILL, machines=("r0", "t0", "t1", "t2"), after_messages=4)
    trainer = Trainer(*job, options(1.0, checkpoint_every=99))
    trainer.run(8, BEGIN)
    trainer.apply(everybody)
    while trainer.controller.phase is not Phase.STOPPED:
        trainer.step()
    assert trainer.clock == 0, "the reliable machine's copies have died with it"
    record = trainer.run(12, [Event(clock=0, action=Action.ADD_TRANSIENT, machines=("new",))])
    assert record.equals(calm)
    assert record.num_computed == calm.num_computed


def push(clock, partition, shard=0, gradient=None):
    gradient = np.full(4, 10.0 * clock + partition, np.float32) if gradient is None else gradient
    return Push(generation=1, shard=shard, partition=partition, clock=clock, gradient=gradient, weight=1.0)


def filled(clocks, max_bytes=1e6):
    log = PushLog(P, max_bytes)
    for clock in clocks:
        for partition in range(P):
            log.add(clock, partition, [push(clock, partition)])
    return log


def test_a_log_leads_as_far_as_all_partitions_have_pushed():
    log = filled([3, 4, 6])
    log.add(5, 0, [push(5, 0)])
    assert [log.end(clock) for clock in (2, 3, 4, 5, 6)] == [2, 5, 5, 5, 7]
    assert [(kept.clock, kept.partition) for kept in log.pushes(3)] == [(at, k) for at in (3, 4) for k in range(3)]
    assert [kept.gradient[0] for kept in log.pushes(3)] == [30.0, 31.0, 32.0, 40.0, 41.0, 42.0]
    assert list(log.pushes(5)) == []


def test_a_log_keeps_copies_and_forgets_what_copies_hold():
    log, gradient = filled([1, 2]), np.ones(4, np.float32)
    log.add(3, 0, [push(3, 0, gradient=gradient)])
    gradient[:] = 5.0  # the row of shared memory is written again
    log.add(3, 1, [push(3, 1)])
    log.add(3, 2, [push(3, 2)])
    log.trim(3, 2)
    assert log.num_bytes == 2 * P * 16
    assert (log.end(1), log.end(2)) == (1, 4)
    assert next(log.pushes(3)).gradient.tolist() == [1.0] * 4
    log.keep(2, 3)
    assert (log.end(2), log.num_bytes) == (3, P * 16)


def test_a_log_is_no_larger_than_it_may_be_and_old_clocks_give_way_once_copies_hold_them():
    assert filled([0, 1, 2], max_bytes=2 * P * 16).end(0) == 2
    log = filled([0, 1], max_bytes=2 * P * 16)
    log.trim(1, 0)
    assert log.end(0) == 2, "the storage is still where it was, and there is room"
    log.add(2, 0, [push(2, 0)])
    assert (log.end(0), log.end(1), log.num_bytes) == (0, 2, (P + 1) * 16)
    assert filled([0], max_bytes=0).num_bytes == 0


def test_what_just_fits_makes_nothing_give_way():
    log = filled([0], max_bytes=2 * P * 16)
    log.trim(1, 0)
    for partition in range(P):
        log.add(1, partition, [push(1, partition)])
    assert (log.end(0), log.num_bytes) == (2, 2 * P * 16)
