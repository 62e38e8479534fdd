"""Check the claims of a solution of an admission problem: the checker's entry point."""

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from optim.core.claims import OPTIMALITY_TOL, AbstractClaims, CountRange, Findings, Recomputed
from optim.core.solution import (
    Certificate,
    CertificateKind,
    Sense,
    Solution,
    Termination,
    Verification,
    Violation,
    violation,
)
from optim.core.user_code import is_file_reference
from optim.models.admission.check import placement
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.exact_instance import ExactInstance, read_exact_instance, round_up
from optim.models.admission.check.placement import check_plan
from optim.models.admission.check.price_scales import (
    RECOMPUTED_BOUNDS,
    STATED_BOUNDS,
    RatioRefusedError,
    least_spread,
    option_numbers,
    recompute_ratio,
)
from optim.models.admission.check.prices import check_prices
from optim.models.admission.check.ratio import ZERO_START, ratio_of
from optim.models.admission.check.schedules import max_share
from optim.models.admission.check.tree import check_tree
from optim.models.admission.decision import AdmissionPlan, PriceProof, Side, TreeProof
from optim.models.admission.instance import AdmissionInstance

OF_THE_WORK = (
    *("columns", "moves", "rounds", "schedules", "cuts", "unsplittable", "chosen", "newton_steps", "saddle_steps"),
    *("variables", "simplex_iterations", "programmes", "confined", "fallbacks", "out_of_time", "workers_not_placed"),
    *("days", "resolves", "lost_worker_slots", "nodes", "plans_handed_over"),
)
"""Counters of a solver's work."""

LP_TOL = 1e-6
"""Relative tolerance of a counter that comes from an LP solved approximately."""


def ranges_of(exact: ExactInstance, admitted: int, proof: Any) -> dict[str, CountRange]:
    """Return the valid range of each counter, given the number of admitted jobs and the proof.

    The counter `master` is the value of a convex combination of plans, so each job earns at most its best value.
    """
    jobs = len(exact.jobs)
    total_value = math.fsum(max(0.0, max(job.value, default=0.0)) for job in exact.jobs)
    earned = CountRange(low=-LP_TOL, high=total_value * (1 + LP_TOL) + LP_TOL)
    leaves = sum(node.branch is None for node in proof.nodes) if isinstance(proof, TreeProof) else math.inf
    return {
        **CountRange.each_whole(OF_THE_WORK),
        **CountRange.each_whole(("refused", "unfinished", "late", "never_started"), jobs - admitted),
        **CountRange.each_whole(("promised",), jobs),
        **CountRange.each_whole(("completed_on_standby",), admitted),
        **CountRange.each_whole(("open",), leaves),
        **dict.fromkeys(("master", "guard_earned"), earned),
        **dict.fromkeys(("tight_rows", "rejected_jobs"), CountRange(low=-LP_TOL, high=1.0 + LP_TOL)),
        **dict.fromkeys(("running_dual", "largest_step_ratio", "resolve_ms", "resolve_max_ms"), CountRange()),
        "lp_gap": CountRange(low=-LP_TOL),
    }


def check_jobs_counted(exact: ExactInstance, admitted: int, stated: Mapping[str, float]) -> list[Violation]:
    """Check that unfinished and never-started jobs add up to the rejected jobs, and that late jobs are unfinished."""
    unfinished, others = stated.get("unfinished"), len(exact.jobs) - admitted
    if unfinished is None:
        return []
    violations = []
    if unfinished + stated.get("never_started", others - unfinished) != others:
        text = f"unfinished and never_started must add up to the {others} jobs that are not admitted"
        violations.append(violation("counts", text, where="unfinished"))
    if stated.get("late", 0.0) > unfinished:
        violations.append(violation("counts", f"late must be at most unfinished, {unfinished:g}", where="late"))
    return violations


DUAL_BOUND = "no plan is worth more than {bound}: a feasible point of the packing LP's dual"

