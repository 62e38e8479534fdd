"""Policies by world."""

import pytest

import optim
from optim.core.errors import InvalidOptionError
from optim.simulation.cluster.catalogue import POLICIES
from optim.simulation.policy_names import WORLDS
from optim.simulation.spot.policies import check_policies


def test_names_are_those_that_the_worlds_take():
    assert set(POLICIES) <= set(optim.policy_names("cluster"))
    check_policies(optim.policy_names("spot"))
    assert {"uniform-progress-zones", "optimum"} <= set(optim.policy_names("zones"))
    assert "uniform-progress" in optim.policy_names("deadline")
    assert "vpa" in optim.policy_names("containers")
    for world in WORLDS:
        names = optim.policy_names(world)
        assert list(names) == sorted(set(names))
        assert names


def test_an_unknown_world_is_answered_with_those_there_are():
    with pytest.raises(
        InvalidOptionError, match="unknown world 'moon'; there are: cluster, containers, deadline, spot, zones"
    ):
        optim.policy_names("moon")
