"""Policies by name, with their options."""

from collections.abc import Callable, Mapping
from typing import Any

from optim.core.errors import InvalidOptionError
from optim.core.options import build_options
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.engine import Policy
from optim.simulation.cluster.policies.fifo import FifoOptions, fifo
from optim.simulation.cluster.policies.gittins import GittinsOptions, gittins
from optim.simulation.cluster.policies.las import LasOptions, las
from optim.simulation.cluster.policies.lottery import RandomOptions, random_order
from optim.simulation.cluster.policies.shortest import ShortestOptions, srsf, srtf
from optim.simulation.cluster.policies.tiresias import TiresiasOptions, tiresias

POLICIES: Mapping[str, tuple[type[Any], Callable[[Any, Workload], Policy]]] = {
    "fifo": (FifoOptions, fifo),
    "las": (LasOptions, las),
    "random": (RandomOptions, random_order),
    "srsf": (ShortestOptions, srsf),
    "srtf": (ShortestOptions, srtf),
    "tiresias": (TiresiasOptions, tiresias),
    "tiresias-gittins": (GittinsOptions, gittins),
}


def make_policy(name: str, jobs: Workload, options: Mapping[str, Any] | None = None) -> Policy:
    """Return a policy by its name.

    Raises
    ------
    InvalidOptionError
        If there is no policy of that name, or an option isn't one of its.
    """
    if name not in POLICIES:
        raise InvalidOptionError(f"unknown policy {name[:40]!r}; there are: {', '.join(sorted(POLICIES))}")
    options_type, build = POLICIES[name]
    return build(build_options(options_type, options), jobs)
