"""Check the claims of a solution of a bidding problem: the checker's entry point."""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from optim.core.arrays import IntArray
from optim.core.claims import OPTIMALITY_TOL, AbstractClaims, CountRange, Findings, Recomputed
from optim.core.solution import CertificateKind, Sense, Solution, Verification, Violation, violation
from optim.models.bidding.check.exact_instance import (
    VerifierContext,
    check_curve,
    footprint_value,
    relaxed_limits,
    relaxed_min_work,
)
from optim.models.bidding.check.tree import keep_probability, keeps_enough, proven_bound
from optim.models.bidding.decision import FootprintPlan, RatioProof
from optim.models.bidding.instance import BiddingInstance


def check(instance: BiddingInstance, solution: Solution) -> Verification:
    """Recompute every claim of a solution from the instance's raw numbers alone.

    Parameters
    ----------
    instance
        The instance.
    solution
        Any solution of it, tampered with or not.

    Returns
    -------
    Verification
        Every false claim, none if all hold. Also the recomputed cost per work, and the recomputed bound
        lowered by its possible rounding error.
    """
    return BiddingClaims(VerifierContext(instance=instance), solution).check()


class BiddingClaims(AbstractClaims):
    """The claims of a footprint, and of the tree that proves a ratio."""

    problem = "bidding"
    sense = Sense.MINIMISE
    decision_type = FootprintPlan
    proof_types = (RatioProof,)
    sentences: ClassVar[Mapping[CertificateKind, tuple[str, ...]]] = {
        CertificateKind.FEASIBLE_ONLY: ("the footprint is feasible; no bound is claimed",),
        CertificateKind.BOUND: ("no footprint has a cost per work below {bound}",),
        CertificateKind.OPTIMALITY: ("no footprint has a cost per work below {bound}",),
    }
    objective_text = "the footprint fits, and its cost per work is {}"
    bound_text = "no footprint has a cost per work below {}"
    optimality_text = f"the footprint is optimal to {OPTIMALITY_TOL:g}"

    def __init__(self, facts: VerifierContext, solution: Solution) -> None:
        super().__init__(facts.instance.name, solution)
        self.facts = facts

    def check_decision(self, decision: FootprintPlan) -> Findings:
        """Check bounds, caps and the rule of one bid per market; the objective is cost divided by work."""
        violations = _check_rows(self.facts, decision)
        if len(decision.counts) != self.facts.instance.num_bids:
            return violations, None
        cost, work = footprint_value(self.facts, decision.counts.tolist())
        least = relaxed_min_work(self.facts.instance)
        if work <= 0:
            return [*violations, violation("work", "the footprint does no work, so that it has no cost per work")], None
        if work < least:
            text = f"the work {work!r} is below min_work {self.facts.instance.min_work!r}"
            violations.append(violation("work", text, amount=repr(least - work)))
        return violations, Recomputed.total([cost / work])  # neither cost nor work has terms of both signs

    def check_proof(self, proof: RatioProof) -> Findings:
        """Check a tree and its ratio."""
        bound, wrong = proven_bound(self.facts, proof)
        return wrong, None if bound is None else Recomputed(value=bound, terms=bound)  # costs are of one sign

    def why_feasible(self) -> str | None:
        """Return which footprint is feasible (no bids, all bids, or one bid at its maximum), None if all of these fail."""
        most, alone = self.facts.instance.bids.max_count, _max_alone(self.facts.instance)
        one_bid = (np.where(np.arange(len(most)) == j, alone, 0) for j in range(len(most)))
        for what, counts in (
            ("the existing machines alone do", (np.zeros_like(most),)),
            ("all bids together do", (most,)),
            ("a bid of the instance does", one_bid),
        ):
            if any(map(self._is_answer, counts)):
                return f"{what} enough work"
        return None

    def _is_answer(self, counts: IntArray) -> bool:
        """Return whether a footprint breaks no rule and does enough work."""
        work = footprint_value(self.facts, counts.tolist())[1]
        return (
            not _check_rows(self.facts, FootprintPlan.of(counts))
            and work > 0
            and work >= relaxed_min_work(self.facts.instance)
        )

    def counts(self) -> Mapping[str, float]:
        """Return the work of the footprint, and the probability of its survival constraint, if there is one."""
        plan = self.solution.decision
        if not isinstance(plan, FootprintPlan):
            return {}
        instance = self.facts.instance
        lasts = (
            {} if instance.survival is None else {"kept": keep_probability(instance, instance.survival, plan.counts)}
        )
        return {"work": footprint_value(self.facts, plan.counts.tolist())[1], **lasts}

    def count_ranges(self) -> Mapping[str, CountRange]:
        """Return the valid ranges of the counters that `counts` does not recompute."""
        amounts = ("work", "risk_ratio", "neutral_risk_ratio")
        return {
            **CountRange.each_whole(("ratios", "leaves", "nodes", "points")),
            **dict.fromkeys(amounts, CountRange()),
            "kept": CountRange(high=1.0),
        }

    def check_related_counts(self, stated: Mapping[str, float]) -> list[Violation]:
        """Check the points of a curve."""
        plan = self.solution.decision
        decision_point = footprint_value(self.facts, plan.counts.tolist()) if isinstance(plan, FootprintPlan) else None
        return check_curve(self.facts, stated, self.solution.bound, decision_point)


