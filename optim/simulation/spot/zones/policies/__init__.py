"""Policies for jobs with a deadline in one zone or several."""

from collections.abc import Mapping
from types import MappingProxyType

from optim.simulation.spot.zones.policies.adaptive_zones import AdaptiveZones
from optim.simulation.spot.zones.policies.cheapest_zone import CheapestZone
from optim.simulation.spot.zones.policies.greedy_spot import GreedySpotZones
from optim.simulation.spot.zones.policies.on_demand import OnDemandZones
from optim.simulation.spot.zones.policies.skynomad import SkyNomad
from optim.simulation.spot.zones.policies.uniform_progress_zones import UniformProgress, UniformProgressZones
from optim.simulation.spot.zones.policy import GuardedPolicy

ZONE_POLICIES: Mapping[str, type[GuardedPolicy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            *(UniformProgress, UniformProgressZones, AdaptiveZones, SkyNomad),
            *(CheapestZone, GreedySpotZones, OnDemandZones),
        )
    }
)
"""Policies by name; each run gets a new one. All of them keep every deadline that can be kept."""
