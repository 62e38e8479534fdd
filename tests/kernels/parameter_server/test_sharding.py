"""Shards: ranges that cover everything once, and the same result on any number of devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import Sgd, shard_ranges, sharded_apply
from optim.kernels.parameter_server.sharding import AXIS

ROOT = Path(__file__).parents[3]

ON_EIGHT_DEVICES = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from optim.kernels.parameter_server import *
from optim.kernels.parameter_server.sharding import AXIS

assert len(jax.devices()) == 8
rng = np.random.default_rng(0)
size, partitions, clocks = 4096, 8, 3
start = rng.normal(size=size).astype(np.float32)
pushes = rng.normal(size=(clocks, partitions, size)).astype(np.float32)
weights = jnp.asarray(rng.uniform(0.5, 2.0, partitions), jnp.float32)
found = {}
for rule in sys.argv[1].split():
    optimiser = {"Sgd": Sgd, "Momentum": Momentum, "Adagrad": Adagrad, "Adam": Adam}[rule](learning_rate=0.1)
    alone = jnp.asarray(start), optimiser.initial_slots(jnp.asarray(start))
    for clock in range(clocks):
        alone = apply_pushes(*alone, list(map(jnp.asarray, pushes[clock])), weights, jnp.int32(clock), optimiser=optimiser)
    wanted = np.stack([np.asarray(array) for array in (alone[0], *alone[1])])
    for is_exact in (True, False):
        for number in map(int, sys.argv[2:]):
            mesh = Mesh(np.array(jax.devices()[:number]), (AXIS,))
            shards = NamedSharding(mesh, PartitionSpec(AXIS))
            by_partition = NamedSharding(mesh, PartitionSpec(AXIS, None))
            update = sharded_apply(mesh, optimiser, is_exact=is_exact)
            state = jax.device_put((jnp.asarray(start), optimiser.initial_slots(jnp.asarray(start))), shards)
            for clock in range(clocks):
                sent = jax.device_put(jnp.asarray(pushes[clock]), by_partition)
                state = update(*state, sent, weights, jnp.int32(clock))
            assert len(state[0].addressable_shards) == number
            assert state[0].addressable_shards[0].data.shape == (size // number,)
            gathered = gather_parameters(state[0], mesh=mesh)
            assert gathered.is_fully_replicated and np.array_equal(np.asarray(gathered), np.asarray(state[0]))
            result = np.stack([np.asarray(array) for array in (state[0], *state[1])])
            found[f"{rule} {'exact' if is_exact else 'scattered'} {number}"] = {
                "differing": int((result != wanted).sum()),
                "largest": float(np.abs(result - wanted).max()),
            }
for shape in ((8, 4095), (7, 4096)):
    try:
        update(jnp.zeros(shape[1]), (), jnp.zeros(shape), jnp.ones(shape[0]), jnp.int32(0))
    except ValueError as error:
        assert "multiples of the 8 devices" in str(error), error
    else:
        raise AssertionError("uneven shards were taken")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def on_eight_devices(request):
    """Differences from the update on one device, by rule, exchange and number of shards, for those that tests ask for."""
    asking = [item for item in request.session.items if "on_eight_devices" in item.fixturenames]
    numbers = sorted({8, *(item.callspec.params["shards"] for item in asking)})
    rules = " ".join(sorted({item.callspec.params["rule"] for item in asking}))
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", ON_EIGHT_DEVICES, rules, *map(str, numbers)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


MORE_NUMBERS = [pytest.param(number, marks=pytest.mark.prove) for number in (1, 2, 4)]
RULES = ["Sgd", *(pytest.param(rule, marks=pytest.mark.prove) for rule in ("Momentum", "Adagrad")), "Adam"]
"""Without slots, and with most of them."""


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shards", [8, *MORE_NUMBERS])
def test_any_number_of_shards_gives_the_bits_of_one(on_eight_devices, rule, shards):
    assert on_eight_devices[f"{rule} exact {shards}"]["differing"] == 0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shards", [8, *MORE_NUMBERS])
def test_scattered_sums_differ_by_rounding_only(on_eight_devices, rule, shards):
    # Adam divides a small mean gradient by its own size: rounding is felt at the scale of a step there.
    allowed = 1e-3 if rule == "Adam" else 1e-5
    assert on_eight_devices[f"{rule} scattered {shards}"]["largest"] <= allowed


@given(st.integers(0, 1000), st.integers(1, 40))
def test_ranges_cover_everything_once_and_are_even(size, shards):
    ranges = shard_ranges(size, shards)
    assert [index for part in ranges for index in range(*part)] == list(range(size))
    sizes = [part.size for part in ranges]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 1000), st.integers(1, 8), st.integers(1, 8))
def test_while_ranges_move_from_one_number_of_shards_to_another_each_element_has_one_owner(size, before, after):
    """The pieces that move are the cuts of both: at every instant old and moved pieces are a partition."""
    old, new = shard_ranges(size, before), shard_ranges(size, after)
    owner = np.concatenate([np.full(part.size, index) for index, part in enumerate(old)])
    for index, part in enumerate(new):
        owner[part.start : part.stop] = index
        assert owner.size == size
        assert np.array_equal(owner[: part.stop], np.repeat(np.arange(index + 1), [p.size for p in new[: index + 1]]))


@pytest.mark.parametrize(("size", "shards"), [(4, 0), (-1, 2)])
def test_refuses_ranges_that_cannot_be(size, shards):
    with pytest.raises(InvalidOptionError, match="at least one shard"):
        shard_ranges(size, shards)


def test_refuses_pushes_of_another_length():
    update = sharded_apply(Mesh(np.array(jax.devices()[:1]), (AXIS,)), Sgd(learning_rate=0.1))
    with pytest.raises(InvalidOptionError, match="pushes must have shape"):
        update(jnp.zeros(4), (), jnp.zeros((2, 5)), jnp.ones(2), jnp.int32(0))


@pytest.mark.parametrize("weights", [jnp.ones(0), jnp.ones(3), jnp.ones((2, 1))])
def test_refuses_weights_of_other_partitions(weights):
    update = sharded_apply(Mesh(np.array(jax.devices()[:1]), (AXIS,)), Sgd(learning_rate=0.1))
    with pytest.raises(InvalidOptionError, match="weights must be of 1 to 2 partitions"):
        update(jnp.zeros(4), (), jnp.zeros((2, 4)), weights, jnp.int32(0))


@pytest.mark.parametrize("is_exact", [True, False])
def test_partitions_without_a_weight_are_left_out(is_exact):
    update = sharded_apply(Mesh(np.array(jax.devices()[:1]), (AXIS,)), Sgd(learning_rate=1.0), is_exact=is_exact)
    pushes = jnp.asarray([[4.0, 8.0], [8.0, 0.0], [0.0, 0.0]])
    found, _ = update(jnp.zeros(2), (), pushes, jnp.asarray([1.0, 3.0]), jnp.int32(0))
    assert found.tolist() == [-7.0, -2.0]
