"""What a solution claims against what can be shown: the checker's entry."""

import math
from numbers import Real
from typing import Any

import numpy as np

from optim.core.solution import GAP_FLOOR, Solution
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.core.verification import Verification, Violation
from optim.models.bidding.check.facts import Facts, footprint_value, least_rate_for, violation
from optim.models.bidding.check.leaf import CAP_TOL, CheckedBox, check_form, leaf_bound
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.plan import FootprintPlan
from optim.models.bidding.proof import CHANGE, RatioProof

OPTIMALITY_TOL = 1e-6
"""Largest gap relative to the objective that is called optimal."""

AGREEMENT_TOL = 1e-9
"""Largest relative difference between a stated number and the recomputed one: sums in another order."""

PROBLEM_NAME = "bidding"


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
        Every claim that doesn't hold, none if all do; the recomputed cost per work, and the recomputed bound with
        what rounding may have added to it taken off.
    """
    facts = Facts(instance=instance)
    found = _check_names(instance, solution)
    objective, is_plan_sound = _check_decision(facts, solution, found)
    bound, is_bound_sound = _check_bound(facts, solution, found)
    _check_kind(facts, solution, found)
    is_optimal = _check_optimality(solution, objective, bound, found, is_sound=is_plan_sound and is_bound_sound)
    proven = []
    if is_plan_sound and objective is not None:
        proven.append(f"the footprint fits, and its cost per work is {objective!r}")
    if is_bound_sound and bound is not None:
        proven.append(f"no footprint has a cost per work below {bound!r}")
    if is_optimal:
        proven.append(f"the footprint is optimal to {OPTIMALITY_TOL:g}")
    return Verification(violations=tuple(found), objective=objective, bound=bound, proven=tuple(proven))


def proven_bound(facts: Facts, proof: RatioProof) -> tuple[float | None, list[Violation]]:
    """Return the bound that a proof gives, None with what is wrong with it."""
    instance = facts.instance
    if not (_is_finite(proof.ratio) and proof.ratio >= 0):
        return None, [violation("certificate", f"the ratio must be at least 0 and finite, got {proof.ratio!r}")]
    if proof.ratio == 0:
        return 0.0, []  # costs are never negative
    least_work = max(instance.min_work, instance.fixed_usd / proof.ratio * (1.0 - 1e-12))
    least, wrong = _tree_bound(facts, proof, least_rate_for(instance.scalability, least_work))
    if wrong:
        return None, wrong
    if least >= 0:
        return proof.ratio, []
    if least_work <= 0:
        return 0.0, []
    return max(0.0, proof.ratio + least / least_work), []


def _tree_bound(facts: Facts, proof: RatioProof, least_rate: float) -> tuple[float, list[Violation]]:
    """Return the least bound of the tree's leaves; its splits must cover all footprints."""
    bids = facts.instance.bids
    size = len(bids)
    root = CheckedBox(low=np.zeros(size, dtype=np.int64), high=bids.max_count, has_change=None)
    if not bids.is_new.any():
        root = CheckedBox(low=root.low, high=root.high, has_change=False)
    if not proof.nodes:
        return -math.inf, [violation("certificate", "the tree has no node")]
    for x in proof.multipliers:
        wrong = check_form(facts, x)
        if wrong is not None:
            return -math.inf, [wrong]
    least, pending, visits = math.inf, [(0, root)], 0
    while pending:
        number, box = pending.pop()
        visits += 1
        if not 0 <= number < len(proof.nodes) or visits > len(proof.nodes):
            return -math.inf, [violation("certificate", "the tree has a child that isn't there, or a circle")]
        node = proof.nodes[number]
        if node.bid is None:
            if not 0 <= node.multipliers < len(proof.multipliers):
                return -math.inf, [violation("certificate", f"there are no multipliers {node.multipliers}")]
            x = proof.multipliers[node.multipliers]
            least = min(least, leaf_bound(facts, box, x, proof.ratio, least_rate))
        elif node.bid == CHANGE and box.has_change is None:
            unchanged = np.where(bids.is_new, 0, box.high)
            pending.append((node.low, CheckedBox(low=box.low, high=unchanged, has_change=False)))
            pending.append((node.high, CheckedBox(low=box.low, high=box.high, has_change=True)))
        elif 0 <= node.bid < size:
            low, high = box.low.copy(), box.high.copy()
            high[node.bid] = min(high[node.bid], node.value)
            low[node.bid] = max(low[node.bid], node.value + 1)
            pending.append((node.low, CheckedBox(low=box.low, high=high, has_change=box.has_change)))
            pending.append((node.high, CheckedBox(low=low, high=box.high, has_change=box.has_change)))
        else:
            return -math.inf, [violation("certificate", f"the tree splits by bid {node.bid}, which can't be")]
    return least, []


