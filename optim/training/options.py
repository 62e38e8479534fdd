"""How a job is trained, whatever its machines do."""

from dataclasses import dataclass, field

from optim.core.ranges import check_in
from optim.training.roles import STORAGE
from optim.training.stages import StagePolicy, Thresholds

NEVER = 2**62
"""A clock that no run reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How a job is trained.

    Parameters
    ----------
    num_shards
        Pieces of the parameter vector, fixed: the most servers that there will ever be.
    staleness
        Clocks by which a partition may be ahead of the slowest; 0 is bulk-synchronous, and bit for bit reproducible.
    sync_every
        Clocks between two deltas to the backups.
    checkpoint_every
        Clocks between two checkpoints to the storage.
    max_actives
        Most transient machines that serve.
    policy
        What chooses the stage.
    """

    num_shards: int = 4
    staleness: int = 0
    sync_every: int = 2
    checkpoint_every: int = 10
    max_actives: int | None = None
    policy: StagePolicy = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "num_shards", "sync_every", "checkpoint_every", "max_actives")
        check_in("[0, inf)", self, "staleness")

    def sync_period(self, backup: str) -> int:
        """Return the clocks between two deltas to whoever keeps copies: those to the storage are checkpoints."""
        return self.checkpoint_every if backup == STORAGE else self.sync_every
