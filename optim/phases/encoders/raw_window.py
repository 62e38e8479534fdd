"""The scaled window itself as its code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from optim.models.containers.series import FloatArray
from optim.phases.encoders.protocol import Arrays
from optim.phases.encoders.spread import check_delays
from optim.phases.windows import ScaledSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class RawWindowOptions:
    """Options of the encoder.

    Attributes
    ----------
    num_delays
        Samples of history in a window; three with the sample itself are a minute at 15 s.
    """

    num_delays: int = 3

    def __post_init__(self) -> None:
        """Check ranges."""
        check_delays(self.num_delays)


class RawWindowEncoder:
    """All samples of the window, oldest first: what any other encoder has to improve on."""

    def __init__(self, options: RawWindowOptions) -> None:
        self.options = options

    @property
    def num_delays(self) -> int:
        """Samples of history."""
        return self.options.num_delays

    def fit(self, series: ScaledSeries, num_phases: int, seed: int) -> Self:
        """There is nothing to fit."""
        del series, num_phases, seed
        return self

    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return the windows, shape (n, (num_delays + 1) R)."""
        windows = series.windows(self.num_delays)
        return windows.reshape(len(windows), windows.shape[1] * windows.shape[2])

    def arrays(self) -> Arrays:
        """Return nothing."""
        return {}

    def restore(self, arrays: Mapping[str, NDArray[np.float64]]) -> Self:
        """Take nothing."""
        del arrays
        return self
