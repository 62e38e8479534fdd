"""The outcome of an independent check of a solution."""

from dataclasses import dataclass

from optim.core.errors import CertificateRefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One row of the formal model, or one claim, that does not hold.

    Parameters
    ----------
    row
        Name of the row with its indices, as in the model: ``"(4) worker capacity [gpu, server 3, slot 7]"``.
    amount
        By how much it is violated, in the row's own unit, as an exact decimal text where it is exact.
    message
        One sentence for people.
    """

    row: str
    amount: str
    message: str

    def __str__(self) -> str:
        return f"{self.row}: {self.message}"


def violation(row: str, message: str, *, amount: str = "1", where: str = "") -> Violation:
    """Build a violation; `where` holds the row's indices in words."""
    return Violation(row=f"{row} [{where}]" if where else row, amount=amount, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a checker found, recomputed from the instance alone.

    Parameters
    ----------
    violations
        Every violated row; empty if the solution proves what it claims.
    objective
        Recomputed value of the decision, None without one.
    bound
        Recomputed bound, rounded outward, None without a proof.
    proven
        Sentences that state what has been proven.

    Examples
    --------
    >>> import optim
    >>> instance = optim.reference_instance("tiny-0")
    >>> found = optim.verify(instance, optim.reference_solution("tiny-0"))
    >>> found.is_ok, len(found.violations)
    (True, 0)
    """

    violations: tuple[Violation, ...]
    objective: float | None = None
    bound: float | None = None
    proven: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        """Whether every claim holds."""
        return not self.violations

    def raise_unless_ok(self) -> "Verification":
        """Return self if every claim holds, otherwise raise.

        Raises
        ------
        CertificateRefusedError
            If any row is violated; the text lists the first ones.
        """
        if self.violations:
            shown = "; ".join(str(violation) for violation in self.violations[:3])
            more = f" (and {len(self.violations) - 3} more)" if len(self.violations) > 3 else ""
            raise CertificateRefusedError(f"the solution does not prove what it claims: {shown}{more}")
        return self
