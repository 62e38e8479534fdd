"""When a price next exceeds a bid: for every step of a path and every bid delta at once."""

import numpy as np

from optim.core.compile_cache import compiled
from optim.models.bidding.price_history import IntArray, PricePath

NEVER = np.iinfo(np.int64).max // 4
"""The time of what doesn't happen: later than all clocks, and far from overflow."""


def crossings(path: PricePath, deltas_micro: IntArray, *, at_equal: bool = False) -> IntArray:
    """Return when the price first exceeds `price + delta` after each step.

    Parameters
    ----------
    path
        A price path.
    deltas_micro
        Shape (deltas,): bid deltas, ascending, at least 0.
    at_equal
        Whether a price equal to the bid evicts, too.

    Returns
    -------
    numpy.ndarray
        Shape (deltas, changes): time of the change, `NEVER` where there is none. It holds for every bid that is
        made while the step lasts.

    Notes
    -----
    The first price above a bid that is at least the present price is a record since then. Records form a chain
    from each step to the next higher one, which all steps walk at once; a larger delta goes on where a smaller
    one stopped.
    """
    price = path.price_micro
    size = len(price)
    higher = _next_higher(price, at_equal)
    ahead = np.append(price, NEVER)
    time_s = np.append(path.time_s, NEVER)
    place = higher[:-1].copy()
    result = np.empty((len(deltas_micro), size), dtype=np.int64)
    for d, delta in enumerate(deltas_micro.tolist()):
        bid = price + delta - int(at_equal)
        walking = np.flatnonzero(ahead[place] <= bid)
        while len(walking):
            place[walking] = higher[place[walking]]
            walking = walking[ahead[place[walking]] <= bid[walking]]
        result[d] = time_s[place]
    return result


def crossings_of_bid(path: PricePath, bid_micro: int, *, at_equal: bool = False) -> IntArray:
    """Return when the price first exceeds one fixed bid after each step, shape (changes,); `NEVER` if it doesn't."""
    above = np.flatnonzero(path.price_micro >= bid_micro if at_equal else path.price_micro > bid_micro)
    time_s = np.append(path.time_s[above], NEVER)
    return time_s[np.searchsorted(above, np.arange(len(path)), side="right")]


@compiled
def _next_higher(price: IntArray, at_equal: bool) -> IntArray:
    """Return the next step with a higher price (or an equal one), the number of steps where there is none."""
    size = len(price)
    higher = np.full(size + 1, size, dtype=np.int64)
    open_steps, depth = np.empty(size, dtype=np.int64), 0
    for step in range(size):
        while depth and price[open_steps[depth - 1]] < price[step] + int(at_equal):
            depth -= 1
            higher[open_steps[depth]] = step
        open_steps[depth] = step
        depth += 1
    return higher
