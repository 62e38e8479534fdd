"""Heavy-tailed durations: a log-normal between what is possible and what can still end in time."""

import numpy as np
from scipy.special import ndtr, ndtri

from optim.models.admission.instance import FloatArray


def draw_durations(
    median: float, sigma: float, shortest: float, longest: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw from log-normal distributions that are cut off on both sides, by inversion.

    Parameters
    ----------
    median, sigma
        Median and standard deviation of the logarithm, before the cut.
    shortest
        Least duration.
    longest
        Largest duration a job, shape (jobs,); where it is below `shortest`, both are `longest`.
    rng
        Source of chance.

    Returns
    -------
    FloatArray
        Shape (jobs,), in the unit of the limits.

    Examples
    --------
    >>> import numpy as np
    >>> longest = np.array([2.0, 8.0])
    >>> bool((draw_durations(4.0, 2.0, 1.0, longest, np.random.default_rng(0)) <= longest).all())
    True
    """
    least = np.minimum(shortest, longest)
    with np.errstate(divide="ignore"):
        low, high = (ndtr(np.log(limit / median) / sigma) for limit in (least, longest))
    quantile = low + (high - low) * rng.random(len(longest))
    drawn: FloatArray = np.clip(median * np.exp(sigma * ndtri(quantile)), least, longest)
    return drawn
