"""Losses are the same, bit for bit, with any sequence of additions and evictions as without them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.kernels.parameter_server import Adagrad, Adam, Sgd, WarmupCosine, apply_pushes
from optim.training.applications import LogisticRegression, MatrixFactorisation, TopicModel
from optim.training.messages import Pushes
from optim.training.stages import ClusterOptions, Fixed, Stage
from optim.training.trainer import Action, Event, Trainer

CLOCKS = 14
P = 4
FACTORS = MatrixFactorisation(num_users=20, num_items=9, num_ratings=200, num_factors=2, num_partitions=P)
CLASSES = LogisticRegression(num_observations=60, num_features=6, num_classes=3, batch=0.5, num_partitions=P)
TOPICS = TopicModel(num_documents=12, num_words=15, num_topics=2, num_tokens=20, num_partitions=P)
JOBS = {
    "matrix factorisation": (FACTORS, Adagrad(learning_rate=0.2)),
    "logistic regression": (CLASSES, Adam(learning_rate=0.05)),
    "topic model": (TOPICS, Sgd(learning_rate=0.5)),
}
START = Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0", "r1"))
STORM = (
    START,
    Event(clock=2, action=Action.ADD_TRANSIENT, machines=("t0", "t1", "t2", "t3", "t4")),
    Event(clock=5, action=Action.EVICT, machines=("t1", "t3")),
    Event(clock=7, action=Action.KILL, machines=("t0", "t2"), after_messages=3),
    Event(clock=8, action=Action.ADD_TRANSIENT, machines=("t5", "t6", "t7")),
    Event(clock=10, action=Action.KILL, machines=("r0",), after_messages=2),
    Event(clock=12, action=Action.EVICT, machines=("t4", "t5", "t6", "t7")),
)


def plain_run(application, optimiser, clocks, num_shards):
    """Apply all gradients by the kernel, without machines: parameters and losses."""
    whole = application.initial_parameters()
    cuts = [index * whole.size // num_shards for index in range(num_shards + 1)]
    shards = [
        (np.array(whole[a:b]), tuple(np.zeros(b - a, np.float32) for _ in range(optimiser.num_slots)))
        for a, b in itertools.pairwise(cuts)
    ]
    weights = np.array([application.weight(p) for p in range(application.num_partitions)], dtype=np.float32)
    losses = []
    for clock in range(clocks):
        view = np.concatenate([np.asarray(parameters) for parameters, _ in shards])
        results = [application.gradient(view, p, clock) for p in range(application.num_partitions)]
        losses.append(sum(loss for _, loss in results) / sum(weights.astype(float).tolist()))
        shards = [
            apply_pushes(
                parameters,
                slots,
                [gradient[a:b] for gradient, _ in results],
                weights,
                np.int32(clock),
                optimiser=optimiser,
                keep=True,
            )
            for (parameters, slots), a, b in zip(shards, cuts, cuts[1:], strict=False)
        ]
    return np.concatenate([np.asarray(parameters) for parameters, _ in shards]), losses


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("num_shards", [1, 3])
def test_a_storm_of_changes_leaves_every_bit_as_it_was(job, num_shards):
    application, optimiser = JOBS[job]
    parameters, losses = plain_run(application, optimiser, CLOCKS, 1)
    trainer = Trainer(application, optimiser, ClusterOptions(num_shards=num_shards, sync_every=3))
    record = trainer.run(CLOCKS, STORM)
    assert list(record.losses) == losses
    assert np.array_equal(record.parameters, parameters)
    assert {row.stage for row in record.rows} == {Stage.RELIABLE, Stage.BACKED_UP}
    assert record.rollbacks, "the killed servers took work with them"
    assert losses[-1] < losses[0]


BY_ROWS = {
    "factors by Adagrad": (JOBS["matrix factorisation"], {}),
    "late factors": ((FACTORS, Sgd(learning_rate=0.2)), {"staleness": 2}),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.prove] if "late" in case else []) for case in BY_ROWS]
)
def test_pushes_by_rows_are_whole_ones_up_to_rounding(case):
    job, form = BY_ROWS[case]
    whole, rows = (
        Trainer(*job, ClusterOptions(num_shards=2, pushes=pushes, **form)).run(CLOCKS, [START])
        for pushes in (Pushes.DENSE, Pushes.ROWS)
    )
    assert rows.losses == pytest.approx(whole.losses, rel=1e-4)
    assert rows.parameters == pytest.approx(whole.parameters, abs=1e-3)
    assert rows.losses[-1] < rows.losses[0]
    assert not rows.equals(whole), "added in another way, which shows in a bit somewhere"


@pytest.mark.parametrize("case", ["factors by Adagrad"])
@pytest.mark.parametrize("pushes", [Pushes.ROWS, Pushes.AUTO])
def test_pushes_by_rows_keep_their_bits_through_a_storm_and_over_other_shards(case, pushes):
    job, form = BY_ROWS[case]
    stormy, calm = (
        Trainer(*job, ClusterOptions(num_shards=shards, sync_every=3, pushes=pushes, **form)).run(CLOCKS, events)
        for shards, events in ((3, STORM), (2, [START]))
    )
    assert stormy.equals(calm)
    assert stormy.rollbacks


def test_an_eviction_with_a_warning_computes_nothing_twice():
    events = [event for event in STORM if event.action is not Action.KILL]
    record = Trainer(*JOBS["logistic regression"], ClusterOptions(sync_every=5)).run(CLOCKS, events)
    assert record.num_computed == CLOCKS * P
    assert not record.rollbacks


def test_a_warned_eviction_is_safe_even_if_everybody_dies_while_shards_move():
    """A rollback returns to the state that was sent to the backups before the move."""
    trainer = Trainer(*JOBS["logistic regression"], ClusterOptions(num_shards=3, sync_every=100))
    trainer.run(6, STORM[:2])
    trainer.controller.evict(["t0", "t1"])
    while trainer.controller.phase.value != "rebuilding":
        trainer.controller.receive(trainer.transport.receive())
    trainer.apply(Event(clock=6, action=Action.KILL, machines=("t0", "t1", "t2", "t3", "t4")))
    record = trainer.run(8)
    assert all(back.from_clock == back.to_clock for back in record.rollbacks)
    assert record.num_computed == 8 * P


def test_a_lost_worker_costs_no_more_than_its_share():
    options = ClusterOptions(policy=Fixed(fixed=Stage.RELIABLE))
    events = (START, STORM[1], Event(clock=4, action=Action.KILL, machines=("t0", "t1"), after_messages=1))
    record = Trainer(*JOBS["topic model"], options).run(8, events)
    assert record.rollbacks == ()
    assert 8 * P <= record.num_computed <= 8 * P + 2


def test_the_traditional_layout_goes_back_to_its_checkpoint():
    options = ClusterOptions(policy=Fixed(fixed=Stage.TRADITIONAL), checkpoint_every=4)
    events = (START, STORM[1], Event(clock=7, action=Action.KILL, machines=("t0",)))
    record = Trainer(*JOBS["topic model"], options).run(8, events)
    assert [(back.from_clock, back.to_clock) for back in record.rollbacks] == [(7, 4)]
    tiers = Trainer(*JOBS["topic model"], ClusterOptions(sync_every=1, num_shards=8)).run(8, events)
    assert tiers.losses == record.losses
    assert all(back.from_clock - back.to_clock <= 1 for back in tiers.rollbacks)


def test_a_job_without_machines_waits_in_the_storage():
    application, optimiser = JOBS["matrix factorisation"]
    undisturbed = Trainer(application, optimiser).run(9, [START])
    trainer = Trainer(application, optimiser, ClusterOptions(checkpoint_every=50))
    trainer.run(5, [START])
    trainer.controller.evict(["r0", "r1"])
    while trainer.controller.machines.staying or trainer.controller.phase.value != "stopped":
        trainer.controller.receive(trainer.transport.receive())
    trainer.controller.add(reliable=["r2"], transient=["t0"])
    record = trainer.run(9)
    assert record.losses == undisturbed.losses
    assert record.num_computed == 9 * P


def test_training_without_a_machine_says_so():
    with pytest.raises(NotAllowedError, match="can't continue at clock 0 with machines none: add a machine"):
        Trainer(*JOBS["topic model"]).run(3)


def test_a_name_is_given_once():
    trainer = Trainer(*JOBS["topic model"])
    trainer.run(1, [START])
    with pytest.raises(NotAllowedError, match="'r0'"):
        trainer.controller.add(transient=["r0"])
    with pytest.raises(NotAllowedError, match="no machine 'r9' to evict"):
        trainer.controller.evict(["r9"])


def test_staleness_needs_an_optimiser_that_adds():
    with pytest.raises(
        InvalidOptionError, match=r"staleness 1 needs an optimiser without momentum .* a constant rate, got Adam"
    ):
        Trainer(CLASSES, Adam(learning_rate=0.1), ClusterOptions(staleness=1))
    schedule = Sgd(learning_rate=WarmupCosine(peak=0.1, warmup_steps=1, num_steps=9))
    with pytest.raises(InvalidOptionError, match="with a constant rate, got Sgd"):
        Trainer(JOBS["matrix factorisation"][0], schedule, ClusterOptions(staleness=1))


@given(data=st.data(), seed=st.integers(0, 3))
def test_any_additions_and_evictions_leave_the_bits(data, seed):
    application = LogisticRegression(num_observations=24, num_features=4, num_classes=3, num_partitions=P, seed=seed)
    optimiser = Adagrad(learning_rate=0.3)
    alive, events, count = ["r0", "r1"], [START], 0
    for clock in sorted(data.draw(st.lists(st.integers(1, 5), max_size=4), label="clocks")):
        if data.draw(st.booleans(), label="adds") or len(alive) < 2:
            names = tuple(f"t{count + k}" for k in range(data.draw(st.integers(1, 6))))
            count += len(names)
            alive += names
            events.append(Event(clock=clock, action=Action.ADD_TRANSIENT, machines=names))
        else:
            gone = tuple(data.draw(st.lists(st.sampled_from(alive), min_size=1, unique=True, max_size=len(alive) - 1)))
            alive = [name for name in alive if name not in gone]
            events.append(Event(clock=clock, action=Action.EVICT, machines=gone))
    parameters, losses = plain_run(application, optimiser, 6, 1)
    record = Trainer(application, optimiser, ClusterOptions(num_shards=2)).run(6, events)
    assert list(record.losses) == losses
    assert np.array_equal(record.parameters, parameters)
    assert record.num_computed == 6 * P


def test_an_optimiser_of_optax_itself_is_rejected():
    import optax

    with pytest.raises(InvalidOptionError, match="optimiser must be one of optim"):
        Trainer(MatrixFactorisation(num_users=4, num_items=3, num_ratings=12, num_factors=2), optax.sgd(0.1))
