"""Comparison of policies at equal risk, tuned on calibration containers and tested on others, and trade-off curves.

Confidence intervals describe the tuned policy on new containers: the multipliers are the same in all resamples, and
both policies of a comparison use the same resamples. Intervals don't include the variance of tuning; runs with several
seeds show it.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_in
from optim.core.progress import Progress
from optim.core.stopping import Interruption, SolveState, StoppingCriterion
from optim.execution import AbstractTask, Engine, run_in_order
from optim.rightsizing.clairvoyant import clairvoyant
from optim.rightsizing.engine import Outcome, by_unit, measure, post_warmup_weight, relative
from optim.rightsizing.policy import BOUNDS, HARMLESS, REFERENCE, Plan, check_names, make_plan
from optim.rightsizing.tuning import MAX_MULTIPLIER, Measure, Slo, Tuned, guaranteed, num_drawn, requirement_on, tune
from optim.rightsizing.world import CalibrationTestSplit, World
from optim.statistics import bootstrap


def resamples(world: World, number: int, rng: np.random.Generator) -> IntArray:
    """Return the multiplicity of each of G units (see `World.group`) in each of B bootstrap resamples, shape (B, G)."""
    count = world.num_units
    return np.asarray(rng.multinomial(count, np.full(count, 1.0 / count), size=number), dtype=np.int64)


def resampled(world: World, values: FloatArray | IntArray, counts: IntArray) -> FloatArray:
    """Return the sums over all containers in each resample, shape (B, R), from values of shape (C, R)."""
    return np.asarray(counts @ by_unit(world, values))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TunedRun:
    """A tuned policy on the test containers.

    `total`, shape (C, R), is the allocation of each container, including charged restarts. `bound`, shape (R,), is a
    lower bound on the sum of `total` over the containers for any plan; None for policies that aren't clairvoyant.
    """

    tuned: Tuned
    outcome: Outcome
    total: FloatArray
    bound: FloatArray | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation(AbstractTask[str, tuple[str, TunedRun | None]]):
    """Task that tunes and runs policies; a piece is the name of a policy."""

    split: CalibrationTestSplit
    slo: Slo
    seed: int

    @property
    def title(self) -> str:
        """Label for progress display."""
        return "policies"

    def do(self, piece: str, stop: StoppingCriterion, progress: Progress) -> tuple[str, TunedRun | None]:
        """Tune and run a policy; return None if it was interrupted."""
        del progress
        try:
            return piece, run_policy(self.split, piece, self.slo, self.seed, stop)
        except _StoppedError:
            return piece, None


class _StoppedError(Exception):
    """A stop was requested during a policy's run."""


def run_policy(split: CalibrationTestSplit, name: str, slo: Slo, seed: int, stop: StoppingCriterion) -> TunedRun:
    """Tune a policy on the calibration containers and run it on the test containers, checking `stop` in between."""

    def go_on() -> None:
        if stop(SolveState(elapsed_s=0.0)) is not None:
            raise _StoppedError

    def is_met(allocation: FloatArray) -> NDArray[np.bool_]:
        go_on()
        return required(allocation)

    go_on()
    if name in BOUNDS:
        return _bound(split.test, slo, is_harmless=name == HARMLESS)
    required = requirement_on(split.calibration, slo, seed)
    tuned = tune(make_plan(split.calibration, name), is_met, len(split.test.resources))
    plan = make_plan(split.test, name)
    go_on()
    outcome = measure(split.test, plan.allocate(tuned.multiplier), slo.restarts)
    return TunedRun(tuned=tuned, outcome=outcome, total=charged_allocation(outcome, slo))


def _bound(world: World, slo: Slo, *, is_harmless: bool) -> TunedRun:
    """Return a clairvoyant plan with its bound, which counts, per resource, only kills that this resource causes."""
    optimum = clairvoyant(world, slo, is_harmless=is_harmless)
    met = np.ones(len(world.resources), dtype=np.bool_)
    return TunedRun(
        tuned=Tuned(multiplier=optimum.price, is_reached=met),
        outcome=measure(world, optimum.allocation, slo.restarts),
        total=optimum.total,
        bound=optimum.bound,
    )


