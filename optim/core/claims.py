"""Verification of claims: code shared by the checkers of all problems, and by no solver.

A stated number may differ from the recomputed one by 1e-9 of the sum of the absolute values of its terms, so that a value
near 0 with large terms has a sufficient tolerance. For a bound, the instance limits this sum, because a proof could otherwise
widen the tolerance with large terms that cancel.

The checker recomputes or refuses each field on which a user may rely. It cannot recompute why a solve ended, and
checks only that the termination agrees with the other fields. Counters of solvers must lie in their possible ranges;
counters with unknown names must be numbers. Seconds, versions, seed, options and message are not checked.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from string import Formatter
from typing import Any, ClassVar, Generic, TypeVar

from optim.core.limits import Effort
from optim.core.solution import (
    GAP_FLOOR,
    Certificate,
    CertificateKind,
    PointStatus,
    Sense,
    Solution,
    Termination,
    Verification,
    Violation,
    violation,
)

AGREEMENT_TOL = 1e-9
"""Largest difference between a stated and a recomputed number, relative to the sum of its terms' absolute values."""


def is_finite(number: Any) -> bool:
    """Return whether a value is a number in the range of doubles."""
    try:
        return isinstance(number, Real) and not isinstance(number, bool) and math.isfinite(number)
    except OverflowError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """A number that a checker recomputed.

    Parameters
    ----------
    value
        The number.
    terms
        Sum of the absolute values of its terms; rounding errors are relative to this sum.
    """

    value: float
    terms: float

    @classmethod
    def total(cls, terms: Iterable[float]) -> "Recomputed":
        """Add terms without intermediate rounding."""
        added = list(terms)
        return cls(value=math.fsum(added), terms=math.fsum(map(abs, added)))

    def capped(self, max_terms: float) -> "Recomputed":
        """Return the number with `terms` of at most ``max(max_terms, |value|)``, because a prover can choose large terms."""
        return Recomputed(value=self.value, terms=min(self.terms, max(abs(self.value), max_terms)))

    @property
    def tol(self) -> float:
        """Largest allowed difference between a stated number and this one."""
        return AGREEMENT_TOL * self.terms

    def matches(self, stated: Any) -> bool:
        """Return whether a stated number equals this one within `tol`."""
        return is_finite(stated) and abs(stated - self.value) <= self.tol


COUNTER_TOL = 1e-9
"""Tolerance for rounding at each end of a counter's range, relative to the larger of 1 and the end's absolute value."""

