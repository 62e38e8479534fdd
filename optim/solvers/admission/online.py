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
    """Where U and the lower scale come from."""

    ORACLE = "oracle"
    """From all jobs of the instance, future ones included: known beforehand, as the theorems assume."""
    HISTORY = "history"
    """From the jobs of earlier days, which the option `history` names."""
    SEEN = "seen"
    """From the jobs that have arrived so far, the one that is decided among them."""
    ESTIMATED = "estimated"
    """From a random sample of all jobs, which stands for a history that resembles the future."""
    FIRST = "first"
    """From the first share of all jobs, which stands for a history that may differ from the future."""
    PAPER = "paper"
    """In the paper's form, from all jobs: U from f at the fastest completion with N workers, L from f(T - a)."""

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
        Form of the price function, or a class of your own as ``./mine.py:MyPrice``. The zero-start form needs no constant that depends on the cluster's size
        or the horizon; its proven ratio is the smaller one where jobs are small and the cluster is large.
    strict
        Whether prices reach U at (1 - eps) of the capacity, with eps the largest share of a row that one
        job can take in a slot, as the theorems ask; otherwise at the capacity itself, which admits more.
    eps
        That share where the instance's own isn't wanted, in [0, 1).
    bounds
        Where U and the lower scale come from. With "history" and "seen" no decision depends on later jobs; all others read
        jobs that arrive later.
    history
        Earlier days for ``bounds="history"``: instance files or names of shipped days (``medium-0-day1``), with commas.
    unit_free
        Whether the lower scale is independent of the resources' units (ignored by "paper").
    sample_share
        Share of the jobs that "estimated" and "first" learn from, in (0, 1].
    upper_scale
        Factor by which U is wrong, for studies of mis-estimation.
    lower_scale
        Factor by which the lower scale is wrong, likewise.
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
        If it is to come from a file that hasn't it.
    """
    if isinstance(options.price, PriceKind):
        return FUNCTIONS[options.price]
    return load_class_from_file(options.price, PriceFunction, "a price function")


def lower_scale(options: OnlineOptions) -> PriceFloorRule:
    """Return which lower scale goes with the options' price function: one that states none begins at 0."""
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
    """Return U and the lower scale as the options ask; `stats` saves working out the instance's own again."""
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
    """Return what widens the bounds job by job, None where they hold for the whole run."""
    if options.bounds is not BoundSource.SEEN:
        return None
    return SeenRanges(instance, lower_scale(options), stats, (options.upper_scale, options.lower_scale))


def _past(instance: AdmissionInstance, history: str) -> AdmissionInstance:
    """Return the jobs of the days that an option names, on the instance's cluster."""
    days = [read_day(name.strip()) for name in history.split(",") if name.strip()]
    for day in days:
        check_compatible_cluster(day, instance, f"day {day.name!r} of the history")
    return merge_days([day.jobs for day in days], instance)


def make_function(instance: AdmissionInstance, options: OnlineOptions) -> PriceFunction:
    """Return the price function as the options ask.

    Raises
    ------
    InvalidOptionError
        If prices are to be strict, and a class of one's own doesn't say where they reach U.
    """
    full_at, form = 1.0, price_form(options)
    if not issubclass(form, ExponentialPrice | ZeroStartPrice):
        if options.strict:
            raise InvalidOptionError(
                f"strict asks that prices reach U at 1 - eps of the capacity, which {form.__name__} isn't told; derive it from "
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

    Each job is decided in the moment of its arrival, for good: at the present prices its best schedule is
    found exactly among those that fit into what is left of the servers; it is admitted if the schedule is
    worth more than it costs. Prices move between a lower scale and U, which are known beforehand, as the
    theorems assume: by default they come from all jobs of the instance, later ones included. With
    ``bounds="history"`` they come from earlier days, with ``bounds="seen"`` from the jobs so far: then no
    decision depends on a later job.

    Notes
    -----
    The default differs from the paper: prices start from 0. They reach U at the capacity, and only schedules
    that fit are looked at. With ``price="exponential"`` and ``bounds="paper"`` it is the paper's algorithm;
    with ``strict`` the competitive ratios are proven wherever the certificate says so. Where single jobs can
    fill whole servers no form is better in general: on such instances the totals of all forms, and those of
    bounds estimated from a tenth of the jobs, differ by some 5 %. U is the value for one unit in one slot, so
    for jobs of hundreds of worker-slots it lies far above what anybody pays on average, and a smaller
    `upper_scale` may earn more.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, Algorithms 1 to 3.
    """

    summary = (
        "OASiS: posted prices that rise with utilisation, one irrevocable decision a job; "
        "U and the lower scale are known beforehand unless bounds is history or seen"
    )
    options_type = OnlineOptions

    def warm_up(self, instance: AdmissionInstance, options: OnlineOptions) -> None:
        """Compile the search and the bound."""
        compile_online(is_shared=instance.has_shared_servers)

    def run(self, instance: AdmissionInstance, options: OnlineOptions, monitor: Monitor, seed: int) -> Outcome:
        """Decide on every job in order of arrival; a run cut short refuses the rest."""
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
            message="; ".join(filter(None, (self.foresight(options), _unproven(options, function)))),
        )

    def foresight(self, options: OnlineOptions) -> str:
        """Return what of the future the rule is told beforehand; nothing with ``bounds`` "history" and "seen"."""
        if not options.bounds.reads_future:
            return ""
        return f"bounds={options.bounds}: U and the lower scale are told beforehand, from jobs that arrive later"


def _unproven(options: OnlineOptions, function: PriceFunction) -> str:
    """Return why strict prices prove no competitive ratio, "" if they may or weren't asked for."""
    if not options.strict:
        return ""
    if options.bounds is BoundSource.SEEN:
        return "strict: no ratio is claimed, since with bounds=seen U grows with the jobs"
    if theorem_of(function) is None:
        return f"strict: no ratio is claimed, since price={options.price} states no theorem"
    return ""


def default_run(tables: JobTables, monitor: Monitor) -> OnlineRun:
    """Return a run with default options, for solvers that start from its plan; cut short if told to stop."""
    instance, options = tables.instance, OnlineOptions()
    stats = job_value_stats(instance)
    bounds = make_bounds(instance, options, np.random.default_rng(0), stats)
    function, finder = make_function(instance, options), ResidualSearch(instance, tables=tables)
    return run_iteration(OnlineAlgorithm(instance, bounds=bounds, function=function, finder=finder), monitor)


def tied_runs(
    instance: AdmissionInstance, options: OnlineOptions | None = None, *, num_orders: int, seed: int = 0
) -> Iterator[OnlineRun]:
    """Run the rule under drawn orders of equal schedules and of jobs that arrive in one slot.

    Parameters
    ----------
    instance
        The cluster and the jobs.
    options
        The rule's, by default its own; those that learn from a sample learn from the same one in every run.
    num_orders
        How many orders are drawn, each from (seed, its number) alone.
    seed
        Of the orders, and of the sample.
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
    """Return what a record tells of a run; its dual is no bound unless the theorems hold."""
    admitted = sum(decision.is_accepted for decision in run.decisions)
    return {
        "admitted": admitted,
        "refused": len(run.decisions) - admitted,
        "running_dual": run.final_dual,
        "largest_step_ratio": run.largest_step_ratio,
    }
