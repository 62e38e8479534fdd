"""The rules of the state machine, drawn by a seeded generator: the same sequences everywhere, independent of Hypothesis."""

import numpy as np

from optim.training.messages import Host
from optim.training.stages import Stage
from tests.training.test_state_machine import ElasticTraining

STEPS = 60
ARRIVALS, DEPARTURES, MISCHIEF = 0.12, 0.12, 0.3
MAX_MACHINES = 9


def storm(seed):
    """Play one sequence; raise if a number is wrong or no progress is possible."""
    rng = np.random.default_rng(seed)
    machine = ElasticTraining()
    machine.begin(
        num_partitions=int(rng.choice([1, 2, 4])),
        num_shards=int(rng.choice([1, 2])),
        staleness=int(rng.choice([0, 0, 1, 3])),
        sync_every=int(rng.integers(1, 4)),
        checkpoint_every=int(rng.integers(1, 6)),
        reliable=int(rng.integers(1, 4)),
        transient=int(rng.integers(0, 4)),
        stage=_stage(rng),
    )
    for _ in range(STEPS):
        _step(machine, rng)
    machine.teardown()


def _step(machine, rng):
    kind = rng.random()
    if kind < ARRIVALS:
        _arrive(machine, rng)
    elif kind < ARRIVALS + DEPARTURES:
        if machine.world.controller.machines.staying:
            (machine.evict if rng.random() < 0.5 else machine.kill)(_number(rng))
    elif kind < ARRIVALS + DEPARTURES + MISCHIEF:
        _mischief(machine, rng)
    else:
        machine.push_pull_and_clock(_number(rng), int(rng.integers(1, 60)))


def _arrive(machine, rng):
    if len(machine.world.transport.machines) < MAX_MACHINES:
        machine.add(str(rng.choice(["reliable", "transient"])), int(rng.integers(1, 4)))
    else:
        machine.migrate(_stage(rng))


def _mischief(machine, rng):
    match rng.integers(6):
        case 0:
            machine.repeat_to_machine(_number(rng), _number(rng))
        case 1:
            machine.repeat_to_controller(_number(rng), _number(rng))
        case 2:
            machine.lose_replies_of_the_dead(_number(rng))
        case 3:
            machine.sync(_number(rng))
        case 4:
            machine.migrate(_stage(rng))
        case 5:
            _repeat_last(machine.world, Host)


def _repeat_last(world, kind):
    """Repeat rare messages, which random choice would rarely repeat."""
    for name in sorted(world.transport.machines):
        history = world.transport.sent.get(name, [])
        places = [index for index, message in enumerate(history) if isinstance(message, kind)]
        if places:
            world.repeat_to_machine(name, places[-1])


def _number(rng):
    return int(rng.integers(2**20))


def _stage(rng):
    return list(Stage)[rng.integers(len(Stage))]
