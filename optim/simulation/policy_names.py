"""Which policies there are, world by world."""

from collections.abc import Callable, Mapping

from optim.core.errors import InvalidOptionError
from optim.core.own_code import installed_names


def _cluster() -> tuple[str, ...]:
    from optim.simulation.cluster.catalogue import ENTRY_POINT_GROUP, POLICIES

    return (*POLICIES, *installed_names(ENTRY_POINT_GROUP))


def _containers() -> tuple[str, ...]:
    from optim.simulation.containers.catalogue import policy_names as container_policies

    return container_policies()


def _deadline() -> tuple[str, ...]:
    from optim.simulation.spot.deadline import DEADLINE_POLICIES

    return tuple(DEADLINE_POLICIES)


def _spot() -> tuple[str, ...]:
    from optim.simulation.spot.policies import KNOWN

    return KNOWN


def _zones() -> tuple[str, ...]:
    from optim.simulation.spot.zones.backtest import OPTIMUM
    from optim.simulation.spot.zones.policies import ZONE_POLICIES

    return (*ZONE_POLICIES, OPTIMUM)


WORLDS: Mapping[str, Callable[[], tuple[str, ...]]] = {
    "cluster": _cluster,
    "containers": _containers,
    "deadline": _deadline,
    "spot": _spot,
    "zones": _zones,
}
"""By the world's name: a cluster of GPUs, containers, spot machines of one zone till a deadline, by bids, and over zones."""


def policy_names(world: str) -> tuple[str, ...]:
    """Return the names of the policies that can be played in a world, clairvoyant references too, sorted.

    Parameters
    ----------
    world
        ``"cluster"``, ``"containers"``, ``"spot"`` (bids on prices), ``"deadline"`` (availability in one zone) or ``"zones"``
        (in several).

    Raises
    ------
    InvalidOptionError
        If there is no such world.

    Examples
    --------
    >>> import optim
    >>> "srtf" in optim.policy_names("cluster"), "proteus" in optim.policy_names("spot")
    (True, True)
    """
    if world not in WORLDS:
        raise InvalidOptionError(f"unknown world {world!r}; there are: {', '.join(WORLDS)}")
    return tuple(sorted(set(WORLDS[world]())))
