"""From a footprint and a proof to a solution with its statuses and its certificate."""

import numpy as np

from optim.core.certificate import Certificate
from optim.core.clock import PhaseClock, peak_memory_mb
from optim.core.options import options_as_dict
from optim.core.registry import Solver
from optim.core.solution import Solution, Stats
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.instance import BiddingInstance, HourOutlook, IntArray, Scalability
from optim.models.bidding.plan import FootprintPlan
from optim.models.bidding.proof import RatioProof
from optim.solvers.bidding.tree.search import RatioTree, TreeResult

OPTIMALITY_TOL = 1e-6
"""Largest relative gap that is called optimal."""

HALVINGS = 200
NEWTON_STEPS = 6
MARGIN = 1e-9
"""Relative step below a ratio at which the relaxation's value is 0, so that it is surely not below."""

ROUNDING = 1e-10
"""Relative room that is left between a stated bound and what the solver's own arithmetic says."""


def least_work_of(instance: BiddingInstance, ratio: float) -> float:
    """Return the least work of a footprint that could cost less than `ratio` a unit."""
    return max(instance.min_work, instance.fixed_usd / ratio * (1 - 1e-9)) if ratio > 0 else instance.min_work


def least_rate_of(curve: Scalability, work: float) -> float:
    """Return a rate that every footprint of so much work has, rounded down."""
    if work <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while float(curve.value(np.array(high))) < work:
        low, high = high, 2 * high
        if high > 1e12:
            return low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(curve.value(np.array(middle))) < work else (low, middle)
    return low * (1 - 1e-9)


def bound_of(instance: BiddingInstance, ratio: float, result: TreeResult) -> float:
    """Return the bound on the cost per work that a tree proves."""
    least_work = least_work_of(instance, ratio)
    if result.bound >= 0:
        return ratio
    return max(0.0, ratio + result.bound / least_work * (1 + ROUNDING)) if least_work > 0 else 0.0


def make_tree(
    instance: BiddingInstance,
    ratio: float,
    start: IntArray | None,
    *,
    cutoff: float = 0.0,
    gap: float = 0.0,
    all_of_interest: bool = False,
) -> RatioTree:
    """Return a search at a ratio; unless all footprints are of interest, those that can't be below the ratio aren't."""
    rate = 0.0 if all_of_interest else least_rate_of(instance.scalability, least_work_of(instance, ratio))
    return RatioTree(instance, ratio, cutoff=cutoff, gap=gap, least_rate=rate, start=start)


def root_bound(instance: BiddingInstance, counts: IntArray) -> tuple[float, RatioProof] | None:
    """Return a bound by the relaxation alone, and its proof; None where the footprint does no work.

    Newton's method on the relaxation's least ``cost - q work``, which is concave in q.
    """
    value = evaluate(instance, counts)
    if value.work <= 0:
        return None
    ratio, best = value.ratio * (1 - MARGIN), None
    for _ in range(NEWTON_STEPS):
        result = make_tree(instance, ratio, counts).run(lambda solved, bound: True)
        bound = bound_of(instance, ratio, result)
        if best is None or bound > best[0]:
            best = bound, RatioProof(ratio=ratio, nodes=result.nodes, multipliers=result.multipliers)
        if result.bound >= 0:
            break
        ratio = (ratio + result.bound / value.work) * (1 - MARGIN)
        if ratio <= 0:
            break
    return best


def can_work(instance: BiddingInstance) -> bool:
    """Tell whether any instance that may be taken, or what is there anyway, works at all."""
    bids, outlook = instance.bids, instance.outlook
    useful = outlook.usable_h if isinstance(outlook, HourOutlook) else outlook.alive.sum(axis=(1, 2))
    fits = (instance.caps.weight <= instance.caps.limit[:, None]).all(axis=0)
    return instance.fixed_rate > 0 or bool(((bids.max_count > 0) & (bids.rate > 0) & (useful > 0) & fits).any())


def finish(
    solver: Solver,
    instance: BiddingInstance,
    options: object,
    *,
    counts: IntArray,
    proven: tuple[float, RatioProof] | None,
    termination: Termination,
    seed: int,
    clock: PhaseClock,
    iterations: int,
    extra: dict[str, float] | None = None,
    message: str = "",
) -> Solution:
    """Return the solution of a footprint; without work it is no decision."""
    value = evaluate(instance, counts)
    has_work = value.work > 0 and value.work >= instance.min_work * (1 - ROUNDING)
    seconds = {"build": 0.0, "compile": 0.0, "solve": 0.0, **clock.seconds}
    stats = Stats(
        seconds=seconds, iterations=iterations, memory_mb=peak_memory_mb(), counts={"work": value.work, **(extra or {})}
    )
    if not has_work:
        proven = None
        is_hopeless = not can_work(instance)
        termination = Termination.INFEASIBLE if is_hopeless else termination
        message = "no bid does any work" if is_hopeless else "no footprint with enough work was found"
    certificate = None
    if proven is not None:
        gap = (value.ratio - proven[0]) / max(value.ratio, 1e-9)
        is_optimal = gap <= OPTIMALITY_TOL
        if is_optimal and termination in (Termination.COMPLETED, Termination.GAP_LIMIT):
            termination = Termination.OPTIMAL
        certificate = Certificate(
            kind=CertificateKind.OPTIMALITY if is_optimal else CertificateKind.BOUND,
            statement=f"no footprint has a cost per work below {proven[0]:.9g}",
            proof=proven[1],
        )
    elif has_work:
        certificate = Certificate(
            kind=CertificateKind.FEASIBLE_ONLY, statement="the footprint is feasible; no bound is claimed"
        )
    return Solution(
        problem=solver.problem,
        instance=instance.name,
        solver=solver.name,
        sense=Sense.MINIMISE,
        termination=termination,
        primal=PointStatus.FEASIBLE if has_work else PointStatus.NONE,
        dual=PointStatus.FEASIBLE if proven is not None else PointStatus.NONE,
        decision=FootprintPlan.of(counts) if has_work else None,
        objective=value.ratio if has_work else None,
        bound=None if proven is None else proven[0],
        certificate=certificate,
        seed=seed,
        options=options_as_dict(options),
        stats=stats,
        message=message,
    )
