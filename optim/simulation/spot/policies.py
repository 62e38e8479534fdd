"""The policies of the back-test by name."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

from optim.core.errors import InvalidOptionError
from optim.simulation.spot.bidbrain import BidBrainPolicy
from optim.simulation.spot.policy import Policy, Recovery
from optim.simulation.spot.simple_policies import OnDemandPolicy, StandardPolicy
from optim.simulation.spot.world import World

POLICIES: Mapping[str, Callable[[World], Policy]] = MappingProxyType(
    {
        "on-demand": OnDemandPolicy,
        "standard": partial(StandardPolicy, recovery=Recovery.NOTHING, name="standard"),
        "standard-checkpoint": partial(StandardPolicy, recovery=Recovery.CHECKPOINT, name="standard-checkpoint"),
        "standard-agile": partial(StandardPolicy, recovery=Recovery.ELASTIC, name="standard-agile"),
        "bidbrain-checkpoint": partial(BidBrainPolicy, recovery=Recovery.CHECKPOINT, name="bidbrain-checkpoint"),
        "proteus": partial(BidBrainPolicy, recovery=Recovery.ELASTIC, name="proteus"),
    }
)
"""Makers by name; a policy may have memory, so that each run gets a new one."""

ORACLES = ("oracle", "oracle-paid")
"""Clairvoyant references: bounds, not policies."""


def check_policies(names: Iterable[str], known: Iterable[str] = (*POLICIES, *ORACLES), where: str = "") -> None:
    """Raise if a policy or reference is unknown.

    Raises
    ------
    InvalidOptionError
        The text lists those there are.
    """
    for name in names:
        if name not in known:
            raise InvalidOptionError(f"unknown policy {name!r}{where}; there are: {', '.join(known)}")


def make_policy(name: str, world: World) -> Policy:
    """Return a new policy.

    Raises
    ------
    InvalidOptionError
        If there is none of that name.
    """
    check_policies([name], POLICIES)
    return POLICIES[name](world)
