"""The controller, which tracks all machines, assigns partitions and shards, and recovers from failures.

A *clock* is one update of the parameters. A *planned* change (machines join, or leave after a warning, or the stage
changes) waits for a *boundary*: all partitions are at the same clock, and the backups have copies of all shards as of
this clock. Then every shard moves from its server to the machines of the new layout, and no work is repeated. After the
*failure* of a worker, other machines compute its partitions. After the failure of a server, every shard returns to the
last clock for which copies of all shards remain, and the machines compute the later clocks again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import InvalidOptionError, NotAllowedError, TrainingError
from optim.training.application import Application
from optim.training.checkpoints import StartingPoint, initial_point
from optim.training.dataflow import Dataflow
from optim.training.messages import (
    Applied,
    Copy,
    Failed,
    Host,
    Keep,
    Kept,
    Message,
    NonFinite,
    Opened,
    Pushed,
    Read,
    Ready,
    ShardValues,
    Vector,
)
from optim.training.stages import NEVER, STORAGE, ClusterOptions, Roles, Stage, assign_balanced, assign_roles
from optim.training.transport import Lost, Transport

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser


class Phase(StrEnum):
    """Activity of the controller."""

    RUNNING = "running"
    DRAINING = "draining"
    """Bringing all partitions to the same clock, because a change is waiting."""
    SYNCING = "syncing"
    """Waiting until the backups have copies as of that clock, so that a failure during the move undoes no clock."""
    REBUILDING = "rebuilding"
    """Moving shards and copies to their new machines."""
    STOPPED = "stopped"
    """No machine is left; the storage keeps the copies until a machine joins."""


class Membership:
    """The machines of a run.

    Attributes
    ----------
    reliable, transient
        Ready machines of each tier, except those about to leave.
    joining
        Machines that aren't ready yet, each with its future tier.
    leaving
        Machines warned of their removal, which work until the next clock boundary.
    """

    def __init__(self) -> None:
        self.reliable: list[str] = []
        self.transient: list[str] = []
        self.joining: dict[str, list[str]] = {}
        self.leaving: list[str] = []
        self._known = {STORAGE}

    @property
    def staying(self) -> tuple[str, ...]:
        """All machines that stay, reliable machines first."""
        return (*self.reliable, *self.transient)

    def is_alive(self, machine: str) -> bool:
        """Return whether a machine, or the storage, is still usable."""
        return machine == STORAGE or machine in self.staying or machine in self.leaving

    def expect(self, reliable: Sequence[str], transient: Sequence[str]) -> None:
        """Register machines that are being started.

        Raises
        ------
        NotAllowedError
            If a name is or was used by another machine.
        """
        for machine in (*reliable, *transient):
            if machine in self._known:
                raise NotAllowedError(
                    f"the name {machine!r} is or was used by another machine; give each machine a unique name"
                )
        self._known.update(reliable, transient)
        self.joining.update(dict.fromkeys(reliable, self.reliable))
        self.joining.update(dict.fromkeys(transient, self.transient))

    def arrive(self, machine: str) -> bool:
        """Add a machine to its tier; return whether it was still expected."""
        tier = self.joining.pop(machine, None)
        if tier is not None:
            tier.append(machine)
        return tier is not None

    def warn(self, machines: Sequence[str]) -> list[str]:
        """Let machines leave at the next boundary; return the machines that can leave at once, as they aren't ready yet.

        Raises
        ------
        NotAllowedError
            If a machine isn't part of the run.
        """
        for machine in machines:
            if machine not in self.staying and machine not in self.joining:
                raise NotAllowedError(f"no machine {machine!r} to evict; there are {', '.join(self.staying) or 'none'}")
        waiting = [name for name in machines if self.joining.pop(name, None) is not None]
        self.leaving += [name for name in dict.fromkeys(machines) if name in self.staying]
        for tier in (self.reliable, self.transient):
            tier[:] = [name for name in tier if name not in machines]
        return waiting

    def remove(self, machine: str) -> bool:
        """Remove a lost machine; return whether it was a member."""
        self.joining.pop(machine, None)
        was_in = [names for names in (self.reliable, self.transient, self.leaving) if machine in names]
        for names in was_in:
            names.remove(machine)
        return bool(was_in)

    def give_back(self, needed: Collection[str]) -> list[str]:
        """Remove and return the leaving machines that aren't among the needed machines."""
        free = [name for name in self.leaving if name not in needed]
        self.leaving = [name for name in self.leaving if name in needed]
        return free


