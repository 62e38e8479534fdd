"""Copies of a shard at past clocks, as a backup or the stable storage keeps them."""

from optim.kernels.parameter_server import Backup, ValueDelta, apply_values
from optim.training.messages import Delta, Install, ShardValues


class ShardCopies:
    """The copies of one shard: from the last clock that everybody could return to, up to the newest delta.

    A shard's backups may be ahead of another's, and a failure takes all of them back to a common clock. So a delta
    doesn't overwrite the copy before it.
    """

    def __init__(self, message: Install) -> None:
        self.generation = message.generation
        first = Backup(*message.values)
        self._newest = first
        self._at = {first.clock: first}

    @property
    def clocks(self) -> tuple[int, ...]:
        """Clocks of which there is a copy, ascending."""
        return tuple(sorted(self._at))

    def take(self, delta: Delta) -> bool:
        """Keep a delta that starts where the newest copy stands; tell whether it did."""
        shard, clock, parameters, slots = delta.values
        message = ValueDelta(shard, delta.from_clock, clock, parameters, slots)
        self._newest, is_taken = apply_values(self._newest, message)
        if is_taken:
            self._at[clock] = self._newest
        return is_taken

    def add(self, message: Install) -> None:
        """Keep complete values of a clock, wherever the copies stand."""
        copy = Backup(*message.values)
        self._at[copy.clock] = copy
        if copy.clock >= self._newest.clock:
            self._newest = copy

    def values(self, clock: int) -> ShardValues:
        """Return the copy at a clock."""
        return ShardValues(*self._at[clock])

    def holds(self, clock: int) -> bool:
        """Tell whether there is a copy at a clock."""
        return clock in self._at

    def rewind(self, generation: int, clock: int) -> bool:
        """Forget what came after `clock`: that future is not going to happen. Tell whether anything is left."""
        self.generation = generation
        self._at = {at: copy for at, copy in self._at.items() if at <= clock}
        if self._at:
            self._newest = self._at[max(self._at)]
        return bool(self._at)

    def trim(self, clock: int) -> None:
        """Forget what came before `clock`."""
        self._at = {at: copy for at, copy in self._at.items() if at >= clock}
