"""Policies by world."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import optim
from optim.core.errors import InvalidOptionError
from optim.rightsizing import catalogue as containers
from optim.simulation.cluster import catalogue as cluster
from optim.simulation.policy_names import NAMES
from optim.simulation.spot.policies import KNOWN
from optim.simulation.spot.zones.backtest import OPTIMUM
from optim.simulation.spot.zones.policies import ZONE_POLICIES

PLAYED = {
    "cluster": cluster.POLICIES,
    "containers": (*containers.policy_names(), *containers.OPTIONAL, *containers.BOUNDS),
    "spot": KNOWN,
    "zones": (*ZONE_POLICIES, OPTIMUM),
}
LOADED = """
import sys, optim
names = [optim.policy_names(world) for world in {worlds!r}]
print(sorted({{name for name in sys.modules if name.startswith(("numpy", "jax", "numba", "scipy"))}}))
"""


@pytest.mark.parametrize("world", NAMES)
def test_names_are_those_that_the_world_takes(world):
    assert optim.policy_names(world) == tuple(sorted({*optim.policy_names(world), *PLAYED[world]}))
    assert set(NAMES[world].split()) == set(PLAYED[world])


def test_every_world_is_named():
    assert NAMES.keys() == PLAYED.keys()


def test_naming_policies_loads_none_of_them():
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(worlds=tuple(NAMES))], env=env, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_an_unknown_world_is_answered_with_those_there_are():
    with pytest.raises(InvalidOptionError, match="unknown world 'moon'; there are: cluster, containers, spot, zones"):
        optim.policy_names("moon")
