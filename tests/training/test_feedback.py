"""What top-k leaves out, fed back: against a second account in float64, in closed form, and as machines change."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.kernels.parameter_server import Adagrad, Sgd
from optim.training.application import UserApplication
from optim.training.applications import LogisticRegression
from optim.training.dataflow import Dataflow, GradientEncoding
from optim.training.machine import InProcess, Machine
from optim.training.messages import Applied, Compression, Compute, Pushed, RowGradient
from optim.training.pushing import sparsify_top_k
from optim.training.stages import ClusterOptions
from optim.training.trainer import Action, Event, Trainer, resumable

CLASSES = LogisticRegression(num_observations=60, num_features=6, num_classes=3, num_partitions=4)
START = Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0", "r1"))


def options(**others):
    return ClusterOptions(
        **{"num_shards": 2, "compression": Compression.TOP_K, "top_share": 0.2, "feedback": True, **others}
    )


class TwoSlopes(UserApplication):
    """A loud slope and a soft one."""

    def sizes(self):
        return [1.0]

    def start(self):
        return np.zeros(2)

    def loss(self, parameters, partition, clock):
        return float(0.125 * parameters[1])

    def slope(self, parameters, partition, clock):
        return np.array([1.0, 0.125])


@pytest.mark.parametrize("clocks", [8, 9, 40])
def test_what_top_k_never_pushes_is_pushed_in_the_end_with_feedback(clocks):
    """In closed form: every eighth clock the residual 1 ties with the loud slope, and loses to its lower index; the ninth wins.

    So 9/8 is pushed at each ninth clock, whose loud slope waits for the next.
    """
    plain, fed = (
        Trainer(TwoSlopes(), Sgd(learning_rate=1.0), options(num_shards=1, top_share=0.5, feedback=feedback)).run(
            clocks, [START]
        )
        for feedback in (False, True)
    )
    assert plain.parameters[1] == 0.0, "without feedback the soft slope is never pushed"
    assert plain.parameters[0] == -clocks
    assert fed.parameters[0] == -clocks + (clocks % 9 == 0)
    assert fed.parameters[1] == -1.125 * (clocks // 9)
    assert fed.losses[-1] == 0.125 * (-1.125 * ((clocks - 1) // 9))


def second_account(application, share, rate, clocks):
    """Return parameters and losses of descent by the largest entries of gradient and residual, in NumPy and float64."""
    w = application.initial_parameters().astype(np.float64)
    count, partitions = len(w), application.num_partitions
    k = max(1, round(share * count))
    left = np.zeros((partitions, count))
    weights = np.array([application.weight(p) for p in range(partitions)])
    losses = []
    for clock in range(clocks):
        step, loss = np.zeros(count), 0.0
        for p in range(partitions):
            gradient, own_loss = application.gradient(w.astype(np.float32), p, clock)
            total = left[p] + gradient
            sent = np.zeros(count)
            chosen = np.argsort(-np.abs(total), kind="stable")[:k]
            sent[chosen] = total[chosen]
            left[p] = total - sent
            step += weights[p] / weights.sum() * sent
            loss += own_loss
        w -= rate * step
        losses.append(loss / weights.sum())
    return w, losses


@pytest.mark.parametrize("machines", [1, 3])
def test_training_with_feedback_is_that_of_a_second_account_however_many_machines_there_are(machines):
    begin = Event(clock=0, action=Action.ADD_RELIABLE, machines=tuple(f"r{k}" for k in range(machines)))
    record = Trainer(CLASSES, Sgd(learning_rate=1.0), options(staleness=0)).run(15, [begin])
    parameters, losses = second_account(CLASSES, 0.2, 1.0, 15)
    assert record.parameters == pytest.approx(parameters, abs=1e-4)
    assert record.losses == pytest.approx(losses, rel=1e-5)


def test_feedback_brings_the_loss_near_that_of_whole_gradients():
    whole, fed, plain = (
        Trainer(CLASSES, Sgd(learning_rate=1.0), chosen).run(60, [START]).losses[-1]
        for chosen in (ClusterOptions(num_shards=2), options(top_share=0.1), options(top_share=0.1, feedback=False))
    )
    assert whole < fed < plain
    assert fed - whole < 0.15 * (plain - whole)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_what_is_pushed_and_what_is_left_add_up_exactly(share):
    rng, left, pushed, total = np.random.default_rng(0), None, np.zeros(20), np.zeros(20)
    for _ in range(7):
        gradient = rng.integers(-50, 50, 20).astype(np.float32)  # whole numbers: sums are exact
        total += gradient
        sent, left = sparsify_top_k(gradient, share, left)
        pushed += sent.dense(20)
        assert np.array_equal(pushed + left, total)
        assert np.array_equal(left[sent.rows], np.zeros(len(sent.rows)))
    assert isinstance(sent, RowGradient)


class Told:
    """An application whose gradient a test sets."""

    num_partitions, num_parameters = 2, 3

    def __init__(self):
        self.next = None

    def weight(self, partition):
        return 1.0

    def gradient(self, parameters, partition, clock):
        return np.array(self.next, dtype=np.float32), 0.0


def told(machine, application, gradient, clock, partition=0, **others):
    application.next = gradient
    order = Compute(
        generation=1,
        partition=partition,
        clock=clock,
        read_clock=clock,
        parameters=np.zeros(3, np.float32),
        compression=Compression.TOP_K,
        top_share=0.3,
        **{"feedback": True, "carries": True, **others},
    )
    (pushed,) = machine.handle(order)
    return pushed.gradient.tolist()


def test_a_machine_adds_what_it_has_left_of_the_clock_before_and_of_no_other():
    application = Told()
    machine = Machine("m", application)
    assert told(machine, application, [4, 1, 3], 0, carries=False) == [4, 0, 0]
    assert told(machine, application, [0, 1, 0], 1, partition=1) == [0, 1, 0], "partitions are kept apart"
    assert told(machine, application, [0, 1, 0], 1) == [0, 0, 3]
    assert told(machine, application, [0, 0, 0], 2) == [0, 2, 0]
    told(machine, application, [4, 1, 3], 3)
    assert told(machine, application, [0, 0, 1], 4, carries=False) == [0, 0, 1], "somebody else has pushed meanwhile"
    told(machine, application, [4, 1, 3], 5)
    assert told(machine, application, [0, 0, 1], 5) == [0, 0, 1], "a failure has taken the clock back"
    told(machine, application, [4, 1, 3], 6, feedback=False)
    assert told(machine, application, [0, 0, 1], 7) == [0, 0, 1]


def test_a_gradient_that_is_not_finite_leaves_what_was_left():
    application = Told()
    machine = Machine("m", application)
    told(machine, application, [4, 1, 3], 0)
    told(machine, application, [np.nan, 0, 0], 1)
    assert told(machine, application, [0, 0, 0], 2) == [0, 0, 3]


def flow_of(replay_mb=0.0):
    form = GradientEncoding(compression=Compression.TOP_K, top_share=0.5, feedback=True)
    return Dataflow(CLASSES, Sgd(learning_rate=1.0), num_shards=1, staleness=0, encoding=form, replay_mb=replay_mb)


def pushed(flow, machine, clock):
    gradient = np.ones(CLASSES.num_parameters, np.float32)
    for partition in range(4):
        flow.pushed(
            Pushed(
                generation=0, machine=machine, partition=partition, clock=clock, gradient=gradient, weight=1.0, loss=0.0
            )
        )
    flow.applied(Applied(generation=0, shard=0, clock=clock + 1, parameters=flow.parameters))


def test_only_who_has_pushed_the_last_clock_carries_on():
    flow = flow_of()
    assert not flow.compute(0, 0, "a").carries
    pushed(flow, "a", 0)
    assert flow.compute(0, 0, "a").carries
    assert not flow.compute(0, 0, "b").carries
    pushed(flow, "b", 1)
    assert not flow.compute(0, 0, "a").carries
    # A planned change stands where all have pushed; a failure goes back to pushes of which nobody has the residual.
    parts = [flow.parameters]
    flow.reset(2, parts)
    assert flow.compute(0, 0, "b").carries
    flow.reset(1, parts)
    assert not flow.compute(0, 0, "a").carries
    assert not flow.compute(0, 0, "b").carries


def test_what_is_replayed_is_carried_on_from():
    flow = flow_of(replay_mb=1.0)
    for clock in range(3):
        pushed(flow, "a", clock)
    flow.reset(1, [flow.parameters])
    flow.applied(Applied(generation=0, shard=0, clock=3, parameters=flow.parameters))
    assert flow.compute(0, 0, "a").carries


def test_partitions_that_stay_keep_what_was_left_as_machines_come_and_servers_are_replayed():
    """Workers of their own and servers of their own: the workers' partitions never change hands."""
    begin = [START, Event(clock=0, action=Action.ADD_TRANSIENT, machines=("t0", "t1"))]
    calm = Trainer(CLASSES, Adagrad(learning_rate=0.2), options()).run(16, [START])
    same = Trainer(CLASSES, Adagrad(learning_rate=0.2), options()).run(16, begin)
    assert same.equals(calm), "what is left belongs to partitions, not to machines"
    moved = Event(clock=8, action=Action.EVICT, machines=("t1",))
    after = Trainer(CLASSES, Adagrad(learning_rate=0.2), options()).run(16, [*begin, moved])
    assert after.losses[:9] == calm.losses[:9]
    assert not after.equals(calm), "what the machine that left had kept is lost"
    assert after.losses[-1] < after.losses[0]


def test_feedback_is_of_top_k_and_part_of_what_a_run_is(tmp_path):
    with pytest.raises(InvalidOptionError, match="feedback is of what top-k leaves out, the compression is int8"):
        ClusterOptions(feedback=True, compression=Compression.INT8)
    rule = Sgd(learning_rate=1.0)
    resumable(CLASSES, rule, options(feedback=True), InProcess(CLASSES), tmp_path)
    with pytest.raises(InvalidProblemError, match="another job"):
        resumable(CLASSES, rule, options(feedback=False), InProcess(CLASSES), tmp_path)
