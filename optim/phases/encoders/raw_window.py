"""The scaled window itself as its code."""

from dataclasses import dataclass

from optim.core.ranges import check_in
from optim.models.containers.series import FloatArray
from optim.phases.encoders.protocol import Encoder
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
        check_in("[0, inf)", self, "num_delays")


class RawWindowEncoder(Encoder):
    """All samples of the window, oldest first: what any other encoder has to improve on."""

    def encode(self, series: ScaledSeries) -> FloatArray:
        """Return the windows, shape (n, (num_delays + 1) R)."""
        windows = series.windows(self.num_delays)
        return windows.reshape(len(windows), windows.shape[1] * windows.shape[2])

    def code_width(self, num_resources: int) -> int:
        """Return it."""
        return num_resources * (self.num_delays + 1)
