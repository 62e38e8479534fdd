"""The competitive ratios (A.28) and (A.29), computed from eps, the spread, and the share of capacity where prices reach U.

The spread is the largest ln(U / lower scale) of a row.
"""

import math
from fractions import Fraction

ZERO_START, EXPONENTIAL = "zero-start", "exponential"


def ratio_of(theorem: str, eps: Fraction, full: float, spread: float) -> float:
    """Return the ratio of a theorem for prices that reach U at the share `full` of a capacity; infinite on overflow."""
    if spread == -math.inf:
        growth = 0.0
    else:
        rise = spread if theorem == EXPONENTIAL else max(spread, 0.0) + math.log1p(math.exp(-abs(spread)))
        try:
            growth = math.expm1(float(eps) * rise / full) / float(eps) if eps else rise / full
        except OverflowError:
            growth = math.inf
    return 2 * max(1.0, growth) if theorem == EXPONENTIAL else growth + max(1.0, growth)
