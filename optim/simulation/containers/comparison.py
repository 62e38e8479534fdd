"""All policies at equal risk, a row a policy and resource."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.ranges import check_in
from optim.models.containers.series import FloatArray, IntArray
from optim.simulation.containers.bootstrap import (
    interval,
    resampled_allocation,
    resampled_demand,
    resamples,
    risk_curve,
)
from optim.simulation.containers.catalogue import REFERENCE, check_names, make_plan
from optim.simulation.containers.metrics import Outcome, measure, relative
from optim.simulation.containers.tuning import Tuned, tune
from optim.simulation.containers.world import World

ALL_RESOURCES = "all"
COUNTS = ("oom", "changes")
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A policy's figures for a resource; a row ``all`` takes the mean over resources, each relative to its demand.

    Attributes
    ----------
    policy, resource
        Which.
    multiplier
        The smallest one that meets the risk.
    is_reached
        Whether any multiplier does; if none, figures are those of the largest.
    under_time
        Share of samples with less than 95 % of demand.
    total_allocation, unit
        Allocation over all containers, in unit-hours; in the row ``all`` over demand.
    allocation_over_demand
        Likewise over demand.
    reduction, reduction_low, reduction_high
        1 - allocation / allocation of the reference, with its 95 % interval over containers.
    over_share, under_share
        Volume above 105 % and lacking to 95 % of demand, over demand.
    oom
        Cycles with a kill for lack of memory.
    changes
        Changes of allocations by more than 5 %.
    container_p05, container_p50, container_p95
        Percentiles over containers of allocation over demand.
    """

    policy: str
    resource: str
    multiplier: float | None
    is_reached: bool
    under_time: float
    total_allocation: float
    unit: str
    allocation_over_demand: float
    reduction: float
    reduction_low: float
    reduction_high: float
    over_share: float
    under_share: float
    oom: int
    changes: int
    container_p05: float
    container_p50: float
    container_p95: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Run:
    """A tuned policy, and its allocations in each resample."""

    tuned: Tuned
    outcome: Outcome
    resampled: FloatArray


def compare_policies(
    world: World,
    names: Sequence[str],
    *,
    risk: float,
    num_resamples: int,
    seed: int,
    done: Callable[[int], None] | None = None,
) -> Iterator[tuple[Row, ...]]:
    """Tune policies to the same under-provisioned time, and yield each one's rows.

    Parameters
    ----------
    world
        Containers.
    names
        Policies, see `policy_names`.
    risk
        Under-provisioned time, a share of samples, of every resource.
    num_resamples
        Resamples of the containers for intervals.
    seed
        Same arguments and seed, same rows.
    done
        Told how many policies are done.

    Raises
    ------
    InvalidOptionError
        If a policy is unknown or the risk isn't in (0, 1).
    """
    check_comparison(names, risk, num_resamples)
    counts = resamples(world, num_resamples, np.random.default_rng(seed))
    return _rows(world, names, risk, counts, done)


def check_comparison(names: Sequence[str], risk: float, num_resamples: int) -> None:
    """Check what `compare_policies` is asked for, before any work.

    Raises
    ------
    InvalidOptionError
        If a policy is unknown, the risk isn't in (0, 1) or there are no resamples.
    """
    check_in("(0, 1)", {"risk": risk})
    check_in("[1, inf)", {"num_resamples": num_resamples})
    check_names(names)


def _rows(
    world: World, names: Sequence[str], risk: float, counts: IntArray, done: Callable[[int], None] | None
) -> Iterator[tuple[Row, ...]]:
    reference = _run(world, REFERENCE, risk, counts)
    demand = resampled_demand(world, reference.outcome, counts)
    for number, name in enumerate(names, start=1):
        run = reference if name == REFERENCE else _run(world, name, risk, counts)
        yield tuple(_policy_rows(world, name, run, reference, demand))
        if done is not None:
            done(number)


def _run(world: World, name: str, risk: float, counts: IntArray) -> _Run:
    plan = make_plan(world, name)
    tuned = tune(world, plan, risk)
    curve = risk_curve(world, plan, risk)
    return _Run(
        tuned=tuned,
        outcome=measure(world, plan.allocate(tuned.multiplier)),
        resampled=resampled_allocation(world, curve, counts, risk),
    )


def _policy_rows(world: World, name: str, run: _Run, reference: _Run, demand: FloatArray) -> Iterator[Row]:
    """Yield a row a resource, and the one of all; `demand` is that of each resample, shape (B, R)."""
    outcome, compared = run.outcome, reference.outcome
    figures, percentiles = outcome.figures(), outcome.container_percentiles()
    reduction = 1.0 - relative(outcome.total_allocation, compared.total_allocation)
    low, high = interval(1.0 - relative(run.resampled, reference.resampled))
    for column, resource in enumerate(world.resources):
        yield Row(
            policy=name,
            resource=resource.name,
            multiplier=float(run.tuned.multiplier[column]),
            is_reached=bool(run.tuned.is_reached[column]),
            total_allocation=float(outcome.total_allocation[column]) * world.interval_s / SECONDS_PER_HOUR,
            unit=f"{resource.unit or resource.name} h",
            reduction=float(reduction[column]),
            reduction_low=float(low[column]),
            reduction_high=float(high[column]),
            **_container_figures(percentiles[:, column]),
            **{key: values[column].item() for key, values in figures.items()},
        )
    own, others = (relative(part.resampled, demand).mean(axis=1) for part in (run, reference))
    low, high = interval(1.0 - own / others)
    whole = {key: values.sum() if key in COUNTS else values.mean() for key, values in figures.items()}
    yield Row(
        policy=name,
        resource=ALL_RESOURCES,
        multiplier=None,
        is_reached=bool(run.tuned.is_reached.all()),
        total_allocation=float(whole["allocation_over_demand"]),
        unit="of demand",
        reduction=float(1.0 - whole["allocation_over_demand"] / compared.figures()["allocation_over_demand"].mean()),
        reduction_low=float(low),
        reduction_high=float(high),
        **_container_figures(percentiles.mean(axis=1)),
        **{key: value.item() for key, value in whole.items()},
    )


def _container_figures(percentiles: FloatArray) -> dict[str, Any]:
    return dict(zip(("container_p05", "container_p50", "container_p95"), percentiles.tolist(), strict=True))
