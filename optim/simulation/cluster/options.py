"""Options of the engine: what a start costs, where gangs are placed, and how often machines fail."""

from dataclasses import dataclass
from enum import StrEnum

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_choices, check_in
from optim.models.cluster.workload import PPM, US

LEAST_MTBF_HOURS = 1e-7
"""A third of a millisecond: below it time in microseconds would be too coarse."""


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
    mtbf_hours
        Mean time between a machine's repair and its next failure, exponential; 0 for machines that never fail.
    repair_hours
        Mean time of a repair, exponential.
    checkpoint_min
        Minutes of work between two checkpoints of a job; what it did since the last one is lost when a machine fails. A job
        that is preempted keeps all.

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
    mtbf_hours: float = 0.0
    repair_hours: float = 4.0
    checkpoint_min: float = 30.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choices(self, {"placement": tuple(Placement)})
        object.__setattr__(self, "placement", Placement(self.placement))  # a plain text does as well
        check_in("[0, 86400]", self, "overhead_s")
        check_in("[1, 1000]", self, "neighbour")
        check_in("[0, 1e6]", self, "mtbf_hours")
        check_in("(0, 1e5]", self, "repair_hours", "checkpoint_min")
        if 0 < self.mtbf_hours < LEAST_MTBF_HOURS:
            raise InvalidOptionError(
                f"mtbf_hours must be 0 (machines never fail) or at least {LEAST_MTBF_HOURS}, got {self.mtbf_hours:g}"
            )

    @property
    def overhead_us(self) -> int:
        """Overhead in whole microseconds."""
        return round(self.overhead_s * US)

    @property
    def checkpoint_us(self) -> int:
        """Work between two checkpoints in whole microseconds; 0 if machines never fail."""
        return max(1, round(self.checkpoint_min * 60 * US)) if self.mtbf_hours else 0

    @property
    def neighbour_ppm(self) -> int:
        """Slowdown by neighbours in parts per million."""
        return round(self.neighbour * PPM)

    @property
    def needs_planning(self) -> bool:
        """Whether only planning policies can be played under these options."""
        return self.sharing or self.neighbour > 1
