"""Eight devices train as one does, and none of them gathers the parameters."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, re
import jax, numpy as np
from jax.sharding import Mesh
from optim.kernels.parameter_server import Adagrad, AdamW, Momentum, Sgd
from optim.training.applications import LogisticRegression, MatrixFactorisation, NeuralNetwork
from optim.training.mesh import AXIS, MeshTrainer
from optim.training.trainer import run_alone

JOBS = {
    "classes": (LogisticRegression(num_observations=80, num_features=64, num_classes=3, num_partitions=4), Momentum(learning_rate=0.1)),
    "network": (NeuralNetwork(num_observations=64, num_features=8, num_classes=3, num_hidden=16, num_partitions=4), AdamW(learning_rate=0.01)),
    "factors": (MatrixFactorisation(num_users=40, num_items=24, num_ratings=200, num_factors=4, num_partitions=4), Adagrad(learning_rate=0.1)),
}
found = {}
for name, (application, rule) in JOBS.items():
    alone = run_alone(application, rule, 12)
    trainer = MeshTrainer(application, rule, Mesh(np.array(jax.devices()), (AXIS,)))
    text = trainer.step.lower(*trainer.arguments()).compile().as_text()
    trainer.run(12)
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(trainer.parameters)])
    largest = max(leaf.size for leaf in jax.tree.leaves(trainer.parameters))
    pieces = {len(leaf.addressable_shards) * (leaf.addressable_shards[0].data.size < leaf.size) for leaf in jax.tree.leaves(trainer.parameters) if leaf.size == largest}
    gathered = [
        int(np.prod([int(n) for n in shape.split(",")])) for shape in re.findall(r"= f32\\[([\\d,]+)\\]\\S* all-gather\\(", text)
    ]
    found[name] = {
        "devices": len(jax.devices()),
        "losses": [alone.losses, trainer.losses],
        "parameters": float(np.abs(flat - alone.parameters).max()),
        "gathered": max(gathered, default=0),
        "whole": largest,
        "pieces": sorted(pieces),
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("job", ["classes", "network", "factors"])
def test_eight_devices_have_the_losses_of_one_and_no_device_the_parameters(job, found):
    alone, spread = found[job]["losses"]
    assert found[job]["devices"] == 8
    assert spread == pytest.approx(alone, rel=1e-6)
    assert found[job]["parameters"] < 1e-4
    assert found[job]["pieces"] == [8]
    assert found[job]["gathered"] < found[job]["whole"]