OF_TREES: Mapping[CertificateKind, tuple[str, ...]] = {
    CertificateKind.BOUND: ("no plan is worth more than {bound}: the leaves of a tree of {nodes} nodes",),
    CertificateKind.OPTIMALITY: (
        "the plan attains the bound {bound} of the tree's leaves to {tol}",
        "the plan attains the bound {bound} of a tree of {nodes} nodes to {tol}",
    ),
}
"""Sentences that a tree's certificate may state instead of the sentences for a dual point."""

RATIO_CLAIMS = (
    "; competitive ratio {ratio} by the {theorem} price with ln(U / lower scale) up to {spread}; C1 to C6 hold",
    "; competitive ratio {ratio} plus {wide} on the guard's servers by the {theorem} price with ln(U / lower scale) up to {spread}; "
    "C1 to C6 hold",
    "; no competitive ratio is claimed: {failing} of the {theorem} price's conditions fail",
)
"""Sentences that an online rule may add: its competitive ratio, or the conditions of its theorem that fail."""

CONDITIONS = {
    "C1": re.compile(r"C1 (holds|fails): eps = (\d+(?:/\d+)?)"),
    "C2": re.compile(r"C2 (holds|fails): U is at least (\S+) times the largest density"),
    "C3": re.compile(
        r"C3 (holds|fails): (?:U is reached at (\S+) of the capacity"
        r"|\w+ prices (\S+), and the [a-z-]+ curve (\S+), where (\S+) of the capacity is taken)"
    ),
    "C4": re.compile(r"C4 (holds): best schedules are exact, positive payoffs are admitted"),
    "C5": re.compile(
        r"C5 (holds|fails): (?:sum of lambda a is at most (\S+) of the value|D_0 = (\S+), optimum >= (\S+))"
    ),
    "C6": re.compile(r"C6 (holds): caps and deadlines belong to the instance"),
}
"""Conditions of the theorems on competitive ratios, with the numbers that decide them."""

C5_BEGINS = {"zero-start": "sum of lambda a", "exponential": "D_0 = "}
"""Beginning of condition C5 by theorem."""

ONLINE, GUARDED = "online", "online-learned"
"""Solvers with a proven competitive ratio; `online-learned` runs a theorem's rule on a share of the servers, its guard."""

SERVERS_TOL = 1e-9
"""Tolerance, in servers, when the guard's share of a class is rounded up."""

