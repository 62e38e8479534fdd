"""From an allocation and what the others could have without each winner to a plan with payments, and a solution."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from optim.core.certificate import Certificate
from optim.core.clock import PhaseClock, peak_memory_mb
from optim.core.options import options_as_dict
from optim.core.solution import GAP_FLOOR, Solution, Stats
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.models.auction.instance import AuctionInstance, IntArray, as_floats, as_ints
from optim.models.auction.payment import settle
from optim.models.auction.plan import AuctionPlan, PaymentRule, Witness
from optim.models.auction.proof import AuctionProof, BoundProof

PROBLEM = "auction"

OPTIMALITY_TOL = 1e-6
"""Largest gap, both in log units and relative to the objective, that is called optimal."""

TOUCHING_TOL = 1e-12
"""Bounds that miss a value by this share of it agree: sums in another order."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Without:
    """What the others can have without one app.

    Parameters
    ----------
    reached
        Log welfare of an allocation of the others; `witness` is that allocation.
    bound
        No allocation of the others is worth more; `proof` proves it (None where the counts of all are proof).
    """

    reached: float
    bound: float
    witness: Witness | None = None
    proof: BoundProof | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """What a solver found: an allocation, its bound, and the payments' two ends."""

    row: IntArray
    placement: IntArray
    bound: float | None
    proof: BoundProof | None
    without: Mapping[int, Without]
    counts_others: bool = False


class NamedSolver(Protocol):
    """A registered solver."""

    name: str


def make_plan(instance: AuctionInstance, outcome: Outcome, rule: PaymentRule, seed: int) -> AuctionPlan:
    """Return the plan: shares from both ends of each payment, grants by the rule.

    With w the others' log welfare in the allocation and OPT what they could have without app i,
    ``c = exp(w - OPT)``; OPT lies between `reached` and `bound`. The rule rounds the upper end: nobody pays
    more than an allocation that was found justifies.
    """
    row = outcome.row
    low, high = np.ones(instance.num_apps), np.ones(instance.num_apps)
    welfare = float(instance.weight[row[row >= 0]].sum())
    for i in np.flatnonzero(row >= 0).tolist():
        others = welfare - float(instance.weight[row[i]])
        part = outcome.without.get(i)
        if part is None:
            low[i] = 0.0
            continue
        high[i] = np.exp(min(0.0, others - part.reached))
        low[i] = min(high[i], np.exp(min(0.0, others - part.bound)))
    return AuctionPlan(
        row=as_ints(row),
        placement=outcome.placement,
        share_low=as_floats(low),
        share_high=as_floats(high),
        rule=rule,
        grants=settle(instance, outcome.placement, high, rule, np.random.default_rng(seed)),
        witnesses={i: part.witness for i, part in outcome.without.items() if part.witness is not None},
    )


def make_solution(
    solver: NamedSolver,
    instance: AuctionInstance,
    outcome: Outcome,
    *,
    rule: PaymentRule,
    options: Any,
    seed: int,
    clock: PhaseClock,
    termination: Termination,
    iterations: int = 0,
    counts: Mapping[str, float] | None = None,
    message: str = "",
) -> Solution:
    """Return the solution of an outcome; it is called optimal if bound and objective agree."""
    with clock.phase("solve"):
        plan = make_plan(instance, outcome, rule, seed)
    objective = plan.welfare(instance)
    bound = outcome.bound
    is_optimal = False
    if bound is not None:
        slack = TOUCHING_TOL * max(1.0, abs(objective))
        bound = objective if objective - slack <= bound <= objective + slack else bound
        gap = bound - objective
        is_optimal = gap <= OPTIMALITY_TOL * min(1.0, max(abs(objective), GAP_FLOOR)) / 2
    kind = (
        CertificateKind.OPTIMALITY
        if is_optimal
        else CertificateKind.FEASIBLE_ONLY
        if bound is None
        else CertificateKind.BOUND
    )
    statement = {
        CertificateKind.OPTIMALITY: "no allocation has a larger product of values",
        CertificateKind.FEASIBLE_ONLY: "the allocation fits",
        CertificateKind.BOUND: f"no allocation has a log welfare above {bound}",
    }[kind]
    width = (plan.share_high - plan.share_low)[plan.row >= 0]
    figures = {
        "winners": float(plan.num_winners),
        "exact_payments": float((width <= 1e-9).sum()),
        "widest_interval": float(width.max(initial=0.0)),
        **({} if bound is None else {"gap_log": bound - objective}),
        **(counts or {}),
    }
    return Solution(
        problem=PROBLEM,
        instance=instance.name,
        solver=solver.name,
        sense=Sense.MAXIMISE,
        termination=Termination.OPTIMAL if is_optimal else termination,
        primal=PointStatus.FEASIBLE,
        dual=PointStatus.NONE if bound is None else PointStatus.FEASIBLE,
        decision=plan,
        objective=objective,
        bound=bound,
        certificate=Certificate(kind=kind, statement=statement, proof=None if bound is None else _proof(outcome)),
        seed=seed,
        options=options_as_dict(options),
        stats=Stats(
            seconds={"build": 0.0, "compile": 0.0, "solve": 0.0, **clock.seconds},
            iterations=iterations,
            memory_mb=peak_memory_mb(),
            counts=figures,
        ),
        message=message,
    )


def _proof(outcome: Outcome) -> AuctionProof:
    assert outcome.proof is not None
    return AuctionProof(
        welfare=outcome.proof,
        without={i: part.proof for i, part in outcome.without.items() if part.proof is not None},
        counts_others=outcome.counts_others,
    )