class ReplicaCatalog:
    """Catalog of the confirmed copies of shards, each with its holder (a machine or the storage), shard and clock."""

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards
        self._copies: set[tuple[str, int, int]] = set()
        self._checkpoint_clock = -1

    def confirm(self, holder: str, shard: int, clock: int) -> None:
        """Register a copy."""
        self._copies.add((holder, shard, clock))

    def has(self, holder: str, shard: int, clock: int) -> bool:
        """Return whether a holder has a copy."""
        return (holder, shard, clock) in self._copies

    def forget_holder(self, holder: str) -> None:
        """Remove a lost holder and all its copies."""
        self._copies = {copy for copy in self._copies if copy[0] != holder}

    def keep_only(self, places: Iterable[tuple[str, int]]) -> None:
        """Remove the records of all copies except those at the given pairs of holder and shard, and those in the storage."""
        kept = set(places)
        self._copies = {copy for copy in self._copies if copy[:2] in kept or copy[0] == STORAGE}

    def rewind(self, clock: int) -> None:
        """Remove the records of copies of clocks after `clock`, and of a checkpoint of such a clock that is being written."""
        self._checkpoint_clock = -1
        self._copies = {copy for copy in self._copies if copy[2] <= clock}

    def checkpoint_due(self, every: int) -> int | None:
        """Return the clock of the checkpoint to write if one is due and none is being written."""
        clock, stored = self.recovery_clock(), self.storage_clock()
        if stored < self._checkpoint_clock or clock < stored + every:
            return None
        self._checkpoint_clock = clock
        return clock

    def trim(self) -> list[tuple[str, int]]:
        """Discard copies that no rollback needs; return each holder and the first clock that it retains."""
        clock, stored = self.recovery_clock(), self.storage_clock()
        first = {holder: stored if holder == STORAGE else clock for holder, _, _ in self._copies}
        trimmed = {copy for copy in self._copies if copy[2] < first[copy[0]]}
        self._copies -= trimmed
        return sorted({(holder, first[holder]) for holder, _, _ in trimmed})

    def recovery_clock(self) -> int:
        """Return the last clock for which *every* shard has a copy as of this clock."""
        return self._last_whole(self._copies)

    def storage_clock(self) -> int:
        """Return the last clock of which the storage has all shards."""
        return self._last_whole(copy for copy in self._copies if copy[0] == STORAGE)

    def _last_whole(self, copies: Iterable[tuple[str, int, int]]) -> int:
        shards = Counter(clock for _, clock in {copy[1:] for copy in copies})
        return max((clock for clock, number in shards.items() if number == self._num_shards), default=-1)

    def source(self, shard: int, clock: int) -> str:
        """Return the holder to fetch a copy from: the first machine by name, or else the storage."""
        having = [holder for holder, *copied in self._copies if copied == [shard, clock]]
        return min(having, key=lambda holder: (holder == STORAGE, holder))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """A return to an earlier clock.

    Attributes
    ----------
    from_clock
        Number of completed clocks at the failure.
    to_clock
        Last clock for which copies of all shards remain.
    replayed_to
        Clock reached by applying the logged pushes again; later clocks are computed again.
    """

    from_clock: int
    to_clock: int
    replayed_to: int


