"""Units of their own for numbers below 1: tolerances of programmes, Newton steps and boxes are absolute.

A unit is a power of two, so that going to it and back changes no digit.
"""

import math

SMALLEST_EXPONENT = -1000
"""Units stay so large that their inverse is a double."""


def unit_of(most: float) -> float:
    """Return the power of two in which a positive number below 1 lies between 1 and 2; 1 of any other number."""
    if not 0.0 < most < 1.0:
        return 1.0
    return math.ldexp(1.0, max(math.frexp(most)[1] - 1, SMALLEST_EXPONENT))
