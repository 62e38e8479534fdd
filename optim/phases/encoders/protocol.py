"""What an encoder is: a window of samples in, a code out, at the window's last sample."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from optim.core.archives import Field
from optim.models.containers.series import FloatArray
from optim.phases.windows import ScaledSeries

Arrays = dict[str, NDArray[np.float64]]


class Encoder(ABC):
    """Turns windows into codes, which are then clustered.

    Made with its options alone, then fitted or restored; it never sees a true phase.

    Parameters
    ----------
    options
        A frozen dataclass.
    """

    def __init__(self, options: Any) -> None:
        self.options = options

    @property
    def num_delays(self) -> int:
        """Samples of history that the first code of a segment needs."""
        return int(self.options.num_delays)

    def fit(self, series: ScaledSeries, num_phases: int, seed: int) -> Self:
        """Fit to training series; `num_phases` is a hint that most ignore. Without anything to fit, as it is."""
        del series, num_phases, seed
        return self

    @abstractmethod
    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return the codes at the rows ``series.ends(num_delays)``, shape (n, width): no lag, and no row without one."""

    def arrays(self) -> Arrays:
        """Return what was fitted, as plain arrays."""
        return {}

    def fields(self, num_resources: int) -> dict[str, Field]:
        """Return what `arrays` must be, with ``W`` for the width of a code; raise ValueError where options don't go together."""
        del num_resources
        return {}

    def code_width(self, num_resources: int) -> int | str:
        """Return the width of a code, or ``W`` where the arrays say it."""
        del num_resources
        return "W"

    def restore(self, arrays: Mapping[str, NDArray[np.float64]]) -> Self:
        """Take what `arrays` returned."""
        del arrays
        return self
