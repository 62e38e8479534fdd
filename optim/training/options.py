"""How a job is trained, whatever its machines do."""

from dataclasses import dataclass, field

from optim.core.errors import InvalidOptionError
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
        least = {"num_shards": 1, "staleness": 0, "sync_every": 1, "checkpoint_every": 1, "max_actives": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise InvalidOptionError(f"{name} must be at least {bound}, got {value}")

    def sync_period(self, backup: str) -> int:
        """Return the clocks between two deltas to whoever keeps copies: those to the storage are checkpoints."""
        return self.checkpoint_every if backup == STORAGE else self.sync_every
