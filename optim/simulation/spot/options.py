"""What a simulated job is, and what changes of the footprint cost it."""

import math
from dataclasses import dataclass

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.models.bidding.price_history import MICRO


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCost:
    """Seconds and dollars of writing and reading a state.

    Parameters
    ----------
    state_gb
        Its size.
    write_gb_per_s, read_gb_per_s
        Bandwidths of the storage.
    usd_per_gb
        Dollars a GB written: requests and transfer.
    """

    state_gb: float
    write_gb_per_s: float = 0.5
    read_gb_per_s: float = 1.0
    usd_per_gb: float = 0.0

    def __post_init__(self) -> None:
        check_in("[0, 1e9]", self, "state_gb", "usd_per_gb")
        check_in("(0, 1e9]", self, "write_gb_per_s", "read_gb_per_s")

    @property
    def write_s(self) -> float:
        """Seconds to write one."""
        return self.state_gb / self.write_gb_per_s

    @property
    def read_s(self) -> float:
        """Seconds to read one, part of every restart."""
        return self.state_gb / self.read_gb_per_s

    @property
    def usd(self) -> float:
        """Dollars to write one."""
        return self.state_gb * self.usd_per_gb


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOptions:
    """A job, limits, and overheads.

    Parameters
    ----------
    job_hours
        The job is what `baseline` instances of `baseline_type` do on demand in so many hours.
    baseline, baseline_type
        The cluster that the job is measured by; no policy has more instances on demand at work. Without a type it is
        c3.xlarge where there are such prices, else the first of the types.
    max_spot
        Most spot instances, counted by their work in machines of the baseline's type: two of half its size are one.
    reliable, reliable_type
        Instances on demand that hold the state of an elastic trainer, and do no work; of which type, by default the
        baseline's.
    serial
        Serial share of Amdahl's law.
    tick_s
        How often a policy may act.
    startup_min
        Minutes until new instances work.
    scale_min, eviction_min
        Minutes that an elastic trainer loses by a planned change, and by an eviction.
    checkpoint_min, restart_min
        Minutes to write a checkpoint, and to start from one.
    state_gb
        Size of the job's state; where it is above 0, the seconds of a checkpoint follow from it instead of
        `checkpoint_min`, and a restart reads it besides its `restart_min`.
    write_gb_per_s, read_gb_per_s, checkpoint_usd_per_gb
        What `CheckpointCost` says of the storage; each checkpoint that was written is a line of the bill.
    daly
        Refine Young's interval between checkpoints by Daly's formula.
    horizon
        A run is given up after so many times `job_hours`.
    at_equal
        Whether a price equal to the bid evicts.
    linger
        Hold instances to the end of their hour when the job is done, hoping for an eviction that makes it free.
    """

    job_hours: float = 20.0
    baseline: int = 64
    baseline_type: str = ""
    max_spot: int = 192
    reliable: int = 3
    reliable_type: str = ""
    serial: float = 0.002
    tick_s: int = 120
    startup_min: float = 3.0
    scale_min: float = 1.0
    eviction_min: float = 1.0
    checkpoint_min: float = 5.0
    restart_min: float = 5.0
    state_gb: float = 0.0
    write_gb_per_s: float = 0.5
    read_gb_per_s: float = 1.0
    checkpoint_usd_per_gb: float = 0.0
    daly: bool = False
    horizon: float = 5.0
    at_equal: bool = False
    linger: bool = False

    def __post_init__(self) -> None:
        check_in("(0, inf)", self, "job_hours", "baseline", "tick_s", "checkpoint_min")
        check_in("[0, inf)", self, "max_spot", "reliable", "startup_min", "scale_min", "eviction_min", "restart_min")
        check_in("[0, 1)", self, "serial")
        check_in("[1, inf)", self, "horizon")
        _ = self.checkpoint
        if self.job_hours * 60 <= self.startup_min:
            raise InvalidOptionError(f"job_hours must be longer than start-up, got {self.job_hours}")

    @property
    def checkpoint(self) -> CheckpointCost:
        """What the storage says of a checkpoint."""
        return CheckpointCost(
            state_gb=self.state_gb,
            write_gb_per_s=self.write_gb_per_s,
            read_gb_per_s=self.read_gb_per_s,
            usd_per_gb=self.checkpoint_usd_per_gb,
        )

    @property
    def write_s(self) -> int:
        """Seconds to write a checkpoint."""
        return math.ceil(self.checkpoint.write_s) if self.state_gb else minutes(self.checkpoint_min)

    @property
    def restart_s(self) -> int:
        """Seconds to start from a checkpoint."""
        return minutes(self.restart_min) + math.ceil(self.checkpoint.read_s)

    @property
    def write_micro(self) -> int:
        """Micro-dollars of a checkpoint."""
        return round(self.checkpoint.usd * MICRO)

    @property
    def horizon_s(self) -> int:
        """Seconds after which a run is given up."""
        return round(3600 * self.horizon * self.job_hours)


def minutes(value: float) -> int:
    """Return minutes as whole seconds."""
    return round(60 * value)
