"""Allocation against risk: what a policy costs and risks at multipliers other than the tuned one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optim.core.ranges import check_in
from optim.models.containers.series import FloatArray
from optim.simulation.containers.catalogue import make_plan
from optim.simulation.containers.metrics import measure, under_time
from optim.simulation.containers.policy import Plan
from optim.simulation.containers.tuning import MOST, tune
from optim.simulation.containers.world import World

RISKS = (0.005, 0.25)
"""Under-provisioned times that a curve spans."""

NUM_POINTS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class TradePoint:
    """A policy's figures for a resource at one multiplier.

    Attributes
    ----------
    policy, resource, multiplier
        Which.
    under_time
        Share of samples with less than 95 % of demand.
    allocation_over_demand
        Allocation over all containers, relative to their demand.
    over_share, under_share
        Volume above 105 % and lacking to 95 % of demand, over demand.
    oom
        Cycles with a kill for lack of memory.
    changes
        Changes of allocations by more than 5 %.
    """

    policy: str
    resource: str
    multiplier: float
    under_time: float
    allocation_over_demand: float
    over_share: float
    under_share: float
    oom: int
    changes: int


def trade_points(world: World, name: str, multipliers: Sequence[float]) -> tuple[TradePoint, ...]:
    """Measure a policy at given multipliers, the same for each resource.

    Parameters
    ----------
    world
        Containers.
    name
        Policy, see `policy_names`.
    multipliers
        Not negative.

    Raises
    ------
    InvalidOptionError
        If the policy is unknown or a multiplier is negative or not finite.
    """
    check_multipliers(multipliers)
    grid = np.repeat(np.asarray(multipliers, dtype=np.float64)[:, None], len(world.resources), axis=1)
    return _measured(world, make_plan(world, name), name, grid)


def check_multipliers(multipliers: Sequence[float]) -> None:
    """Raise InvalidOptionError if a multiplier is negative or not finite."""
    for value in multipliers:
        check_in("[0, inf)", {"a multiplier": value})


def trade_curve(world: World, name: str, num_points: int = NUM_POINTS) -> tuple[TradePoint, ...]:
    """Measure a policy at multipliers that span under-provisioned times from 0.5 to 25 %.

    Where no multiplier is as safe as that, the curve ends at the safest one; where none is as risky, it begins at 0.
    Multipliers differ by resource, as the risks that they mean do; they rise with the number of the point.
    """
    plan = make_plan(world, name)
    least = under_time(world, plan.allocate(np.full(len(world.resources), MOST)))
    low, high = (tune(world, plan, np.maximum(least, risk)).multiplier for risk in reversed(RISKS))
    return _measured(world, plan, name, np.linspace(low, np.maximum(low, high), num_points))


def _measured(world: World, plan: Plan, name: str, grid: FloatArray) -> tuple[TradePoint, ...]:
    """Measure a plan at multipliers of shape (J, R): a point a row and resource."""
    points = []
    for row in grid:
        figures = measure(world, plan.allocate(row)).figures()
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
