"""Terms of the speed functions: Optimus' two, and what a server's update costs.

References
----------
Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018,
DOI 10.1145/3190508.3190517 (both speed functions and their fit by non-negative least squares).
"""

import numpy as np

from optim.workloads.profiles.document import Interval, SpeedFunction
from optim.workloads.profiles.fitting import FloatArray, LinearFit

TERMS = {"synchronous": ("M/w", "1", "w/p", "w", "p"), "asynchronous": ("1", "w/p", "w", "p")}
"""How the terms are written, by the kind of function."""


def synchronous_terms(workers: FloatArray, servers: FloatArray, global_batch: float) -> FloatArray:
    """Return the terms of a synchronous step's seconds, shape (points, 5): ``M/w, 1, w/p, w, p``."""
    others = asynchronous_terms(workers, servers)
    return np.column_stack([global_batch / others[:, 2], others])


def asynchronous_terms(workers: FloatArray, servers: FloatArray) -> FloatArray:
    """Return the terms of an asynchronous worker's seconds a step, shape (points, 4): ``1, w/p, w, p``."""
    w, p = np.asarray(workers, dtype=np.float64), np.asarray(servers, dtype=np.float64)
    return np.stack([np.ones_like(w), w / p, w, p], axis=1)


def update_terms(pushes: FloatArray, num_bytes: FloatArray) -> FloatArray:
    """Return the terms of an update's seconds, shape (points, 4): ``1, W, bytes, W bytes``."""
    w, size = np.asarray(pushes, dtype=np.float64), np.asarray(num_bytes, dtype=np.float64)
    return np.stack([np.ones_like(w), w, size, w * size], axis=1)


def steps_per_second(function: SpeedFunction, workers: FloatArray, servers: FloatArray) -> FloatArray:
    """Return the speed of a job: global steps a second, or single updates a second where it is asynchronous."""
    values = np.array([interval.value for interval in function.coefficients])
    if function.kind == "asynchronous":
        return np.asarray(workers / (asynchronous_terms(workers, servers) @ values))
    batch = function.global_batch
    assert isinstance(batch, float), "a synchronous speed function has a global batch"
    return np.asarray(1.0 / (synchronous_terms(workers, servers, batch) @ values))


def intervals(fit: LinearFit) -> list[Interval]:
    """Return a fit's coefficients as a document holds them."""
    return [
        Interval(value=value, low=low, high=high)
        for value, low, high in zip(
            fit.coefficients.tolist(), np.maximum(fit.low, 0.0).tolist(), fit.high.tolist(), strict=True
        )
    ]