def _check_rows(facts: VerifierContext, plan: FootprintPlan) -> list[Violation]:
    """Check bounds, caps and the rule of one bid per market."""
    instance, counts = facts.instance, plan.counts
    if counts.shape != (instance.num_bids,) or not np.issubdtype(counts.dtype, np.integer):
        return [violation("decision", f"counts must be {instance.num_bids} whole numbers, got shape {counts.shape}")]
    violations = []
    for j in np.flatnonzero((counts < 0) | (counts > instance.bids.max_count)).tolist():
        text = f"{counts[j]} instances, but 0 to {instance.bids.max_count[j]}"
        violations.append(
            violation(f"bound [bid {j}]", text, amount=str(max(-counts[j], counts[j] - instance.bids.max_count[j])))
        )
    caps = instance.caps
    limits = relaxed_limits(instance).tolist()
    for name, weight, limit, most in zip(caps.names, caps.weight, caps.limit.tolist(), limits, strict=True):
        used = math.fsum((weight * counts).tolist())
        if used > most:
            violations.append(
                violation(f"cap [{name}]", f"{used:g} is used, the limit is {limit:g}", amount=repr(used - limit))
            )
    if instance.one_bid_per_market:
        number = np.bincount(instance.bids.market[counts > 0], minlength=len(instance.markets))
        violations += [
            violation(
                f"one bid [{instance.markets[m]}]",
                f"the footprint uses {number[m]} bids, at most one is allowed",
                amount=str(number[m] - 1),
            )
            for m in np.flatnonzero(number > 1).tolist()
        ]
    survival = instance.survival
    if survival is not None and not keeps_enough(instance, counts):
        chance = keep_probability(instance, survival, counts)
        text = (
            f"a capacity of {survival.min_capacity} survives with probability {chance:.9g}, "
            f"but {survival.probability:g} is required"
        )
        violations.append(violation("survival", text, amount=repr(survival.probability - chance)))
    return violations


def _max_alone(instance: BiddingInstance) -> IntArray:
    """Return the largest number of instances of each bid alone, shape (bids,)."""
    caps, most = instance.caps, instance.bids.max_count.astype(np.float64)
    for weight, limit in zip(caps.weight, relaxed_limits(instance).tolist(), strict=True):
        uses = weight > 0
        most[uses] = np.minimum(most[uses], limit / weight[uses])
    return np.floor(most).astype(np.int64)
