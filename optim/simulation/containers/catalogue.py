"""All policies by name."""

from collections.abc import Callable
from functools import partial

from optim.core.errors import InvalidOptionError, UnsupportedProblemError
from optim.phases.forecasting import ForecastMethod
from optim.simulation.containers.autopilot import Autopilot, Workload
from optim.simulation.containers.engine import SteppedPlan
from optim.simulation.containers.oracles import CheapestPlan, current_maximum, current_rules, whole_maximum
from optim.simulation.containers.phase_forecast import PhaseForecast
from optim.simulation.containers.phase_policies import PhaseRule, PhaseRuleScaled, PhaseShift
from optim.simulation.containers.phase_price import PricedPlan
from optim.simulation.containers.policy import Plan, Policy
from optim.simulation.containers.step_policies import (
    PreviousMaximum,
    PreviousRules,
    RecentQuantile,
    RunningMaximum,
    Smoothing,
    Static,
)
from optim.simulation.containers.vpa import VerticalPodAutoscaler
from optim.simulation.containers.world import World

REFERENCE = "prev-step-rules"
"""Policy that reductions are against."""


def stepped_policies() -> dict[str, Policy]:
    """Return the policies that decide from the past, by name."""
    policies: tuple[Policy, ...] = (
        PreviousMaximum(),
        PreviousRules(),
        Static(),
        RunningMaximum(),
        *(Smoothing(minutes) for minutes in (2, 5, 10)),
        *(RecentQuantile(level) for level in (0.90, 0.95, 0.99)),
        VerticalPodAutoscaler(),
        VerticalPodAutoscaler(has_floor=False),
        VerticalPodAutoscaler(is_warm=True),
        Autopilot(),
        Autopilot(workload=Workload.SERVING),
    )
    return {policy.name: policy for policy in policies}


def phase_policies() -> dict[str, Policy]:
    """Return the policies that need phases, by name."""
    policies: tuple[Policy, ...] = (
        PhaseRule(),
        PhaseRule(is_held=True),
        PhaseRuleScaled(),
        PhaseRuleScaled(is_by_limit=True),
        PhaseShift(),
        PhaseForecast(ForecastMethod.MARKOV),
        PhaseForecast(ForecastMethod.SEMI_MARKOV),
    )
    return {policy.name: policy for policy in policies}


def priced_plans() -> dict[str, Callable[[World], Plan]]:
    """Return the policies that put a price on risk, by name; the second one knows no phases."""
    return {"phase-price": PricedPlan, "level-price": partial(PricedPlan, has_phases=False)}


def oracles() -> dict[str, Callable[[World], Plan]]:
    """Return the references that know the future, by name."""
    return {
        "current-step-max": current_maximum,
        "current-step-rules": current_rules,
        "oracle-static": whole_maximum,
        "oracle-cheapest": CheapestPlan,
    }


def policy_names() -> tuple[str, ...]:
    """Return all names."""
    return (*stepped_policies(), *phase_policies(), *priced_plans(), *oracles())


def needs_phases(name: str) -> bool:
    """Return whether a policy asks for phases."""
    return name in phase_policies() or name == "phase-price"


def make_plan(world: World, name: str) -> Plan:
    """Return a policy on a world.

    Raises
    ------
    InvalidOptionError
        If there is no such policy.
    UnsupportedProblemError
        If it needs phases and the world has none.
    """
    if needs_phases(name) and world.phase is None:
        raise UnsupportedProblemError(f"policy {name!r} needs phases; give phase labels when the world is made")
    whole = {**oracles(), **priced_plans()}.get(name)
    if whole is not None:
        return whole(world)
    found = {**stepped_policies(), **phase_policies()}.get(name)
    if found is None:
        raise InvalidOptionError(f"unknown policy {name!r}; there are: {', '.join(policy_names())}")
    return SteppedPlan(world, found)
