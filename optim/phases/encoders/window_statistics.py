"""Mean, deviation and slope of each resource over the window."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from optim.core.archives import Field
from optim.core.ranges import check_in
from optim.models.containers.series import FloatArray
from optim.phases.encoders.protocol import Arrays, Encoder
from optim.phases.encoders.spread import CodeSpread, Spread
from optim.phases.windows import ScaledSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStatisticsOptions:
    """Options of the encoder.

    Attributes
    ----------
    num_delays
        Samples of history in a window.
    spread
        How the statistics are brought to one scale.
    """

    num_delays: int = 3
    spread: Spread = Spread.STANDARDISED

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("[1, inf)", self, "num_delays")


class WindowStatisticsEncoder(Encoder):
    """Three numbers a resource: how much, how unsteady, and where it is going."""

    _spread: CodeSpread

    def fit(self, series: ScaledSeries, num_phases: int, seed: int) -> Self:
        """Fit the spread of the statistics."""
        del num_phases, seed
        self._spread = CodeSpread.fit(self._statistics(series), self.options.spread)
        return self

    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return means, then deviations, then slopes, shape (n, 3 R) unless whitened."""
        return self._spread.apply(self._statistics(series))

    def _statistics(self, series: ScaledSeries) -> FloatArray:
        windows = series.windows(self.num_delays)
        clock = np.arange(self.num_delays + 1) - self.num_delays / 2
        slope = np.einsum("t,ntr->nr", clock, windows) / (clock @ clock)
        return np.concatenate([windows.mean(axis=1), windows.std(axis=1), slope], axis=1)

    def arrays(self) -> Arrays:
        """Return the spread."""
        return self._spread.arrays()

    def fields(self, num_resources: int) -> dict[str, Field]:
        """Return what they must be."""
        return CodeSpread.fields(3 * num_resources)

    def restore(self, arrays: Mapping[str, NDArray[np.float64]]) -> Self:
        """Take the spread."""
        self._spread = CodeSpread.restore(arrays)
        return self
