"""Prices of GPU-seconds that bound the mean completion time of any schedule from below."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.stopping import Interruption
from optim.models.cluster.proof import PriceProof
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster, FloatArray

NOTABLE, GROWTH, PATIENCE = 0.1, 1.5, 5
"""The level above the best value grows after a gain of a tenth of it, and is halved after five steps without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBoundOptions:
    """How prices are looked for.

    Parameters
    ----------
    slot_s
        Length of the slots in which a price is constant.
    steps
        Subgradient steps.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    slot_s: float = 7200.0
    steps: int = 60

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (1 <= self.slot_s <= 10**7 and 0 <= self.steps <= 10**5):
            raise InvalidOptionError(f"slot_s must lie in 1..1e7 and steps in 0..1e5, got {self}")


def bound_mean_completion(
    jobs: Workload,
    cluster: Cluster,
    options: PriceBoundOptions | None = None,
    stop: Interruption | None = None,
) -> tuple[float, PriceProof]:
    """Return a lower bound on the mean job completion time in seconds, and the prices that prove it.

    Subgradient ascent on (D.1) of docs/mathematics/cluster.md with Polyak's step towards a level above the best value,
    which grows with success and comes closer without. A stop that is requested ends it with the best prices so far.
    """
    from optim.solvers.cluster.cheapest_time import best_ends, use_of_slots

    options = options or PriceBoundOptions()
    release, duration = jobs.submit_us / US, jobs.duration_us / US
    width = jobs.gpus.astype(float)
    longest = max(float(duration.max()), float(duration @ width) / cluster.num_gpus)
    slots = int(max(1, np.ceil((release[-1] + longest) * 1.2 / options.slot_s)))
    price = np.zeros(slots)
    supply = cluster.num_gpus * options.slot_s
    value, end = np.empty(len(jobs)), np.empty(len(jobs))
    best, best_price, level, fruitless = -np.inf, price, 0.0, 0
    for step in range(options.steps + 1):
        best_ends(release, duration, width, price, options.slot_s, value, end)
        total = float(value.sum() - supply * price.sum())
        if step == 0:
            level = 0.1 * total
        is_good = total > best + NOTABLE * level
        level, fruitless = (GROWTH * level, 0) if is_good else (level, fruitless + 1)
        if total > best:
            best, best_price = total, price
        if fruitless >= PATIENCE:
            level, fruitless = level / 2, 0
        gradient: FloatArray = np.full(slots, -supply)
        use_of_slots(release, duration, width, end, price, options.slot_s, gradient)
        gradient[(price <= 0) & (gradient < 0)] = 0.0
        norm = float(gradient @ gradient)
        if norm == 0 or (stop is not None and stop.is_requested):
            break
        price = np.maximum(0.0, price + (best + level - total) / norm * gradient)
    proof = PriceProof(slot_us=round(options.slot_s * US), price=best_price)
    return best / len(jobs), proof
