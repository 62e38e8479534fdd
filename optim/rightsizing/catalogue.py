"""All policies by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.core.user_code import is_file_reference, load_class_from_file
from optim.rightsizing.autopilot import AUTOPILOT_POLICIES
from optim.rightsizing.engine import SteppedPlan
from optim.rightsizing.learned_policies import LEARNED_POLICIES, OPTIONAL_POLICIES
from optim.rightsizing.oracles import current_maximum, current_rules, whole_maximum
from optim.rightsizing.phase_policies import PHASE_POLICIES, PricedPlan
from optim.rightsizing.policy import STEP_POLICIES, AbstractPolicy, NamedPolicy, Plan
from optim.rightsizing.vpa import VPA_POLICIES
from optim.rightsizing.world import World

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

_STEPPED = (*STEP_POLICIES, *VPA_POLICIES, *AUTOPILOT_POLICIES, *PHASE_POLICIES, *LEARNED_POLICIES)


def _makers(policies: Sequence[NamedPolicy]) -> dict[str, PlanMaker]:
    return {policy.name: partial(SteppedPlan, policy=policy) for policy in policies}


NEED_PHASES = frozenset(policy.name for policy in (*_STEPPED, *OPTIONAL_POLICIES) if policy.needs_phases) | {
    "phase-price"
}

OPTIONAL: Mapping[str, PlanMaker] = MappingProxyType(_makers(OPTIONAL_POLICIES))
"""Policies that need an optional package; they run where they are named."""

_MAKERS: Mapping[str, PlanMaker] = MappingProxyType(_makers(_STEPPED) | dict(PRICED) | dict(ORACLES))


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies that run by default."""
    return tuple(_MAKERS)


def check_names(names: Sequence[str]) -> None:
    """Raise if there is no policy of a name; one's own, ``./mine.py:MyPolicy``, must be there and derive from `AbstractPolicy`.

    Raises
    ------
    InvalidOptionError
        The text lists those there are.
    """
    known = (*_MAKERS, *OPTIONAL, *BOUNDS)
    for name in names:
        if is_file_reference(name):
            _own(name)
        elif name not in known:
            raise InvalidOptionError(f"unknown policy {name!r}; there are: {', '.join(known)}")


def need_phases(names: Sequence[str]) -> bool:
    """Return whether any of these policies looks at phases."""
    return any(_own(name).needs_phases if is_file_reference(name) else name in NEED_PHASES for name in names)


def make_plan(world: World, name: str) -> Plan:
    """Return a policy on a world: by name, or one's own by ``./mine.py:MyPolicy``.

    Raises
    ------
    InvalidOptionError
        If there is no such policy.
    UnsupportedProblemError
        If it needs phases and the world has none.
    """
    check_names([name])
    if need_phases([name]) and world.phase is None:
        raise UnsupportedProblemError(f"policy {name!r} needs phases; give phase labels when the world is made")
    if is_file_reference(name):
        own = _own(name)
        return SteppedPlan(world, NamedPolicy(name, own, own.has_feedback))
    return {**_MAKERS, **OPTIONAL}[name](world)


def _own(name: str) -> type[AbstractPolicy]:
    return load_class_from_file(name, AbstractPolicy, "a policy for containers")