PRINTED_TOL = 1e-5
"""Largest relative error of a number printed with six digits."""


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
        Every violated row of the model and every unproven claim, none if all hold. Also the recomputed
        objective (summed without rounding errors) and bound (rounded up).

    Notes
    -----
    Plans are checked in integers. Bounds are recomputed in doubles, rounded outward by a bound on their
    rounding errors, and summed exactly. The largest payoff of one job (value minus cost) comes from a dynamic
    programme over the work done (cf. section 2.3 of Bao et al.). Identical servers form one class.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018, DOI
    10.1109/INFOCOM.2018.8486422: rows (1)-(13) and (19)-(21). The page docs/mathematics/admission.md states
    these rows and lists the recomputed quantities.
    """
    return AdmissionClaims(read_exact_instance(instance), solution, len(instance.never_run)).check()


class AdmissionClaims(AbstractClaims):
    """The claims of a plan, of prices, and of an online rule's competitive ratio."""

    problem = "admission"
    sense = Sense.MAXIMISE
    decision_type = AdmissionPlan
    proof_types = (PriceProof, TreeProof)
    sentences: ClassVar[Mapping[CertificateKind, tuple[str, ...]]] = {
        CertificateKind.FEASIBLE_ONLY: (
            "the plan is feasible; no bound is claimed",
            "the plan is feasible; a run cut short claims no bound",
        ),
        CertificateKind.BOUND: (DUAL_BOUND, *(DUAL_BOUND + claim for claim in RATIO_CLAIMS)),
        CertificateKind.OPTIMALITY: ("the plan attains the bound {bound} of the packing LP's dual to {tol}",),
    }
    claims = frozenset({"ratio", "theorem", "spread", "wide", "failing"})
    objective_text = "the plan meets rows (2)-(13) exactly and earns {}"
    bound_text = "no plan earns more than {}"
    optimality_text = f"the plan is optimal to a relative gap of {OPTIMALITY_TOL:g}"

    def __init__(self, exact: ExactInstance, solution: Solution, never_run: int) -> None:
        super().__init__(exact.name, solution)
        self.exact, self.never_run = exact, never_run
        self.is_plan_feasible = False

    @cached_property
    def eps(self) -> Fraction:
        """Largest share of one server's resource that one job can use in a slot."""
        return max_share(self.exact)

    def check_decision(self, decision: AdmissionPlan) -> Findings:
        """Check a plan row by row; its objective is the total value of the completions."""
        findings = check_plan(self.exact, decision)
        if findings.completion is None:
            return list(findings.violations), None
        self.is_plan_feasible = not findings.violations
        values = (self.exact.jobs[job].value[slot] for job, slot in findings.completion.items())
        return list(findings.violations), Recomputed.total(values)

    def check_proof(self, proof: PriceProof | TreeProof) -> Findings:
        """Check a dual point, or a tree with a dual point at its leaves."""
        exact = self.exact
        findings = (
            check_prices(exact, proof, CutCheck(exact)) if isinstance(proof, PriceProof) else check_tree(exact, proof)
        )
        violations = list(findings.violations)
        if findings.bound is None:
            if not violations:
                violations.append(
                    violation(placement.BOUND, "all leaves of the proof are empty, so that it proves no bound")
                )
            return violations, None
        bound = round_up(findings.bound)
        return violations, Recomputed(value=bound, terms=bound)  # every plan earns at least 0

    def why_feasible(self) -> str:
        """Return the reason why a feasible plan always exists."""
        return "refusing every job is feasible"

    def sentences_of(self, certificate: Certificate) -> tuple[str, ...]:
        """Return the sentences that a certificate may state: the sentences of trees, or of dual points."""
        is_tree = isinstance(certificate.proof, TreeProof)
        return OF_TREES.get(certificate.kind, ()) if is_tree else super().sentences_of(certificate)

    def figures(self) -> Mapping[str, float]:
        """Return the number of nodes of the tree."""
        proof = None if self.solution.certificate is None else self.solution.certificate.proof
        return {"nodes": float(len(proof.nodes))} if isinstance(proof, TreeProof) else {}

    def counts(self) -> Mapping[str, float]:
        """Return the numbers of admitted and rejected jobs, and of the tree's nodes."""
        plan = self.solution.decision
        admitted = float(len(plan.admitted)) if isinstance(plan, AdmissionPlan) else 0.0
        known = {**self.figures(), "admitted": admitted, "never_run": float(self.never_run)}
        if self.solution.termination == Termination.COMPLETED:  # an interrupted run has decided on only some jobs
            known["refused"] = len(self.exact.jobs) - admitted
        return known

    def count_ranges(self) -> Mapping[str, CountRange]:
        """Return the valid ranges of the counters that `counts` does not recompute."""
        plan, proof = (
            self.solution.decision,
            None if self.solution.certificate is None else self.solution.certificate.proof,
        )
        admitted = len(plan.admitted) if isinstance(plan, AdmissionPlan) else 0
        return ranges_of(self.exact, admitted, proof)

    def check_related_counts(self, stated: Mapping[str, float]) -> list[Violation]:
        """Check that every job is counted once."""
        plan = self.solution.decision
        return check_jobs_counted(self.exact, len(plan.admitted) if isinstance(plan, AdmissionPlan) else 0, stated)

    def why_false_claim(self, stated: Mapping[str, str]) -> str | None:
        """Return why a competitive ratio is unproven (its bound or a condition fails), None if proven."""
        certificate = self.solution.certificate
        if "theorem" not in stated or certificate is None:
            return None
        if self.solution.solver not in (ONLINE, GUARDED):
            return f"the theorems apply to the solvers {ONLINE} and {GUARDED}, not to {self.solution.solver}"
        if stated["theorem"] not in C5_BEGINS:
            return f"no theorem applies to the {stated['theorem']} price"
        if self.solution.solver == GUARDED and stated["theorem"] != ZERO_START:
            return f"the theorem of {GUARDED} applies to the {ZERO_START} price"
        price = self.solution.options.get("price", stated["theorem"])
        if price != stated["theorem"] and not (isinstance(price, str) and is_file_reference(price)):
            return f"the theorem applies to the {stated['theorem']} price, but the run's option price is {price}"
        verdicts = [_verdict(text) for text in certificate.conditions]
        failing = [name for name, holds in verdicts if not holds]
        if [name for name, _ in verdicts] != list(CONDITIONS):
            return "the conditions C1 to C6 must be listed"
        if C5_BEGINS[stated["theorem"]] not in certificate.conditions[4]:
            return f"C5 must be stated for the {stated['theorem']} price"
        if "failing" in stated:
            return (
                None
                if failing and stated["failing"] == ", ".join(failing)
                else f"the failing conditions are {failing}, not {stated['failing']}"
            )
        if failing:
            return f"the conditions {failing} fail"
        return self._why_false_ratio(stated, certificate)

    def _why_false_ratio(self, stated: Mapping[str, str], certificate: Certificate) -> str | None:
        """Return why the stated ratio does not follow from the stated numbers, or contradicts the bound or the plan."""
        solution = self.solution
        full = CONDITIONS["C3"].fullmatch(certificate.conditions[2])
        try:
            ratio, spread, wide = float(stated["ratio"]), float(stated["spread"]), float(stated.get("wide", 0.0))
            share = 1.0 if full is None else float(full[2])
        except (TypeError, ValueError):
            return "the ratio, its spread, its share of the capacity and the value of wide jobs must be numbers"
        if ("wide" in stated) != (solution.solver == GUARDED):
            form = "with" if "wide" in stated else "without"
            return f"a ratio {form} a term for wide jobs does not follow from the theorem of {solution.solver}"
        if solution.objective is None or solution.bound is None or not 0 < share <= 1:
            return "a ratio needs an objective, a bound and a share in (0, 1]"
        if solution.termination != Termination.COMPLETED:
            return f"a ratio needs a completed run, but the termination is {solution.termination}"
        if not 0 <= wide < math.inf:
            return f"the value of wide jobs must be at least 0, got {wide}"
        theorem, rho = stated["theorem"], self._guard_share() if "wide" in stated else 1.0
        expected = ratio_of(theorem, self.eps, share, spread) / rho
        if not math.isclose(ratio, expected, rel_tol=PRINTED_TOL):
            return (
                f"the {theorem} price with ln(U / lower scale) of {spread} gives the ratio {expected:.6g}, not {ratio}"
            )
        if ratio * solution.objective + wide < solution.bound * (1 - PRINTED_TOL):
            return f"the bound {solution.bound} does not show a ratio of {ratio}"
        try:
            self._check_options(theorem, ratio, spread, certificate.conditions)
        except RatioRefusedError as refused:
            return str(refused)
        self.proven_ratio = ratio
        return None

    def _check_options(self, theorem: str, ratio: float, spread: float, conditions: Sequence[str]) -> None:
        """Check that the run's options give a ratio with this spread and these conditions.

        Raises
        ------
        RatioRefusedError
            If the options give other numbers, or no ratio is proven for them.
        """
        options, is_online = self.solution.options, self.solution.solver == ONLINE
        if not options.get("strict", False):
            raise RatioRefusedError("C3 fails: with the run's options, U is reached at the full capacity")
        if is_online and options.get("bounds", "oracle") in RECOMPUTED_BOUNDS:
            recomputed = recompute_ratio(self.exact, theorem, options)
            if not math.isclose(ratio, recomputed.ratio, rel_tol=PRINTED_TOL):
                raise RatioRefusedError(f"the run's options give the ratio {recomputed.ratio:.6g}, not {ratio}")
            for at, due in ((1, (recomputed.upper,)), (4, recomputed.start)):
                stated = _figures_in(conditions[at])
                is_same = (math.isclose(*pair, rel_tol=PRINTED_TOL) for pair in zip(stated, due, strict=False))
                if len(stated) != len(due) or not all(is_same):
                    due_text = " and ".join(f"{number:.6g}" for number in due)
                    raise RatioRefusedError(
                        f"with the run's options, {conditions[at][:2]} has the numbers {due_text}, not {conditions[at]!r}"
                    )
            return
        bounds = options.get("bounds", "oracle") if is_online else "history"
        if bounds not in STATED_BOUNDS:
            raise RatioRefusedError(f"a run with bounds={bounds} cannot claim a ratio")
        if (bounds == "history") != bool(options.get("history", "")):
            raise RatioRefusedError(f"bounds={bounds} contradicts history={options.get('history', '')!r}")
        numbers = option_numbers(options) if is_online else {}
        full = 1 - numbers.get("eps", math.nan)
        if "eps" in numbers and not any(
            math.isclose(full, stated, rel_tol=PRINTED_TOL) for stated in _figures_in(conditions[2])
        ):
            raise RatioRefusedError(
                f"with the run's options, U is reached at {full:.6g} of the capacity, not as in {conditions[2]!r}"
            )
        least = least_spread(self.exact, theorem)
        if spread < least - PRINTED_TOL:
            raise RatioRefusedError(
                f"C2 and C5 need ln(U / lower scale) of at least {least:.6g} for these jobs, not {spread}"
            )

    def ratio_text(self, ratio: float) -> str:
        """Return the competitive ratio with the premises that the checker cannot verify from the solution file."""
        options, is_online = self.solution.options, self.solution.solver == ONLINE
        premises = [f"{self.solution.solver} made the plan"]
        if not is_online or options.get("bounds", "oracle") in STATED_BOUNDS:
            premises.append("U and the lower scale are as stated")
        if is_online and is_file_reference(options.get("price", "")):
            premises.append("the price class computes the theorem's curve")
        extra = "" if is_online else ", plus the stated value of wide jobs,"
        return f"the competitive ratio is {ratio:.6g}{extra} if {' and '.join(premises)}"

    def _guard_share(self) -> float:
        """Return the smallest share of a class's servers that the option `guard` gives to the guard; NaN if invalid."""
        guard = self.solution.options.get("guard")
        if not isinstance(guard, int | float) or not 0 < guard <= 1:
            return math.nan
        counts = [count for side in Side for count in self.exact.servers(side).count if count]
        return min((max(1, math.ceil(guard * count - SERVERS_TOL)) / count for count in counts), default=1.0)

    def check_conditions(self, certificate: Certificate) -> list[Violation]:
        """Check that each condition belongs to the theorem, and that its numbers support its stated outcome."""
        violations = []
        is_claimed = (
            certificate.statement.startswith(DUAL_BOUND.partition("{")[0]) and " price" in certificate.statement
        )
        if certificate.conditions and not is_claimed:
            return super().check_conditions(certificate)
        for text in certificate.conditions:
            name = text[:2]
            match = CONDITIONS[name].fullmatch(text) if name in CONDITIONS else None
            if match is None or not self._is_decided(name, match):
                violations.append(violation(placement.CERTIFICATE, f"the condition {text!r} does not hold as stated"))
        return violations

    def _is_decided(self, name: str, match: re.Match[str]) -> bool:
        """Return whether a condition's numbers support its stated outcome (holds or fails); eps is recomputed."""
        says, *texts = match.groups()
        try:
            figures = [float(Fraction(text)) for text in texts if text is not None]
        except (ValueError, ZeroDivisionError):
            return False
        slack = 1 + PRINTED_TOL
        match name:
            case "C1":
                return Fraction(texts[0]) == self.eps and (says == "holds") == (self.eps < 1)
            case "C2":
                holds = figures[0] * slack >= 1
            case "C3":
                holds = len(figures) == 1 and figures[0] <= (1 - float(self.eps)) * (1 + 1e-11)
            case "C5":
                holds = figures[0] <= slack if len(figures) == 1 else 2 * figures[0] <= figures[1] * slack
            case _:
                return True
        return (says == "holds") == holds


def _figures_in(condition: str) -> tuple[float, ...]:
    """Return the numbers in a condition; an empty tuple if the condition does not match its pattern in `CONDITIONS`."""
    match = CONDITIONS[condition[:2]].fullmatch(condition)
    try:
        return tuple(float(Fraction(text)) for text in match.groups()[1:] if text is not None) if match else ()
    except (ValueError, ZeroDivisionError):
        return ()


def _verdict(text: Any) -> tuple[str, bool]:
    return str(text)[:2], str(text)[3:8] == "holds"
