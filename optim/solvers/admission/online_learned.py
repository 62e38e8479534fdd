"""Admission at prices learned from earlier days, with replanning and firm promises."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from optim.core.driver import AbstractSolver, Monitor, Outcome, run_iteration
from optim.core.errors import InvalidOptionError, check_in
from optim.core.registry import register
from optim.models.admission.decision import COUNT
from optim.models.admission.forecast import is_forecast, read_forecast
from optim.models.admission.instance import AdmissionInstance, merge_days
from optim.models.reference import read_day
from optim.solvers.admission.packing.dual_points import certified
from optim.solvers.admission.posted_prices.forecast import FILL, PriceForecast
from optim.solvers.admission.posted_prices.learned_run import DayResult, Guard, LearnedDay, RunConfig
from optim.solvers.admission.posted_prices.price_functions import ZeroStartPrice, job_value_stats
from optim.solvers.admission.posted_prices.theorems import full_share
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.warm_up import compile_columns, compile_first_order, compile_online, has_large_master

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineLearnedOptions:
    """Options of `online-learned`.

    Parameters
    ----------
    history
        Earlier days: a forecast file, or comma-separated instance files and names of shipped days (``medium-0-day1``).
        Without a history, prices are learned from the day's own jobs, first after the share `warm_up` of its slots.
    replan
        Repair moves per slot, which re-pack reserved work that hasn't run yet; 0 fixes schedules at admission.
    promised_share
        Promised share of a job's value at admission: with `replan`, its schedule may move to any completion slot that earns
        at least this share.
    standby
        Maximal number of rejected jobs that wait and run on unreserved capacity, without a promise; 0 for none.
    smoothing
        Number of slots over which the LP's prices are averaged before they are posted.
    price_scale
        Factor that multiplies the LP's prices before they are posted.
    warm_up
        Without a history: share of the slots in which the paper's rule decides.
    guard
        Share of each class' servers on which the paper's rule guards against a wrong forecast; 0 for none.
    strict
        Whether the guard's prices reach U early enough to prove its competitive ratio, as in `online`.
    """

    history: str = ""
    replan: int = 60
    promised_share: float = 0.7
    standby: int = 200
    smoothing: int = 9
    price_scale: float = 1.0
    warm_up: float = 0.1
    guard: float = 0.0
    strict: bool = False

    def __post_init__(self) -> None:
        check_in("[0, inf)", self, "replan", "standby")
        check_in("[1, inf)", self, "smoothing")
        check_in("[0, 1]", self, "promised_share", "guard")
        check_in("(0, 1]", self, "warm_up")
        check_in("(0, inf)", self, "price_scale")
        if self.guard > 0 and not self.history:
            raise InvalidOptionError("guard needs a history, which its constants come from; give history, or guard=0")

    @property
    def run_config(self) -> RunConfig:
        """Settings of the day's run."""
        return RunConfig(**{name: getattr(self, name) for name in RunConfig.__slots__})


@register("online-learned", problem="admission")
class OnlineLearned(AbstractSolver[AdmissionInstance, OnlineLearnedOptions]):
    """Post prices learned from earlier days, decide at arrival, keep promises and re-pack the rest.

    Notes
    -----
    A decision is irrevocable: whether to admit the job, and its promised completion slot. Jobs are decided one by one, and
    no job is read before it arrives. Rejected jobs stand by: they run on unused capacity, and are in the plan if they
    complete. With a `guard` the theorem of `posted_prices.learned_run` holds for any forecast.

    Counts: `admitted` jobs are in the plan; `promised` ones were admitted at arrival, and `completed_on_standby` ones
    weren't. `lost_worker_slots` ran for rejected jobs that didn't complete. `resolve_ms` is the median time of `resolves`
    solves for new prices, `resolve_max_ms` the longest.

    References
    ----------
    Those of `posted_prices.forecast`, `posted_prices.learned_run` and `posted_prices.reservations`.
    """

    summary = "prices learned from earlier days, irrevocable promises, replanning, rejected jobs on unused capacity"
    options_type = OnlineLearnedOptions

    def warm_up(self, instance: AdmissionInstance, options: OnlineLearnedOptions) -> None:
        """Compile the search on servers, and the LP."""
        compile_online(is_shared=instance.has_shared_servers)
        compile_columns(is_shared=instance.has_shared_servers)
        if has_large_master(instance):
            compile_first_order()

    def run(self, instance: AdmissionInstance, options: OnlineLearnedOptions, monitor: Monitor, seed: int) -> Outcome:
        """Learn prices, then run the day."""
        with monitor.clock.phase("learn"):
            known = read_history(options.history, instance, monitor.part())
        if known is None:
            _LOG.info("no history: the paper's rule decides on the first %g of the day", options.warm_up)
        return run_day(instance, known, options, monitor, seed)


