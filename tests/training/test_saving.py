"""A checkpoint on demand contains the state that remains after a loss of all machines."""

import pytest

from optim.core.errors import NotAllowedError
from optim.kernels.parameter_server import Adagrad
from optim.training.applications import LogisticRegression
from optim.training.stages import NEVER, ClusterOptions, Fixed, Stage
from optim.training.trainer import Action, Event, Trainer

APPLICATION = LogisticRegression(num_observations=80, num_features=6, num_classes=3, num_partitions=4)
TRADITIONAL = ClusterOptions(num_shards=1, checkpoint_every=NEVER, policy=Fixed(fixed=Stage.TRADITIONAL))


def trained(options, clocks, **machines):
    """Return a trainer at a clock."""
    trainer = Trainer(APPLICATION, Adagrad(learning_rate=0.1), options)
    trainer.run(clocks, [Event(clock=0, action=Action(action), machines=names) for action, names in machines.items()])
    return trainer


def test_all_machines_lost_go_back_to_the_clock_that_was_saved():
    trainer = trained(TRADITIONAL, 5, **{"add-transient": ("a", "b")})
    assert trainer.controller.saved_clock == 0
    trainer.controller.save()
    while trainer.controller.saved_clock < 5:
        trainer.step()
    losses = trainer.run(8).losses
    trainer.apply(Event(clock=0, action=Action.KILL, machines=("a", "b")))
    while trainer.controller.machines.staying:
        trainer.step()
    again = trainer.run(8, [Event(clock=0, action=Action.ADD_TRANSIENT, machines=("c",))])
    assert again.rollbacks[-1].to_clock == 5
    assert again.losses == losses


def test_a_run_with_copies_on_reliable_machines_or_under_way_is_not_saved():
    tiered = trained(ClusterOptions(), 3, **{"add-reliable": ("r",), "add-transient": ("a", "b")})
    with pytest.raises(NotAllowedError, match="copies of the parameters are on reliable machines"):
        tiered.controller.save()
    busy = trained(TRADITIONAL, 3, **{"add-transient": ("a",)})
    busy.controller.resume(5)
    busy.step()
    with pytest.raises(NotAllowedError, match="only when all shards are at one clock"):
        busy.controller.save()
