"""The clock loop stays on the device, and compiles no code after its first clock."""

import logging
import re

import jax
import numpy as np
import pytest

from optim.kernels.parameter_server import Adagrad, AdamW, Momentum, RowLayout, Sgd, WarmupCosine
from optim.kernels.parameter_server.dense import _apply_kept
from optim.training import arrays
from optim.training.applications import LogisticRegression, MatrixFactorisation, NeuralNetwork, TopicModel
from optim.training.messages import Pushes
from optim.training.server import apply_row_pushes
from optim.training.stages import ClusterOptions
from optim.training.trainer import Action, Event, Trainer, run_alone

JOBS = {
    "factors by rows": (
        MatrixFactorisation(num_users=40, num_items=30, num_ratings=60, num_factors=3, num_partitions=4),
        Adagrad(learning_rate=0.1),
        {"pushes": Pushes.ROWS},
    ),
    "classes": (
        LogisticRegression(num_observations=62, num_features=6, num_classes=3, num_partitions=4, batch=0.5),
        Momentum(learning_rate=0.1, nesterov=True),
        {},
    ),
    "topics, late": (
        TopicModel(num_documents=12, num_words=15, num_topics=2, num_tokens=20, num_partitions=4),
        Sgd(learning_rate=0.1),
        {"staleness": 1},
    ),
    "network": (
        NeuralNetwork(num_observations=64, num_features=6, num_classes=3, num_hidden=8, num_partitions=4),
        AdamW(learning_rate=WarmupCosine(peak=0.01, warmup_steps=5, num_steps=300)),
        {"replay_mb": 1.0},
    ),
}
BEGIN = [
    Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0",)),
    Event(clock=0, action=Action.ADD_TRANSIENT, machines=("t0", "t1", "t2")),
]


def comings_and_goings(first, last):
    """A machine joins every sixth clock; in between a machine leaves, with or without a warning."""
    events = []
    for number, clock in enumerate(range(first, last, 6)):
        kind = Action.KILL if number % 2 else Action.EVICT
        events.append(Event(clock=clock, action=Action.ADD_TRANSIENT, machines=(f"t{number + 3}",)))
        events.append(Event(clock=clock + 3, action=kind, machines=(f"t{number}",), after_messages=number % 5))
    return events


@pytest.fixture
def compiled(caplog):
    """The names of functions that JAX compiles from now on."""
    with caplog.at_level(logging.DEBUG, logger="jax"), jax.log_compiles(True):
        yield lambda: [
            found.group(1)
            for record in caplog.records
            if (found := re.match(r"Compiling (?:jit\()?([\w<>.]+)\)? ", record.getMessage()))
        ]


@pytest.mark.parametrize("job", JOBS)
def test_machines_that_come_and_go_move_no_array_to_the_host_and_compile_nothing(job, compiled):
    application, optimiser, options = JOBS[job]
    trainer = Trainer(application, optimiser, ClusterOptions(num_shards=2, sync_every=3, checkpoint_every=7, **options))
    trainer.run(20, [*BEGIN, *comings_and_goings(2, 18)])
    before = len(compiled())
    assert before, "the fixture sees compilations"
    with jax.transfer_guard("disallow"):
        trainer.run(200, [event for event in comings_and_goings(2, 190) if event.clock >= 20])
    assert compiled()[before:] == []
    assert trainer.controller.rollbacks
    assert isinstance(trainer.controller.flow.parameters, jax.Array)


@pytest.mark.parametrize("job", ["classes", "network", "factors by rows"])
def test_what_comes_and_goes_leaves_the_losses_of_a_calm_run(job):
    application, optimiser, options = JOBS[job]
    form = ClusterOptions(num_shards=2, sync_every=3, checkpoint_every=7, **options)
    calm, disturbed = (
        Trainer(application, optimiser, form).run(30, [*BEGIN, *events]) for events in ([], comings_and_goings(2, 28))
    )
    assert disturbed.rollbacks
    assert disturbed.equals(calm)


def test_an_implicit_transfer_in_the_loop_would_be_noticed(monkeypatch):
    """The guard behind the test above: a NumPy array among the arguments of a step."""
    application, optimiser, _ = JOBS["classes"]
    trainer = Trainer(application, optimiser)
    trainer.run(3, BEGIN)
    monkeypatch.setattr("optim.training.server.to_device", lambda tree: tree)
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match="Disallowed host-to-device transfer"):
        trainer.run(6)


def test_only_named_places_put_and_get():
    from pathlib import Path

    folder = Path(arrays.__file__).parent
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if re.search(r"device_put|device_get|block_until_ready", path.read_text())
    }
    assert found == {
        "arrays.py",
        "applications/generated.py",
        "application.py",
        "mesh.py",
    }  # the mesh once, when it is made


def test_a_run_alone_is_that_of_numpy_gradients():
    """The same application through the adapter: gradients in the host's memory, the same function."""

    class OnHost(LogisticRegression):
        def gradient(self, parameters, partition, clock):
            assert isinstance(parameters, np.ndarray)
            return super().gradient(parameters, partition, clock)

    options = {"num_observations": 40, "num_features": 5, "num_classes": 3, "num_partitions": 4}
    rule = Sgd(learning_rate=0.3)
    assert run_alone(OnHost(**options), rule, 6).equals(run_alone(LogisticRegression(**options), rule, 6))


@pytest.mark.parametrize("rule", [Sgd(learning_rate=0.1), Momentum(learning_rate=0.1), Adagrad(learning_rate=0.1), AdamW(learning_rate=0.1)])  # fmt: skip
@pytest.mark.parametrize("is_by_rows", [False, True])
def test_a_clock_needs_two_parameters_and_its_slots_at_most(rule, is_by_rows):
    """In addition to the pushes: old and new parameters, and slots in place; by rows the sums of the pushed ones as well."""
    size, width = 2**18, 16
    vector = jax.ShapeDtypeStruct((size,), np.float32)
    state, scalar = (vector, (vector,) * rule.num_slots), jax.ShapeDtypeStruct((), np.int32)
    weights = jax.ShapeDtypeStruct((2,), np.float32)
    if is_by_rows:
        if not rule.zero_grad_is_noop:
            return
        rows = [jax.ShapeDtypeStruct((200,), np.int32)] * 2
        values = [jax.ShapeDtypeStruct((200 * width,), np.float32)] * 2
        layout = RowLayout(optimiser=rule, width=width)
        lowered = apply_row_pushes.lower(*state, values, rows, weights, scalar, layout=layout)
    else:
        lowered = _apply_kept.lower(*state, (vector, vector), weights, None, scalar, optimiser=rule)
    memory = lowered.compile().memory_analysis()
    held = (1 + rule.num_slots) * size * 4
    needed = held + memory.output_size_in_bytes - memory.alias_size_in_bytes + memory.temp_size_in_bytes
    assert needed <= 2.2 * held


def test_a_gradient_that_is_left_out_contributes_nothing_whatever_it_holds():
    spoilt = np.full(4, np.nan, np.float32)
    assert np.asarray(arrays.contribution(spoilt, 0.0, None, 1, 4)).tolist() == [0.0] * 4
    by_rows = arrays.contribution(np.array([1, 2], np.float32), 0.5, np.array([1], np.int32), 2, 4)
    assert np.asarray(by_rows).tolist() == [0.0, 0.0, 0.5, 1.0]
