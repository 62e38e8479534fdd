"""Check the claims of a solution of an auction: the checker's entry point."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from optim.core.claims import OPTIMALITY_TOL, AbstractClaims, CountRange, Findings, Recomputed
from optim.core.solution import CertificateKind, Sense, Solution, Verification, Violation, violation
from optim.models.auction.check.allocation import check_bundles, check_entries, check_rows
from optim.models.auction.check.bounds import CountBound, Prepared, PriceBound, check_form, evaluate_tree
from optim.models.auction.check.exact_instance import ExactInstance, read_facts
from optim.models.auction.check.payments import check_grants, check_shares, decided_grants
from optim.models.auction.decision import AuctionPlan, AuctionProof, CountProof, PriceProof, TreeProof
from optim.models.auction.instance import AuctionInstance

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
        Every false claim, none if all hold. Also the recomputed objective, and the recomputed bound raised by
        its possible rounding error.

    Notes
    -----
    Allocations are checked in integers. Bounds come from the checker's relaxations (`CountBound`) or from
    prices (`PriceBound`), which prove a bound for all price values.
    """
    return AuctionClaims(read_facts(instance), solution).check()


class AuctionClaims(AbstractClaims):
    """The claims of an allocation, of its payments, and of bounds with and without each app."""

    problem = "auction"
    sense = Sense.MAXIMISE
    decision_type = AuctionPlan
    proof_types = (AuctionProof,)
    sentences: ClassVar[Mapping[CertificateKind, tuple[str, ...]]] = {
        CertificateKind.FEASIBLE_ONLY: ("the allocation fits",),
        CertificateKind.BOUND: (
            "no allocation has a log welfare above {bound}",
            "no allocation has a log welfare above {bound}; {decided} of {winners} grants are certain",
        ),
        CertificateKind.OPTIMALITY: (
            "no allocation has a larger product of values",
            "no allocation has a larger product of values; {decided} of {winners} grants are certain",
        ),
    }
    max_gap = OPTIMALITY_TOL  # differences of log units are relative
    objective_text = "the allocation fits, GPU by GPU, and its log welfare is {}"
    bound_text = "no allocation has a log welfare above {}"
    optimality_text = f"the allocation is optimal to {OPTIMALITY_TOL:g} log units"

    def __init__(self, facts: ExactInstance, solution: Solution) -> None:
        super().__init__(facts.instance.name, solution)
        self.facts = facts
        self._count: CountBound | None = None
        self._certain: dict[str, float] = {"decided": math.nan, "winners": math.nan}
        self._widest = math.nan
        self._price: PriceBound | None = None
        self._shared: Prepared | None = None

    def check_decision(self, decision: AuctionPlan) -> Findings:
        """Check bundles, payments and grants; the objective is the sum of the awarded rows' weights."""
        facts = self.facts
        violations = check_rows(facts, decision.row) or check_entries(facts, decision.placement, "placement")
        violations = violations or check_bundles(facts, decision.row, decision.placement)
        if violations:
            return violations, None
        wrong_shares, shares = check_shares(facts, decision, lambda app: self._bound_without(app, violations))
        violations += wrong_shares or check_grants(facts, decision, shares)
        if not wrong_shares:
            decided, winners, self._widest = decided_grants(facts, decision, shares)
            self._certain = {"decided": decided, "winners": winners}
        return violations, Recomputed.total(facts.weight[decision.row[decision.row >= 0]].tolist())

    def check_proof(self, proof: AuctionProof) -> Findings:
        """Check the bound on the welfare of all apps."""
        value, terms, wrong = self._evaluate(proof.welfare, None)
        return wrong, Recomputed(value=value, terms=terms) if math.isfinite(value) else None

    def max_terms(self) -> float:
        """Return the sum over apps of the largest weight of their rows."""
        largest = np.zeros(self.facts.num_apps)
        np.maximum.at(largest, self.facts.instance.bids.app, self.facts.weight)
        return math.fsum(largest.tolist())

    def why_feasible(self) -> str:
        """Return the reason why a feasible allocation always exists."""
        return "granting nothing is feasible"

    def figures(self) -> Mapping[str, float]:
        """Return the number of grants that are certain, and the number of winners."""
        return self._certain

    def counts(self) -> Mapping[str, float]:
        """Return the numbers of winners, exact payments and certain grants, the widest interval, and the gap."""
        plan, solution = self.solution.decision, self.solution
        if not isinstance(plan, AuctionPlan):
            return {}
        width = (plan.share_high - plan.share_low)[plan.row >= 0]
        known = {
            "winners": float(len(width)),
            "exact_payments": float((width <= 1e-9).sum()),
            "decided_grants": float(self._certain["decided"]),
            "widest_interval": float(width.max(initial=0.0)),
        }
        if solution.bound is not None and solution.objective is not None:
            known["gap_log"] = solution.bound - solution.objective
        return known

    def count_ranges(self) -> Mapping[str, CountRange]:
        """Return the valid ranges of the search's counters."""
        return {
            **CountRange.each_whole(("rows", "by_count", "by_tree", "unplaced")),
            **CountRange.each_whole(("winners", "exact_payments", "decided_grants"), 0),
            "widest_interval": CountRange(),
            "gap_log": CountRange(low=-OPTIMALITY_TOL),
        }

    def further_proven(self) -> list[str]:
        """Report the number of grants that are equal for every payment within its interval."""
        decided, winners = (f"{self._certain[name]:g}" for name in ("decided", "winners"))
        return [
            "every payment lies in its interval, and grants follow by the rule from its upper end",
            f"{decided} of {winners} grants are the same at both ends; the widest interval is {self._widest:.6g}",
        ]

    def _evaluate(self, proof: Any, without: int | None) -> tuple[float, float, list[Violation]]:
        """Return the bound of a proof for all apps or all but one, the sum of its absolute terms, and the violations.

        Relaxations are cached.
        """
        if isinstance(proof, CountProof):
            self._count = self._count or CountBound(self.facts)
            value = self._count.welfare() if without is None else self._count.without(without)
            return value + self.facts.rounding(value), abs(value), []
        self._price = self._price or PriceBound(self.facts)
        if isinstance(proof, PriceProof):
            wrong = check_form(self.facts, proof)
            return (math.inf, 0.0, [wrong]) if wrong else (*self._price.evaluate(proof, without, NO_BOUNDS), [])
        if isinstance(proof, TreeProof):
            return evaluate_tree(self._price, self.facts, proof, without)
        text = f"a bound is proven by counts, prices or a tree, not by {type(proof).__name__}"
        return math.inf, 0.0, [violation("certificate", text)]

    def _bound_without(self, app: int, violations: list[Violation]) -> float | None:
        """Return an upper bound on the other apps' welfare without one app, None if there is no proof."""
        proof = None if self.solution.certificate is None else self.solution.certificate.proof
        if not isinstance(proof, AuctionProof):
            return None
        part = proof.without.get(app, CountProof() if proof.counts_others else None)
        if proof.others is not None and app not in proof.without:
            return self._bound_by_shared(proof.others, app, violations)
        if part is None:
            return None
        value, _, wrong = self._evaluate(part, app)
        violations.extend(wrong)
        return value

    def _bound_by_shared(self, proof: Any, app: int, violations: list[Violation]) -> float | None:
        """Return the upper bound without one app from prices shared by many apps; the prices are evaluated once."""
        if self._shared is None:
            if not isinstance(proof, PriceProof):
                violations.append(
                    violation("certificate", "a proof shared by the bounds of several apps must consist of prices")
                )
                return None
            wrong = check_form(self.facts, proof)
            if wrong:
                violations.append(wrong)
                return None
            self._price = self._price or PriceBound(self.facts)
            self._shared = self._price.prepare(proof, NO_BOUNDS)
        return self._shared.evaluate(app, is_repeated=True)[0]
