"""All policies by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.simulation.containers.autopilot import AUTOPILOT_POLICIES
from optim.simulation.containers.engine import SteppedPlan
from optim.simulation.containers.oracles import current_maximum, current_rules, whole_maximum
from optim.simulation.containers.phase_policies import PHASE_POLICIES
from optim.simulation.containers.phase_price import PricedPlan
from optim.simulation.containers.policy import Plan
from optim.simulation.containers.step_policies import STEP_POLICIES
from optim.simulation.containers.vpa import VPA_POLICIES
from optim.simulation.containers.world import World

REFERENCE = "prev-step-rules"
"""Policy that reductions are against."""

PlanMaker = Callable[[World], Plan]

PRICED: Mapping[str, PlanMaker] = MappingProxyType(
    {"phase-price": PricedPlan, "level-price": partial(PricedPlan, has_phases=False)}
)
"""Policies that put a price on risk; the second one knows no phases."""

ORACLES: Mapping[str, PlanMaker] = MappingProxyType(
    {
        "current-step-max": current_maximum,
        "current-step-rules": current_rules,
        "oracle-static": whole_maximum,
    }
)
"""References that know the future."""

CLAIRVOYANT, HARMLESS = "clairvoyant", "clairvoyant-harmless"
BOUNDS = (CLAIRVOYANT, HARMLESS)
"""The cheapest plans by one who knows the future, with the harm that is allowed and without any; not to be tuned."""

NEED_PHASES = frozenset(policy.name for policy in PHASE_POLICIES) | {"phase-price"}

_MAKERS: Mapping[str, PlanMaker] = MappingProxyType(
    {
        policy.name: partial(SteppedPlan, policy=policy)
        for policy in (*STEP_POLICIES, *VPA_POLICIES, *AUTOPILOT_POLICIES, *PHASE_POLICIES)
    }
    | dict(PRICED)
    | dict(ORACLES)
)


def policy_names() -> tuple[str, ...]:
    """Return all names of what is tuned."""
    return tuple(_MAKERS)


def check_names(names: Sequence[str]) -> None:
    """Raise if there is no policy of a name.

    Raises
    ------
    InvalidOptionError
        The text lists those there are.
    """
    known = (*_MAKERS, *BOUNDS)
    for name in names:
        if name not in known:
            raise InvalidOptionError(f"unknown policy {name!r}; there are: {', '.join(known)}")


def make_plan(world: World, name: str) -> Plan:
    """Return a policy on a world.

    Raises
    ------
    InvalidOptionError
        If there is no such policy.
    UnsupportedProblemError
        If it needs phases and the world has none.
    """
    check_names([name])
    if name in NEED_PHASES and world.phase is None:
        raise UnsupportedProblemError(f"policy {name!r} needs phases; give phase labels when the world is made")
    return _MAKERS[name](world)
