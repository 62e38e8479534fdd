"""Rounding outward: exact sums of doubles, and doubles that are certainly large enough."""

import math
import sys
from fractions import Fraction

UNIT_ROUNDOFF = 2.0**-53
"""Largest relative error of one rounded operation on doubles."""

_SMALLEST_EXPONENT = 1074
"""Every finite double is a whole multiple of 2**-1074."""


class ExactSum:
    """A sum of products double x integer, without any rounding."""

    def __init__(self) -> None:
        self._units = 0

    def add(self, value: float, factor: int = 1) -> None:
        """Add ``value * factor``; the value must be finite."""
        numerator, denominator = float(value).as_integer_ratio()
        # A double's denominator is a power of two, so that a shift brings all terms to one unit.
        self._units += numerator * factor << (_SMALLEST_EXPONENT + 1 - denominator.bit_length())

    @property
    def total(self) -> Fraction:
        """The sum."""
        return Fraction(self._units, 1 << _SMALLEST_EXPONENT)


def round_up(value: Fraction) -> float:
    """Return the smallest double that is at least `value` (infinity beyond the largest)."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def shrink_factor(num_operations: int) -> float:
    """Return a factor that takes a sum of non-negative products below its exact value.

    Each of `num_operations` nested rounded operations raises the result by at most a factor
    ``1 + 2**-53``; twice that leaves room for the product with the factor itself.
    """
    return 1.0 - 2.0 * num_operations * UNIT_ROUNDOFF
