"""Which model of a step's seconds by workers the measurements support."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.workloads.profiles.document import SpeedFunction
from optim.workloads.profiles.fitting import LinearFit, fit_times
from optim.workloads.profiles.speed import TERMS, intervals, synchronous_terms

MODELS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "compute": (0,),
        "compute and fixed": (0, 1),
        "compute and a part per worker": (0, 3),
        "compute, fixed and a part per worker": (0, 1, 3),
        "fixed": (1,),
    }
)
"""Columns of the synchronous speed function's terms that each model has; without servers of their own w/p is w, and p is 1."""

TIE = 1e-6
"""Left-out errors that differ by no more are the same: the model with fewer coefficients is taken."""


def choose_model(workers: Sequence[int], seconds: Sequence[float]) -> tuple[str, SpeedFunction]:
    """Fit every model that has fewer coefficients than there are points; return the one that predicts points best.

    Each point is predicted from all others, and the model with the least root mean square of relative errors is taken.

    Parameters
    ----------
    workers
        At least two different numbers.
    seconds
        Of a step of all the workers' samples together.

    Raises
    ------
    InvalidProblemError
        If there are fewer than two points.
    """
    if len(set(workers)) < 2:
        raise InvalidProblemError(
            f"a speed needs at least 2 numbers of workers, got {sorted(set(workers))}; add to --workers"
        )
    w = np.array(workers, dtype=np.float64)
    terms = synchronous_terms(w, np.ones_like(w), 1.0)
    fits: dict[str, LinearFit] = {}
    for name, columns in MODELS.items():
        if len(columns) < len(w):
            fits[name] = fit_times(terms[:, list(columns)], np.array(seconds))

    def badness(name: str) -> tuple[float, int]:
        error = float(np.sqrt(np.mean(fits[name].errors ** 2)))
        return round(error / TIE), len(MODELS[name])

    best = min(fits, key=badness)
    return best, _function(best, fits[best], int(w.max()))


def _function(name: str, fit: LinearFit, largest: int) -> SpeedFunction:
    """Return a fit as a document's speed function: terms that the model leaves out have coefficient 0."""
    found = dict(zip(MODELS[name], intervals(fit), strict=True))
    nothing = found[MODELS[name][0]].exactly(0.0)
    left_out = [TERMS["synchronous"][column] for column in range(5) if column not in found]
    return SpeedFunction(
        kind="synchronous",
        coefficients=[found.get(column, nothing) for column in range(5)],
        largest_workers=largest,
        error=fit.error if np.isfinite(fit.error) else 1.0,
        untold=[f"the terms {', '.join(left_out)} from those of the model '{name}'"],
        global_batch=1.0,
    )