MOST = 2.0**53
"""Largest count; doubles represent all whole numbers up to this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRange:
    """Range of a counter.

    Parameters
    ----------
    low, high
        Smallest and largest allowed value.
    is_whole
        Whether the value must be a whole number.
    """

    low: float = 0.0
    high: float = math.inf
    is_whole: bool = False

    @classmethod
    def whole(cls, high: float = MOST) -> "CountRange":
        """Return the range of a count."""
        return cls(high=min(high, MOST), is_whole=True)

    @classmethod
    def each_whole(cls, names: Iterable[str], high: float = MOST) -> dict[str, "CountRange"]:
        """Return the range of several counts, by name."""
        return dict.fromkeys(names, cls.whole(high))

    def __str__(self) -> str:
        number = "a whole number" if self.is_whole else "a number"
        if self.high == math.inf:
            return f"{number} of at least {self.low:g}"
        return f"{number} from {self.low:g} to {self.high:g}"

    def holds(self, stated: float) -> bool:
        """Return whether a number is in the range; ranges of real numbers have a tolerance for rounding."""
        if self.is_whole:
            return stated == math.floor(stated) and self.low <= stated <= self.high
        below, above = (COUNTER_TOL * max(1.0, abs(end)) for end in (self.low, self.high))
        return self.low - below <= stated <= self.high + above


def check_ranges(stated: Mapping[str, Any], ranges: Mapping[str, CountRange]) -> list[Violation]:
    """Return violations for non-numeric or out-of-range counters."""
    violations = []
    for name, number in stated.items():
        if not is_finite(number):
            violations.append(violation("counts", f"{name} must be a number, got {number!r}", where=name))
        elif name in ranges and not ranges[name].holds(number):
            violations.append(violation("counts", f"{name} must be {ranges[name]}, got {number!r}", where=name))
    return violations


Key = TypeVar("Key", bound=Hashable)

Value = TypeVar("Value")


class Descent(Generic[Key, Value]):
    """Depth-first traversal of a tree from its root; of a node's children, the last added comes first.

    A node has conditions by key, such as branching decisions. A child changes one condition of its parent.

    Parameters
    ----------
    effort
        Counter of steps, with a limit.
    heard
        Called when a condition changes, with its key and the new condition; None if it is removed.

    Attributes
    ----------
    conditions
        Conditions of the current node by key, in the order of their first occurrence on the path from the root.
    """

    def __init__(self, effort: Effort, heard: Callable[[Key, Value | None], None] | None = None) -> None:
        self.conditions: dict[Key, Value] = {}
        self.effort = effort
        self._heard = heard
        self._waiting: list[tuple[int, int, tuple[Key, Callable[[Value | None], Value]] | None]] = [(0, 0, None)]
        self._before: list[tuple[Key, Value | None]] = []

    def add(self, child: int, key: Key, narrow: Callable[[Value | None], Value]) -> None:
        """Add a child of the current node; `narrow` maps the current condition of `key` to that of the child."""
        self._waiting.append((child, len(self._before), (key, narrow)))

    def __iter__(self) -> Iterator[int]:
        """Yield node numbers; `conditions` belong to the yielded node until the next step."""
        while self._waiting:
            number, depth, step = self._waiting.pop()
            self.effort.spend(1)
            while len(self._before) > depth:
                self._set(*self._before.pop())
            if step is not None:
                key, narrow = step
                before = self.conditions.get(key)
                self._before.append((key, before))
                self._set(key, narrow(before))
            yield number

    def _set(self, key: Key, value: Any) -> None:
        if value is None:
            del self.conditions[key]
        else:
            self.conditions[key] = value
        if self._heard is not None:
            self._heard(key, value)


OPTIMALITY_TOL = 1e-6
"""Largest relative gap (`relative_gap` of `optim.core.solution`) of an optimal solution."""

NUMBER = r"[^\s,;:]+"  # a number or word in a certificate's sentence

FURTHER = {"failing": rf"(?:, {NUMBER})*"}
"""Patterns of further entries, by the name of a template's field that may be a list."""

SENTENCES: Mapping[CertificateKind, tuple[str, ...]] = {
    CertificateKind.FEASIBLE_ONLY: ("", "the decision is feasible; no bound is claimed"),
    CertificateKind.BOUND: ("", "no decision is better than {bound}"),
    CertificateKind.OPTIMALITY: ("", "no decision is better than {bound}, and this one is as good to {tol}"),
}
"""Sentences allowed in certificates of all problems, in addition to those of the problem. The empty one claims nothing."""

Findings = tuple[list[Violation], Recomputed | None]
"""Violations, and the recomputed number, None if it cannot be computed."""


