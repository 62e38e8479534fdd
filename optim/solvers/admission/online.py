"""OASiS: admit jobs as they arrive, at prices that rise as the cluster fills."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from optim.core.driver import AbstractSolver, Monitor, Outcome, run_iteration
from optim.core.errors import InvalidOptionError, check_in
from optim.core.registry import register
from optim.core.user_code import is_file_reference, load_class_from_file
from optim.models.admission.instance import AdmissionInstance, check_compatible_cluster, merge_days
from optim.models.reference import read_day
from optim.solvers.admission.packing.dual_points import certified
from optim.solvers.admission.posted_prices.online_run import (
    OnlineAlgorithm,
    OnlineRun,
    TiedSearch,
    draw_tie_order,
    run_online,
)
from optim.solvers.admission.posted_prices.price_functions import (
    ExponentialPrice,
    JobValueStats,
    PriceFloorRule,
    PriceFunction,
    PriceRanges,
    SeenRanges,
    ZeroStartPrice,
    first_jobs,
    job_value_stats,
    price_ranges,
    sample_jobs,
    theorem_of,
    where_falling,
)
from optim.solvers.admission.posted_prices.theorems import full_share, ratio_claim
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.pricing.servers import ResidualSearch
from optim.solvers.admission.warm_up import compile_online


class PriceKind(StrEnum):
    """The form of the price function."""

    ZERO_START = "zero-start"
    EXPONENTIAL = "exponential"


FUNCTIONS: Mapping[PriceKind, type[ExponentialPrice] | type[ZeroStartPrice]] = {
    PriceKind.ZERO_START: ZeroStartPrice,
    PriceKind.EXPONENTIAL: ExponentialPrice,
}


class BoundSource(StrEnum):
    """Source of U and the lower scale."""

    ORACLE = "oracle"
    """All jobs of the instance, including future ones: known in advance, as the theorems assume."""
    HISTORY = "history"
    """The jobs of earlier days, given by the option `history`."""
    SEEN = "seen"
    """The jobs that have arrived so far, including the present one."""
    ESTIMATED = "estimated"
    """A random sample of all jobs, in place of a history that resembles the future."""
    FIRST = "first"
    """The first share of all jobs, in place of a history that may differ from the future."""
    PAPER = "paper"
    """All jobs, in the paper's form: U from f at the fastest completion with N workers, L from f(T - a)."""

    @property
    def reads_future(self) -> bool:
        """Whether a decision depends on jobs that arrive later."""
        return self not in (BoundSource.HISTORY, BoundSource.SEEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineOptions:
    """Options of `online`.

    Parameters
    ----------
    price
        Form of the price function, or a custom class as ``./mine.py:MyPrice``. The zero-start form needs no constant
        that depends on the cluster's size or the horizon; its proven ratio is smaller for small jobs on large clusters.
    strict
        Whether prices reach U at (1 - eps) of the capacity, as the theorems require; eps is the largest share of a
        row that one job can take in a slot. Otherwise they reach U at the full capacity, which admits more.
    eps
        Value of eps in place of the instance's own, in [0, 1).
    bounds
        Source of U and the lower scale. With "history" and "seen" no decision depends on later jobs; all other sources
        read jobs that arrive later.
    history
        Earlier days for ``bounds="history"``: comma-separated instance files or names of shipped days (``medium-0-day1``).
    unit_free
        Whether the lower scale is independent of the resources' units (ignored with `bounds=paper`).
    sample_share
        Share of the jobs that "estimated" and "first" learn from, in (0, 1].
    upper_scale
        Factor that multiplies U, for studies of mis-estimation.
    lower_scale
        Factor that multiplies the lower scale, for studies of mis-estimation.
    """

    price: PriceKind | str = PriceKind.ZERO_START
    strict: bool = False
    eps: float | None = None
    bounds: BoundSource = BoundSource.ORACLE
    history: str = ""
    unit_free: bool = True
    sample_share: float = 0.1
    upper_scale: float = 1.0
    lower_scale: float = 1.0

    def __post_init__(self) -> None:
        for name, kind in (("price", PriceKind), ("bounds", BoundSource)):
            if name == "price" and is_file_reference(self.price):
                continue
            try:
                object.__setattr__(self, name, kind(getattr(self, name)))
            except ValueError:
                known = ", ".join([*kind, *["or ./mine.py:MyPrice"] * (name == "price")])
                raise InvalidOptionError(f"{name} must be one of {known}, got {getattr(self, name)!r}") from None
        if (self.bounds is BoundSource.HISTORY) != bool(self.history):
            raise InvalidOptionError(
                f"history names the days that bounds=history learns from, got bounds={self.bounds}, history={self.history!r}; "
                "give both or neither"
            )
        if self.bounds is BoundSource.SEEN and self.strict and self.eps is None:
            raise InvalidOptionError(
                "strict with bounds=seen needs eps, the largest share of a server's row that one job can take in a slot: "
                "it is not known from the jobs so far; give eps, or strict=false"
            )
        check_in("[0, 1)", self, "eps")
        check_in("(0, 1]", self, "sample_share")
        check_in("(0, inf)", self, "upper_scale", "lower_scale")


def price_form(options: OnlineOptions) -> type[Any]:
    """Return the class of the options' price function.

    Raises
    ------
    InvalidOptionError
        If the file doesn't define the class.
    """
    if isinstance(options.price, PriceKind):
        return FUNCTIONS[options.price]
    return load_class_from_file(options.price, PriceFunction, "a price function")


def lower_scale(options: OnlineOptions) -> PriceFloorRule:
    """Return the lower scale for the options' price function; a class that defines none uses the zero-start rule."""
    scale = (
        "paper_scale"
        if options.bounds is BoundSource.PAPER
        else "unit_free_scale"
        if options.unit_free
        else "simple_scale"
    )
    return PriceFloorRule(getattr(price_form(options), scale, getattr(ZeroStartPrice, scale)))


def make_bounds(
    instance: AdmissionInstance, options: OnlineOptions, rng: np.random.Generator, stats: JobValueStats | None = None
) -> PriceRanges:
    """Return U and the lower scale for the options; pass `stats` if they are known already."""
    lower = lower_scale(options)
    known = job_value_stats(instance) if stats is None else stats
    if options.bounds is BoundSource.ESTIMATED:
        known = known.of(sample_jobs(instance, options.sample_share, rng))
    elif options.bounds is BoundSource.FIRST:
        known = known.of(first_jobs(instance, options.sample_share))
    elif options.bounds is BoundSource.HISTORY:
        known = job_value_stats(_past(instance, options.history))
    elif options.bounds is BoundSource.SEEN:
        known = known.of(np.zeros(0, dtype=np.int64))
    bounds = price_ranges(instance, lower, stats=known, has_paper_values=options.bounds is BoundSource.PAPER)
    return bounds.scaled(upper=options.upper_scale, lower=options.lower_scale)


def make_seen(instance: AdmissionInstance, options: OnlineOptions, stats: JobValueStats) -> SeenRanges | None:
    """Return the ranges that grow job by job, or None if the bounds are fixed for the run."""
    if options.bounds is not BoundSource.SEEN:
        return None
    return SeenRanges(instance, lower_scale(options), stats, (options.upper_scale, options.lower_scale))


def _past(instance: AdmissionInstance, history: str) -> AdmissionInstance:
    """Return the jobs of the option's days, on the instance's cluster."""
    days = [read_day(name.strip()) for name in history.split(",") if name.strip()]
    for day in days:
        check_compatible_cluster(day, instance, f"day {day.name!r} of the history")
    return merge_days([day.jobs for day in days], instance)


def make_function(instance: AdmissionInstance, options: OnlineOptions) -> PriceFunction:
    """Return the price function for the options.

    Raises
    ------
    InvalidOptionError
        If `strict` is set, and a custom class doesn't define where its prices reach U.
    """
    full_at, form = 1.0, price_form(options)
    if not issubclass(form, ExponentialPrice | ZeroStartPrice):
        if options.strict:
            raise InvalidOptionError(
                f"strict needs prices that reach U at 1 - eps of the capacity, but {form.__name__} has no full_at; derive it from "
                "ZeroStartPrice or ExponentialPrice, or choose strict=false"
            )
        made: PriceFunction = form()
        return made
    if options.strict and options.bounds is BoundSource.HISTORY:
        full_at = full_share(_past(instance, options.history), options.eps)
    elif options.strict:
        full_at = full_share(instance, options.eps)
    return form(full_at=full_at)


@register("online", problem="admission")
class OnlineSolver(AbstractSolver[AdmissionInstance, OnlineOptions]):
    """OASiS, the online primal-dual algorithm, on real servers.

    Each job is decided irrevocably at its arrival. The solver finds the exact best schedule within the servers' residual
    capacity at the present prices, and admits the job if the schedule's value exceeds its cost. Prices move between a
    lower scale and U. By default both come from all jobs of the instance, including later ones, as the theorems assume.
    With ``bounds="history"`` they come from earlier days, with ``bounds="seen"`` from the jobs so far; then no decision
    depends on a later job.

    Notes
    -----
    The default differs from the paper: prices start from 0 and reach U at the full capacity, and only schedules that fit
    are considered. With ``price="exponential"`` and ``bounds="paper"`` it is the paper's algorithm. With ``strict`` the
    competitive ratios are proven if the certificate states so. If single jobs can fill entire servers, no form is better
    in general: on such instances the totals of all forms, and of bounds estimated from a tenth of the jobs, differ by
    some 5 %. U is the value for one unit in one slot, so for jobs of hundreds of worker-slots it lies far above the
    average price per unit, and a smaller `upper_scale` may earn more.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, Algorithms 1 to 3.
    """

    summary = (
        "OASiS: posted prices that rise with utilisation, one irrevocable decision per job; "
        "U and the lower scale are known in advance unless bounds is history or seen"
    )
    options_type = OnlineOptions

    def warm_up(self, instance: AdmissionInstance, options: OnlineOptions) -> None:
        """Compile the search and the bound."""
        compile_online(is_shared=instance.has_shared_servers)

    def run(self, instance: AdmissionInstance, options: OnlineOptions, monitor: Monitor, seed: int) -> Outcome:
        """Decide on every job in order of arrival; a run that is cut short rejects the rest."""
        clock = monitor.clock
        with clock.phase("build"):
            stats = job_value_stats(instance)
            bounds = make_bounds(instance, options, np.random.default_rng(seed), stats)
            function = make_function(instance, options)
            has_claim = options.strict and options.bounds is not BoundSource.SEEN and theorem_of(function) is not None
            claim = ratio_claim(instance, bounds, function, stats=stats) if has_claim else None
            tables = JobTables.build(instance)
            finder = ResidualSearch(instance, tables=tables)
            seen = make_seen(instance, options, stats)
            algorithm = OnlineAlgorithm(instance, bounds=bounds, function=function, finder=finder, seen=seen)
        with clock.phase("solve"):
            run = run_iteration(algorithm, monitor, task=self.name, total=float(instance.num_jobs))
        is_cut_short = monitor.reason is not None
        outcome = certified(tables, run.plan, clock, run.state.mean_prices(), is_cut_short=is_cut_short)
        if claim is not None and outcome.bound is not None:
            outcome = replace(
                outcome,
                statement=f"{outcome.statement}; {claim.statement}",
                conditions=tuple(str(condition) for condition in claim.conditions),
            )
        return replace(
            outcome,
            iterations=len(run.decisions),
            decision_ms=tuple(1e3 * decision.seconds for decision in run.decisions),
            counts=_counts(run),
            message="; ".join(
                filter(None, (self.foresight(options), _unproven(options, function), where_falling(function, bounds)))
            ),
        )

    def foresight(self, options: OnlineOptions) -> str:
        """Return which future data the rule uses; "" with ``bounds`` "history" and "seen"."""
        if not options.bounds.reads_future:
            return ""
        return f"bounds={options.bounds}: U and the lower scale come from jobs that arrive later"


def _unproven(options: OnlineOptions, function: PriceFunction) -> str:
    """Return why strict prices prove no competitive ratio, "" if they may or `strict` is off."""
    if not options.strict:
        return ""
    if options.bounds is BoundSource.SEEN:
        return "strict: no ratio is claimed, since with bounds=seen U grows with the jobs"
    if theorem_of(function) is None:
        return f"strict: no ratio is claimed, since price={options.price} states no theorem"
    return ""


def default_run(tables: JobTables, monitor: Monitor) -> OnlineRun:
    """Return a run with default options, for solvers that start from its plan; the monitor may cut it short."""
    instance, options = tables.instance, OnlineOptions()
    stats = job_value_stats(instance)
    bounds = make_bounds(instance, options, np.random.default_rng(0), stats)
    function, finder = make_function(instance, options), ResidualSearch(instance, tables=tables)
    return run_iteration(OnlineAlgorithm(instance, bounds=bounds, function=function, finder=finder), monitor)


def tied_runs(
    instance: AdmissionInstance, options: OnlineOptions | None = None, *, num_orders: int, seed: int = 0
) -> Iterator[OnlineRun]:
    """Run the rule under random orders of equal schedules and of jobs that arrive in one slot.

    Parameters
    ----------
    instance
        The cluster and the jobs.
    options
        Options of the rule; options that use a sample use the same sample in every run.
    num_orders
        Number of random orders, each derived from `seed` and its index only.
    seed
        Seed of the orders and of the sample.
    """
    options = OnlineOptions() if options is None else options
    stats = job_value_stats(instance)
    bounds = make_bounds(instance, options, np.random.default_rng(seed), stats)
    function, search = make_function(instance, options), ResidualSearch(instance)
    for number in range(num_orders):
        order = draw_tie_order(instance, np.random.default_rng([seed, number]))
        finder, seen = TiedSearch(instance, search, order, stats), make_seen(instance, options, stats)
        yield run_online(instance, bounds=bounds, function=function, finder=finder, order=order.jobs, seen=seen)


def _counts(run: OnlineRun) -> dict[str, float]:
    """Return a run's statistics; its dual is a bound only if the theorems hold."""
    admitted = sum(decision.is_accepted for decision in run.decisions)
    return {
        "admitted": admitted,
        "refused": len(run.decisions) - admitted,
        "running_dual": run.final_dual,
        "largest_step_ratio": run.largest_step_ratio,
    }
