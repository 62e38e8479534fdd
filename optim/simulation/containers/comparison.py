"""All policies at equal risk, a row a policy and resource."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.containers.series import FloatArray, IntArray
from optim.simulation.containers.bootstrap import (
    interval,
    resampled_allocation,
    resampled_demand,
    resamples,
    risk_curve,
)
from optim.simulation.containers.catalogue import REFERENCE, make_plan, policy_names
from optim.simulation.containers.metrics import Outcome, measure
from optim.simulation.containers.tuning import Tuned, tune
from optim.simulation.containers.world import World

ALL_RESOURCES = "all"
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
    if not 0 < risk < 1:
        raise InvalidOptionError(f"risk must be in (0, 1), got {risk}")
    if num_resamples < 1:
        raise InvalidOptionError(f"num_resamples must be at least 1, got {num_resamples}")
    for name in names:
        if name not in policy_names():
            raise InvalidOptionError(f"unknown policy {name!r}; there are: {', '.join(policy_names())}")


def _rows(
    world: World, names: Sequence[str], risk: float, counts: IntArray, done: Callable[[int], None] | None
) -> Iterator[tuple[Row, ...]]:
    reference = _run(world, REFERENCE, risk, counts)
    demand = resampled_demand(world, reference.outcome, counts)
    for number, name in enumerate(names, start=1):
        run = reference if name == REFERENCE else _run(world, name, risk, counts)
        yield (
            *(_resource_row(world, name, column, run, reference) for column in range(len(world.resources))),
            _all_row(name, run, reference, demand),
        )
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


def _resource_row(world: World, name: str, column: int, run: _Run, reference: _Run) -> Row:
    resource, outcome = world.resources[column], run.outcome
    total, compared = outcome.total_allocation[column], reference.outcome.total_allocation[column]
    low, high = interval(1.0 - _ratio(run.resampled[:, column], reference.resampled[:, column]))
    percentiles = outcome.container_percentiles()[:, column].tolist()
    return Row(
        policy=name,
        resource=resource.name,
        multiplier=float(run.tuned.multiplier[column]),
        is_reached=bool(run.tuned.is_reached[column]),
        under_time=float(outcome.under_time[column]),
        total_allocation=float(total) * world.interval_s / SECONDS_PER_HOUR,
        unit=f"{resource.unit or resource.name} h",
        allocation_over_demand=float(_ratio(total, outcome.demand[:, column].sum())),
        reduction=float(1.0 - _ratio(total, compared)),
        reduction_low=low,
        reduction_high=high,
        over_share=float(outcome.over_share[column]),
        under_share=float(outcome.under_share[column]),
        oom=int(outcome.oom[:, column].sum()),
        changes=int(outcome.changes[:, column].sum()),
        container_p05=percentiles[0],
        container_p50=percentiles[1],
        container_p95=percentiles[2],
    )


def _all_row(name: str, run: _Run, reference: _Run, demand: FloatArray) -> Row:
    outcome = run.outcome
    whole = outcome.demand.sum(axis=0)
    relative = float(_ratio(outcome.total_allocation, whole).mean())
    compared = float(_ratio(reference.outcome.total_allocation, whole).mean())
    own, others = (_ratio(part.resampled, demand).mean(axis=1) for part in (run, reference))
    low, high = interval(1.0 - own / others)
    percentiles = outcome.container_percentiles().mean(axis=1).tolist()
    return Row(
        policy=name,
        resource=ALL_RESOURCES,
        multiplier=None,
        is_reached=bool(run.tuned.is_reached.all()),
        under_time=float(outcome.under_time.mean()),
        total_allocation=relative,
        unit="of demand",
        allocation_over_demand=relative,
        reduction=1.0 - relative / compared,
        reduction_low=low,
        reduction_high=high,
        over_share=float(outcome.over_share.mean()),
        under_share=float(outcome.under_share.mean()),
        oom=int(outcome.oom.sum()),
        changes=int(outcome.changes.sum()),
        container_p05=percentiles[0],
        container_p50=percentiles[1],
        container_p95=percentiles[2],
    )


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return part / whole; 1, neither more nor less, where a resource isn't used at all."""
    is_used = whole > 0
    return np.asarray(np.where(is_used, part / np.where(is_used, whole, 1.0), 1.0))