def charged_allocation(outcome: Outcome, slo: Slo) -> FloatArray:
    """Return the allocation of each container, shape (C, R), including charged restarts."""
    return outcome.allocation + (outcome.violations.charge if slo.is_charged else 0.0)


ALL_RESOURCES = "all"

COUNTS = ("kills", "changes")

SECONDS_PER_HOUR = 3600.0

TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Metrics of a policy for a resource on test containers; intervals (low, high) are 95 % intervals over containers.

    The row ``all`` is the mean over resources, with allocations relative to demand.

    Attributes
    ----------
    policy, resource
        Names of the policy and of the resource.
    multiplier
        The smallest multiplier that meets the requirement on the calibration containers; for the clairvoyant references
        the dual price of violations. None in the row ``all``.
    is_reached
        Whether any multiplier meets the requirement; if not, the metrics are those of the maximum multiplier.
    required
        Allowed risk; None in the row ``all``.
    guaranteed, num_tuned
        Guaranteed mean risk of similar containers, and number of calibration containers. With few calibration
        containers the guaranteed risk is above `required`. It is None in the row ``all`` and where there is no
        guarantee: for parts of one series, the paper's measure, clairvoyant references, and if no multiplier meets the
        requirement.
    risk, risk_low, risk_high
        Measured risk: the mean over containers of the fraction of cycles with a kill or of throttled samples, both
        without the first cycle. Under the paper's measure it is `under_time`.
    per_day, per_day_low, per_day_high, per_day_unit
        Kills, or hours throttled, per container-day, including the first cycles; None in the row ``all``.
    restart_h_per_day
        Hours of start-ups and repeated work per container-day.
    under_time
        Fraction of samples with less than 95 % of demand.
    throttled_time, delayed_share
        Fraction of throttled samples, and share of demand above the allocation; 0 for an incompressible resource.
    kills
        Number of cycles with a kill.
    total_allocation, unit
        Allocation over all containers in unit-hours, including restarts unless the measure is the paper's; relative to demand
        in the row ``all``.
    allocation_over_demand, charge_over_demand
        Total allocation relative to demand, and the part of this ratio that is due to restarts.
    reduction, reduction_low, reduction_high
        Reduction of the allocation relative to the reference policy: 1 - allocation / allocation of the reference.
    most
        Upper bound on the reduction of any plan with the same allowed violations; only for the clairvoyant references,
        otherwise None.
    over_share, under_share
        Allocation above 105 % of demand, and shortage below 95 %, as fractions of total demand.
    changes
        Number of changes of an allocation by more than 5 %.
    container_p05, container_p50, container_p95
        Percentiles, over the containers, of the ratio of allocation to demand.
    """

    policy: str
    resource: str
    multiplier: float | None
    is_reached: bool
    required: float | None
    guaranteed: float | None
    num_tuned: int
    risk: float
    risk_low: float
    risk_high: float
    per_day: float | None
    per_day_low: float | None
    per_day_high: float | None
    per_day_unit: str
    restart_h_per_day: float
    under_time: float
    throttled_time: float
    delayed_share: float
    kills: int
    total_allocation: float
    unit: str
    allocation_over_demand: float
    charge_over_demand: float
    reduction: float
    reduction_low: float
    reduction_high: float
    most: float | None
    over_share: float
    under_share: float
    changes: int
    container_p05: float
    container_p50: float
    container_p95: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Frame:
    """Data common to all rows; `counts`, shape (B, G), is the multiplicity of each unit in each resample."""

    split: CalibrationTestSplit
    slo: Slo
    counts: IntArray
    reference: TunedRun


def compare_policies(
    split: CalibrationTestSplit,
    names: Sequence[str],
    slo: Slo,
    *,
    num_resamples: int,
    seed: int,
    engine: Engine | None = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[Row, ...]]:
    """Tune policies to the same requirement on calibration containers, and yield each policy's rows on test containers.

    Parameters
    ----------
    split
        Calibration and test containers.
    names
        Policies, see `policy_names`.
    slo
        Requirement, the same for all policies.
    num_resamples
        Number of bootstrap resamples of the containers for intervals.
    seed
        Seed of draws and resamples, which determines the rows.
    engine
        Executor of the policies, this process by default; the rows don't depend on it.
    stop, progress
        `stop` ends the comparison early and drops the policies in progress; `progress` receives the number of completed
        policies.

    Raises
    ------
    InvalidOptionError
        If a policy is unknown or there are no resamples.
    """
    check_comparison(names, num_resamples)
    counts = resamples(split.test, num_resamples, np.random.default_rng(seed))
    evaluation = Evaluation(split=split, slo=slo, seed=seed)
    runs = run_in_order(evaluation, tuple(dict.fromkeys((REFERENCE, *names))), engine, stop, progress)
    return _rows(split, names, slo, counts, runs)


def check_comparison(names: Sequence[str], num_resamples: int) -> None:
    """Check the arguments of `compare_policies` before any work.

    Raises
    ------
    InvalidOptionError
        If a policy is unknown or there are no resamples.
    """
    check_in("[1, inf)", {"num_resamples": num_resamples})
    check_names(names)


def _rows(
    split: CalibrationTestSplit,
    names: Sequence[str],
    slo: Slo,
    counts: IntArray,
    new_runs: Iterator[tuple[str, TunedRun | None]],
) -> Iterator[tuple[Row, ...]]:
    """Yield the rows of completed policies in order; `new_runs` begins with the run of the reference policy."""
    runs = dict(itertools.islice(new_runs, 1))
    reference = runs.get(REFERENCE)
    if reference is None:
        return
    frame = _Frame(split=split, slo=slo, counts=counts, reference=reference)
    for name in names:
        while name not in runs and (more := next(new_runs, None)) is not None:
            runs |= [more]
        run = runs.get(name)
        if run is not None:
            yield tuple(_policy_rows(frame, name, run))


def _policy_rows(frame: _Frame, name: str, run: TunedRun) -> Iterator[Row]:
    """Yield one row per resource, and the row ``all``."""
    world, outcome, counts = frame.split.test, run.outcome, frame.counts
    allowed, number = frame.slo.allowed(world), num_drawn(frame.split.calibration)
    guarantee = guaranteed(frame.split.calibration, frame.slo)
    is_guaranteed = run.tuned.is_reached & np.isfinite(guarantee) & (not frame.split.is_by_time and name not in BOUNDS)
    demand = resampled(world, outcome.demand, counts)
    totals, reference_totals = (resampled(world, part.total, counts) for part in (run, frame.reference))
    low, high = bootstrap(1.0 - relative(totals, reference_totals))
    summary = _summary(run)
    risk, day = risk_of(world, outcome, frame.slo, counts), _per_day(world, outcome, counts)
    percentiles = outcome.container_percentiles()
    hours = run.total.sum(axis=0) * world.interval_s / SECONDS_PER_HOUR
    compared_total = frame.reference.total.sum(axis=0)
    reduction = 1.0 - relative(run.total.sum(axis=0), compared_total)
    max_reduction = None if run.bound is None else 1.0 - relative(run.bound, compared_total)
    for column, resource in enumerate(world.resources):
        yield Row(
            policy=name,
            resource=resource.name,
            multiplier=float(run.tuned.multiplier[column]),
            is_reached=bool(run.tuned.is_reached[column]),
            required=float(allowed[column]),
            guaranteed=float(guarantee[column]) if is_guaranteed[column] else None,
            num_tuned=number,
            **_at(column, risk, day),
            per_day_unit="kills" if resource.is_level else "h throttled",
            total_allocation=float(hours[column]),
            unit=f"{resource.unit or resource.name} h",
            reduction=float(reduction[column]),
            reduction_low=float(low[column]),
            reduction_high=float(high[column]),
            most=None if max_reduction is None else float(max_reduction[column]),
            **_container_figures(percentiles[:, column]),
            **_at(column, summary),
        )
    overall = {key: values.sum() if key in COUNTS else values.mean() for key, values in summary.items()}
    low, high = bootstrap(1.0 - relative(totals, demand).mean(axis=1) / relative(reference_totals, demand).mean(axis=1))
    compared = _summary(frame.reference)["allocation_over_demand"].mean()
    yield Row(
        policy=name,
        resource=ALL_RESOURCES,
        multiplier=None,
        is_reached=bool(run.tuned.is_reached.all()),
        required=None,
        guaranteed=None,
        num_tuned=number,
        **{key: value.mean().item() for key, value in risk.items()},
        per_day=None,
        per_day_low=None,
        per_day_high=None,
        per_day_unit="",
        total_allocation=float(overall["allocation_over_demand"]),
        unit="of demand",
        reduction=float(1.0 - overall["allocation_over_demand"] / compared),
        reduction_low=float(low),
        reduction_high=float(high),
        most=None if run.bound is None else _max_mean_reduction(run, frame, compared),
        **_container_figures(percentiles.mean(axis=1)),
        **{key: value.item() for key, value in overall.items()},
    )


def _max_mean_reduction(run: TunedRun, frame: _Frame, compared: float) -> float:
    """Return the bound on the reduction in the row ``all``, whose allocations are means over resources, relative to demand."""
    bound = np.zeros(0) if run.bound is None else run.bound
    return float(1.0 - relative(bound, frame.reference.outcome.demand.sum(axis=0)).mean() / compared)


def _at(column: int, *parts: dict[str, FloatArray]) -> dict[str, Any]:
    """Return the metrics of one resource, by field of `Row`."""
    return {key: values[column].item() for part in parts for key, values in part.items()}


def _summary(run: TunedRun) -> dict[str, Any]:
    """Return a run's metrics, by field of `Row`; each has shape (R,)."""
    outcome = run.outcome
    demand = outcome.demand.sum(axis=0)
    total, plain = run.total.sum(axis=0), outcome.total_allocation
    days = outcome.days.sum(axis=0)
    return {
        **outcome.summary(),
        "allocation_over_demand": relative(total, demand),
        "charge_over_demand": (total - plain) / np.where(demand > 0, demand, 1.0),
        "restart_h_per_day": outcome.violations.restart_s.sum() / SECONDS_PER_HOUR / days,
    }