def run_day(
    instance: AdmissionInstance,
    known: PriceForecast | None,
    options: OnlineLearnedOptions,
    monitor: Monitor,
    seed: int = 0,
) -> Outcome:
    """Run a day at a forecast's prices, or without a forecast; the forecast must be for the instance's cluster."""
    clock = monitor.clock
    with clock.phase("build"):
        tables = JobTables.build(instance)
        guard = None
        if options.guard > 0 and known is not None:
            past = merge_days([day.jobs for day in known.days], instance)
            function = ZeroStartPrice(full_at=full_share(past) if options.strict else 1.0)
            guard = Guard(instance, options.guard, job_value_stats(past), function)
        day = LearnedDay(
            instance,
            tables,
            options.run_config,
            prices=None if known is None else known.prices,
            fill=FILL if known is None else known.fill,
            warm_up=options.warm_up,
            guard=guard,
            seed=seed,
            should_stop=monitor.is_over,
        )
    with clock.phase("solve"):
        result = run_iteration(day, monitor, task="online-learned", total=float(instance.num_jobs))
    outcome = certified(tables, result.plan, clock, result.prices, is_cut_short=monitor.reason is not None)
    if guard is not None and options.strict and outcome.bound is not None:
        claim = guard.claim(job_value_stats(instance))
        outcome = replace(
            outcome,
            statement=f"{outcome.statement}; {claim.statement}",
            conditions=tuple(str(condition) for condition in claim.rule.conditions),
        )
    return replace(
        outcome,
        iterations=len(result.decisions),
        decision_ms=tuple(1e3 * seconds for seconds in result.decision_s),
        counts=_counts(result, known),
    )


def read_history(text: str, instance: AdmissionInstance, monitor: Monitor | None = None) -> PriceForecast | None:
    """Return the forecast of the option `history`, read from a file or learned from the listed days; None if it is empty.

    Raises
    ------
    InvalidOptionError
        If a forecast is given together with other files or names.
    InvalidProblemError
        If a file or name is invalid, or its days don't fit the instance.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        return None
    forecasts = [name for name in names if os.path.exists(name) and is_forecast(name)]
    if not forecasts:
        return PriceForecast.fit([read_day(name) for name in names], instance, monitor=monitor)
    if len(names) > 1:
        raise InvalidOptionError(f"history: {forecasts[0]} is a forecast and contains its own days; give it alone")
    return PriceForecast.of(read_forecast(Path(names[0]))).on(instance, monitor=monitor)


def _counts(result: DayResult, known: PriceForecast | None) -> dict[str, float]:
    done = len(result.plan.admitted)
    times: Sequence[float] = result.resolve_s or (0.0,)
    return {
        "admitted": done,
        "refused": len(result.decisions) - done,
        "promised": len(result.promised),
        "completed_on_standby": len(result.completed_on_standby),
        "lost_worker_slots": int(result.unfinished.workers[:, COUNT].sum()),
        "days": 0 if known is None else known.num_days,
        "guard_earned": result.guard_earned,
        "resolves": len(result.resolve_s),
        "resolve_ms": 1e3 * float(np.median(times)),
        "resolve_max_ms": 1e3 * max(times),
    }