def _check_names(instance: BiddingInstance, solution: Solution) -> list[Violation]:
    found = []
    if solution.problem != PROBLEM_NAME:
        found.append(violation("problem", f"the solution is of problem {solution.problem!r}, not {PROBLEM_NAME!r}"))
    if solution.instance != instance.name:
        found.append(violation("instance", f"the solution is of {solution.instance!r}, not {instance.name!r}"))
    if solution.sense != Sense.MINIMISE:
        found.append(violation("sense", f"cost per work is minimised, the solution says {solution.sense}"))
    return found


def _check_decision(facts: Facts, solution: Solution, found: list[Violation]) -> tuple[float | None, bool]:
    """Check footprint, objective and primal status; return the recomputed objective and whether all is sound."""
    plan, before = solution.decision, len(found)
    if plan is None:
        if solution.objective is not None or solution.primal != PointStatus.NONE:
            found.append(violation("objective", "an objective or a primal status is stated without a decision"))
        return None, False
    if not isinstance(plan, FootprintPlan):
        found.append(violation("decision", f"a decision must be a FootprintPlan, got {type(plan).__name__}"))
        return None, False
    if solution.primal != PointStatus.FEASIBLE:
        found.append(violation("primal status", f"a decision must be feasible, but the status is {solution.primal}"))
    found += _check_rows(facts, plan)
    if len(plan.counts) != facts.instance.num_bids:
        return None, False
    cost, work = footprint_value(facts, plan.counts.tolist())
    if work <= 0:
        found.append(violation("work", "the footprint does no work, so that it has no cost per work"))
        return None, False
    if work < facts.instance.min_work * (1.0 - AGREEMENT_TOL):
        found.append(violation("work", f"the work {work!r} is below min_work {facts.instance.min_work!r}"))
    objective = cost / work
    if solution.objective is None or not _agree(solution.objective, objective):
        found.append(violation("objective", f"the objective is stated as {solution.objective!r}, but is {objective!r}"))
    return objective, len(found) == before


def _check_rows(facts: Facts, plan: FootprintPlan) -> list[Violation]:
    """Check bounds, caps and the rule of one bid a market."""
    instance, counts = facts.instance, plan.counts
    if counts.shape != (instance.num_bids,) or not np.issubdtype(counts.dtype, np.integer):
        return [violation("decision", f"counts must be {instance.num_bids} whole numbers, got shape {counts.shape}")]
    found = []
    for j in np.flatnonzero((counts < 0) | (counts > instance.bids.max_count)).tolist():
        text = f"{counts[j]} instances, allowed are 0 to {instance.bids.max_count[j]}"
        found.append(
            violation(f"bound [bid {j}]", text, amount=str(max(-counts[j], counts[j] - instance.bids.max_count[j])))
        )
    caps = instance.caps
    for name, weight, limit in zip(caps.names, caps.weight, caps.limit.tolist(), strict=True):
        used = math.fsum((weight * counts).tolist())
        if used > limit + CAP_TOL * max(1.0, limit):
            found.append(
                violation(f"cap [{name}]", f"{used:g} is used, the limit is {limit:g}", amount=repr(used - limit))
            )
    if instance.one_bid_a_market:
        number = np.bincount(instance.bids.market[counts > 0], minlength=len(instance.markets))
        found += [
            violation(f"one bid [{instance.markets[m]}]", f"{number[m]} bids are taken", amount=str(number[m] - 1))
            for m in np.flatnonzero(number > 1).tolist()
        ]
    return found


