"""Utilities: what a job is worth as a function of its delay, in slots."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit


class Utility(Protocol):
    """A non-negative, non-increasing function of the delay `d = completion slot - arrival slot`."""

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return f(0), ..., f(num_delays - 1)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SigmoidUtility:
    """f(d) = theta1 / (1 + exp(theta2 (d - theta3))): priority, urgency, target delay.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters",
    INFOCOM 2018, DOI 10.1109/INFOCOM.2018.8486422, evaluation section.
    """

    theta1: float
    theta2: float
    theta3: float

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return f at delays 0 to num_delays - 1; `expit` can't overflow."""
        delays = np.arange(num_delays, dtype=np.float64)
        values: NDArray[np.float64] = self.theta1 * expit(-self.theta2 * (delays - self.theta3))
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantUtility:
    """f(d) = value: the job doesn't mind waiting."""

    value: float

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return the constant `num_delays` times."""
        return np.full(num_delays, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUtility:
    """f(d) = value up to a delay of `max_delay` slots after the arrival (included), late_value afterwards."""

    value: float
    max_delay: int
    late_value: float = 0.0

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return the two-valued step."""
        return np.where(np.arange(num_delays) <= self.max_delay, self.value, self.late_value).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUtility:
    """f(d) = table[d]; delays beyond the table earn nothing."""

    table: tuple[float, ...]

    def values(self, num_delays: int) -> NDArray[np.float64]:
        """Return the table, cut or filled with zeros."""
        result = np.zeros(num_delays)
        known = min(num_delays, len(self.table))
        result[:known] = self.table[:known]
        return result
