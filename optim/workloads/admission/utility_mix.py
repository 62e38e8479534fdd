"""Sigmoid utilities in the three classes of the paper's evaluation."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.admission.instance import FloatArray
from optim.models.admission.utility import SigmoidUtility


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilityMix:
    """How jobs value their delay: f(d) = theta1 / (1 + exp(theta2 (d - theta3))).

    Parameters
    ----------
    insensitive, sensitive, critical
        Weights of the classes; they need not add up to anything.
    theta1
        Range of the priority, uniform.
    sensitive_theta2, critical_theta2
        Ranges of the urgency, uniform; it is 0 for time-insensitive jobs.

    Raises
    ------
    InvalidOptionError
        If a weight is negative, all are 0, or a range doesn't rise from a number of at least 0.

    References
    ----------
    Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM 2018,
    DOI 10.1109/INFOCOM.2018.8486422, evaluation section (the classes and their shares).
    """

    insensitive: float = 10.0
    sensitive: float = 55.0
    critical: float = 35.0
    theta1: tuple[float, float] = (1.0, 100.0)
    sensitive_theta2: tuple[float, float] = (0.01, 1.0)
    critical_theta2: tuple[float, float] = (4.0, 6.0)

    def __post_init__(self) -> None:
        weights = (self.insensitive, self.sensitive, self.critical)
        if not all(0 <= weight < float("inf") for weight in weights) or sum(weights) <= 0:
            raise InvalidOptionError(f"class weights must be at least 0, one of them positive, got {weights}")
        for name in ("theta1", "sensitive_theta2", "critical_theta2"):
            check_range(name, getattr(self, name), least=0.0)

    def draw(self, theta3: FloatArray, rng: np.random.Generator) -> tuple[SigmoidUtility, ...]:
        """Draw one utility a target delay, rounded to what a person would write.

        Parameters
        ----------
        theta3
            Target delays in slots, shape (jobs,).
        rng
            Source of chance.
        """
        weights = np.array([self.insensitive, self.sensitive, self.critical])
        kind = rng.choice(3, size=len(theta3), p=weights / weights.sum())
        priority = rng.uniform(*self.theta1, size=len(theta3))
        urgency = np.stack(
            [
                np.zeros(len(theta3)),
                rng.uniform(*self.sensitive_theta2, size=len(theta3)),
                rng.uniform(*self.critical_theta2, size=len(theta3)),
            ]
        )
        return tuple(
            SigmoidUtility(theta1=round(first, 2), theta2=round(second, 3), theta3=third)
            for first, second, third in zip(
                priority.tolist(),
                urgency[kind, np.arange(len(theta3))].tolist(),
                theta3.tolist(),
                strict=True,
            )
        )


def check_range(name: str, limits: tuple[float, float], *, least: float, is_open: bool = False) -> None:
    """Raise InvalidOptionError unless a range (low, high) doesn't fall and starts at `least` or above."""
    low, high = limits
    starts_well = low > least if is_open else low >= least
    if not (starts_well and low <= high < float("inf")):
        sign = ">" if is_open else ">="
        raise InvalidOptionError(f"{name} must be a range (low, high) with low {sign} {least:g}, got {limits}")
