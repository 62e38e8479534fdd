import numpy as np
import pytest

from optim.training.messages import Host
from optim.training.stages import Stage
from tests.support.training.world import World


@pytest.mark.parametrize("stage", Stage)
def test_no_shard_moves_before_a_slow_server_has_left_the_former_generation(stage):
    """With processes, a server of the previous generation would write into the parameters of the new generation."""
    world, rng = World(num_shards=2, num_partitions=4), np.random.default_rng(0)
    world.policy.wanted = stage
    world.add("reliable", 2)
    world.add("transient", 2)
    world.settle(rng)
    dead, slow = sorted(set(world.controller.roles.servers))[:2]
    former = world.controller.generation
    world.kill(dead)
    while links := [link for link in world.busy if link != (False, slow)]:
        world.deliver(links[0])
    assert world.controller.generation > former
    sent = [message for of_machine in world.transport.sent.values() for message in of_machine]
    assert not any(isinstance(message, Host) and message.generation > former for message in sent)
    world.settle(rng)
