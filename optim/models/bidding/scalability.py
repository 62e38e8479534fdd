"""Curves of scalability: the useful rate of machines whose rates add up."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class CurveKind(StrEnum):
    """Form of a scalability curve."""

    LINEAR = "linear"
    SATURATING = "saturating"
    USL = "usl"
    POINTS = "points"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalability:
    """Useful rate `G` of machines whose rates add up to `V`: concave, rising, 0 at 0.

    ``linear``: ``G = V``; ``saturating``: ``G = V / (base + serial V)``; ``usl``: ``G = V / (1 + serial (V - 1) +
    crosstalk V (V - 1))`` up to its peak and constant beyond; ``points``: linear between points (0, 0), (V, G), ...,
    constant beyond the last.

    Parameters
    ----------
    kind
        Form.
    serial, base, crosstalk
        Coefficients. Amdahl's law with serial share a is ``saturating`` with serial a and base 1 - a.
    points
        Points in order of V, without the origin.
    """

    kind: CurveKind = CurveKind.LINEAR
    serial: float = 0.0
    base: float = 1.0
    crosstalk: float = 0.0
    points: tuple[tuple[float, float], ...] = ()

    @classmethod
    def amdahl(cls, serial: float) -> "Scalability":
        """Return Amdahl's law: ``phi(V) = 1 / (1 + serial (V - 1))``."""
        return cls(kind=CurveKind.SATURATING, serial=serial, base=1.0 - serial)

    @property
    def peak(self) -> float:
        """V from which on more machines are of no use, infinity where they always are."""
        if self.kind is CurveKind.USL and self.crosstalk > 0:
            return float(np.sqrt((1.0 - self.serial) / self.crosstalk))
        if self.kind is CurveKind.POINTS:
            return self.points[-1][0]
        return float("inf")

    def value(self, rate: FloatArray) -> FloatArray:
        """Return G at each rate of at least 0."""
        if self.kind is CurveKind.LINEAR:
            return np.asarray(rate, dtype=np.float64)
        if self.kind is CurveKind.POINTS:
            return np.interp(rate, [0.0, *(v for v, _ in self.points)], [0.0, *(g for _, g in self.points)])
        v = np.minimum(rate, self.peak)
        if self.kind is CurveKind.SATURATING:
            return np.asarray(v / (self.base + self.serial * v))
        return np.asarray(v / (1.0 + self.serial * (v - 1.0) + self.crosstalk * v * (v - 1.0)))

    def slope(self, rate: FloatArray) -> FloatArray:
        """Return a supergradient of G at each rate: the slope to the right."""
        v = np.asarray(rate, dtype=np.float64)
        if self.kind is CurveKind.LINEAR:
            return np.ones_like(v)
        if self.kind is CurveKind.POINTS:
            knots = np.array([0.0, *(x for x, _ in self.points)])
            heights = np.array([0.0, *(y for _, y in self.points)])
            steps = np.append(np.diff(heights) / np.diff(knots), 0.0)
            return np.asarray(steps[np.searchsorted(knots, v, side="right") - 1])
        if self.kind is CurveKind.SATURATING:
            return np.asarray(self.base / (self.base + self.serial * v) ** 2)
        below = 1.0 + self.serial * (v - 1.0) + self.crosstalk * v * (v - 1.0)
        return np.where(v < self.peak, (1.0 - self.serial - self.crosstalk * v * v) / below**2, 0.0)
