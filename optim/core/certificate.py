"""A certificate: what is proven about a solution, and the proof that a checker can recompute."""

from dataclasses import dataclass
from typing import Any

from optim.core.status import CertificateKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A claim with its proof.

    Parameters
    ----------
    kind
        What is proven.
    statement
        The claim in one sentence, for people: empty, or one that `verify` can recompute (`SENTENCES` of
        `optim.core.claims`, or the problem's own); any other is refused.
    proof
        The problem's own proof object (for instance a dual point), or None where the decision
        alone is the proof (``feasible_only``). A checker recomputes the claim from it and from the
        instance, sharing no code with the solver.
    conditions
        Conditions under which a further claim (such as a competitive ratio) holds.

    Examples
    --------
    >>> import optim
    >>> optim.reference_solution("tiny-0").certificate.kind.value
    'optimality'
    """

    kind: CertificateKind
    statement: str
    proof: Any = None
    conditions: tuple[str, ...] = ()
