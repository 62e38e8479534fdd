"""Small clusters with earlier days, and forecasts of them, right or wrong."""

from dataclasses import replace
from functools import cache

import numpy as np

from optim.core.arrays import FloatArray
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.posted_prices.forecast import PriceForecast
from optim.workloads.admission.generator import GeneratorOptions, generate

SIZE = GeneratorOptions(num_jobs=14, num_slots=9, num_worker_servers=4, num_ps_servers=4)
CLUSTERS = 3


@cache
def days(cluster: int) -> tuple[AdmissionInstance, ...]:
    """Return four days of one cluster; the last is today."""
    drawn = [generate(SIZE, seed=10 * cluster + k) for k in range(4)]
    first = drawn[0]
    return tuple(
        replace(day, name=f"day{k}", worker_servers=first.worker_servers, ps_servers=first.ps_servers)
        for k, day in enumerate(drawn)
    )


@cache
def forecast(cluster: int) -> PriceForecast:
    """Return the forecast from the first three days."""
    *past, today = days(cluster)
    return PriceForecast.fit(past, today, tol=1e-2)


def with_prices(known: PriceForecast, worker: FloatArray, ps: FloatArray) -> PriceForecast:
    """Return a forecast with other prices."""
    return replace(known, worker_price=worker, ps_price=ps)


def wrong(cluster: int, kind: str, seed: int) -> PriceForecast:
    """Return a forecast that is wrong in one way: scaled by 1e-2 to 1e2, permuted in time, zero, or another cluster's."""
    known, rng = forecast(cluster), np.random.default_rng(seed)
    sides = [known.worker_price, known.ps_price]
    if kind == "scaled":
        sides = [10 ** rng.uniform(-2, 2) * side for side in sides]
    elif kind == "permuted":
        order = rng.permutation(known.cluster.horizon)
        sides = [side[:, order] for side in sides]
    elif kind == "zero":
        sides = [0 * side for side in sides]
    elif kind == "random":
        sides = [side.max(initial=1.0) * rng.random(side.shape) ** 4 for side in sides]
    else:
        other = forecast((cluster + 1) % CLUSTERS)
        sides = [
            np.resize(theirs, ours.shape)
            for theirs, ours in zip((other.worker_price, other.ps_price), sides, strict=True)
        ]
    return with_prices(known, *sides)
