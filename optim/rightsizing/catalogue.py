"""All policies by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from optim.core.errors import UnsupportedProblemError, unknown_name
from optim.core.policies import policy
from optim.core.user_code import is_file_reference, load_class_from_file
from optim.rightsizing.autopilot import AUTOPILOT_POLICIES
from optim.rightsizing.engine import SteppedPlan
from optim.rightsizing.learned_policies import LEARNED_POLICIES, OPTIONAL_POLICIES
from optim.rightsizing.oracles import clairvoyant, current_maximum, current_rules, whole_maximum
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

FIRST = "HotCloud 2020 (AI4DL)."
policy("prev-step-max", world="containers", summary=FIRST)(_MAKERS["prev-step-max"])
policy("prev-step-rules", world="containers", summary=FIRST)(_MAKERS["prev-step-rules"])
policy("current-step-max", world="containers", summary=FIRST, is_reference=True)(_MAKERS["current-step-max"])
policy("current-step-rules", world="containers", summary=FIRST, is_reference=True)(_MAKERS["current-step-rules"])
policy("phase-rule", world="containers", summary="HotCloud 2020's phase rule.")(_MAKERS["phase-rule"])
BY_SIZE = "The phase rule relative to a container's size."
policy("phase-rule-scaled", world="containers", summary=BY_SIZE)(_MAKERS["phase-rule-scaled"])
policy("phase-rule-limit", world="containers", summary=BY_SIZE)(_MAKERS["phase-rule-limit"])
policy("phase-shift", world="containers", summary="The phase rule around a container's mean.")(_MAKERS["phase-shift"])
policy("phase-max", world="containers", summary="The phase rule, never below the present use of memory.")(
    _MAKERS["phase-max"]
)
FORECAST = "Moments of the phases forecast for the cycle."
policy("phase-markov", world="containers", summary=FORECAST)(_MAKERS["phase-markov"])
policy("phase-semi-markov", world="containers", summary=FORECAST)(_MAKERS["phase-semi-markov"])
policy("phase-price", world="containers", summary="A price on risk, with the demand that follows each phase.")(
    _MAKERS["phase-price"]
)
policy("level-price", world="containers", summary="As `phase-price`, without phases.")(_MAKERS["level-price"])
ANALOGS = (
    "The demand after the most similar moments of training containers, at a price on harm; without and with phases."
)
policy("analogs", world="containers", summary=ANALOGS)(_MAKERS["analogs"])
policy("analogs-phases", world="containers", summary=ANALOGS)(_MAKERS["analogs-phases"])
BOOSTED = "As `analogs`, with gradient-boosted quantiles (extra `learn`; runs where it is named)."
policy("boosted-quantiles", world="containers", summary=BOOSTED)(OPTIONAL["boosted-quantiles"])
policy("boosted-quantiles-phases", world="containers", summary=BOOSTED)(OPTIONAL["boosted-quantiles-phases"])
FOREST = "The demand after the nearest moments and those in the same leaves of trees, at a price on harm (extra `learn`; runs where it is named)."
policy("forest", world="containers", summary=FOREST)(OPTIONAL["forest"])
policy("forest-phases", world="containers", summary=FOREST)(OPTIONAL["forest-phases"])
policy("holt", world="containers", summary="Holt's exponential smoothing of the cycles' peaks.")(_MAKERS["holt"])
SIMPLE = "A simple statistic of the container's past."
policy("ewma-2", world="containers", summary=SIMPLE)(_MAKERS["ewma-2"])
policy("ewma-5", world="containers", summary=SIMPLE)(_MAKERS["ewma-5"])
policy("ewma-10", world="containers", summary=SIMPLE)(_MAKERS["ewma-10"])
policy("quantile-90", world="containers", summary=SIMPLE)(_MAKERS["quantile-90"])
policy("quantile-95", world="containers", summary=SIMPLE)(_MAKERS["quantile-95"])
policy("quantile-99", world="containers", summary=SIMPLE)(_MAKERS["quantile-99"])
policy("running-max", world="containers", summary=SIMPLE)(_MAKERS["running-max"])
policy("static", world="containers", summary=SIMPLE)(_MAKERS["static"])
VPA = "Kubernetes' recommender: decaying histograms; kills raise the peak."
policy("vpa", world="containers", summary=VPA)(_MAKERS["vpa"])
policy("vpa-warm", world="containers", summary=VPA)(_MAKERS["vpa-warm"])
policy("vpa-no-floor", world="containers", summary=VPA)(_MAKERS["vpa-no-floor"])
WINDOWS = "Google's moving windows."
policy("autopilot", world="containers", summary=WINDOWS)(_MAKERS["autopilot"])
policy("autopilot-serving", world="containers", summary=WINDOWS)(_MAKERS["autopilot-serving"])
policy(
    "autopilot-ml",
    world="containers",
    summary="Google's set of windows; the window that would have cost least is followed.",
)(_MAKERS["autopilot-ml"])
policy("oracle-static", world="containers", summary="The maximum of the container's whole life.", is_reference=True)(
    _MAKERS["oracle-static"]
)
policy(
    "clairvoyant",
    world="containers",
    summary="The cheapest plan with the allowed harm and all demand known, beside its lower bound.",
    is_reference=True,
)(clairvoyant)
policy("clairvoyant-harmless", world="containers", summary="As `clairvoyant`, without harm.", is_reference=True)(
    partial(clairvoyant, is_harmless=True)
)


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies that run by default."""
    return tuple(_MAKERS)


def check_names(names: Sequence[str]) -> None:
    """Raise if there is no policy of a name; the user's, ``./mine.py:MyPolicy``, must be there and derive from `AbstractPolicy`.

    Raises
    ------
    InvalidOptionError
        The text lists those there are.
    """
    known = (*_MAKERS, *OPTIONAL, *BOUNDS)
    for name in names:
        if is_file_reference(name):
            _user_policy(name)
        elif name not in known:
            raise unknown_name("policy", name, known)


def need_phases(names: Sequence[str]) -> bool:
    """Return whether any of these policies looks at phases."""
    return any(_user_policy(name).needs_phases if is_file_reference(name) else name in NEED_PHASES for name in names)


def make_plan(world: World, name: str) -> Plan:
    """Return a policy on a world: by name, or the user's by ``./mine.py:MyPolicy``.

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
        user_policy = _user_policy(name)
        return SteppedPlan(world, NamedPolicy(name, user_policy, user_policy.has_feedback))
    return {**_MAKERS, **OPTIONAL}[name](world)


def _user_policy(name: str) -> type[AbstractPolicy]:
    return load_class_from_file(name, AbstractPolicy, "a policy for containers")
