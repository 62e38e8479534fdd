"""One shard as a server holds it: what it takes, when it applies, and what it sends its backup."""

from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from optim.kernels.parameter_server import compensate_delay
from optim.training.messages import Applied, Delta, Host, Message, Push, Pushes, Replay, ShardValues, Sync, Vector
from optim.training.shard_store import AbstractShardStore, ShardStore, is_by_rows


class ServedShard:
    """A shard that applies a clock as soon as all partitions have pushed it, in partition order.

    Attributes
    ----------
    clock
        Clocks applied.
    accepted, rejected
        Pushes taken, and pushes refused because they were there already: none is lost and none counts twice.
    """

    def __init__(self, message: Host) -> None:
        self.generation = message.generation
        self.shard = message.values.shard
        self.clock = message.values.clock
        self.sync_every = message.sync_every
        self.accepted = 0
        self.rejected = 0
        self._num_partitions, self._pushes = message.num_partitions, message.pushes
        self._is_spread = message.devices > 1
        self._arrays = _make_store(message)
        self._num_slots = message.optimiser.num_slots
        self._pending: dict[int, dict[int, Push]] = {}
        self._sent_clock = message.values.clock
        self._strength, self._staleness = message.delay_strength, message.staleness
        self._before: dict[int, Vector] = {}
        self._remember()

    def push(self, push: Push) -> list[Message]:
        """Take a partition's gradient; apply what is complete."""
        if not self._is_new(push):
            self.rejected += 1
            return []
        self.accepted += 1
        self._pending.setdefault(push.clock, {})[push.partition] = push
        replies: list[Message] = []
        while self._is_complete(self.clock):
            pushes = self._pending.pop(self.clock)
            self._apply([pushes[partition] for partition in self._order(pushes)])
            replies.append(self._applied())
            if self.clock % self.sync_every == 0:
                replies.append(self._delta())
        return replies

    def replay(self, message: Replay) -> list[Message]:
        """Apply clocks again whose pushes have been kept; those pushed whole by the kernel that replays gradients.

        The same function takes the same pushes in the same order: the shard has the bits that were lost.
        """
        if message.from_clock != self.clock:
            return []
        replies: list[Message] = []
        dense_clocks: list[Sequence[Push]] = []
        for pushes in message.clocks:
            if is_whole(pushes):
                dense_clocks.append([push for push in pushes if push.weight > 0])
            else:
                self._replay_whole(dense_clocks)
                self._apply(list(pushes))
            if (self.clock + len(dense_clocks)) % self.sync_every == 0:
                self._replay_whole(dense_clocks)
                replies.append(self._delta())
        self._replay_whole(dense_clocks)
        return [*replies, self._applied()]

    def _replay_whole(self, clocks: list[Sequence[Push]]) -> None:
        """Have clocks of whole pushes replayed, and the list empty."""
        if clocks:
            self._arrays.replay(clocks, self.clock)
            self.clock += len(clocks)
            clocks.clear()
            self._remember()

    def sync(self, message: Sync) -> list[Message]:
        """Return the delta up to now, if there is one."""
        del message
        return [self._delta()] if self.clock > self._sent_clock else []

    def rebase(self, generation: int, sync_every: int) -> None:
        """Go on in a new generation; its copies stand at this clock."""
        self.generation, self.sync_every, self._sent_clock = generation, sync_every, self.clock
        self._pending.clear()
        self._before.clear()
        self._remember()

    def values(self) -> ShardValues:
        """Return the shard's values: copies, for a buffer that somebody views can't be donated to the next update."""
        arrays = self._arrays
        return ShardValues(self.shard, self.clock, _copy(arrays.parameters()), tuple(map(_copy, arrays.slots())))

    def _is_new(self, push: Push) -> bool:
        return push.clock >= self.clock and push.partition not in self._pending.get(push.clock, {})

    def _is_complete(self, clock: int) -> bool:
        return len(self._pending.get(clock, {})) == self._num_partitions

    def _order(self, pushes: Iterable[int]) -> list[int]:
        """Return the order of the sum: never that of arrival, which differs from run to run."""
        return sorted(pushes)

    def _apply(self, pushes: list[Push]) -> None:
        """Apply the mean of all pushes with weight; without any, the clock goes by."""
        pushes = [push for push in pushes if push.weight > 0]
        if pushes and self._takes_rows(pushes):
            self._arrays.apply_rows(pushes, self.clock)
        elif pushes:
            weights = [push.weight for push in pushes]
            self._arrays.apply_whole([self._compensated(push) for push in pushes], weights, self.clock)
        self.clock += 1
        self._remember()

    def _takes_rows(self, pushes: list[Push]) -> bool:
        """Return whether pushes are applied by rows: never where one of them is to be corrected for its delay."""
        if self._is_spread or any(push.rows is None or self._is_late(push) for push in pushes):
            return False
        return self._pushes is Pushes.ROWS or is_by_rows(pushes, self._num_slots)

    def _is_late(self, push: Push) -> bool:
        return push.read_clock in self._before and push.read_clock != self.clock

    def _compensated(self, push: Push) -> jax.Array | Vector:
        """Return a whole gradient, corrected for what the shard has moved since the parameters were read."""
        gradient = self._arrays.whole(push)
        if not self._is_late(push):
            return gradient
        strength, read = jnp.float32(self._strength), jnp.asarray(self._before[push.read_clock])
        return compensate_delay(jnp.asarray(gradient), self._arrays.parameters(), read, strength)

    def _remember(self) -> None:
        """Keep the parameters as they are published, as long as somebody may still compute from them."""
        if self._strength and self._staleness:
            self._before = {
                at: parameters for at, parameters in self._before.items() if at >= self.clock - self._staleness
            }
            self._before[self.clock] = _copy(self._arrays.parameters())

    def _applied(self) -> Applied:
        parameters = _copy(self._arrays.parameters())
        return Applied(generation=self.generation, shard=self.shard, clock=self.clock, parameters=parameters)

    def _delta(self) -> Delta:
        sent, self._sent_clock = self._sent_clock, self.clock
        return Delta(generation=self.generation, from_clock=sent, values=self.values())


def _make_store(message: Host) -> AbstractShardStore:
    """Return a shard's arrays on one device, or on as many as it is told."""
    parameters, slots = message.values.parameters, message.values.slots
    if message.devices == 1:
        return ShardStore(parameters, slots, message.optimiser)
    from optim.training.shard_store import ShardedStore

    return ShardedStore(parameters, slots, message.optimiser, message.devices)


def is_whole(pushes: Iterable[Push]) -> bool:
    """Return whether some of a clock's pushes count, and those that do came as whole vectors."""
    counting = [push for push in pushes if push.weight > 0]
    return bool(counting) and all(push.rows is None for push in counting)


def _copy(array: jax.Array) -> Vector:
    return np.array(array, copy=True)
