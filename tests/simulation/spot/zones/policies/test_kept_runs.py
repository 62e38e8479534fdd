"""Every policy over zones does in drawn markets what it was kept to do."""

from pathlib import Path

import pytest

from optim.simulation.spot.zones import facts_of, run_zones
from tests.support.kept import assert_kept
from tests.support.policies import ZONE_POLICIES
from tests.support.spot.zones import drawn

KEPT = Path(__file__).parent / "kept"


@pytest.mark.parametrize("name", sorted(ZONE_POLICIES))
def test_a_policy_does_in_zones_what_it_did(name):
    found = {}
    for seed in range(24):
        market, job = drawn(seed, ticks=30, least_slack=seed % 4)
        run = run_zones(market, job, ZONE_POLICIES[name](facts_of(market, job)), seed % 3, probe_s=60 * (seed % 2))
        found[str(seed)] = run
    assert_kept(KEPT / f"{name}.json", found)
