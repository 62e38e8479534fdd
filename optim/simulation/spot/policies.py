"""The policies of the back-test by name."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

from optim.core.errors import InvalidOptionError
from optim.core.own_code import is_own, load_own
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

KNOWN = (*POLICIES, *ORACLES)


def check_policies(names: Iterable[str], known: Iterable[str] = KNOWN, where: str = "") -> None:
    """Raise if a policy or reference is unknown; one's own is looked at when it is made.

    Raises
    ------
    InvalidOptionError
        The text lists those there are.
    """
    for name in names:
        if name not in known and not (known is KNOWN and is_own(name)):
            raise InvalidOptionError(f"unknown policy {name!r}{where}; there are: {', '.join(known)}")


def make_policy(name: str, world: World) -> Policy:
    """Return a new policy: by name, or one's own by ``./mine.py:MyPolicy``, a subclass of `Policy` made with the world.

    Raises
    ------
    InvalidOptionError
        If there is none of that name.
    """
    if is_own(name):
        made: Policy = load_own(name, Policy, "a policy on spot prices")(world)
        return made
    check_policies([name], POLICIES)
    return POLICIES[name](world)
