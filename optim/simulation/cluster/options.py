"""Options of the engine: what a start costs, and where gangs are placed."""

from dataclasses import dataclass
from enum import StrEnum

from optim.core.ranges import check_choices, check_in
from optim.models.cluster.workload import PPM, US


class Placement(StrEnum):
    """Which of the machines that hold a gang takes it; ties go to the lowest number."""

    BEST_FIT = "best-fit"
    FIRST_FIT = "first-fit"
    WORST_FIT = "worst-fit"
    FGD = "fgd"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What every policy is played under.

    Parameters
    ----------
    placement
        Machine of a gang that one machine can hold: the fullest that has room, the first, the emptiest, or the one whose
        fragmentation for the workload's mix of gangs grows least. Wider gangs take wholly free machines, largest first.
    spread
        Whether a gang that finds no such place takes GPUs anywhere, fewest machines first, instead of waiting.
    overhead_s
        Time without progress, with GPUs held, at each start after a preemption.
    sharing
        Whether jobs take only their share of a GPU.
    neighbour
        Slowdown of a job of several GPUs while another such job has GPUs in one of its machines; 1 for none.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    placement: Placement = Placement.BEST_FIT
    spread: bool = False
    overhead_s: float = 30.0
    sharing: bool = False
    neighbour: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choices(self, {"placement": tuple(Placement)})
        object.__setattr__(self, "placement", Placement(self.placement))  # a plain text does as well
        check_in("[0, 86400]", self, "overhead_s")
        check_in("[1, 1000]", self, "neighbour")

    @property
    def overhead_us(self) -> int:
        """Overhead in whole microseconds."""
        return round(self.overhead_s * US)

    @property
    def neighbour_ppm(self) -> int:
        """Slowdown by neighbours in parts per million."""
        return round(self.neighbour * PPM)

    @property
    def needs_planning(self) -> bool:
        """Whether only planning policies can be played under these options."""
        return self.sharing or self.neighbour > 1