def risk_of(world: World, outcome: Outcome, slo: Slo, counts: IntArray | None = None) -> dict[str, FloatArray]:
    """Return the measured `risk` and its interval, each of shape (R,); see `Row`."""
    if slo.measure is Measure.UNDER_TIME:
        return _ratio("risk", world, outcome.under_samples, outcome.samples, counts)
    return _ratio("risk", world, outcome.violations.post_warmup, post_warmup_share(world), counts)


def post_warmup_share(world: World) -> FloatArray:
    """Return each series' share of the post-warm-up cycles (memory) or samples (CPU) of its unit, shape (C, R)."""
    samples = world.samples[:, 1:]
    count = np.where(world.is_level, (samples > 0).sum(axis=1)[:, None], samples.sum(axis=1)[:, None])
    return np.asarray(post_warmup_weight(world) * count)


def _per_day(world: World, outcome: Outcome, counts: IntArray) -> dict[str, FloatArray]:
    hours = world.interval_s / SECONDS_PER_HOUR
    violations = np.where(world.is_level, outcome.violations.kills, outcome.violations.throttled * hours)
    return _ratio("per_day", world, violations, outcome.days, counts)


def _ratio(
    name: str, world: World, parts: FloatArray | IntArray, totals: FloatArray | IntArray, counts: IntArray | None
) -> dict[str, FloatArray]:
    """Return the ratio of the sum of `parts` to that of `totals`, shape (R,), and its interval if there are resamples."""
    ratios = {name: parts.sum(axis=0) / np.maximum(totals.sum(axis=0), TINY)}
    if counts is not None:
        resampled_ratios = resampled(world, parts, counts) / np.maximum(resampled(world, totals, counts), TINY)
        ratios[f"{name}_low"], ratios[f"{name}_high"] = bootstrap(resampled_ratios)
    return ratios


