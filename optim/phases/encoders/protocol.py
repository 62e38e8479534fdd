"""What an encoder is: a window of samples in, a code out, at the window's last sample."""

from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from optim.models.containers.series import FloatArray
from optim.phases.windows import ScaledSeries

Arrays = dict[str, NDArray[np.float64]]


class Encoder(Protocol):
    """Turns windows into codes, which are then clustered.

    Made with its options alone, then fitted or restored; it never sees a true phase.
    """

    @property
    def num_delays(self) -> int:
        """Samples of history that the first code of a segment needs."""
        ...

    @property
    def options(self) -> Any:
        """The options it was made with, a frozen dataclass."""
        ...

    def fit(self, series: ScaledSeries, num_phases: int, seed: int) -> Self:
        """Fit to training series; `num_phases` is a hint that most ignore."""
        ...

    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return the codes at the rows ``series.ends(num_delays)``, shape (n, width): no lag, and no row without one."""
        ...

    def arrays(self) -> Arrays:
        """Return what was fitted, as plain arrays."""
        ...

    def restore(self, arrays: Mapping[str, NDArray[np.float64]]) -> Self:
        """Take what `arrays` returned."""
        ...