class AbstractClaims(ABC):
    """The claims of one solution of one instance; a subclass per problem implements the specific checks.

    Attributes
    ----------
    problem, sense
        Name of the problem, and direction of its objective.
    decision_type, proof_types
        Types of a decision and of proofs.
    sentences
        Templates of certificates' sentences, by kind; their fields are ``{bound}``, ``{tol}`` and the names of `figures`.
    max_gap
        Largest absolute gap of an optimal solution; the relative gap has the limit `OPTIMALITY_TOL`.
    claims
        Fields of templates that `why_false_claim` checks, in place of a comparison with `figures`.
    objective_text, bound_text, optimality_text
        Statements that a valid decision, a valid bound and a small gap prove, respectively; ``{}`` stands for the
        objective or bound.
    """

    problem: ClassVar[str]
    sense: ClassVar[Sense]
    decision_type: ClassVar[type[Any]]
    proof_types: ClassVar[tuple[type[Any], ...]]
    sentences: ClassVar[Mapping[CertificateKind, tuple[str, ...]]]
    claims: ClassVar[frozenset[str]] = frozenset()
    max_gap: ClassVar[float] = math.inf
    objective_text: ClassVar[str]
    bound_text: ClassVar[str]
    optimality_text: ClassVar[str]

    def __init__(self, instance_name: str, solution: Solution) -> None:
        self.instance_name, self.solution = instance_name, solution
        self.proven_ratio: float | None = None

    @abstractmethod
    def check_decision(self, decision: Any) -> Findings:
        """Check a decision against the instance, and compute its objective."""

    @abstractmethod
    def check_proof(self, proof: Any) -> Findings:
        """Check a proof, and compute its bound, rounded outward."""

    def max_terms(self) -> float:
        """Return the instance's cap on the sum of a bound's absolute terms; `capped` raises it to the bound's absolute value."""
        return 0.0

    @abstractmethod
    def why_feasible(self) -> str | None:
        """Return why the problem cannot be infeasible, None if it can."""

    @abstractmethod
    def counts(self) -> Mapping[str, float]:
        """Return the recomputed values of counters about the decision and its proof, by name."""

    def count_ranges(self) -> Mapping[str, CountRange]:
        """Return the ranges of the counters that `counts` does not recompute, by name."""
        return {}

    def check_related_counts(self, stated: Mapping[str, float]) -> list[Violation]:
        """Check relations between counters, whose ranges have been checked."""
        del stated
        return []

    def figures(self) -> Mapping[str, float]:
        """Return the whole numbers other than bound and gap that sentences may state, by their names in the templates."""
        return {}

    def sentences_of(self, certificate: Certificate) -> tuple[str, ...]:
        """Return the sentence templates for a certificate, by its kind and proof type."""
        return self.sentences[certificate.kind]

    def check_conditions(self, certificate: Certificate) -> list[Violation]:
        """Check the conditions of a certificate; by default, none are allowed."""
        text = "conditions require a statement on a competitive ratio, but there is none; remove them"
        return [violation("certificate", text)] if certificate.conditions else []

    def further_proven(self) -> list[str]:
        """Return further statements that a valid decision proves."""
        return []

    def ratio_text(self, ratio: float) -> str:
        """Return the proven statement about a competitive ratio, with the premises that the checker does not check."""
        return f"the competitive ratio is {ratio:.6g}"

    def check(self) -> Verification:
        """Recompute every claim of the solution."""
        certificate = self.solution.certificate
        violations = self._check_names()
        if violations:  # for another instance, all further rows would fail as well
            return Verification(violations=tuple(violations))
        wrong_bound, bound = self._check_bound()
        wrong_decision, objective = self._check_decision()
        violations += wrong_decision + wrong_bound + self._check_kind()
        is_plan_sound = objective is not None and not wrong_decision
        is_bound_sound = bound is not None and not wrong_bound
        is_sound = is_plan_sound and is_bound_sound
        wrong_gap, is_optimal = self._check_optimality(objective, bound, is_sound=is_sound)
        violations += wrong_gap
        if certificate is not None:
            violations += self._check_sentence(certificate) + self.check_conditions(certificate)
        if not violations:
            violations += self._check_gap() + self._check_counts()
        proven = []
        if is_plan_sound and objective is not None:
            proven += [self.objective_text.format(repr(objective.value)), *self.further_proven()]
        if is_bound_sound and bound is not None:
            proven.append(self.bound_text.format(repr(bound.value)))
        if is_optimal:
            proven.append(self.optimality_text)
        if self.proven_ratio is not None and not violations:
            proven.append(self.ratio_text(self.proven_ratio))
        return Verification(
            violations=tuple(violations),
            objective=None if objective is None else objective.value,
            bound=None if bound is None else bound.value,
            competitive_ratio=None if violations else self.proven_ratio,
            proven=tuple(proven),
        )

    def _check_names(self) -> list[Violation]:
        solution = self.solution
        named = (
            ("problem", solution.problem, self.problem),
            ("instance", solution.instance, self.instance_name),
            ("sense", solution.sense, self.sense),
        )
        return [
            violation(row, f"the {row} must be {str(actual)!r}, but the solution has {str(stated)!r}")
            for row, stated, actual in named
            if stated != actual
        ]

    def _check_decision(self) -> Findings:
        """Check decision, objective and primal status."""
        solution, decision = self.solution, self.solution.decision
        violations = []
        status = PointStatus.NONE if decision is None else PointStatus.FEASIBLE
        if solution.primal != status:
            violations.append(violation("primal status", f"the status must be {status}, but is {solution.primal}"))
        if decision is None:
            if solution.objective is not None:
                text = f"the objective {solution.objective!r} is stated without a decision"
                violations.append(violation("objective", text))
            return violations, None
        if not isinstance(decision, self.decision_type):
            text = f"a decision must be of type {self.decision_type.__name__}, got {type(decision).__name__}"
            return [*violations, violation("decision", text)], None
        wrong, objective = self.check_decision(decision)
        violations += wrong
        if objective is not None and not objective.matches(solution.objective):
            text = f"the objective is stated as {solution.objective!r}, but is {objective.value!r}"
            violations.append(violation("objective", text, amount=_distance(solution.objective, objective.value)))
        elif solution.objective is None:
            violations.append(violation("objective", "there is a decision, but its objective is missing"))
        return violations, objective

    def _check_bound(self) -> Findings:
        """Check proof, bound and dual status; the stated bound may be weaker than the proven one, but not stronger."""
        solution = self.solution
        proof = None if solution.certificate is None else solution.certificate.proof
        violations = []
        if proof is None:
            if solution.bound is not None:
                violations.append(violation("bound", f"the bound {solution.bound!r} is stated without a proof"))
            if solution.dual != PointStatus.NONE:
                text = f"there is no proof of a bound, but the status is {solution.dual}"
                violations.append(violation("dual status", text))
            return violations, None
        if solution.dual != PointStatus.FEASIBLE:
            text = f"a proof of a bound must be {PointStatus.FEASIBLE}, but the status is {solution.dual}"
            violations.append(violation("dual status", text))
        if not isinstance(proof, self.proof_types):
            known = " or ".join(kind.__name__ for kind in self.proof_types)
            return [*violations, violation("certificate", f"a proof must be {known}, got {type(proof).__name__}")], None
        wrong, bound = self.check_proof(proof)
        violations += wrong
        if solution.bound is None:
            violations.append(violation("bound", "there is a proof, but no bound is stated"))
        elif bound is None:
            violations += [] if wrong else [violation("bound", "the proof gives no finite bound")]
        else:
            bound = bound.capped(self.max_terms())
            excess = bound.value - solution.bound if is_finite(solution.bound) else math.inf
            if (excess if self.sense is Sense.MAXIMISE else -excess) > bound.tol or not math.isfinite(excess):
                text = f"the bound {solution.bound!r} claims more than its proof gives, {bound.value!r}"
                violations.append(violation("bound", text, amount=_distance(solution.bound, bound.value)))
        return violations, bound

    def _check_kind(self) -> list[Violation]:
        """Check that the certificate's kind and the termination agree with the other fields."""
        solution, certificate = self.solution, self.solution.certificate
        kind = None if certificate is None else certificate.kind
        has_proof = certificate is not None and certificate.proof is not None
        has_decision, ended = solution.decision is not None, solution.termination
        is_bare, is_hopeless = kind == CertificateKind.FEASIBLE_ONLY, ended == Termination.INFEASIBLE
        claims_bound = kind in (CertificateKind.BOUND, CertificateKind.OPTIMALITY)
        claims_best = ended == Termination.OPTIMAL and kind != CertificateKind.OPTIMALITY
        is_shy = kind == CertificateKind.OPTIMALITY and ended != Termination.OPTIMAL
        is_unbounded, is_failed = (ended == end for end in (Termination.DUAL_INFEASIBLE, Termination.NUMERICAL_ERROR))
        why = self.why_feasible() if is_hopeless else None
        rules = (
            ("certificate", is_bare and has_proof, "a certificate of feasibility must have no proof"),
            ("certificate", is_bare and solution.bound is not None, "a certificate of feasibility must have no bound"),
            ("certificate", is_bare and not has_decision, "feasibility is certified, but there is no decision"),
            ("certificate", claims_bound and not has_proof, f"{kind} is claimed without a proof"),
            ("termination", claims_best, f"optimal is claimed, but the certificate is {kind}"),
            ("termination", is_shy, f"optimality is certified, but the termination is {ended}"),
            ("termination", is_failed and has_decision, "numerical_error is claimed together with a decision"),
            ("termination", is_hopeless and has_decision, "infeasible is claimed together with a decision"),
            ("termination", why is not None, f"infeasible is impossible: {why}"),
            ("termination", is_unbounded, "dual_infeasible is impossible: the objective is bounded"),
        )
        return [violation(row, text) for row, is_wrong, text in rules if is_wrong]

    def _check_optimality(
        self, objective: Recomputed | None, bound: Recomputed | None, *, is_sound: bool
    ) -> tuple[list[Violation], bool]:
        """Check that a claim of optimality has a small gap; return violations and whether optimality is proven."""
        certificate = self.solution.certificate
        is_claimed = certificate is not None and certificate.kind == CertificateKind.OPTIMALITY
        if not is_sound or objective is None or bound is None:
            text = "optimality needs a valid decision and a valid bound"
            return [violation("certificate", text)] if is_claimed else [], False
        excess = objective.value - bound.value if self.sense is Sense.MAXIMISE else bound.value - objective.value
        if excess > max(objective.tol, bound.tol):
            text = f"the objective {objective.value!r} is better than the bound {bound.value!r}: one of them is wrong"
            return [violation("bound", text, amount=repr(excess))], False
        if not is_claimed:
            return [], False
        stated = (self.solution.objective or 0.0, self.solution.bound or 0.0)  # numbers, since both are valid
        for origin, value, limit in (("", objective.value, bound.value), ("stated ", *stated)):
            better = limit - value if self.sense is Sense.MAXIMISE else value - limit
            gap = better / max(abs(value), GAP_FLOOR)
            if gap > OPTIMALITY_TOL or better > self.max_gap:
                text = f"the {origin}gap of {gap:.3g} between bound and objective exceeds {OPTIMALITY_TOL:g}"
                return [violation("certificate", text, amount=repr(gap))], False
        return [], True

    def _check_sentence(self, certificate: Certificate) -> list[Violation]:
        """Check that the sentence follows a known template, with numbers of the solution."""
        known = (*SENTENCES[certificate.kind], *self.sentences_of(certificate))
        reasons = [self._why_false(template, certificate.statement) for template in known]
        if None in reasons:
            return []
        reason = next(
            filter(None, reasons),
            "unknown sentence for this kind of certificate; leave the statement empty, or use a known sentence",
        )
        return [violation("certificate", f"the statement {certificate.statement!r}: {reason}")]

    def _why_false(self, template: str, sentence: str) -> str | None:
        """Return the error in a sentence: None if it is true, "" if its words differ from the template."""
        pattern = "".join(
            re.escape(text) + (f"(?P<{name}>{NUMBER}{FURTHER.get(name, '')})" if name else "")
            for text, name, _, _ in Formatter().parse(template)
        )
        match = re.fullmatch(pattern, sentence)
        if match is None:
            return ""
        stated = match.groupdict()
        solution, figures = self.solution, self.figures()
        for name, text in stated.items():
            if name == "bound" and (
                solution.bound is None or text not in (f"{solution.bound:.9g}", str(solution.bound))
            ):
                return f"it states {text}, but the bound is {solution.bound}"
            if name == "tol" and not (_number(text) >= (solution.gap or 0.0)):
                return f"it states {text}, but the gap is {solution.gap}"
            if name not in {"bound", "tol"} | self.claims and _number(text) != figures.get(name):
                actual = figures.get(name)
                return f"it states {text} {name}, but there are {'none' if actual is None else f'{actual:g}'}"
        return self.why_false_claim(stated)

    def why_false_claim(self, stated: Mapping[str, str]) -> str | None:
        """Return why the claims in a certificate's sentence other than bound and gap are false, None if they are true.

        Parameters
        ----------
        stated
            Values in the sentence, by their names in the template.
        """
        del stated
        return None

    def _check_gap(self) -> list[Violation]:
        """Check the gap stated in a file."""
        solution, gap = self.solution, self.solution.gap
        if "gap" not in solution.stated or solution.stated["gap"] == gap:
            return []
        if gap is not None and solution.objective is not None and solution.bound is not None:
            terms = (abs(solution.objective) + abs(solution.bound)) / max(abs(solution.objective), GAP_FLOOR)
            if Recomputed(value=gap, terms=terms).matches(solution.stated["gap"]):
                return []
        text = f"the gap is stated as {solution.stated['gap']!r}, but objective and bound give {gap!r}"
        return [violation("gap", text)]

    def _check_counts(self) -> list[Violation]:
        """Check counters: recompute those about the decision and its proof, and check the ranges of the others."""
        stated, known = self.solution.stats.counts, self.counts()
        others = {name: number for name, number in stated.items() if name not in known}
        wrong = [
            violation("counts", f"{name} is stated as {stated[name]!r}, but is {actual!r}", where=name)
            for name, actual in known.items()
            if name in stated and not Recomputed(value=actual, terms=max(1.0, abs(actual))).matches(stated[name])
        ]
        return wrong + (check_ranges(others, self.count_ranges()) or self.check_related_counts(others))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _distance(stated: Any, actual: float) -> str:
    return repr(abs(stated - actual)) if is_finite(stated) else repr(stated)
