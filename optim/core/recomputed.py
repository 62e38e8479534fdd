"""Numbers that a checker worked out, to compare what is stated with."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

AGREEMENT_TOL = 1e-9
"""Largest difference between a stated number and the recomputed one, as a share of the absolute terms added."""


def is_finite(number: Any) -> bool:
    """Tell whether something is a number that a double holds."""
    try:
        return isinstance(number, Real) and not isinstance(number, bool) and math.isfinite(number)
    except OverflowError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """A number that a checker worked out.

    Parameters
    ----------
    value
        The number.
    terms
        Sum of the absolute terms that were added up to it; its rounding errors are relative to that.
    """

    value: float
    terms: float

    @classmethod
    def total(cls, terms: Iterable[float]) -> "Recomputed":
        """Add terms up without rounding errors on the way."""
        added = list(terms)
        return cls(value=math.fsum(added), terms=math.fsum(map(abs, added)))

    def held_to(self, most_terms: float) -> "Recomputed":
        """Return the same number with terms of at most `most_terms`, or of its own size: who wrote a proof chose its terms."""
        return Recomputed(value=self.value, terms=min(self.terms, max(abs(self.value), most_terms)))

    @property
    def tol(self) -> float:
        """By how much a stated number may differ."""
        return AGREEMENT_TOL * self.terms

    def agrees(self, stated: Any) -> bool:
        """Tell whether a stated number is this one."""
        return is_finite(stated) and abs(stated - self.value) <= self.tol
