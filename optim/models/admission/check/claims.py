"""What a solution claims against what can be shown: the checker's entry."""

import math
from fractions import Fraction
from numbers import Real
from typing import Any

from optim.core.certificate import Certificate
from optim.core.solution import GAP_FLOOR, Solution
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.core.verification import Verification, Violation
from optim.models.admission.check import rows
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.facts import Facts, read_facts
from optim.models.admission.check.placement import check_plan
from optim.models.admission.check.prices import BoundFindings, check_prices
from optim.models.admission.check.rounding import round_up
from optim.models.admission.check.rows import violation
from optim.models.admission.check.tree import check_tree
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.proof import PriceProof, TreeProof

OPTIMALITY_TOL = 1e-6
"""Largest relative gap, (bound - objective) / max(|objective|, 1e-9), that is called optimal."""

AGREEMENT_TOL = 1e-9
"""Largest relative difference between a stated number and the recomputed one: sums in another order."""

SMALLEST_SCALE = 1e-6
"""Numbers smaller than this are compared as if they were this large."""

PROBLEM_NAME = "admission"


def check(instance: AdmissionInstance, solution: Solution) -> Verification:
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
        Every violated row of the model and every claim that isn't proven, none if all holds; the
        recomputed objective (summed without rounding errors) and bound (rounded up).

    Notes
    -----
    Plans are checked in integers. Bounds are recomputed in doubles whose rounding errors are bounded
    and taken to the safe side, and summed exactly. Restricted to one job, the largest value less cost
    comes from a dynamic programme over the work done (cf. section 2.3 of Bao et al.), over classes of
    identical servers.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422: rows (1)-(13) and (19)-(21).
    """
    facts = read_facts(instance)
    found = _check_names(facts, solution)
    objective, is_plan_sound = _check_decision(facts, solution, found)
    bound, is_bound_sound = _check_bound(facts, solution, found)
    _check_kind(solution, found)
    is_optimal = _check_optimality(solution, objective, bound, found, is_sound=is_plan_sound and is_bound_sound)
    proven = []
    if is_plan_sound and objective is not None:
        proven.append(f"the plan meets rows (2)-(13) exactly and earns {objective!r}")
    if is_bound_sound and bound is not None:
        proven.append(f"no plan earns more than {bound!r}")
    if is_optimal:
        proven.append(f"the plan is optimal to a relative gap of {OPTIMALITY_TOL:g}")
    return Verification(violations=tuple(found), objective=objective, bound=bound, proven=tuple(proven))


def _check_names(facts: Facts, solution: Solution) -> list[Violation]:
    found = []
    if solution.problem != PROBLEM_NAME:
        text = f"the solution is of problem {solution.problem!r}, not {PROBLEM_NAME!r}"
        found.append(violation(rows.PROBLEM, text))
    if solution.instance != facts.name:
        text = f"the solution is of instance {solution.instance!r}, not {facts.name!r}"
        found.append(violation(rows.INSTANCE, text))
    if solution.sense != Sense.MAXIMISE:
        found.append(violation(rows.SENSE, f"admission is maximised, the solution says {solution.sense}"))
    return found


def _check_decision(facts: Facts, solution: Solution, found: list[Violation]) -> tuple[float | None, bool]:
    """Check plan, objective and primal status; return the recomputed objective and whether all is sound."""
    before = len(found)
    if solution.decision is None:
        if solution.objective is not None:
            text = f"the objective {solution.objective!r} is stated without a decision"
            found.append(violation(rows.OBJECTIVE, text))
        if solution.primal != PointStatus.NONE:
            text = f"there is no decision, but the status is {solution.primal}"
            found.append(violation(rows.PRIMAL_STATUS, text))
        return None, False
    if solution.primal != PointStatus.FEASIBLE:
        text = f"a decision must be feasible, but the status is {solution.primal}"
        found.append(violation(rows.PRIMAL_STATUS, text))
    findings = check_plan(facts, solution.decision)
    found += findings.violations
    objective = None
    if findings.completion is not None:
        objective = math.fsum(facts.jobs[job].worth[slot] for job, slot in findings.completion.items())
    _check_stated(rows.OBJECTIVE, "the objective", solution.objective, objective, found)
    return objective, len(found) == before


def _check_bound(facts: Facts, solution: Solution, found: list[Violation]) -> tuple[float | None, bool]:
    """Check proof, bound and dual status; return the recomputed bound and whether all is sound."""
    before = len(found)
    proof = None if solution.certificate is None else solution.certificate.proof
    if proof is None:
        if solution.bound is not None:
            found.append(violation(rows.BOUND, f"the bound {solution.bound!r} is stated without a proof"))
        if solution.dual != PointStatus.NONE:
            text = f"there is no proof of a bound, but the status is {solution.dual}"
            found.append(violation(rows.DUAL_STATUS, text))
        return None, False
    if solution.dual not in (PointStatus.FEASIBLE, PointStatus.CERTIFICATE):
        text = f"a proof must be feasible or a certificate, but the status is {solution.dual}"
        found.append(violation(rows.DUAL_STATUS, text))
    findings = _check_proof(facts, proof)
    found += findings.violations
    bound = None if findings.bound is None else round_up(findings.bound)
    if solution.bound is None:
        found.append(violation(rows.BOUND, "there is a proof, but no bound is stated"))
    elif bound is not None or not findings.violations:
        _check_stated_bound(solution.bound, bound, findings.bound, found)
    return bound, len(found) == before


def _check_proof(facts: Facts, proof: Any) -> BoundFindings:
    if isinstance(proof, PriceProof):
        return check_prices(facts, proof, CutCheck(facts))
    if isinstance(proof, TreeProof):
        return check_tree(facts, proof)
    text = f"a proof must be a PriceProof or a TreeProof, got {type(proof).__name__}"
    return BoundFindings(violations=(violation(rows.CERTIFICATE, text),), bound=None)


def _check_stated_bound(stated: float, bound: float | None, exact: Fraction | None, found: list[Violation]) -> None:
    if bound is None or exact is None:
        found.append(violation(rows.BOUND, "the proof's leaves are all empty, which proves no bound"))
        return
    if _agree(stated, bound):
        return
    is_number = _is_finite(stated)
    amount = str(float(abs(exact - Fraction(stated)))) if is_number else repr(stated)
    if is_number and stated < bound:
        text = f"the bound {stated!r} claims more than its proof gives, {bound!r}"
    else:
        text = f"the stated bound {stated!r} is not the proof's value, {bound!r}"
    found.append(violation(rows.BOUND, text, amount=amount))


def _check_stated(row: str, name: str, stated: Any, actual: float | None, found: list[Violation]) -> None:
    if stated is None:
        found.append(violation(row, f"there is a decision, but {name} isn't stated"))
    elif actual is not None and not _agree(stated, actual):
        amount = repr(abs(stated - actual)) if _is_finite(stated) else repr(stated)
        found.append(violation(row, f"{name} is stated as {stated!r}, but is {actual!r}", amount=amount))


def _agree(stated: Any, actual: float) -> bool:
    return _is_finite(stated) and abs(stated - actual) <= AGREEMENT_TOL * max(abs(actual), SMALLEST_SCALE)


def _is_finite(number: Any) -> bool:
    return isinstance(number, Real) and math.isfinite(number)


def _check_kind(solution: Solution, found: list[Violation]) -> None:
    """Compare the certificate's kind and the termination with what the solution holds."""
    certificate: Certificate | None = solution.certificate
    kind = None if certificate is None else certificate.kind
    has_proof = certificate is not None and certificate.proof is not None
    if kind == CertificateKind.FEASIBLE_ONLY and (has_proof or solution.bound is not None):
        text = "a certificate of feasibility alone goes with neither a proof nor a bound"
        found.append(violation(rows.CERTIFICATE, text))
    if kind == CertificateKind.FEASIBLE_ONLY and solution.decision is None:
        found.append(violation(rows.CERTIFICATE, "feasibility is certified, but there is no decision"))
    if kind in (CertificateKind.BOUND, CertificateKind.OPTIMALITY) and not has_proof:
        found.append(violation(rows.CERTIFICATE, f"{kind} is claimed without a proof"))
    if solution.termination == Termination.OPTIMAL and kind != CertificateKind.OPTIMALITY:
        text = f"optimal is claimed, but the certificate is {kind}"
        found.append(violation(rows.TERMINATION, text))
    if solution.termination in (Termination.INFEASIBLE, Termination.DUAL_INFEASIBLE):
        text = f"{solution.termination} can't be: refusing every job is feasible, and utilities are finite"
        found.append(violation(rows.TERMINATION, text))


def _check_optimality(
    solution: Solution,
    objective: float | None,
    bound: float | None,
    found: list[Violation],
    *,
    is_sound: bool,
) -> bool:
    """Check that a claim of optimality is backed by a small gap; return whether it is."""
    if objective is not None and bound is not None and is_sound and objective > bound and not _agree(objective, bound):
        text = f"a feasible plan earns {objective!r}, more than the bound {bound!r}: one of the two is wrong"
        found.append(violation(rows.BOUND, text, amount=repr(objective - bound)))
        return False
    if solution.certificate is None or solution.certificate.kind != CertificateKind.OPTIMALITY:
        return False
    if not is_sound or objective is None or bound is None:
        found.append(violation(rows.CERTIFICATE, "optimality needs a sound plan and a sound bound"))
        return False
    gap = (bound - objective) / max(abs(objective), GAP_FLOOR)
    if gap > OPTIMALITY_TOL:
        text = f"the gap of {gap:.3g} between bound and objective exceeds {OPTIMALITY_TOL:g}"
        found.append(violation(rows.CERTIFICATE, text, amount=repr(gap)))
        return False
    return True
