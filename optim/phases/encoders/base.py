"""The protocol of encoders, the two encoders that need no training, and normalisation of embeddings."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from optim.core.archives import Field
from optim.core.arrays import FloatArray
from optim.core.errors import check_in
from optim.phases.preprocessing import ScaledSeries

Arrays = dict[str, NDArray[np.float64]]


class Encoder(ABC):
    """Maps windows to embeddings, which are then clustered.

    An encoder is constructed from its options, then fitted or restored; it never uses true phases.

    Parameters
    ----------
    options
        Options of the encoder, a frozen dataclass.
    """

    def __init__(self, options: Any) -> None:
        self.options = options

    @property
    def num_delays(self) -> int:
        """Number of samples in a segment before the first sample that has an embedding."""
        return int(self.options.num_delays)

    def fit(self, series: ScaledSeries, num_phases: int, seed: int) -> Self:
        """Fit to training series and return the encoder; `num_phases` is a hint that most encoders ignore."""
        del series, num_phases, seed
        return self

    @abstractmethod
    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return the embedding of each row in ``series.ends(num_delays)``, from samples up to the row; shape (n, width)."""

    def arrays(self) -> Arrays:
        """Return the fitted parameters as plain arrays."""
        return {}

    def fields(self, num_resources: int) -> dict[str, Field]:
        """Return the expected shapes of `arrays`, with ``W`` for an embedding's width, or raise ValueError for bad options."""
        del num_resources
        return {}

    def embedding_width(self, num_resources: int) -> int | str:
        """Return the width of an embedding, or ``W`` if the arrays determine it."""
        del num_resources
        return "W"

    def restore(self, arrays: Mapping[str, NDArray[np.float64]]) -> Self:
        """Restore the parameters from the result of `arrays`."""
        del arrays
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class RawWindowOptions:
    """Options of `RawWindowEncoder`.

    Attributes
    ----------
    num_delays
        Number of samples before the current sample in a window; three of them and the current sample are a minute at 15
        s.
    """

    num_delays: int = 3

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("[0, inf)", self, "num_delays")


class RawWindowEncoder(Encoder):
    """Encodes a window as all of its samples, oldest first: the baseline for other encoders."""

    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return the windows, shape (n, (num_delays + 1) R)."""
        windows = series.windows(self.num_delays)
        return windows.reshape(len(windows), windows.shape[1] * windows.shape[2])

    def embedding_width(self, num_resources: int) -> int:
        """Return the number of values in a window."""
        return num_resources * (self.num_delays + 1)


MIN_VARIANCE_SHARE = 1e-4
"""Principal components with less variance than this share of the largest are noise; whitened embeddings omit them."""


class Spread(StrEnum):
    """Normalisation of embeddings."""

    NONE = "none"
    """No change."""
    STANDARDISED = "standardised"
    """Each component is scaled to mean zero and standard deviation one."""
    WHITENED = "whitened"
    """All principal components are scaled to standard deviation one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whitening:
    """A linear map of embeddings: ``(embedding - origin) matrix``."""

    origin: FloatArray
    matrix: FloatArray

    @classmethod
    def fit(cls, embeddings: FloatArray, spread: Spread) -> "Whitening":
        """Return the map for training embeddings (n, width)."""
        width = embeddings.shape[1]
        origin = embeddings.mean(axis=0)
        if spread == Spread.NONE:
            return cls(origin=np.zeros(width), matrix=np.eye(width))
        if spread == Spread.STANDARDISED:
            deviation = embeddings.std(axis=0)
            return cls(origin=origin, matrix=np.diag(1.0 / np.where(deviation > 1e-9, deviation, 1.0)))
        values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(embeddings, rowvar=False, ddof=0)))
        is_significant = values > MIN_VARIANCE_SHARE * max(float(values[-1]), 1e-300)
        # An eigenvector's sign is arbitrary: make its largest entry positive.
        chosen = vectors[:, is_significant]
        signs = np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(chosen.shape[1])])
        return cls(origin=origin, matrix=chosen * signs / np.sqrt(values[is_significant]))

    def apply(self, embeddings: FloatArray) -> FloatArray:
        """Return normalised embeddings."""
        return np.asarray((embeddings - self.origin) @ self.matrix)

    def arrays(self) -> dict[str, FloatArray]:
        """Return the map's arrays."""
        return {"spread_origin": self.origin, "spread_matrix": self.matrix}

    @classmethod
    def fields(cls, width: int) -> dict[str, Field]:
        """Return the expected form of the map's arrays for embeddings of this width."""
        return {"spread_origin": Field(shape=(width,)), "spread_matrix": Field(shape=(width, "W"))}

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[np.float64]]) -> "Whitening":
        """Return the map from its arrays."""
        return cls(origin=arrays["spread_origin"], matrix=arrays["spread_matrix"])


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStatisticsOptions:
    """Options of `WindowStatisticsEncoder`.

    Attributes
    ----------
    num_delays
        Number of samples before the current sample in a window.
    spread
        Normalisation of the statistics.
    """

    num_delays: int = 3
    spread: Spread = Spread.STANDARDISED

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("[1, inf)", self, "num_delays")


class WindowStatisticsEncoder(Encoder):
    """Encodes a window as the mean, standard deviation and slope of each resource."""

    _spread: Whitening

    def fit(self, series: ScaledSeries, num_phases: int, seed: int) -> Self:
        """Fit the normalisation of the statistics."""
        del num_phases, seed
        self._spread = Whitening.fit(self._statistics(series), self.options.spread)
        return self

    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return means, then standard deviations, then slopes, shape (n, 3 R) unless whitened."""
        return self._spread.apply(self._statistics(series))

    def _statistics(self, series: ScaledSeries) -> FloatArray:
        windows = series.windows(self.num_delays)
        clock = np.arange(self.num_delays + 1) - self.num_delays / 2
        slope = np.einsum("t,ntr->nr", clock, windows) / (clock @ clock)
        return np.concatenate([windows.mean(axis=1), windows.std(axis=1), slope], axis=1)

    def arrays(self) -> Arrays:
        """Return the normalisation's arrays."""
        return self._spread.arrays()

    def fields(self, num_resources: int) -> dict[str, Field]:
        """Return the expected form of `arrays`."""
        return Whitening.fields(3 * num_resources)

    def restore(self, arrays: Mapping[str, NDArray[np.float64]]) -> Self:
        """Restore the normalisation."""
        self._spread = Whitening.restore(arrays)
        return self
