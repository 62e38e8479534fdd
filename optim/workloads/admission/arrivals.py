"""Bursty diurnal arrivals: an inhomogeneous Poisson process of random rate, given its number of points."""

import math

import numpy as np

from optim.models.admission.instance import IntArray

DAY_S = 86_400
PEAK_S = 14 * 3600
"""Second of the day at which most jobs arrive; the horizon starts at midnight."""


def draw_arrivals(
    num_jobs: int, num_slots: int, slot_s: float, *, swing: float, burstiness: float, rng: np.random.Generator
) -> IntArray:
    """Draw ascending arrival slots.

    The rate of slot t is ``(1 + swing cos(2 pi (t slot_s - peak) / day)) G_t`` with independent gamma factors
    G_t of mean 1 and variance `burstiness`; given how many points a Poisson process has, they are independent
    draws with probabilities proportional to the rate. Over many slots of mean rate m the variance of a slot's
    count is about ``m + m^2 (burstiness + swing^2 / 2)``.

    Parameters
    ----------
    num_jobs, num_slots, slot_s
        Jobs, slots in which they may arrive, and a slot's length in seconds.
    swing
        Relative amplitude of the daily wave, in [0, 1].
    burstiness
        Variance of the rate factor, at least 0; 0 leaves a plain Poisson process.
    rng
        Source of chance.

    Returns
    -------
    IntArray
        Shape (jobs,).

    Examples
    --------
    >>> import numpy as np
    >>> draw_arrivals(4, 10, 3600.0, swing=0.5, burstiness=0.3, rng=np.random.default_rng(0)).shape
    (4,)
    """
    seconds = (np.arange(num_slots) + 0.5) * slot_s
    rate = 1.0 + swing * np.cos(2.0 * math.pi * (seconds - PEAK_S) / DAY_S)
    if burstiness > 0:
        rate = rate * rng.gamma(1.0 / burstiness, burstiness, size=num_slots)
    if rate.sum() <= 0:
        rate = np.ones(num_slots)
    drawn: IntArray = np.sort(rng.choice(num_slots, size=num_jobs, p=rate / rate.sum()))
    return drawn
