"""Figures that sum up many records: shifted geometric means, performance profiles, distributions."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def shifted_geometric_mean(values: ArrayLike, shift: float) -> float:
    """Return ``exp(mean(log(values + shift))) - shift``.

    The shift keeps values near zero, which are mostly noise, from ruling the mean.

    Parameters
    ----------
    values
        Shape (n,), n >= 1, each above ``-shift``.
    shift
        In the unit of the values, positive.

    References
    ----------
    T. Achterberg, "Constraint Integer Programming", PhD thesis, TU Berlin, 2007, appendix A.3.

    Examples
    --------
    >>> round(shifted_geometric_mean([0.0, 3.0], shift=1.0), 12)
    1.0
    """
    shifted = np.asarray(values, dtype=np.float64) + shift
    return float(np.exp(np.mean(np.log(shifted))) - shift)


def performance_profile(
    costs: Mapping[str, Sequence[float | None]],
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return for each solver the share of instances on which it is within a factor of the best.

    Parameters
    ----------
    costs
        For each solver one positive cost an instance (lower is better), None where it failed. All
        solvers have the same instances in the same order.

    Returns
    -------
    dict
        For each solver factors (ascending, starting at 1) and shares: a step function, right-continuous.

    References
    ----------
    E. Dolan, J. Moré, "Benchmarking optimization software with performance profiles",
    Mathematical Programming 91 (2002), DOI 10.1007/s101070100263.

    Examples
    --------
    >>> factors, shares = performance_profile({"a": [1.0, 4.0], "b": [2.0, 2.0]})["a"]
    >>> factors.tolist(), shares.tolist()
    ([1.0, 2.0], [0.5, 1.0])
    """
    table = np.array([[np.inf if cost is None else cost for cost in row] for row in costs.values()], dtype=np.float64)
    best = table.min(axis=0)
    is_solved = np.isfinite(best)
    factors = table[:, is_solved] / best[is_solved]
    profile = {}
    for name, row in zip(costs, factors, strict=True):
        reached = np.unique(np.concatenate([[1.0], row[np.isfinite(row)]]))
        shares = np.array([(row <= factor).mean() for factor in reached]) if row.size else np.zeros(len(reached))
        profile[name] = (reached, shares)
    return profile