class Rebuild:
    """A move of shards and copies to the machines of a new layout, in progress.

    Parameters
    ----------
    roles
        The new layout.
    servers
        Servers that transfer the shards in a planned rebuild; empty after a failure, when shards come from copies.
    machines
        Machines that must first confirm that they have left older generations.

    Attributes
    ----------
    waiting
        Missing responses: type of message, and shard or machine.
    parts
        Parameters of the shards that have arrived.
    """

    def __init__(self, roles: Roles, servers: Sequence[str], machines: Iterable[str], num_shards: int) -> None:
        self.roles, self.servers = roles, servers
        self.waiting: set[tuple[type[Message], int | str]] = {(Opened, machine) for machine in machines}
        self.parts: list[Vector] = [np.empty(0, np.float32)] * num_shards

    def has_come(self, kind: type[Message], key: int | str) -> bool:
        """Record a response, and return whether it was still missing."""
        is_missing = (kind, key) in self.waiting
        self.waiting.discard((kind, key))
        return is_missing


class Controller:
    """Elastic training of one application over a transport.

    Attributes
    ----------
    phase, generation
        Activity of the controller, and number of rebuilds so far.
    roles, owners
        The layout, and the worker of each partition.
    machines
        Machines of the run, including those that join or leave.
    flow
        State of the computation: computed, applied and readable clocks.
    rollbacks
        Rollbacks so far.
    stop_at
        Clock at which the run stops.
    """

    def __init__(
        self,
        transport: Transport,
        application: Application,
        optimiser: "AbstractOptimiser",
        options: ClusterOptions,
        start: StartingPoint | None = None,
    ) -> None:
        if options.staleness > 0 and (optimiser.num_slots > 0 or callable(optimiser.learning_rate)):
            # Only a constant rate without further state lets a worker add its own unapplied gradients.
            raise InvalidOptionError(
                f"staleness {options.staleness} needs an optimiser without momentum or other state and with a constant "
                f"rate, got {optimiser}; use Sgd at a constant rate, or staleness 0"
            )
        self.phase = Phase.STOPPED
        self.generation = 0
        self.roles = Roles(stage=Stage.TRADITIONAL, workers=(), servers=(), backups=(STORAGE,) * options.num_shards)
        self.owners: tuple[str, ...] = ()
        self.machines = Membership()
        self.flow = Dataflow(application, optimiser, options)
        self.rollbacks: list[Rollback] = []
        self.stop_at = NEVER
        self._transport, self._optimiser, self._options = transport, optimiser, options
        self._stopped, self._is_changed = self.roles, False
        self._refused: set[tuple[int, int]] = set()
        self._copies = ReplicaCatalog(options.num_shards)
        self._rebuild: Rebuild | None = None
        self._clock = 0  # clock of the boundary, or of the rebuild
        self._store_start(start or initial_point(application, optimiser))

    # -- membership ---------------------------------------------------------------------------------------------------

    def add(self, *, reliable: Sequence[str] = (), transient: Sequence[str] = ()) -> None:
        """Add machines; they join at the next clock boundary after they are ready."""
        self.machines.expect(reliable, transient)
        for machine in (*reliable, *transient):
            self._transport.start(machine)

    def evict(self, machines: Sequence[str]) -> None:
        """Release warned machines at the next clock boundary, without loss of work."""
        for machine in self.machines.warn(machines):
            self._transport.stop(machine)
        self.reconsider()

    def resume(self, stop_at: int) -> None:
        """Continue up to a later clock."""
        self.stop_at = stop_at
        self._advance()

    def save(self) -> None:
        """Write a checkpoint of all shards as of the current clock; `saved_clock` shows when it is complete.

        Raises
        ------
        NotAllowedError
            If another operation is in progress, or the shards' copies don't go to the storage.
        """
        if self.phase is not Phase.RUNNING or not self.flow.is_settled_at(self.flow.read_clock):
            raise NotAllowedError(
                f"a checkpoint can be written only when all shards are at one clock; let the run (now {self.phase}) reach its target clock first"
            )
        if set(self.roles.backups) != {STORAGE}:
            raise NotAllowedError(
                f"in stage {self.roles.stage}, copies of the parameters are on reliable machines; checkpoints need a stage with copies in the storage"
            )
        self._copy_shards(self.flow.read_clock)

    @property
    def saved_clock(self) -> int:
        """The last clock for which the storage has a checkpoint."""
        return self._copies.storage_clock()

    def reconsider(self) -> None:
        """Begin a planned change to the stage that the policy chooses, or postpone it until the current change is complete."""
        self._is_changed = True
        self._advance()

    def lost(self, machine: str) -> None:
        """Continue without a machine that is lost with all its state."""
        if not self.machines.remove(machine):
            return
        self._copies.forget_holder(machine)
        is_alone = not any(self.machines.is_alive(worker) for worker in self.roles.workers)
        if machine in self.roles.servers or self.phase is Phase.REBUILDING or is_alone:
            self._roll_back()
        else:
            self._is_changed = True
            if machine in self.roles.workers:
                self._hand_over(machine)
            self._advance()

    # -- messages -----------------------------------------------------------------------------------------------------

    def receive(self, message: Message | Lost) -> None:
        """Process the next message."""
        if isinstance(message, Lost):
            self.lost(message.machine)
            return
        if isinstance(message, Ready):
            if self.machines.arrive(message.machine):
                self.reconsider()
            return
        if self._is_stale(message):
            return
        match message:
            case Failed():
                raise TrainingError(f"machine {message.machine} failed: {message.text}; correct the application's code")
            case Pushed() if not message.is_finite and self.flow.is_next(message) and self._refuses(message):
                self._compute_elsewhere(message)
            case Pushed():
                for push in self.flow.pushed(message):
                    self._send(self.roles.servers[push.shard], push)
            case Copy():
                self._take_copy(message)
            case Kept():
                self._take_kept(message)
            case Applied() if self._rebuild is None:
                self.flow.applied(message)
            case Applied() if self._rebuild is not None and self._rebuild.has_come(Applied, message.shard):
                self._rebuild.parts[message.shard] = message.parameters
            case Opened() if self._rebuild is not None and self._rebuild.has_come(Opened, message.machine):
                self._read_shards(self._rebuild)
        self._advance()

    def _is_stale(self, message: Message) -> bool:
        return message.generation != self.generation

    def _send(self, machine: str, message: Message) -> None:
        self._transport.send(machine, message)

    # -- phases -------------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Complete all phases whose condition holds, then start the workers' computations."""
        if self.phase is Phase.STOPPED and self.machines.staying:
            self._begin_rebuild(self._copies.recovery_clock(), is_planned=False)
        if self.phase is Phase.RUNNING and self._is_changed:
            self.phase, self._clock = Phase.DRAINING, self.flow.boundary
        if self.phase is Phase.DRAINING and self.flow.is_settled_at(self._clock):
            self._leave_boundary()
        if self.phase is Phase.SYNCING and self._is_synced():
            self._begin_rebuild(self._clock, is_planned=True)
        if self._rebuild is not None and not self._rebuild.waiting:
            self._finish_rebuild(self._rebuild)
            self._advance()
            return
        self._start_work()

    def _start_work(self) -> None:
        """Request the computation of every partition that may start."""
        if self.phase not in (Phase.RUNNING, Phase.DRAINING):
            return
        limit = self._clock if self.phase is Phase.DRAINING else self.stop_at
        owners, flow = self.owners, self.flow
        for partition in flow.startable(limit):
            self._send(owners[partition], flow.compute(partition, self.generation))

    def _leave_boundary(self) -> None:
        """At a boundary, adopt the new layout if only workers change; otherwise copy the shards before they move."""
        roles = self._plan()
        if roles.has_same_shards(self.roles):
            self._adopt(roles)
            self.phase, self._is_changed = Phase.RUNNING, False
        else:
            self.phase = Phase.SYNCING
            self._copy_shards(self._clock)

    def _copy_shards(self, clock: int) -> None:
        """Request that every server send a copy to its backup."""
        for shard, server in enumerate(self.roles.servers):
            self._read(server, shard, clock)

    def _read(self, machine: str, shard: int, clock: int) -> None:
        """Request a copy of a shard from a machine that serves the shard or keeps a copy."""
        self._send(machine, Read(generation=self.generation, shard=shard, clock=clock))

    def _is_synced(self) -> bool:
        """Return whether every live backup has copies of the boundary's clock."""
        return all(
            self._copies.has(backup, shard, self._clock)
            for shard, backup in enumerate(self.roles.backups)
            if self.machines.is_alive(backup)
        )

    def _plan(self) -> Roles:
        """Return the layout for the machines that stay; without any, all shards go to the storage."""
        options, tiers = self._options, (self.machines.reliable, self.machines.transient)
        if not self.machines.staying:
            return self._stopped
        stage = options.policy.stage(*map(len, tiers))
        return assign_roles(stage, *tiers, options.num_shards, max_actives=options.max_actives, previous=self.roles)

    def _adopt(self, roles: Roles) -> None:
        """Adopt a layout, and release machines that were waiting to leave and have no role in it."""
        self.roles = roles
        if roles.workers:
            self.owners = assign_balanced(self.flow.num_partitions, roles.workers, self.owners)
        for machine in self.machines.give_back({*roles.workers, *roles.servers, *roles.backups}):
            self._copies.forget_holder(machine)
            self._transport.stop(machine)

    def _refuses(self, message: Pushed) -> bool:
        """Return whether a gradient that isn't finite must be computed again; if not, the gradient is skipped.

        Raises
        ------
        TrainingError
            If the option `non_finite` is ``stop``, or the gradient isn't finite at the second computation either.
        """
        policy, gradient = self._options.non_finite, (message.partition, message.clock)
        if policy == NonFinite.SKIP:
            return False
        if policy == NonFinite.REFUSE and gradient not in self._refused:
            self._refused.add(gradient)
            return True
        again = " again" if gradient in self._refused else ""
        raise TrainingError(
            f"machine {message.machine} computed{again} a gradient or loss that isn't finite, of partition "
            f"{message.partition} at clock {message.clock}; lower the learning rate, look at the data, or set non_finite to "
            "'skip' (optim run --non-finite skip)"
        )

    def _compute_elsewhere(self, message: Pushed) -> None:
        """Request that a rejected gradient be computed again, by another machine if there is one."""
        if others := [name for name in self.roles.workers if name != message.machine and self.machines.is_alive(name)]:
            self.owners = tuple(others[0] if k == message.partition else owner for k, owner in enumerate(self.owners))
        self.flow.compute_again([message.partition])

    def _hand_over(self, machine: str) -> None:
        """Reassign a lost worker's partitions to other workers at once, since the clock can't finish without them."""
        workers = [name for name in self.roles.workers if self.machines.is_alive(name)]
        gone = [partition for partition, owner in enumerate(self.owners) if owner == machine]
        self.owners = assign_balanced(self.flow.num_partitions, workers, self.owners)
        self.flow.compute_again(gone)

    # -- rebuilding ---------------------------------------------------------------------------------------------------

    def _roll_back(self) -> None:
        """Roll back to the last clock for which copies of all shards remain."""
        before = self._clock if self.phase is Phase.REBUILDING else int(self.flow.completed.min())
        clock = self._copies.recovery_clock()
        if self.phase is not Phase.REBUILDING or clock < before:
            again = min(before, self.flow.log.end(clock))
            self.rollbacks.append(Rollback(from_clock=before, to_clock=clock, replayed_to=again))
        self._begin_rebuild(clock, is_planned=False)

    def _begin_rebuild(self, clock: int, *, is_planned: bool) -> None:
        """Assign all shards and copies as of `clock` to the machines that stay.

        No shard moves before every machine has left the older generations: a server that still applies a clock of an older
        generation would write into memory that the new servers use.

        Parameters
        ----------
        clock
            Clock that all shards have reached (in a planned rebuild), or for which copies of all shards remain.
        is_planned
            Whether the current servers transfer the shards.
        """
        self.generation += 1
        self.phase, self._clock, self._is_changed = Phase.REBUILDING, clock, False
        self._copies.rewind(clock)
        machines = (STORAGE, *self.machines.staying, *self.machines.leaving)
        servers = self.roles.servers if is_planned else ()
        self._rebuild = Rebuild(self._plan(), servers, machines, self._options.num_shards)
        for machine in machines:
            self._send(machine, Keep(generation=self.generation, last=clock))

    def _read_shards(self, rebuild: Rebuild) -> None:
        """Request the shards once all machines have opened the new generation."""
        if rebuild.waiting:
            return
        for shard in range(self._options.num_shards):
            rebuild.waiting.add((Copy, shard))
            source = rebuild.servers[shard] if rebuild.servers else self._copies.source(shard, self._clock)
            self._read(source, shard, self._clock)

    def _place(self, rebuild: Rebuild, values: ShardValues) -> None:
        """Send a shard's values to its new server, and to its backup if the backup lacks a copy."""
        shard, options, roles = values.shard, self._options, rebuild.roles
        rebuild.parts[shard] = values.parameters
        backup = roles.backups[shard]
        if not self._copies.has(backup, shard, values.clock):
            rebuild.waiting.add((Kept, shard))
            self._send(backup, Copy(generation=self.generation, values=values))
        if roles.servers:
            rebuild.waiting.add((Applied, shard))
            host = Host(
                generation=self.generation,
                values=values,
                optimiser=self._optimiser,
                num_partitions=self.flow.num_partitions,
                sync_every=options.sync_period(backup),
                pushes=options.pushes,
            )
            self._send(roles.servers[shard], host)

    def _finish_rebuild(self, rebuild: Rebuild) -> None:
        """Adopt the new layout, and let the former servers discard their shards."""
        roles, self._rebuild = rebuild.roles, None
        self._adopt(roles)
        self._copies.keep_only((backup, shard) for shard, backup in enumerate(roles.backups))
        for machine in (*self.machines.staying, *self.machines.leaving):
            served, copies = (
                tuple(shard for shard, holder in enumerate(holders) if holder == machine)
                for holders in (roles.servers, roles.backups)
            )
            self._send(machine, Keep(generation=self.generation, shards=served, copies=copies))
        self.flow.reset(self._clock, rebuild.parts)
        self.phase = Phase.RUNNING if roles.servers else Phase.STOPPED
        if roles.servers:
            for push in self.flow.replays(self.generation):
                self._send(roles.servers[push.shard], push)

    # -- copies -------------------------------------------------------------------------------------------------------

    def _take_copy(self, message: Copy) -> None:
        """Send a shard's values to its server in a rebuild, else to a backup that lacks a copy, or to the storage."""
        shard, clock = message.values.shard, message.values.clock
        if self._rebuild is None:
            backup = self.roles.backups[shard]
            self._send(STORAGE if self._copies.has(backup, shard, clock) else backup, message)
        elif self._rebuild.has_come(Copy, shard):
            self._place(self._rebuild, message.values)

    def _take_kept(self, message: Kept) -> None:
        """Register a copy; discard older copies once a newer clock is safe, and write a checkpoint when one is due."""
        copies = self._copies
        if not self.machines.is_alive(message.holder):
            return  # the machine has failed since it sent this message
        copies.confirm(message.holder, message.shard, message.clock)
        if self._rebuild is not None:
            if message.clock == self._clock and message.holder == self._rebuild.roles.backups[message.shard]:
                self._rebuild.has_come(Kept, message.shard)
            return
        if (due := copies.checkpoint_due(self._options.checkpoint_every)) is not None:
            for shard in range(self._options.num_shards):
                self._read(copies.source(shard, due), shard, due)
        self.flow.log.trim(copies.recovery_clock(), copies.storage_clock())
        for holder, clock in copies.trim():
            self._send(holder, Keep(generation=self.generation, first=clock))

    def _store_start(self, start: StartingPoint) -> None:
        """Store the state at the beginning of the run, so that every rollback has a clock to return to."""
        for values in self.flow.begin_at(start):
            self._send(STORAGE, Copy(generation=0, values=values))
            self._copies.confirm(STORAGE, values.shard, start.clock)
