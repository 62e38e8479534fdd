"""What a completion earns: the utilities once more, one delay at a time, with their rounding error."""

import math

from optim.models.admission.check.rounding import UNIT_ROUNDOFF
from optim.models.admission.utility import ConstantUtility, SigmoidUtility, StepUtility, TableUtility, Utility

FEW_OPERATIONS = 8
"""Rounded operations in one utility, the exponential counted as four."""


def worth_by_delay(
    utility: Utility, num_delays: int, *, minimum: float, share: float
) -> tuple[tuple[float, ...], float]:
    """Return f(d) for d = 0, ..., num_delays - 1, zero where it is below the smallest accepted utility.

    Parameters
    ----------
    utility
        The job's utility.
    num_delays
        How many delays there are up to the horizon.
    minimum
        The job's own smallest accepted utility; NaN where the instance's share of f(0) holds.
    share
        The instance's share of f(0).

    Returns
    -------
    tuple
        The worths, and a bound on their relative error.
    """
    worth = _values(utility, num_delays)
    floor = share * worth[0] if math.isnan(minimum) else minimum
    return tuple(value if value >= floor else 0.0 for value in worth), _relative_error(utility, num_delays)


def _values(utility: Utility, num_delays: int) -> list[float]:
    match utility:
        case SigmoidUtility():
            return [utility.theta1 * _logistic(utility.theta2 * (d - utility.theta3)) for d in range(num_delays)]
        case ConstantUtility():
            return [float(utility.value)] * num_delays
        case StepUtility():
            return [float(utility.value if d <= utility.max_delay else utility.late_value) for d in range(num_delays)]
        case TableUtility():
            return [float(utility.table[d]) if d < len(utility.table) else 0.0 for d in range(num_delays)]
    # Somebody's own kind of utility has no second description: its values are its definition.
    return [float(value) for value in utility.values(num_delays)]


def _logistic(exponent: float) -> float:
    """Return 1 / (1 + e^x), 0 where e^x overflows."""
    try:
        return 1.0 / (1.0 + math.exp(exponent))
    except OverflowError:
        return 0.0


def _relative_error(utility: Utility, num_delays: int) -> float:
    """Bound the relative error: a rounded exponent x moves its exponential by |x| units."""
    if not isinstance(utility, SigmoidUtility):
        return 0.0
    exponent = abs(utility.theta2) * (num_delays + abs(utility.theta3))
    # Beyond 745 the exponential is 0 or overflows, and with it the worth.
    return (FEW_OPERATIONS + 4 * min(exponent, 745.0)) * UNIT_ROUNDOFF