def _container_figures(percentiles: FloatArray) -> dict[str, Any]:
    return dict(zip(("container_p05", "container_p50", "container_p95"), percentiles.tolist(), strict=True))


RISKS = (0.005, 0.25)
"""Lowest and highest risk of a trade-off curve."""

NUM_POINTS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class TradePoint:
    """Metrics of a policy for a resource at one multiplier.

    Attributes
    ----------
    policy, resource, multiplier
        Policy, resource and multiplier.
    risk
        Risk by the chosen measure: fraction of cycles with a kill or of throttled samples, both without the first cycle, or
        `under_time`.
    under_time
        Fraction of samples with less than 95 % of demand.
    allocation_over_demand
        Allocation over all containers relative to their demand, including restarts unless the measure is the paper's.
    over_share, under_share
        Allocation above 105 % of demand, and shortage below 95 %, as fractions of total demand.
    kills, throttled_time, delayed_share
        Number of cycles with a kill, fraction of throttled samples, and share of demand above the allocation.
    changes
        Number of changes of an allocation by more than 5 %.
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


def trade_points(world: World, name: str, slo: Slo, multipliers: Sequence[float]) -> tuple[TradePoint, ...]:
    """Measure a policy at given multipliers, the same for each resource.

    Parameters
    ----------
    world
        The simulated containers, divided into cycles (see `World`).
    name
        Policy, see `policy_names`.
    slo
        Risk measure and cost of restarts.
    multipliers
        Nonnegative multipliers.

    Raises
    ------
    InvalidOptionError
        If the policy is unknown or a multiplier is negative or not finite.
    """
    check_multipliers(multipliers)
    grid = np.repeat(np.asarray(multipliers, dtype=np.float64)[:, None], len(world.resources), axis=1)
    return _measured(world, make_plan(world, name), name, slo, grid)


def check_multipliers(multipliers: Sequence[float]) -> None:
    """Raise InvalidOptionError if a multiplier is negative or not finite."""
    for value in multipliers:
        check_in("[0, inf)", {"a multiplier": value})


def trade_curve(world: World, name: str, slo: Slo, num_points: int = NUM_POINTS) -> tuple[TradePoint, ...]:
    """Measure a policy at multipliers with risks from 0.5 to 25 %.

    If no multiplier reaches the lower risk, the curve ends at the least risk that any multiplier reaches. If the risk
    at multiplier 0 is below 25 %, the curve begins at multiplier 0. Multipliers differ by resource, and increase from
    point to point.
    """
    plan, number = make_plan(world, name), len(world.resources)

    def risk(allocation: FloatArray) -> FloatArray:
        return risk_of(world, measure(world, allocation, slo.restarts), slo)["risk"]

    min_risk = risk(plan.allocate(np.full(number, MAX_MULTIPLIER)))

    def found(share: float) -> FloatArray:
        bound = np.maximum(min_risk, share)
        return tune(plan, lambda allocation: risk(allocation) <= bound, number).multiplier

    low, high = (found(share) for share in reversed(RISKS))
    return _measured(world, plan, name, slo, np.linspace(low, np.maximum(low, high), num_points))


def _measured(world: World, plan: Plan, name: str, slo: Slo, grid: FloatArray) -> tuple[TradePoint, ...]:
    """Measure a plan at J multipliers per resource, `grid` of shape (J, R); return one point per multiplier and resource."""
    points = []
    for row in grid:
        outcome = measure(world, plan.allocate(row), slo.restarts)
        total = charged_allocation(outcome, slo).sum(axis=0)
        summary = {
            **outcome.summary(),
            **risk_of(world, outcome, slo),
            "allocation_over_demand": relative(total, outcome.demand.sum(axis=0)),
        }
        points += [
            TradePoint(
                policy=name,
                resource=resource.name,
                multiplier=float(row[column]),
                **{key: values[column].item() for key, values in summary.items()},
            )
            for column, resource in enumerate(world.resources)
        ]
    return tuple(points)
