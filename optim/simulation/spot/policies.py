"""The policies of the back-test by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from optim.core.errors import InvalidOptionError
from optim.simulation.spot.bidbrain import BidBrainPolicy
from optim.simulation.spot.policy import Policy, Recovery
from optim.simulation.spot.simple_policies import OnDemandPolicy, StandardPolicy
from optim.simulation.spot.world import World

POLICIES: Mapping[str, Callable[[World], Policy]] = MappingProxyType(
    {
        "on-demand": OnDemandPolicy,
        "standard": lambda world: StandardPolicy(world, Recovery.NOTHING, "standard"),
        "standard-checkpoint": lambda world: StandardPolicy(world, Recovery.CHECKPOINT, "standard-checkpoint"),
        "standard-agile": lambda world: StandardPolicy(world, Recovery.ELASTIC, "standard-agile"),
        "bidbrain-checkpoint": lambda world: BidBrainPolicy(world, Recovery.CHECKPOINT, "bidbrain-checkpoint"),
        "proteus": lambda world: BidBrainPolicy(world, Recovery.ELASTIC, "proteus"),
    }
)
"""Makers by name; a policy may have memory, so that each run gets a new one."""

ORACLES = ("oracle", "oracle-paid")
"""Clairvoyant references: bounds, not policies."""


def make_policy(name: str, world: World) -> Policy:
    """Return a new policy.

    Raises
    ------
    InvalidOptionError
        If there is none of that name.
    """
    if name not in POLICIES:
        raise InvalidOptionError(f"unknown policy {name!r}; there are: {', '.join((*POLICIES, *ORACLES))}")
    return POLICIES[name](world)
