"""Allocation against risk: what a policy costs and risks at multipliers other than the tuned one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optim.core.ranges import check_in
from optim.models.containers.series import FloatArray
from optim.simulation.containers.catalogue import make_plan
from optim.simulation.containers.comparison import risk_of
from optim.simulation.containers.contest import charged_allocation
from optim.simulation.containers.metrics import measure, relative
from optim.simulation.containers.policy import Plan
from optim.simulation.containers.requirement import Requirement
from optim.simulation.containers.tuning import MOST, tune
from optim.simulation.containers.world import World

RISKS = (0.005, 0.25)
"""Risks that a curve spans."""

NUM_POINTS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class TradePoint:
    """A policy's figures for a resource at one multiplier.

    Attributes
    ----------
    policy, resource, multiplier
        Which.
    risk
        Share of decided cycles with a kill, of decided samples throttled, or of samples with less than 95 % of demand.
    under_time
        The latter.
    allocation_over_demand
        Allocation over all containers, with what restarts cost unless the measure is the paper's, relative to their demand.
    over_share, under_share
        Volume above 105 % and lacking to 95 % of demand, over demand.
    kills, throttled_time, delayed_share
        Cycles with a kill for lack of what is held; share of samples throttled, and demand delayed over demand.
    changes
        Changes of allocations by more than 5 %.
    """

    policy: str
    resource: str
    multiplier: float
    risk: float
    under_time: float
    allocation_over_demand: float
    over_share: float
    under_share: float
    kills: int
    throttled_time: float
    delayed_share: float
    changes: int


def trade_points(world: World, name: str, wanted: Requirement, multipliers: Sequence[float]) -> tuple[TradePoint, ...]:
    """Measure a policy at given multipliers, the same for each resource.

    Parameters
    ----------
    world
        Containers.
    name
        Policy, see `policy_names`.
    wanted
        Measure and restarts.
    multipliers
        Not negative.

    Raises
    ------
    InvalidOptionError
        If the policy is unknown or a multiplier is negative or not finite.
    """
    check_multipliers(multipliers)
    grid = np.repeat(np.asarray(multipliers, dtype=np.float64)[:, None], len(world.resources), axis=1)
    return _measured(world, make_plan(world, name), name, wanted, grid)


def check_multipliers(multipliers: Sequence[float]) -> None:
    """Raise InvalidOptionError if a multiplier is negative or not finite."""
    for value in multipliers:
        check_in("[0, inf)", {"a multiplier": value})


def trade_curve(world: World, name: str, wanted: Requirement, num_points: int = NUM_POINTS) -> tuple[TradePoint, ...]:
    """Measure a policy at multipliers that span risks from 0.5 to 25 %.

    Where no multiplier is as safe as that, the curve ends at the safest one; where none is as risky, it begins at 0.
    Multipliers differ by resource, as the risks that they mean do; they rise with the number of the point.
    """
    plan, number = make_plan(world, name), len(world.resources)

    def risk(allocation: FloatArray) -> FloatArray:
        return risk_of(world, measure(world, allocation, wanted.restarts), wanted)["risk"]

    least = risk(plan.allocate(np.full(number, MOST)))

    def found(share: float) -> FloatArray:
        wall = np.maximum(least, share)
        return tune(plan, lambda allocation: risk(allocation) <= wall, number).multiplier

    low, high = (found(share) for share in reversed(RISKS))
    return _measured(world, plan, name, wanted, np.linspace(low, np.maximum(low, high), num_points))


def _measured(world: World, plan: Plan, name: str, wanted: Requirement, grid: FloatArray) -> tuple[TradePoint, ...]:
    """Measure a plan at multipliers of shape (J, R): a point a row and resource."""
    points = []
    for row in grid:
        outcome = measure(world, plan.allocate(row), wanted.restarts)
        total = charged_allocation(outcome, wanted).sum(axis=0)
        figures = {
            **outcome.figures(),
            **risk_of(world, outcome, wanted),
            "allocation_over_demand": relative(total, outcome.demand.sum(axis=0)),
        }
        points += [
            TradePoint(
                policy=name,
                resource=resource.name,
                multiplier=float(row[column]),
                **{key: values[column].item() for key, values in figures.items()},
            )
            for column, resource in enumerate(world.resources)
        ]
    return tuple(points)
