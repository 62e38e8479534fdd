"""Similarity of generated and given containers by scale-free statistics (traits), and a fit of the generator's parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.errors import InvalidProblemError
from optim.models.containers.series import ContainerSeries
from optim.workloads.containers.generator import ContainerOptions, generate_containers

TRAITS = ("level", "idle", "near", "far", "ramps")
"""Mean over peak; fraction of samples below 5 % of the peak; autocorrelation at lags 1 and 20; fraction of spans of 40 samples whose ends
differ by at least 20 % of the peak."""

IDLE_SHARE, RAMP_SHARE = 0.05, 0.2
NEAR, FAR, SPAN = 1, 20, 40

PARAMETERS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "idle_share": (0.0, 0.1, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95),
        "idle_memory": (0.0, 0.25, 0.5, 1.0),
        "phase_length": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
        "noise": (0.25, 0.5, 1.0, 2.0, 4.0),
    }
)
"""Values to try per parameter; a fit varies one parameter after the other, in this order, until none improves the fit."""

MAX_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Likeness:
    """Fitted options of the generator, and how similar its containers are.

    Attributes
    ----------
    options
        Options of the generator.
    target, generated
        Traits of the given and of the generated series, shape (R, traits).
    """

    options: ContainerOptions
    target: FloatArray
    generated: FloatArray

    @property
    def off(self) -> float:
        """Mean absolute difference of the traits."""
        return distance(self.target, self.generated)


def summary_statistics(series: ContainerSeries) -> FloatArray:
    """Return the medians of each resource's `TRAITS` over series of more than 40 samples, shape (R, 5).

    Raises
    ------
    InvalidProblemError
        If no series has more than 40 samples.
    """
    statistics = [_traits(series.values[rows]) for rows in series.segments() if rows.stop - rows.start > SPAN]
    if not statistics:
        raise InvalidProblemError(f"no series has more than {SPAN} samples; give longer ones")
    return np.asarray(np.median(statistics, axis=0))


def _traits(values: FloatArray) -> FloatArray:
    peak = np.where(values.max(axis=0) > 0, values.max(axis=0), 1.0)
    moved = np.abs(values[SPAN:] - values[:-SPAN]) >= RAMP_SHARE * peak
    return np.stack(
        [
            values.mean(axis=0) / peak,
            (values < IDLE_SHARE * peak).mean(axis=0),
            autocorrelation(values, NEAR),
            autocorrelation(values, FAR),
            moved.mean(axis=0),
        ],
        axis=1,
    )


def autocorrelation(values: FloatArray, lag: int) -> FloatArray:
    """Return each column's autocorrelation, shape (R,); 1 for a constant."""
    moved = values - values.mean(axis=0)
    power = (moved**2).sum(axis=0)
    is_constant = power <= 1e-18 * np.maximum((values**2).sum(axis=0), 1e-300)
    return np.where(is_constant, 1.0, (moved[lag:] * moved[:-lag]).sum(axis=0) / np.where(is_constant, 1.0, power))


def distance(one: FloatArray, two: FloatArray) -> float:
    """Return the mean absolute difference of traits."""
    return float(np.abs(one - two).mean())


def drawn_traits(options: ContainerOptions, seed: int) -> FloatArray:
    """Return the traits of generated containers."""
    return summary_statistics(generate_containers(options, seed))


def fit_generator(series: ContainerSeries, num_containers: int, seed: int) -> Likeness:
    """Return the generator options whose containers have traits nearest to those of given series of CPU and memory.

    Coordinate descent over `PARAMETERS`, to a local optimum. Among equally near values the first one is chosen.

    Parameters
    ----------
    series
        Series on any grid: traits count samples, not seconds.
    num_containers
        Number of containers that are generated for each setting.
    seed
        Seed of the generated containers, the same for each setting.
    """
    target = summary_statistics(series.select_resources(("cpu", "memory")))
    options = ContainerOptions(num_containers=num_containers)
    generated = drawn_traits(options, seed)
    for _ in range(MAX_ROUNDS):
        before = options
        for name, values in PARAMETERS.items():
            for value in values:
                turned: Any = {name: value}
                tried = replace(options, **turned)
                if tried == options:
                    continue
                tried_statistics = drawn_traits(tried, seed)
                if distance(target, tried_statistics) < distance(target, generated):
                    options, generated = tried, tried_statistics
        if options == before:
            break
    return Likeness(options=options, target=target, generated=generated)
