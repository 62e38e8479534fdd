"""Forecasts of what a cycle will need, and the allocation that a price on harm buys.

A forecast is a distribution of the need: of a resource that is held the peak of the coming cycle, of a rate any of its samples. At
price m^2 a container gets the y that minimises

    y + m^2 s w P(need > y),

s the mean demand of training containers, and w what a sample's harm counts there: a container that lives longer has more of it for the same
share. Of all ways to do so much harm on average, this one allocates least, as harm is done where it saves most. The price is the square of the multiplier, so that multipliers to 1024 reach any safety, and calibration makes up for what is wrong with the distribution.
"""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import FloatArray
from optim.simulation.containers.world import World

TAIL = 24
"""Points beyond the last quantile."""

TAIL_FIRST, TAIL_GROWTH, TAIL_POWER = 0.25, 1.3, 4.0
"""In units of the tail's mean the points lie at 0.25, 0.25 x 1.3, ...; risk falls as (1 + d / 4)^-4: as exp(-d) at first, then more slowly."""

LEAST_TAIL = 0.005
TAIL_SHARE = 0.05
"""The logarithm of what lies beyond the last quantile has this share of its distance to the median as its mean, and at least LEAST_TAIL."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """Distributions of needs.

    Attributes
    ----------
    need
        Shape (A, R, Q): quantiles, rising; NaN where nothing is known, as in the first cycle.
    risk
        Shape (Q,): probability that the need is above each, falling.
    scale
        Shape (R,): what a price of one is worth.
    weight
        Shape (A, R): what harm counts, 1 on average over training containers.
    """

    need: FloatArray
    risk: FloatArray
    scale: FloatArray
    weight: FloatArray | None = None

    def allocation(self, multiplier: FloatArray, unknown: FloatArray, limit: FloatArray) -> FloatArray:
        """Return what is given, shape (A, R): of equally good amounts the largest, and never more than the limit."""
        value = np.empty(self.need.shape[:2])
        last = len(self.risk) - 1
        for column, price in enumerate((multiplier**2 * self.scale).tolist()):
            need = self.need[:, column]
            harm = self.risk if self.weight is None else self.weight[:, column, None] * self.risk
            best = last - np.argmin((need + price * harm)[:, ::-1], axis=1)
            value[:, column] = np.take_along_axis(need, best[:, None], axis=1)[:, 0]
        return np.asarray(np.clip(np.where(np.isnan(value), unknown, value), 0.0, limit))

    def at_risk(self, share: float) -> FloatArray:
        """Return the smallest quantile that needs are above with a probability of at most `share`, shape (A, R)."""
        is_safe = self.risk <= share
        return self.need[:, :, int(is_safe.argmax()) if is_safe.any() else -1]


def with_tail(log_need: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return quantiles and risks with a heavy tail behind the last one, so that any safety can be bought.

    Parameters
    ----------
    log_need
        Shape (..., Q): logarithms of quantiles, rising.
    risk
        Shape (Q,): as in `Forecast`, above 0.
    """
    middle = int(np.argmin(np.abs(risk - 0.5)))
    top = log_need[..., -1:]
    width = np.maximum(TAIL_SHARE * (top - log_need[..., middle : middle + 1]), LEAST_TAIL)
    steps = TAIL_FIRST * TAIL_GROWTH ** np.arange(TAIL)
    beyond = np.concatenate([log_need, top + width * steps], axis=-1)
    return np.exp(beyond), np.concatenate([risk, risk[-1] * (1.0 + steps / TAIL_POWER) ** -TAIL_POWER])


def scale_of(world: World) -> FloatArray:
    """Return the mean demand of the training containers, shape (R,)."""
    return np.asarray(world.training.values.mean(axis=0))
