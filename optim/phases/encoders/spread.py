"""Codes brought to a common spread, so that no direction counts only because its numbers are large."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from optim.core.archives import Field
from optim.models.containers.series import FloatArray

SMALLEST_VARIANCE = 1e-4
"""Directions whose variance is below this share of the greatest are noise, and left out of whitened codes."""


class Spread(StrEnum):
    """How codes are spread."""

    NONE = "none"
    """As they are."""
    STANDARDISED = "standardised"
    """Each to mean zero and deviation one."""
    WHITENED = "whitened"
    """All principal directions to deviation one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodeSpread:
    """A linear map of codes: ``(code - origin) matrix``."""

    origin: FloatArray
    matrix: FloatArray

    @classmethod
    def fit(cls, codes: FloatArray, spread: Spread) -> "CodeSpread":
        """Return the map for training codes (n, width)."""
        width = codes.shape[1]
        origin = codes.mean(axis=0)
        if spread == Spread.NONE:
            return cls(origin=np.zeros(width), matrix=np.eye(width))
        if spread == Spread.STANDARDISED:
            deviation = codes.std(axis=0)
            return cls(origin=origin, matrix=np.diag(1.0 / np.where(deviation > 1e-9, deviation, 1.0)))
        values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(codes, rowvar=False, ddof=0)))
        kept = values > SMALLEST_VARIANCE * max(float(values[-1]), 1e-300)
        # Eigenvectors have no sign of their own: the largest entry is made positive.
        chosen = vectors[:, kept]
        signs = np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(chosen.shape[1])])
        return cls(origin=origin, matrix=chosen * signs / np.sqrt(values[kept]))

    def apply(self, codes: FloatArray) -> FloatArray:
        """Return spread codes."""
        return np.asarray((codes - self.origin) @ self.matrix)

    def arrays(self) -> dict[str, FloatArray]:
        """Return the map's arrays."""
        return {"spread_origin": self.origin, "spread_matrix": self.matrix}

    @classmethod
    def fields(cls, width: int) -> dict[str, Field]:
        """Return what the map's arrays must be for codes so wide."""
        return {"spread_origin": Field(shape=(width,)), "spread_matrix": Field(shape=(width, "W"))}

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[np.float64]]) -> "CodeSpread":
        """Return the map from its arrays."""
        return cls(origin=arrays["spread_origin"], matrix=arrays["spread_matrix"])
