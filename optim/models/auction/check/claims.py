"""What a solution claims against what can be shown: the checker's entry."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from optim.core.solution import GAP_FLOOR, Solution
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.core.verification import Verification, Violation
from optim.models.auction.check.allocation import check_bundles, check_entries, check_rows
from optim.models.auction.check.count_bound import CountBound
from optim.models.auction.check.facts import Facts, read_facts, violation
from optim.models.auction.check.payments import check_grants, check_shares
from optim.models.auction.check.price_bound import PriceBound, check_form, evaluate_tree
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.plan import AuctionPlan
from optim.models.auction.proof import AuctionProof, CountProof, PriceProof, TreeProof

OPTIMALITY_TOL = 1e-6
"""Largest gap, both in log units and relative to the objective, that is called optimal."""

AGREEMENT_TOL = 1e-9
"""Largest relative difference between a stated number and the recomputed one: sums in another order."""

PROBLEM_NAME = "auction"
NO_BOUNDS: dict[tuple[int, int], tuple[int, float]] = {}


def check(instance: AuctionInstance, solution: Solution) -> Verification:
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
        Every claim that doesn't hold, none if all do; the recomputed objective, and the recomputed bound with
        what rounding may have taken from it added.

    Notes
    -----
    Allocations are checked in integers. Bounds come from the checker's own relaxations (`count_bound`) or from
    prices, which prove a bound whatever they are (`price_bound`).
    """
    facts = read_facts(instance)
    found = _check_names(facts, solution)
    checker = _BoundCheck(facts)
    proof = None if solution.certificate is None else solution.certificate.proof
    bound, is_bound_sound = _check_bound(checker, solution, proof, found)
    objective, is_plan_sound = _check_decision(facts, solution, checker, proof, found)
    _check_kind(solution, found)
    is_sound = is_plan_sound and is_bound_sound
    is_optimal = _check_optimality(solution, objective, bound, found, is_sound=is_sound)
    proven = []
    if is_plan_sound and objective is not None:
        proven.append(f"the allocation fits, GPU by GPU, and its log welfare is {objective!r}")
        proven.append("every payment lies in its interval, and grants follow by the rule")
    if is_bound_sound and bound is not None:
        proven.append(f"no allocation has a log welfare above {bound!r}")
    if is_optimal:
        proven.append(f"the allocation is optimal to {OPTIMALITY_TOL:g} log units")
    return Verification(violations=tuple(found), objective=objective, bound=bound, proven=tuple(proven))


class _BoundCheck:
    """Evaluate the bounds of a proof, each relaxation built once."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._count: CountBound | None = None
        self._price: PriceBound | None = None

    def evaluate(self, proof: Any, without: int | None) -> tuple[float, list[Violation]]:
        """Return what a proof proves for all apps, or for all but one."""
        if isinstance(proof, CountProof):
            self._count = self._count or CountBound(self.facts)
            value = self._count.welfare() if without is None else self._count.without(without)
            return value + self.facts.rounding(value), []
        self._price = self._price or PriceBound(self.facts)
        if isinstance(proof, PriceProof):
            wrong = check_form(self.facts, proof)
            return (math.inf, [wrong]) if wrong else (self._price.evaluate(proof, without, NO_BOUNDS), [])
        if isinstance(proof, TreeProof):
            return evaluate_tree(self._price, self.facts, proof, without)
        return math.inf, [
            violation("certificate", f"a bound is proven by counts, prices or a tree, not by {type(proof).__name__}")
        ]

    def without(self, proof: Any, found: list[Violation]) -> Callable[[int], float | None]:
        """Return a function that bounds the others' welfare without an app, None where nothing is proven."""

        def bound(app: int) -> float | None:
            if not isinstance(proof, AuctionProof):
                return None
            part = proof.without.get(app)
            if part is None and proof.counts_others:
                part = CountProof()
            if part is None:
                return None
            value, wrong = self.evaluate(part, app)
            found.extend(wrong)
            return value

        return bound


def _check_names(facts: Facts, solution: Solution) -> list[Violation]:
    found = []
    name = facts.instance.name
    if solution.problem != PROBLEM_NAME:
        found.append(violation("problem", f"the solution is of problem {solution.problem!r}, not {PROBLEM_NAME!r}"))
    if solution.instance != name:
        found.append(violation("instance", f"the solution is of instance {solution.instance!r}, not {name!r}"))
    if solution.sense != Sense.MAXIMISE:
        found.append(violation("sense", f"welfare is maximised, the solution says {solution.sense}"))
    return found


