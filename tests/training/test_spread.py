"""Shards spread over several devices of their server: the bits of one device, through every change of machines."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, TrainingError
from optim.kernels.parameter_server import Sgd
from optim.training.applications import LogisticRegression
from optim.training.messages import Pushes
from optim.training.shard_store import ShardedStore
from optim.training.stages import ClusterOptions
from optim.training.trainer import Action, Event, Trainer

ROOT = Path(__file__).parents[2]
OTHERS = ("Sgd", "Adagrad", "Adam")

ON_FOUR_DEVICES = """
import json, sys
import jax, numpy as np
from optim.kernels.parameter_server import Adagrad, Adam, Momentum, Sgd
from optim.training.applications import LogisticRegression, MatrixFactorisation
from optim.training.messages import Host, Push, ShardValues
from optim.training.stages import ClusterOptions
from optim.training.server import ServedShard
from optim.training.trainer import Action, Event, Trainer

assert len(jax.devices()) == 4
rng, found = np.random.default_rng(0), {}


def served(rule, size, partitions, devices, gradients, weights, start):
    slots = tuple(np.zeros(size, np.float32) for _ in range(rule.num_slots))
    host = Host(generation=1, values=ShardValues(0, 0, start, slots), optimiser=rule, num_partitions=partitions, sync_every=9, devices=devices)
    shard = ServedShard(host)
    for clock, pushes in enumerate(gradients):
        for partition in rng.permutation(partitions).tolist():
            shard.push(Push(generation=1, shard=0, partition=partition, clock=clock, gradient=pushes[partition], weight=weights[partition]))
    values = shard.values()
    return np.concatenate([values.parameters, *values.slots])


# Sizes and partitions that no number of devices divides; more pushes than one compiled function folds.
for rule, size, partitions, devices in (
    (Adam(learning_rate=0.1), 63, 6, 4),
    (Momentum(learning_rate=0.1), 63, 5, 3),
    (Sgd(learning_rate=0.1), 7, 18, 4),
    (Adagrad(learning_rate=0.1), 3, 1, 4),
):
    if type(rule).__name__ not in sys.argv:
        continue
    gradients = rng.standard_normal((3, partitions, size)).astype(np.float32)
    weights = rng.uniform(0.5, 2.0, partitions).tolist()
    start = rng.standard_normal(size).astype(np.float32)
    alone, spread = (served(rule, size, partitions, d, gradients, weights, start) for d in (1, devices))
    found[type(rule).__name__] = int((alone != spread).sum())

if "Trainer" not in sys.argv:
    print(json.dumps(found))
    sys.exit()
begin = [Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0",)), Event(clock=0, action=Action.ADD_TRANSIENT, machines=("t0", "t1"))]
storm = [
    *begin,
    Event(clock=2, action=Action.EVICT, machines=("t0",)),
    Event(clock=3, action=Action.ADD_TRANSIENT, machines=("t2",)),
    Event(clock=5, action=Action.KILL, machines=("t1",), after_messages=3),
]
classes = LogisticRegression(num_observations=30, num_features=5, num_classes=3, num_partitions=3), Adam(learning_rate=0.1)
alone = Trainer(*classes, ClusterOptions(num_shards=2)).run(8, begin)
spread = Trainer(*classes, ClusterOptions(num_shards=2, sync_every=4, devices=4, replay_mb=1.0)).run(8, storm)
found["storm"] = alone.equals(spread)
found["replayed"] = [(back.to_clock, back.replayed_to) for back in spread.rollbacks]

factors = MatrixFactorisation(num_users=20, num_items=9, num_ratings=60, num_factors=2, num_partitions=3), Adagrad(learning_rate=0.2)
whole = Trainer(*factors, ClusterOptions(num_shards=1, pushes="dense")).run(6, begin)
rows = Trainer(*factors, ClusterOptions(num_shards=1, devices=2)).run(6, begin)
found["rows"] = whole.equals(rows)
print(json.dumps(found))
"""


def environment(devices):
    return {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="module")
def on_four_devices(request):
    """What the script finds, of the rules that tests ask for and, if one of them does, of the trainer."""
    asking = [item for item in request.session.items if "on_four_devices" in item.fixturenames]
    parts = {item.callspec.params["rule"] if hasattr(item, "callspec") else "Trainer" for item in asking}
    command = [sys.executable, "-c", ON_FOUR_DEVICES, *sorted(parts)]
    done = subprocess.run(command, cwd=ROOT, env=environment(4), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("rule", ["Momentum", *(pytest.param(rule, marks=pytest.mark.prove) for rule in OTHERS)])
def test_a_shard_on_several_devices_has_the_bits_of_one(on_four_devices, rule):
    assert on_four_devices[rule] == 0


@pytest.mark.prove
def test_spread_shards_move_and_are_replayed_with_their_bits(on_four_devices):
    assert on_four_devices["storm"]
    ((to_clock, replayed_to),) = on_four_devices["replayed"]
    assert replayed_to > to_clock


@pytest.mark.prove
def test_what_comes_by_rows_is_applied_whole(on_four_devices):
    assert on_four_devices["rows"]


def test_more_devices_than_there_are_end_the_run_in_a_line():
    values = np.zeros(4, np.float32)
    with pytest.raises(InvalidOptionError, match=r"over 99 devices, JAX shows .* set XLA_FLAGS=.*device_count=99"):
        ShardedStore(values, (), Sgd(learning_rate=0.1), 99)
    job = (
        LogisticRegression(num_observations=8, num_features=2, num_classes=2, num_partitions=2),
        Sgd(learning_rate=0.5),
    )
    begin = [Event(clock=0, action=Action.ADD_RELIABLE, machines=("r0",))]
    with pytest.raises(TrainingError, match=r"machine r0 failed: InvalidOptionError: a shard .*device_count=99 "):
        Trainer(*job, ClusterOptions(num_shards=1, devices=99)).run(1, begin)


def test_rows_that_must_be_applied_as_rows_are_not_spread():
    with pytest.raises(InvalidOptionError, match="applies whole gradients"):
        ClusterOptions(devices=2, pushes=Pushes.ROWS)


@pytest.mark.prove
def test_the_command_spreads_shards_of_server_processes_over_their_devices():
    losses = []
    for devices in ("1", "3"):
        words = [
            "run",
            "--application",
            "logistic-regression",
            "--clocks",
            "4",
            "--devices",
            devices,
            "--format",
            "json",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "optim", *words],
            cwd=ROOT, env=environment(3), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        losses.append([json.loads(line)["loss"] for line in done.stdout.splitlines()])
    assert losses[0] == losses[1]
    assert len(losses[0]) == 4
