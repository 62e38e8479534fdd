"""OASiS: admit jobs as they arrive, at prices that rise as the cluster fills."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from optim.core.certificate import Certificate
from optim.core.clock import PhaseClock, peak_memory_mb
from optim.core.errors import InvalidOptionError
from optim.core.options import options_as_dict
from optim.core.progress import Progress, SilentProgress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution, Stats
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.posted_prices.online_run import JobDecision, OnlineAlgorithm, OnlineRun, finish, run_online
from optim.solvers.admission.posted_prices.price_functions import ExponentialPrice, ZeroStartPrice
from optim.solvers.admission.posted_prices.price_ranges import (
    JobWorth,
    LowerScale,
    PriceRanges,
    first_jobs,
    job_worth,
    price_ranges,
    sample_jobs,
)
from optim.solvers.admission.posted_prices.theorems import RatioClaim, full_share, ratio_claim
from optim.solvers.admission.pricing.dual_points import certify_plan
from optim.solvers.admission.warm_up import smallest_instance

NO_BOUND = Certificate(
    kind=CertificateKind.FEASIBLE_ONLY, statement="the plan is feasible; a run cut short claims no bound"
)


class PriceKind(StrEnum):
    """The form of the price function."""

    ZERO_START = "zero-start"
    EXPONENTIAL = "exponential"


class BoundSource(StrEnum):
    """Where U and the lower scale come from."""

    ORACLE = "oracle"
    """From all jobs of the instance, future ones included."""
    ESTIMATED = "estimated"
    """From a random sample of the jobs, which stands for a history that resembles the future."""
    FIRST = "first"
    """From the first jobs to arrive, which stands for a history that may differ from the future."""
    PAPER = "paper"
    """As the paper prints them, from all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineOptions:
    """Options of `online`.

    Parameters
    ----------
    price
        Form of the price function. The zero-start form needs no constant that depends on the cluster's size
        or the horizon; its proven ratio is the smaller one where jobs are small and the cluster is large.
    strict
        Whether prices reach U at (1 - eps) of the capacity, with eps the largest share of a row that one
        job can take in a slot, as the theorems ask; otherwise at the capacity itself, which admits more.
    eps
        That share where the instance's own isn't wanted, in [0, 1).
    bounds
        Where U and the lower scale come from. All but "estimated" and "first" are clairvoyant.
    unit_free
        Whether the lower scale is independent of the resources' units (ignored by "paper").
    sample_share
        Share of the jobs that "estimated" and "first" learn from, in (0, 1].
    upper_scale, lower_scale
        Factors by which U and the lower scale are wrong, for studies of mis-estimation.
    """

    price: PriceKind = PriceKind.ZERO_START
    strict: bool = False
    eps: float | None = None
    bounds: BoundSource = BoundSource.ORACLE
    unit_free: bool = True
    sample_share: float = 0.1
    upper_scale: float = 1.0
    lower_scale: float = 1.0

    def __post_init__(self) -> None:
        for name, kind in (("price", PriceKind), ("bounds", BoundSource)):
            try:
                object.__setattr__(self, name, kind(getattr(self, name)))
            except ValueError:
                known = ", ".join(kind)
                raise InvalidOptionError(f"{name} must be one of {known}, got {getattr(self, name)!r}") from None
        if self.eps is not None and not 0 <= self.eps < 1:
            raise InvalidOptionError(f"eps must be in [0, 1), got {self.eps}")
        if not 0 < self.sample_share <= 1:
            raise InvalidOptionError(f"sample_share must be in (0, 1], got {self.sample_share}")
        for name in ("upper_scale", "lower_scale"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InvalidOptionError(f"{name} must be positive and finite, got {getattr(self, name)}")


def make_bounds(
    instance: AdmissionInstance, options: OnlineOptions, rng: np.random.Generator, worth: JobWorth | None = None
) -> PriceRanges:
    """Return U and the lower scale as the options ask; `worth` saves working out the instance's own again."""
    is_paper = options.bounds is BoundSource.PAPER
    is_unit_free = options.unit_free and not is_paper
    if options.price is PriceKind.ZERO_START:
        lower = LowerScale.UNIT_FREE_LAMBDA if is_unit_free else LowerScale.SUMMED_LAMBDA
    elif is_paper:
        lower = LowerScale.PAPER_L
    else:
        lower = LowerScale.UNIT_FREE_L if is_unit_free else LowerScale.SIMPLE_L
    known = job_worth(instance) if worth is None else worth
    if options.bounds is BoundSource.ESTIMATED:
        known = known.of(sample_jobs(instance, options.sample_share, rng))
    elif options.bounds is BoundSource.FIRST:
        known = known.of(first_jobs(instance, options.sample_share))
    bounds = price_ranges(instance, lower, worth=known, has_paper_upper=is_paper)
    return bounds.scaled(upper=options.upper_scale, lower=options.lower_scale)


def make_function(
    instance: AdmissionInstance, options: OnlineOptions, worth: JobWorth | None = None
) -> ExponentialPrice | ZeroStartPrice:
    """Return the price function as the options ask."""
    full_at = full_share(instance, options.eps, worth) if options.strict else 1.0
    if options.price is PriceKind.ZERO_START:
        return ZeroStartPrice(full_at=full_at)
    return ExponentialPrice(full_at=full_at)


@register("online", problem="admission")
class OnlineSolver:
    """OASiS, the online primal-dual algorithm, on real servers.

    Each job is decided in the moment of its arrival, for good: at the present prices its best schedule is
    found exactly among those that fit into what is left of the servers; it is admitted if the schedule is
    worth more than it costs.

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

    name: str
    problem: str
    summary = "OASiS: posted prices that rise with utilisation, one irrevocable decision a job"
    options_type = OnlineOptions

    def supports(self, instance: AdmissionInstance) -> Support:
        """Any admission instance can be run."""
        return SUPPORTED

    def solve(
        self,
        instance: AdmissionInstance,
        *,
        options: OnlineOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Decide on every job in order of arrival; a run cut short refuses the rest."""
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_online(is_shared=instance.has_shared_servers)
        with clock.phase("build"):
            worth = job_worth(instance)
            bounds = make_bounds(instance, options, np.random.default_rng(seed), worth)
            function = make_function(instance, options, worth)
            claim = ratio_claim(instance, bounds, function, worth=worth) if options.strict else None
            algorithm = OnlineAlgorithm(instance, bounds=bounds, function=function)
            initial_dual = algorithm.state.worth()
        progress.start(self.name, float(instance.num_jobs))
        with clock.phase("solve"):
            decisions, reason = _decide_all(algorithm, stop, progress, clock)
            run = finish(algorithm.state, decisions, initial_dual)
        progress.finish()
        bound: float | None = None
        certificate, dual = NO_BOUND, PointStatus.NONE
        if reason is None:
            with clock.phase("bound"):
                bound, certificate, dual = certify_plan(instance, run.plan, run.state.mean_prices())
                certificate = _with_claim(certificate, claim)
        return Solution(
            problem=self.problem,
            instance=instance.name,
            solver=self.name,
            sense=Sense.MAXIMISE,
            termination=Termination.COMPLETED if reason is None else reason,
            primal=PointStatus.FEASIBLE,
            dual=dual,
            decision=run.plan,
            objective=run.plan.objective(instance),
            bound=bound,
            certificate=certificate,
            seed=seed,
            options=options_as_dict(options),
            stats=Stats(
                seconds=clock.seconds,
                iterations=len(decisions),
                memory_mb=peak_memory_mb(),
                decision_ms=tuple(1e3 * decision.seconds for decision in decisions),
                counts=_counts(run),
            ),
        )


def default_plan(instance: AdmissionInstance, stop: StoppingCriterion, clock: PhaseClock) -> AdmissionPlan:
    """Return the plan of a run with default options, for solvers that start from one; cut short if told to stop."""
    options, worth = OnlineOptions(), job_worth(instance)
    bounds = make_bounds(instance, options, np.random.default_rng(0), worth)
    algorithm = OnlineAlgorithm(instance, bounds=bounds, function=make_function(instance, options, worth))
    decisions, _ = _decide_all(algorithm, stop, SilentProgress(), clock)
    return finish(algorithm.state, decisions, 0.0).plan


def compile_online(*, is_shared: bool) -> None:
    """Compile all loops, or load them from the cache, by a run on the smallest of instances."""
    instance, options = smallest_instance(is_shared=is_shared), OnlineOptions()
    run = run_online(
        instance,
        bounds=make_bounds(instance, options, np.random.default_rng(0)),
        function=make_function(instance, options),
    )
    certify_plan(instance, run.plan, run.state.mean_prices())


def _with_claim(certificate: Certificate, claim: RatioClaim | None) -> Certificate:
    """Add a competitive ratio and its conditions, or which of them fail, to a certificate."""
    if claim is None:
        return certificate
    return replace(
        certificate,
        statement=f"{certificate.statement}; {claim.statement}",
        conditions=tuple(str(condition) for condition in claim.conditions),
    )


def _decide_all(
    algorithm: OnlineAlgorithm, stop: StoppingCriterion, progress: Progress, clock: PhaseClock
) -> tuple[tuple[JobDecision, ...], Termination | None]:
    """Decide until all jobs are decided or the stopping rule says so."""
    decisions: list[JobDecision] = []
    earned = 0.0
    for job in algorithm.order:
        state = SolveState(elapsed_s=clock.elapsed_s, iterations=len(decisions), objective=earned)
        reason = stop(state)
        if reason is not None:
            return tuple(decisions), reason
        decisions.append(algorithm.decide(job))
        earned += decisions[-1].primal_step
        progress.update(len(decisions), {"objective": earned})
    return tuple(decisions), None


def _counts(run: OnlineRun) -> dict[str, Any]:
    """Return what a record tells of a run; its dual is no bound unless the theorems hold."""
    return {
        "admitted": sum(decision.is_accepted for decision in run.decisions),
        "refused": sum(not decision.is_accepted for decision in run.decisions),
        "running_dual": run.final_dual,
        "largest_step_ratio": run.largest_step_ratio,
    }