def _check_decision(
    facts: Facts, solution: Solution, checker: _BoundCheck, proof: Any, found: list[Violation]
) -> tuple[float | None, bool]:
    """Check plan, payments, objective and primal status; return the recomputed objective and whether all is sound."""
    plan = solution.decision
    before = len(found)
    if plan is None:
        if solution.objective is not None or solution.primal != PointStatus.NONE:
            found.append(violation("objective", "an objective or a primal status is stated without a decision"))
        return None, False
    if not isinstance(plan, AuctionPlan):
        found.append(violation("decision", f"a decision must be an AuctionPlan, got {type(plan).__name__}"))
        return None, False
    if solution.primal != PointStatus.FEASIBLE:
        found.append(violation("primal status", f"a decision must be feasible, but the status is {solution.primal}"))
    wrong = check_rows(facts, plan.row)
    wrong = wrong or check_entries(facts, plan.placement, "placement") or check_bundles(facts, plan.row, plan.placement)
    found += wrong
    if wrong:
        return None, False
    objective = math.fsum(facts.weight[plan.row[plan.row >= 0]].tolist())
    if solution.objective is None or not _agree(solution.objective, objective):
        found.append(violation("objective", f"the objective is stated as {solution.objective!r}, but is {objective!r}"))
    found += check_shares(facts, plan, checker.without(proof, found))
    found += check_grants(facts, plan)
    return objective, len(found) == before


def _check_bound(
    checker: _BoundCheck, solution: Solution, proof: Any, found: list[Violation]
) -> tuple[float | None, bool]:
    """Check proof, bound and dual status; return the recomputed bound and whether all is sound."""
    before = len(found)
    if proof is None:
        if solution.bound is not None:
            found.append(violation("bound", f"the bound {solution.bound!r} is stated without a proof"))
        if solution.dual != PointStatus.NONE:
            found.append(violation("dual status", f"there is no proof of a bound, but the status is {solution.dual}"))
        return None, False
    if solution.dual not in (PointStatus.FEASIBLE, PointStatus.CERTIFICATE):
        found.append(violation("dual status", f"a proof must be feasible, but the status is {solution.dual}"))
    if not isinstance(proof, AuctionProof):
        found.append(violation("certificate", f"a proof must be an AuctionProof, got {type(proof).__name__}"))
        return None, False
    bound, wrong = checker.evaluate(proof.welfare, None)
    found += wrong
    if solution.bound is None:
        found.append(violation("bound", "there is a proof, but no bound is stated"))
    elif not wrong and not _is_at_least(solution.bound, bound):
        text = f"the bound {solution.bound!r} claims more than its proof gives, {bound!r}"
        found.append(violation("bound", text, amount=repr(bound - solution.bound)))
    return bound, len(found) == before


def _agree(stated: Any, actual: float) -> bool:
    return _is_finite(stated) and abs(stated - actual) <= AGREEMENT_TOL * max(1.0, abs(actual))


def _is_at_least(stated: Any, actual: float) -> bool:
    return _is_finite(stated) and stated >= actual - AGREEMENT_TOL * max(1.0, abs(actual))


def _is_finite(number: Any) -> bool:
    return isinstance(number, Real) and bool(np.isfinite(float(number)))


def _check_kind(solution: Solution, found: list[Violation]) -> None:
    """Compare the certificate's kind and the termination with what the solution holds."""
    certificate = solution.certificate
    kind = None if certificate is None else certificate.kind
    has_proof = certificate is not None and certificate.proof is not None
    if kind == CertificateKind.FEASIBLE_ONLY and (has_proof or solution.bound is not None):
        text = "a certificate of feasibility alone goes with neither a proof nor a bound"
        found.append(violation("certificate", text))
    if kind == CertificateKind.FEASIBLE_ONLY and solution.decision is None:
        found.append(violation("certificate", "feasibility is certified, but there is no decision"))
    if kind in (CertificateKind.BOUND, CertificateKind.OPTIMALITY) and not has_proof:
        found.append(violation("certificate", f"{kind} is claimed without a proof"))
    if solution.termination == Termination.OPTIMAL and kind != CertificateKind.OPTIMALITY:
        found.append(violation("termination", f"optimal is claimed, but the certificate is {kind}"))
    if solution.termination in (Termination.INFEASIBLE, Termination.DUAL_INFEASIBLE):
        text = f"{solution.termination} can't be: granting nothing is feasible, and values are finite"
        found.append(violation("termination", text))


def _check_optimality(
    solution: Solution, objective: float | None, bound: float | None, found: list[Violation], *, is_sound: bool
) -> bool:
    """Check that a claim of optimality is backed by a small gap; return whether it is."""
    if objective is not None and bound is not None and is_sound and objective > bound and not _agree(objective, bound):
        text = f"an allocation is worth {objective!r}, more than the bound {bound!r}: one of the two is wrong"
        found.append(violation("bound", text, amount=repr(objective - bound)))
        return False
    if solution.certificate is None or solution.certificate.kind != CertificateKind.OPTIMALITY:
        return False
    if not is_sound or objective is None or bound is None:
        found.append(violation("certificate", "optimality needs a sound allocation and a sound bound"))
        return False
    gap = bound - objective
    if gap > OPTIMALITY_TOL or gap > OPTIMALITY_TOL * max(abs(objective), GAP_FLOOR):
        text = f"the gap of {gap:.3g} log units between bound and objective exceeds {OPTIMALITY_TOL:g}"
        found.append(violation("certificate", text, amount=repr(gap)))
        return False
    return True
