"""How a job is trained, whatever its machines do."""

from dataclasses import dataclass, field

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_choices, check_in
from optim.training.forms import Compression, NonFinite, Pushes
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
    compression
        What of gradients is pushed. The draws of a rounding follow from partition and clock, so that bits don't know which
        machine computed.
    top_share
        Of a gradient's entries, pushed by "top-k".
    feedback
        Whether what "top-k" leaves out is added to the partition's next gradient. The machine that computes it keeps it: where
        the partition goes to another machine, or a failure takes it back, that much of its gradients is lost for good, and bits
        depend on who computed what.
    pushes
        Whether gradients are pushed by rows where most rows are zero: never by rules that move where the gradient is zero
        (momentum, Adam), and for an application that draws its parameters somewhere only by plain descent without staleness.
    delay_compensation
        Strength of the first-order correction of gradients for what their shard has moved since their parameters were
        read; 0 corrects nothing, and without staleness nothing has moved.
    devices
        Of the machine that serves a shard, over which it is spread: each holds a range of it, and gradients are exchanged and
        added in partition order, to the bits of one device. What comes by rows is applied whole then. Machines that are
        processes keep to the CPU unless this is above 1.
    replay_mb
        Megabytes of pushes that the controller keeps since the copies that a failure would go back to. After a server's death
        the servers replay them, and get back the bits they had; what there was no room for is computed again, as all is with 0.
    non_finite
        What becomes of a gradient that is infinite or not a number.
    silence_s
        Seconds without a sign of life after which a machine is taken for dead and killed. Machines that are processes give
        signs from a thread of their own, also while they compute; only code that holds the interpreter's lock keeps one
        from it.
    start_s
        Seconds that a machine may take until it is ready.
    """

    num_shards: int = 4
    staleness: int = 0
    sync_every: int = 2
    checkpoint_every: int = 10
    max_actives: int | None = None
    policy: StagePolicy = field(default_factory=Thresholds)
    compression: Compression = Compression.NONE
    top_share: float = 0.1
    feedback: bool = False
    pushes: Pushes = Pushes.AUTO
    delay_compensation: float = 0.0
    devices: int = 1
    replay_mb: float = 0.0
    non_finite: NonFinite = NonFinite.STOP
    silence_s: float = 30.0
    start_s: float = 300.0

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "num_shards", "sync_every", "checkpoint_every", "max_actives", "devices")
        check_in("[0, inf)", self, "staleness", "delay_compensation", "replay_mb")
        check_in("(0, inf)", self, "silence_s", "start_s")
        check_in("(0, 1]", self, "top_share")
        choices = {"non_finite": NonFinite, "compression": Compression, "pushes": Pushes}
        check_choices(self, {name: tuple(kind) for name, kind in choices.items()})
        for name, kind in choices.items():  # a plain text is the choice that it names
            object.__setattr__(self, name, kind(getattr(self, name)))
        if self.feedback and self.compression is not Compression.TOP_K:
            raise InvalidOptionError(
                f"feedback is of what top-k leaves out, the compression is {self.compression}; set it to top-k, or feedback to False"
            )
        if self.devices > 1 and self.pushes is Pushes.ROWS:
            raise InvalidOptionError(
                "a shard that is spread over devices applies whole gradients; leave pushes at auto or dense, or devices at 1"
            )
        if self.replay_mb > 0 and self.delay_compensation > 0 and self.staleness > 0:
            raise InvalidOptionError(
                "pushes that are corrected for their delay can't be replayed: the parameters they were computed at are lost "
                "with the server; set replay_mb or delay_compensation to 0"
            )

    def sync_period(self, backup: str) -> int:
        """Return the clocks between two deltas to whoever keeps copies: those to the storage are checkpoints."""
        return self.checkpoint_every if backup == STORAGE else self.sync_every
