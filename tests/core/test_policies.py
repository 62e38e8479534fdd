"""The registry of policies: names are read from files, policies are imported on request."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import optim
from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.core.policies import WORLDS, default_names, find_policy, policies_of, policy, shipped_names

LOADED = """
import sys, optim
names = [optim.policy_names(world) for world in {worlds!r}]
print(sorted({{name for name in sys.modules if name.startswith(("numpy", "jax", "numba", "scipy"))}}))
"""


@pytest.mark.parametrize("world", WORLDS)
def test_every_name_in_a_file_is_registered_under_it_with_a_summary(world):
    entries = policies_of(world)
    assert entries.keys() == set(shipped_names(world)) <= set(optim.policy_names(world))
    for name, entry in entries.items():
        assert (entry.name, entry.world) == (name, world)
        assert entry.summary.endswith(".")


@pytest.mark.parametrize("world", ["cluster", "spot", "zones"])
def test_the_class_of_a_policy_has_its_name(world):
    for name, entry in policies_of(world).items():
        if isinstance(entry.make, type) and not entry.is_reference:
            assert entry.make.name == name


def test_naming_policies_imports_none_of_them():
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(worlds=WORLDS)], env=env, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_an_unknown_world_is_answered_with_those_there_are():
    known = "unknown world 'moon'; there are: cluster, containers, spot, wrappers, zones"
    with pytest.raises(InvalidOptionError, match=known):
        optim.policy_names("moon")
    with pytest.raises(InvalidOptionError, match=known):
        policy("mine", world="moon")


def test_a_name_is_taken_once():
    assert find_policy("cluster", "fifo") is not None
    with pytest.raises(NotAllowedError, match="'fifo' of 'cluster' is registered twice"):
        policy("fifo", world="cluster")(lambda: None)


def test_there_is_no_policy_of_an_unknown_name():
    assert find_policy("cluster", "slurm") is None


def test_a_policy_that_is_added_in_its_own_file_is_listed_and_runs_by_default(monkeypatch):
    """One decorator registers the policy; no other place names it."""
    from optim.core import policies as registry
    from optim.simulation.spot.backtest import default_zone_policies
    from optim.simulation.spot.zones import IN_ONE_ZONE

    listed = {world: dict(names) for world, names in registry._modules().items()}
    for world, options in (("spot", {"is_default": True}), ("zones", {"traits": [IN_ONE_ZONE]})):
        listed[world]["added"] = __name__
        policy("added", world=world, summary="Added.", **options)(type("Added", (), {}))
    monkeypatch.setattr(registry, "_modules", lambda: listed)
    try:
        assert "added" in shipped_names("spot")
        assert "added" in default_names("spot")
        assert "added" in default_zone_policies(1)
        assert "added" not in default_zone_policies(2)
    finally:
        for world in ("spot", "zones"):
            del registry._REGISTERED[world, "added"]
