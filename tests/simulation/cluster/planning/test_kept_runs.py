"""The engine of plans under every placement, with shares, hosts, types, failures and neighbours, does what it did before."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from optim.core.errors import OptimError
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.options import Placement, RetryRule
from optim.simulation.cluster.planning.engine import play_plans
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from tests.support.cluster_worlds import WORLDS, told, told_of
from tests.support.kept import assert_kept

KEPT = Path(__file__).parent / "kept"
RULES = {
    "as-run": {"retries": RetryRule.AS_RUN, "overhead_s": 0},
    "blind": {"retries": RetryRule.BLIND, "retry_wait_min": 0},
    "one-retry": {"most_retries": 1, "retry_wait_min": 10, "checkpoint_min": 1},
    "no-failures": {"mtbf_hours": 0, "neighbour": 1.5},
    "shaky": {"mtbf_hours": 0.4, "repair_hours": 0.1, "spread": False},
}


@pytest.mark.parametrize("placement", Placement)
def test_every_placement_gives_what_it_gave(placement):
    places = [*product(("drf", "srsf"), ("failing", "kinds", "shared"), (False, True)), ("slaq", "shared", False)]
    found = {
        f"{name} {world} spread={spread}": told(name, world, placement=placement, spread=spread)
        for name, world, spread in places
        if name != "slaq" or placement is Placement.FGD
    }
    assert_kept(KEPT / f"{placement}.json", found)


@pytest.mark.parametrize("name", ["optimus", "borg"])
def test_every_rule_of_retries_gives_what_it_gave(name):
    found = {rule: told(name, "failing", **options) for rule, options in RULES.items()}
    assert_kept(KEPT / f"{name}-failing.json", found)


def _planned(name, world):
    jobs, cluster, options = WORLDS[world]()
    options = replace(options, sharing=world in ("plain", "shared"), spread=world != "narrow")
    try:
        return told_of(play_plans(jobs, cluster, IndexPolicyAdapter(make_policy(name, jobs), jobs), options, 5))
    except OptimError as error:
        return str(error)


@pytest.mark.parametrize("world", WORLDS)
def test_a_key_planned_gives_what_it_gave(world):
    names = ("srsf", "srtf", "las", "tiresias", "tiresias-gittins", "fifo", "random")
    assert_kept(KEPT / f"keys-{world}.json", {name: _planned(name, world) for name in names})


def test_rounds_on_several_types_give_what_they_gave():
    found = {name: told(name, "kinds") for name in ("gandiva-fair", "max-min")}
    assert_kept(KEPT / "rounds-kinds.json", found)
