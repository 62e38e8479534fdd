"""Options of the engine: what a start costs, and where gangs are placed."""

from dataclasses import dataclass
from enum import StrEnum

from optim.core.ranges import check_in
from optim.models.cluster.workload import US


class Placement(StrEnum):
    """Which of the machines that hold a gang takes it; ties go to the lowest number."""

    BEST_FIT = "best-fit"
    FIRST_FIT = "first-fit"
    WORST_FIT = "worst-fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What every policy is played under.

    Parameters
    ----------
    placement
        Machine of a gang that one machine can hold: the fullest that has room, the first, or the emptiest. Wider gangs take
        wholly free machines, largest first.
    spread
        Whether a gang that finds no such place takes GPUs anywhere, fewest machines first, instead of waiting.
    overhead_s
        Time without progress, with GPUs held, at each start after a preemption.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    placement: Placement = Placement.BEST_FIT
    spread: bool = False
    overhead_s: float = 30.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[0, 86400]", self, "overhead_s")

    @property
    def overhead_us(self) -> int:
        """Overhead in whole microseconds."""
        return round(self.overhead_s * US)

    @property
    def placement_code(self) -> int:
        """Number of the placement in compiled code."""
        return list(Placement).index(self.placement)