def _check_bound(facts: Facts, solution: Solution, found: list[Violation]) -> tuple[float | None, bool]:
    """Check proof, bound and dual status; return the recomputed bound and whether all is sound."""
    proof = None if solution.certificate is None else solution.certificate.proof
    before = len(found)
    if proof is None:
        if solution.bound is not None:
            found.append(violation("bound", f"the bound {solution.bound!r} is stated without a proof"))
        if solution.dual != PointStatus.NONE:
            found.append(violation("dual status", f"there is no proof of a bound, but the status is {solution.dual}"))
        return None, False
    if solution.dual not in (PointStatus.FEASIBLE, PointStatus.CERTIFICATE):
        found.append(violation("dual status", f"a proof must be feasible, but the status is {solution.dual}"))
    if not isinstance(proof, RatioProof):
        found.append(violation("certificate", f"a proof must be a RatioProof, got {type(proof).__name__}"))
        return None, False
    bound, wrong = proven_bound(facts, proof)
    found += wrong
    if solution.bound is None:
        found.append(violation("bound", "there is a proof, but no bound is stated"))
    elif bound is not None and not (_is_finite(solution.bound) and solution.bound <= bound * (1 + AGREEMENT_TOL)):
        text = f"the bound {solution.bound!r} claims more than its proof gives, {bound!r}"
        found.append(violation("bound", text, amount=repr(solution.bound - bound)))
    return bound, len(found) == before


def _agree(stated: Any, actual: float) -> bool:
    return _is_finite(stated) and abs(stated - actual) <= AGREEMENT_TOL * max(abs(actual), GAP_FLOOR)


def _is_finite(number: Any) -> bool:
    return isinstance(number, Real) and math.isfinite(float(number))


def _check_kind(facts: Facts, solution: Solution, found: list[Violation]) -> None:
    """Compare the certificate's kind and the termination with what the solution holds."""
    certificate = solution.certificate
    kind = None if certificate is None else certificate.kind
    has_proof = certificate is not None and certificate.proof is not None
    if kind == CertificateKind.FEASIBLE_ONLY and (has_proof or solution.bound is not None):
        found.append(violation("certificate", "a certificate of feasibility alone goes with neither proof nor bound"))
    if kind == CertificateKind.FEASIBLE_ONLY and solution.decision is None:
        found.append(violation("certificate", "feasibility is certified, but there is no decision"))
    if kind in (CertificateKind.BOUND, CertificateKind.OPTIMALITY) and not has_proof:
        found.append(violation("certificate", f"{kind} is claimed without a proof"))
    if solution.termination == Termination.OPTIMAL and kind != CertificateKind.OPTIMALITY:
        found.append(violation("termination", f"optimal is claimed, but the certificate is {kind}"))
    if solution.termination == Termination.DUAL_INFEASIBLE:
        found.append(violation("termination", "dual_infeasible can't be: cost per work is at least 0"))
    if solution.termination == Termination.INFEASIBLE and _can_work(facts):
        found.append(violation("termination", "infeasible can not be: a bid of the instance does work"))


def _check_optimality(
    solution: Solution, objective: float | None, bound: float | None, found: list[Violation], *, is_sound: bool
) -> bool:
    """Check that a claim of optimality is backed by a small gap; return whether it is."""
    if objective is not None and bound is not None and is_sound and objective < bound and not _agree(objective, bound):
        text = f"a footprint costs {objective!r} a unit, less than the bound {bound!r}: one of the two is wrong"
        found.append(violation("bound", text, amount=repr(bound - objective)))
        return False
    if solution.certificate is None or solution.certificate.kind != CertificateKind.OPTIMALITY:
        return False
    if not is_sound or objective is None or bound is None:
        found.append(violation("certificate", "optimality needs a sound footprint and a sound bound"))
        return False
    gap = (objective - bound) / max(objective, GAP_FLOOR)
    if gap > OPTIMALITY_TOL:
        found.append(violation("certificate", f"the gap of {gap:.3g} exceeds {OPTIMALITY_TOL:g}", amount=repr(gap)))
        return False
    return True


def _can_work(facts: Facts) -> bool:
    """Tell whether one instance of any bid fits and works, or what is there anyway does."""
    instance = facts.instance
    if instance.fixed_rate > 0:
        return True
    for j in range(instance.num_bids):
        fits = bool((instance.caps.weight[:, j] <= instance.caps.limit).all())
        if fits and instance.bids.max_count[j] > 0 and instance.bids.rate[j] > 0 and facts.alive[j].any():
            return True
    return False
