"""The best price of work of a clairvoyant's relaxation: a Lagrangian dual in one multiplier, by bisection.

With a price q of work the slots fall apart: each buys work until the next machine's gain, at q, is below its cost. Slots
that follow one another at the same cost are one segment, and a history of prices has far fewer segments than slots.
"""

import numpy as np

from optim.core.compile_cache import compiled
from optim.models.bidding.price_history import FloatArray

HALVINGS = 80
HIGHEST = 1e6
"""Dollars a unit of work that nobody pays."""
NARROW = 1e-12
"""Relative width at which a bracket of the price is as good as closed: the dual is flat at its best."""


def best_price_of_work(
    unit: FloatArray, free_rate: FloatArray, *, most: float | FloatArray, serial: float, slot_h: float, work: float
) -> tuple[float, float]:
    """Return the largest ``q work - sum_t max_V (q G(V) - unit_t max(0, V - free_t))`` that was found, and its q.

    Parameters
    ----------
    unit
        Shape (slots,): least cost of a unit of rate for an hour.
    free_rate
        Shape (slots,): rate that costs nothing.
    most
        Largest rate that may be bought, in every slot or slot by slot.
    serial
        Amdahl's share: V machines' rates do ``G(V) = V / (1 - serial + serial V)``.
    slot_h
        Hours of a slot.
    work
        Of the job.
    """
    if not len(unit):
        return 0.0, 0.0
    limit = np.broadcast_to(np.asarray(most, dtype=np.float64), unit.shape)
    changes = [np.diff(figures, prepend=np.nan) != 0 for figures in (unit, free_rate, limit)]
    begins = np.flatnonzero(np.logical_or.reduce(changes))
    hours = slot_h * np.diff(np.append(begins, len(unit)))
    value, price = _bisect(unit[begins], free_rate[begins], hours, limit[begins], serial, work)
    return float(value), float(price)


@compiled
def _bisect(
    unit: FloatArray, free_rate: FloatArray, hours: FloatArray, most: FloatArray, serial: float, work: float
) -> tuple[float, float]:
    low, high = 0.0, 1e-3
    while _dual(high, unit, free_rate, hours, most, serial, work)[1] < work and high < HIGHEST:
        low, high = high, 2.0 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if middle <= 0.0 or high - low <= NARROW * high:
            break
        if _dual(middle, unit, free_rate, hours, most, serial, work)[1] < work:
            low = middle
        else:
            high = middle
    below = _dual(low, unit, free_rate, hours, most, serial, work)[0] if low > 0.0 else 0.0
    above = _dual(high, unit, free_rate, hours, most, serial, work)[0]
    return (above, high) if above >= below else (max(0.0, below), low)


@compiled
def _dual(
    q: float, unit: FloatArray, free_rate: FloatArray, hours: FloatArray, most: FloatArray, serial: float, work: float
) -> tuple[float, float]:
    """Return the dual's value at a price of work, and the work that the price buys."""
    base, value, bought = 1.0 - serial, q * work, 0.0
    for i in range(len(unit)):
        slope = unit[i] / q
        if serial == 0.0:
            rate = np.inf if slope < 1.0 else 0.0
        else:
            rate = max(0.0, (np.sqrt(base / max(slope, 1e-12)) - base) / serial)
        rate = min(max(rate, free_rate[i]), max(most[i], free_rate[i]))
        useful = rate / (base + serial * rate)
        cost = unit[i] * (rate - free_rate[i])
        value += hours[i] * (cost - q * useful)
        bought += hours[i] * useful
    return value, bought
