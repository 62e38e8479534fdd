"""Bounded staleness in the trainer, with bulk-synchronous and asynchronous training as its limiting cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import Adagrad, Adam, Sgd
from optim.training.applications import LogisticRegression, MatrixFactorisation, TopicModel
from optim.training.dataflow import DENSEST, Dataflow, densest_rows
from optim.training.messages import Applied, Pushed, Pushes
from optim.training.processes import Processes
from optim.training.stages import ClusterOptions
from optim.training.trainer import Action, Event, Trainer
from tests.support.training.oracle import CountingApplication

PARTITIONS, LAST = 3, 6

ASYNCHRONOUS = 2**30
"""A staleness with which no partition ever waits."""

SERVER = PARTITIONS
"""Entry of an order that means an answer of the server, instead of the end of a partition."""

orders = st.lists(st.integers(0, SERVER), max_size=40)


class Run:
    """Partitions start as soon as they may; a test decides when they push, and when the server replies."""

    def __init__(self, staleness):
        self.flow = Dataflow(
            CountingApplication(PARTITIONS, 2),
            Sgd(learning_rate=1.0),
            ClusterOptions(num_shards=1, staleness=staleness),
        )
        self.orders = {}
        self._applied = 0
        self.start()

    def start(self):
        for partition in self.flow.startable(LAST):
            self.orders[partition] = self.flow.compute(partition, 0)

    def happen(self, what):
        """Let a partition push its gradient, or the server answer; then start all partitions that may start."""
        if what == SERVER:
            self.answer()
        elif what in self.orders:
            clock, gradient = self.orders.pop(what).clock, np.ones(2, dtype=np.float32)
            self.flow.pushed(Pushed(generation=0, partition=what, clock=clock, gradient=gradient, weight=1.0, loss=0.0))
        self.start()

    def answer(self):
        if self._applied < self.flow.completed.min():
            self._applied += 1
            parameters = np.full(2, -self._applied, np.float32)
            self.flow.applied(Applied(generation=0, shard=0, clock=self._applied, parameters=parameters))


@given(orders, st.sampled_from([0, 1, 2, ASYNCHRONOUS]))
def test_a_started_clock_sees_all_that_it_must_and_all_of_its_own(order, staleness):
    run = Run(staleness)
    for what in order:
        run.happen(what)
        for started in run.orders.values():
            assert started.read_clock >= max(0, started.clock - staleness)
            assert len(started.unapplied) == (started.clock - started.read_clock if staleness else 0)
        assert run.flow.completed.max() - run.flow.completed.min() <= staleness + 1


@given(orders)
def test_without_staleness_all_compute_the_same_clock_from_the_same_parameters(order):
    run = Run(0)
    for what in order:
        run.happen(what)
        assert len({(started.clock, started.read_clock) for started in run.orders.values()}) <= 1


@pytest.mark.parametrize(("staleness", "reached"), [(0, 1), (2, 3), (ASYNCHRONOUS, LAST)])
def test_a_partition_that_never_ends_holds_the_others_up_by_the_staleness_and_asynchronous_ones_never(
    staleness, reached
):
    run = Run(staleness)
    for _ in range(2 * LAST):
        for what in (1, 2, SERVER):
            run.happen(what)
    assert run.flow.completed.tolist() == [0, reached, reached]


@given(orders, st.sampled_from([0, 1, ASYNCHRONOUS]))
def test_the_slowest_computes_once_the_server_has_answered(order, staleness):
    run = Run(staleness)
    for what in order:
        run.happen(what)
        run.answer()
        run.start()
        if run.flow.completed.min() < LAST:
            assert int(run.flow.completed.argmin()) in run.orders


@pytest.mark.parametrize("is_by_rows", [True, False])
def test_a_partition_has_its_own_late_updates_whole_whether_pushed_by_rows_or_not(is_by_rows):
    # Two users and one item of two factors: the gradient of the second user and the item.
    application = MatrixFactorisation(num_users=2, num_items=1, num_ratings=4, num_factors=2, num_partitions=1)
    flow = Dataflow(application, Sgd(learning_rate=1.0), ClusterOptions(num_shards=1, staleness=1))
    flow.startable(LAST)
    flow.compute(0, 0)
    gradient = {"gradient": np.array([0, 0, 1, 2, 3, 4], np.float32)}
    if is_by_rows:
        gradient = {"gradient": gradient["gradient"][2:], "rows": np.array([1, 2], np.int32), "width": 2}
    flow.pushed(Pushed(generation=0, partition=0, clock=0, weight=4.0, loss=0.0, **gradient))
    assert flow.startable(LAST) == [0]
    (own,) = flow.compute(0, 0).unapplied
    assert own.tolist() == [0, 0, 1, 2, 3, 4]


def test_asynchronous_training_applies_every_update_and_helps():
    application = MatrixFactorisation(
        num_users=20, num_items=9, num_ratings=200, num_factors=2, num_partitions=PARTITIONS
    )
    trainer = Trainer(application, Sgd(learning_rate=0.05), ClusterOptions(num_shards=2, staleness=ASYNCHRONOUS))
    record = trainer.run(20, [Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0", "r1"))])
    assert record.num_computed == 20 * PARTITIONS
    assert len(record.losses) == 20
    assert record.losses[-1] < record.losses[0]


def test_processes_refuse_a_staleness_that_no_memory_holds():
    options = ClusterOptions(num_shards=1, staleness=ASYNCHRONOUS)
    with pytest.raises(InvalidOptionError, match="or a smaller staleness"):
        Processes(CountingApplication(PARTITIONS, 1000), options, max_machines=64)


FACTORS = MatrixFactorisation(num_users=20, num_items=9, num_ratings=200, num_factors=2, num_partitions=4)
CLASSES = LogisticRegression(num_observations=60, num_features=6, num_classes=3, num_partitions=4)
TOPICS = TopicModel(num_documents=12, num_words=15, num_topics=2, num_tokens=20, num_partitions=4)
DESCENT = Sgd(learning_rate=0.5)


@pytest.mark.parametrize(
    ("application", "optimiser", "options", "densest"),
    [
        (FACTORS, DESCENT, {}, DENSEST),
        (FACTORS, Adagrad(learning_rate=0.1), {"staleness": 0}, DENSEST),
        (FACTORS, Adam(learning_rate=0.1), {}, 0),  # changes that involve no push
        (FACTORS, DESCENT, {"staleness": 2}, DENSEST),
        (FACTORS, DESCENT, {"pushes": Pushes.ROWS}, 1),
        (FACTORS, DESCENT, {"pushes": Pushes.DENSE}, 0),
        (FACTORS, DESCENT, {"num_shards": 30}, 0),  # more shards than rows
        (CLASSES, DESCENT, {"pushes": Pushes.ROWS}, 0),  # no rows
        (TOPICS, DESCENT, {}, 0),  # each word's weights fall to the prior
    ],
)
def test_gradients_are_pushed_by_rows_only_where_that_is_the_same_update(application, optimiser, options, densest):
    assert densest_rows(application, optimiser, ClusterOptions(**options)) == densest
