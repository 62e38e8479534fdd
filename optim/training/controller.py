"""The controller: it knows all machines, assigns partitions and shards, and recovers from failures.

A *planned* change (machines added, evicted with a warning, another stage) waits for a clock boundary, drains what the
backups lack, moves what has to move and goes on: nothing is computed twice. A *failure* of a machine that only computed
has its partitions computed by others. A failure of a server takes every shard back to the last clock of which copies
of all shards are left; what was computed since is computed again.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from optim.core.errors import InvalidOptionError, NotAllowedError, TrainingError
from optim.training.application import Application
from optim.training.arrays import cut
from optim.training.checkpoints import StartingPoint, initial_point
from optim.training.dataflow import Dataflow
from optim.training.messages import (
    Applied,
    BackupAck,
    Delta,
    Drop,
    Failed,
    Host,
    Message,
    NonFinite,
    Pushed,
    Read,
    Ready,
    Rebase,
    Rewind,
    ShardReady,
    ShardValues,
    State,
    StoreBackup,
    Sync,
    Trim,
    Vector,
)
from optim.training.stages import NEVER, STORAGE, ClusterOptions, Roles, Stage, assign_balanced, assign_roles
from optim.training.transport import Lost, Transport

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser


class Phase(StrEnum):
    """What the controller is doing."""

    RUNNING = "running"
    DRAINING = "draining"
    """Bringing all partitions to one clock, because a change is waiting."""
    SYNCING = "syncing"
    """Waiting until the copies hold that clock."""
    REBUILDING = "rebuilding"
    """Moving shards and copies to their places."""
    STOPPED = "stopped"
    """No machine is left; the storage's copies wait for one."""


class Membership:
    """The machines of a run.

    Attributes
    ----------
    reliable, transient
        Machines of each tier, those about to leave left out.
    joining
        Machines that are not ready yet, and the tier that they will belong to.
    leaving
        Machines that were warned and work until the next boundary.
    """

    def __init__(self) -> None:
        self.reliable: list[str] = []
        self.transient: list[str] = []
        self.joining: dict[str, list[str]] = {}
        self.leaving: list[str] = []
        self._known = {STORAGE}

    @property
    def staying(self) -> tuple[str, ...]:
        """All machines that are to stay, reliable ones first."""
        return (*self.reliable, *self.transient)

    def is_alive(self, machine: str) -> bool:
        """Return whether a machine, or the storage, can still do something."""
        return machine == STORAGE or machine in self.staying or machine in self.leaving

    def expect(self, reliable: Sequence[str], transient: Sequence[str]) -> None:
        """Note machines that are being started.

        Raises
        ------
        NotAllowedError
            If a name is or was taken.
        """
        for machine in (*reliable, *transient):
            if machine in self._known:
                raise NotAllowedError(f"there is or was a machine {machine!r}; give each machine a name of its own")
        self._known.update(reliable, transient)
        self.joining.update(dict.fromkeys(reliable, self.reliable))
        self.joining.update(dict.fromkeys(transient, self.transient))

    def arrive(self, machine: str) -> bool:
        """Take a machine into its tier; tell whether it was still expected."""
        tier = self.joining.pop(machine, None)
        if tier is not None:
            tier.append(machine)
        return tier is not None

    def warn(self, machines: Sequence[str]) -> list[str]:
        """Have machines leave at the next boundary; return those that had not come, which can go at once.

        Raises
        ------
        NotAllowedError
            If there is no such machine.
        """
        for machine in machines:
            if machine not in self.staying and machine not in self.joining:
                raise NotAllowedError(f"no machine {machine!r} to evict; there are {', '.join(self.staying) or 'none'}")
        waiting = [name for name in machines if self.joining.pop(name, None) is not None]
        self.leaving.extend(name for name in machines if name in self.staying)
        self._strike_out(machines)
        return waiting

    def remove(self, machine: str) -> bool:
        """Strike out a machine that is gone; tell whether it had a part in the work."""
        self.joining.pop(machine, None)
        was_in = machine in self.staying or machine in self.leaving
        self.leaving = [name for name in self.leaving if name != machine]
        self._strike_out([machine])
        return was_in

    def give_back(self, needed: Collection[str]) -> list[str]:
        """Return the machines that were waiting to leave and aren't needed any more; they are none of ours now."""
        free = [name for name in self.leaving if name not in needed]
        self.leaving = [name for name in self.leaving if name in needed]
        return free

    def _strike_out(self, machines: Sequence[str]) -> None:
        for tier in (self.reliable, self.transient):
            tier[:] = [name for name in tier if name not in machines]


class NonFinitePushes:
    """Remembers which were refused already.

    Parameters
    ----------
    policy
        What becomes of them.
    """

    def __init__(self, policy: NonFinite) -> None:
        self._policy = policy
        self._refused: set[tuple[int, int]] = set()

    def refuses(self, message: Pushed) -> bool:
        """Return whether a gradient is to be computed again; else it is left out.

        Raises
        ------
        TrainingError
            If the policy is to stop, or what was computed again isn't finite either.
        """
        if self._policy == NonFinite.SKIP:
            return False
        gradient = message.partition, message.clock
        if self._policy == NonFinite.REFUSE and gradient not in self._refused:
            self._refused.add(gradient)
            return True
        again = " again" if gradient in self._refused else ""
        raise TrainingError(
            f"machine {message.machine} computed{again} a gradient or loss that isn't finite, of partition "
            f"{message.partition} at clock {message.clock}; lower the learning rate, look at the data, or set non_finite to "
            "'skip' (optim run --non-finite skip)"
        )


class ReplicaCatalog:
    """For each holder and shard the clocks of which it has confirmed a copy."""

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards
        self._clocks: dict[tuple[str, int], set[int]] = {}
        self._checkpoint_clock: int | None = None

    def confirm(self, holder: str, shard: int, clock: int) -> None:
        """Note a copy."""
        self._clocks.setdefault((holder, shard), set()).add(clock)

    def has(self, holder: str, shard: int, clock: int) -> bool:
        """Return whether a holder has a copy."""
        return clock in self._clocks.get((holder, shard), set())

    def forget_holder(self, holder: str) -> None:
        """Note that a holder is gone with all its copies."""
        self._clocks = {key: clocks for key, clocks in self._clocks.items() if key[0] != holder}

    def keep_only(self, copies: Iterable[tuple[str, int]]) -> None:
        """Note that all other holders, the storage left out, have dropped their copies."""
        keys = set(copies)
        self._clocks = {key: clocks for key, clocks in self._clocks.items() if key in keys or key[0] == STORAGE}

    def rewind(self, clock: int) -> None:
        """Note that copies later than `clock` are forgotten, and with them a checkpoint that is being written."""
        self._checkpoint_clock = None
        remaining = {key: {at for at in clocks if at <= clock} for key, clocks in self._clocks.items()}
        self._clocks = {key: clocks for key, clocks in remaining.items() if clocks}

    def checkpoint_due(self, every: int) -> int | None:
        """Return the clock to write a checkpoint of, now that one is due and none is being written."""
        clock, stored = self.recovery_clock(), self.storage_clock()
        if self._checkpoint_clock is not None and stored >= self._checkpoint_clock:
            self._checkpoint_clock = None
        if self._checkpoint_clock is not None or clock < stored + every:
            return None
        self._checkpoint_clock = clock
        return clock

    def trim(self) -> list[tuple[str, int]]:
        """Forget the copies that nobody will go back to; return whose, and the clock before which they were."""
        clock, stored = self.recovery_clock(), self.storage_clock()
        trimmed = []
        for holder in self.holders():
            safe = stored if holder == STORAGE else clock
            of_holder = {key: clocks for key, clocks in self._clocks.items() if key[0] == holder}
            if min(map(min, of_holder.values())) < safe:
                trimmed.append((holder, safe))
                self._clocks |= {key: {at for at in clocks if at >= safe} for key, clocks in of_holder.items()}
        self._clocks = {key: clocks for key, clocks in self._clocks.items() if clocks}
        return trimmed

    def holders(self) -> tuple[str, ...]:
        """Return everybody with a copy, in order of name."""
        return tuple(sorted({holder for holder, _ in self._clocks}))

    def recovery_clock(self) -> int:
        """Return the last clock of which *every* shard has a copy somewhere; never a mix of clocks."""
        of_shard = [
            set().union(*(clocks for (_, shard), clocks in self._clocks.items() if shard == index))
            for index in range(self._num_shards)
        ]
        return max(set.intersection(*of_shard), default=-1)

    def storage_clock(self) -> int:
        """Return the last clock of which the storage has all shards."""
        of_shard = [self._clocks.get((STORAGE, shard), set()) for shard in range(self._num_shards)]
        return max(set.intersection(*of_shard), default=-1)

    def source(self, shard: int, clock: int) -> str:
        """Return who is asked for a copy: a machine rather than the storage, the first by name."""
        having = [holder for (holder, index), clocks in self._clocks.items() if index == shard and clock in clocks]
        return min(having, key=lambda holder: (holder == STORAGE, holder))


Order = tuple[str, Message]
"""Whom a message is for, and the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """A return to an earlier clock.

    Attributes
    ----------
    from_clock
        Clocks complete when it happened.
    to_clock
        Clocks of which copies were left.
    replayed_to
        Clocks after those whose pushes were kept have been applied again: what is beyond is computed again.
    """

    from_clock: int
    to_clock: int
    replayed_to: int


class Reconfiguration:
    """What is on its way, and what is still waited for.

    Parameters
    ----------
    roles, clock, generation
        The layout that is being built, the clock that all shards will stand at, and the rebuild's number.
    parts
        Each shard's parameters as known; those read from their holders take their place.

    Attributes
    ----------
    roles, clock, parts
        As above.
    """

    def __init__(self, roles: Roles, clock: int, generation: int, parts: list[Vector]) -> None:
        self.roles, self.clock, self.parts = roles, clock, parts
        self._generation = generation
        self._waiting: set[tuple[type[Message], int]] = set()
        self._moving: set[int] = set()

    @property
    def is_done(self) -> bool:
        """Whether everything is at its place."""
        return not self._waiting

    def begin(self, servers: Sequence[str], copies: ReplicaCatalog, options: ClusterOptions) -> Iterator[Order]:
        """Yield the orders that begin it.

        Parameters
        ----------
        servers
            Who serves each shard at that clock, so that it may stay or hand its shard on; empty after a failure, when
            shards come from copies.
        copies
            Who holds a copy of what.
        options
            How often a server sends its delta.
        """
        generation, clock, roles = self._generation, self.clock, self.roles
        for shard, backup in enumerate(roles.backups):
            old = servers[shard] if servers else None
            new = roles.servers[shard] if roles.servers else None
            has_copy = copies.has(backup, shard, clock)
            if new is not None:
                self._waiting.add((ShardReady, shard))
                if new == old:
                    every = options.sync_period(backup)
                    yield new, Rebase(generation=generation, shard=shard, clock=clock, sync_every=every)
                else:
                    self._moving.add(shard)
            if not has_copy:
                self._waiting.add((BackupAck, shard))
            if new is None or new != old or not has_copy:
                self._waiting.add((State, shard))
                source = old if old is not None else copies.source(shard, clock)
                yield source, Read(generation=generation, shard=shard, clock=clock)

    def place(
        self, values: ShardValues, optimiser: "AbstractOptimiser", num_partitions: int, options: ClusterOptions
    ) -> Iterator[Order]:
        """Yield what hands a shard's values to its new server and to who lacks a copy."""
        shard = values.shard
        if (State, shard) not in self._waiting:
            return
        self._waiting.discard((State, shard))
        self.parts[shard] = values.parameters
        backup = self.roles.backups[shard]
        if (BackupAck, shard) in self._waiting:
            yield backup, StoreBackup(generation=self._generation, values=values)
        if shard in self._moving:
            yield (
                self.roles.servers[shard],
                Host(
                    generation=self._generation,
                    values=values,
                    optimiser=optimiser,
                    num_partitions=num_partitions,
                    sync_every=options.sync_period(backup),
                    pushes=options.pushes,
                ),
            )

    def mark_ready(self, shard: int) -> None:
        """Note that a shard is served where it belongs."""
        self._waiting.discard((ShardReady, shard))

    def mark_stored(self, holder: str, shard: int, clock: int) -> None:
        """Note a copy, if it is the one that was waited for."""
        if clock == self.clock and holder == self.roles.backups[shard]:
            self._waiting.discard((BackupAck, shard))

    def drops(self, machines: Iterable[str]) -> Iterator[Order]:
        """Yield what makes machines forget what the new layout gives to others."""
        for machine in machines:
            served = tuple(shard for shard, server in enumerate(self.roles.servers) if server == machine)
            copies = tuple(shard for shard, backup in enumerate(self.roles.backups) if backup == machine)
            yield machine, Drop(generation=self._generation, shards=served, copies=copies)


class Controller:
    """Elastic training of one application over a transport.

    Attributes
    ----------
    phase, generation
        What it does now, and how many rebuilds there were.
    roles, owners
        The layout, and the worker of each partition.
    machines
        Who is there, comes and leaves.
    flow
        What is computed, applied and readable.
    rollbacks
        What failures have undone.
    stop_at
        The clock to stop at.
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
            raise InvalidOptionError(
                f"staleness {options.staleness} needs an optimiser without slots and schedule, got {optimiser}: a "
                "worker sees its own unapplied gradients only where they simply add; use Sgd at one rate, or staleness 0"
            )
        self.phase = Phase.STOPPED
        self.generation = 0
        self.roles = Roles(stage=Stage.TRADITIONAL, workers=(), servers=(), backups=())
        self.owners: tuple[str, ...] = ()
        self.machines = Membership()
        self.flow = Dataflow.of(application, optimiser, options)
        self.rollbacks: list[Rollback] = []
        self.stop_at = NEVER
        self._transport, self._optimiser, self._options = transport, optimiser, options
        self._is_changed = False
        self._non_finite = NonFinitePushes(options.non_finite)
        self._copies = ReplicaCatalog(options.num_shards)
        self._rebuild: Reconfiguration | None = None
        self._clock = 0  # of the boundary, or of the rebuild
        self._store_start(start or initial_point(application, optimiser))

    # -- membership ---------------------------------------------------------------------------------------------------

    def add(self, *, reliable: Sequence[str] = (), transient: Sequence[str] = ()) -> None:
        """Take machines in; they join at the next clock boundary after they are ready, and disturb nobody before."""
        self.machines.expect(reliable, transient)
        for machine in (*reliable, *transient):
            self._transport.start(machine)

    def evict(self, machines: Sequence[str]) -> None:
        """Let machines go that have been warned: at the next clock boundary, with nothing lost."""
        for machine in self.machines.warn(machines):
            self._transport.stop(machine)
        self.reconsider()

    def resume(self, stop_at: int) -> None:
        """Go on, up to a later clock."""
        self.stop_at = stop_at
        self._advance()

    def save(self) -> None:
        """Have a checkpoint written of the clock that all shards stand at; `saved_clock` tells when it is.

        Raises
        ------
        NotAllowedError
            If something is under way, or the storage isn't where the shards' copies go.
        """
        if self.phase is not Phase.RUNNING or not self.flow.is_settled_at(self.flow.read_clock):
            raise NotAllowedError(
                f"a checkpoint needs a run at rest, this one is {self.phase}; let it come to its clock"
            )
        if set(self.roles.backups) != {STORAGE}:
            raise NotAllowedError(
                f"stage {self.roles.stage} keeps its copies on reliable machines; checkpoints are for the others"
            )
        self._sync_all()

    @property
    def saved_clock(self) -> int:
        """The last clock of which the storage has a checkpoint."""
        return self._copies.storage_clock()

    def reconsider(self) -> None:
        """Begin a planned change, or note it for when the present one is over; the policy is asked for the stage."""
        self._is_changed = True
        self._advance()

    def lost(self, machine: str) -> None:
        """Go on without a machine that is gone with all that it held."""
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
        """Take the next message, and do what follows from it."""
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
                raise TrainingError(f"machine {message.machine} failed: {message.text}; mend the application's code")
            case Pushed() if not message.is_finite and self.flow.is_next(message) and self._non_finite.refuses(message):
                self._compute_elsewhere(message)
            case Pushed():
                self._send_all((self.roles.servers[push.shard], push) for push in self.flow.pushed(message))
            case Applied():
                self.flow.applied(message)
            case Delta():
                self._transport.send(self.roles.backups[message.values.shard], message)
            case BackupAck():
                self._take_ack(message)
            case State():
                self._take_state(message)
            case ShardReady() if self._rebuild is not None:
                self._rebuild.mark_ready(message.shard)
        self._advance()

    def _is_stale(self, message: Message) -> bool:
        return message.generation != self.generation

    def _send_all(self, orders: Iterable[Order]) -> None:
        for machine, message in orders:
            self._transport.send(machine, message)

    def _sync_all(self) -> None:
        """Have every server send what its backup lacks."""
        sync = [Sync(generation=self.generation, shard=shard) for shard in range(self._options.num_shards)]
        self._send_all(zip(self.roles.servers, sync, strict=False))  # without machines there is no server

    # -- phases -------------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Go through all phases whose condition holds, then let workers work."""
        if self.phase is Phase.STOPPED and self.machines.staying:
            self._begin_rebuild(self._copies.recovery_clock(), is_planned=False)
        if self.phase is Phase.RUNNING and self._is_changed:
            self.phase, self._clock = Phase.DRAINING, self.flow.boundary
        if self.phase is Phase.DRAINING and self.flow.is_settled_at(self._clock):
            self._leave_boundary()
        if self.phase is Phase.SYNCING and self._is_synced():
            self._begin_rebuild(self._clock, is_planned=True)
        if self._rebuild is not None and self._rebuild.is_done:
            self._finish_rebuild(self._rebuild)
            self._advance()
            return
        self._start_work()

    def _start_work(self) -> None:
        """Have every partition computed that may be."""
        if self.phase not in (Phase.RUNNING, Phase.DRAINING):
            return
        limit = self._clock if self.phase is Phase.DRAINING else self.stop_at
        owners, flow = self.owners, self.flow
        self._send_all((owners[k], flow.compute(k, self.generation)) for k in flow.startable(limit))

    def _leave_boundary(self) -> None:
        """With all at one clock: change workers only, or drain to the copies before shards move."""
        roles = self._plan()
        if roles.has_same_shards(self.roles):
            self._adopt(roles)
            self.phase, self._is_changed = Phase.RUNNING, False
            return
        self.phase = Phase.SYNCING
        self._sync_all()

    def _is_synced(self) -> bool:
        """Return whether every copy that can be had holds the boundary's clock."""
        return all(
            self._copies.has(backup, shard, self._clock)
            for shard, backup in enumerate(self.roles.backups)
            if self.machines.is_alive(backup)
        )

    def _plan(self) -> Roles:
        """Return the layout for the machines that are to stay; without any, all goes to the storage."""
        options, machines = self._options, self.machines
        num_shards = options.num_shards
        if not machines.staying:
            return Roles(stage=Stage.TRADITIONAL, workers=(), servers=(), backups=(STORAGE,) * num_shards)
        tiers = machines.reliable, machines.transient
        stage = options.policy.stage(*map(len, tiers))
        return assign_roles(stage, *tiers, num_shards, max_actives=options.max_actives, previous=self.roles)

    def _adopt(self, roles: Roles) -> None:
        """Work by a layout, and give back the machines that were waiting to leave and have no part in it."""
        self.roles = roles
        if roles.workers:
            self.owners = assign_balanced(self.flow.num_partitions, roles.workers, self.owners)
        for machine in self.machines.give_back({*roles.workers, *roles.servers, *roles.backups}):
            self._copies.forget_holder(machine)
            self._transport.stop(machine)

    def _compute_elsewhere(self, message: Pushed) -> None:
        """Have a refused gradient computed again, by another machine where there is one."""
        if others := [name for name in self.roles.workers if name != message.machine and self.machines.is_alive(name)]:
            self.owners = tuple(others[0] if k == message.partition else owner for k, owner in enumerate(self.owners))
        self.flow.compute_again([message.partition])

    def _hand_over(self, machine: str) -> None:
        """Have a lost worker's partitions computed by the others, at once: nobody could finish the clock without."""
        workers = [name for name in self.roles.workers if self.machines.is_alive(name)]
        gone = [partition for partition, owner in enumerate(self.owners) if owner == machine]
        self.owners = assign_balanced(self.flow.num_partitions, workers, self.owners)
        self.flow.compute_again(gone)

    # -- rebuilding ---------------------------------------------------------------------------------------------------

    def _roll_back(self) -> None:
        """Return to the last clock of which copies of all shards are left."""
        before = self._clock if self.phase is Phase.REBUILDING else int(self.flow.completed.min())
        clock = self._copies.recovery_clock()
        if self.phase is not Phase.REBUILDING or clock < before:
            again = min(before, self.flow.log.end(clock))
            self.rollbacks.append(Rollback(from_clock=before, to_clock=clock, replayed_to=again))
        self._begin_rebuild(clock, is_planned=False)

    def _begin_rebuild(self, clock: int, *, is_planned: bool) -> None:
        """Place all shards and copies for the machines that are to stay, as of `clock`.

        Parameters
        ----------
        clock
            All shards are settled at it (a planned rebuild), or have a copy of it.
        is_planned
            Servers that stay keep their shards, and those that lose one hand it on.
        """
        self.generation += 1
        self.phase, self._clock, self._is_changed = Phase.REBUILDING, clock, False
        self._copies.rewind(clock)
        for holder in self._copies.holders():
            self._transport.send(holder, Rewind(generation=self.generation, clock=clock))
        parts = [cut(self.flow.parameters, part) for part in self.flow.ranges]
        self._rebuild = Reconfiguration(self._plan(), clock, self.generation, parts)
        servers = self.roles.servers if is_planned else ()
        self._send_all(self._rebuild.begin(servers, self._copies, self._options))

    def _take_state(self, state: State) -> None:
        """Go on with the rebuild that asked for a shard's values; outside of one they are a checkpoint."""
        if self._rebuild is None:
            self._transport.send(STORAGE, StoreBackup(generation=self.generation, values=state.values))
        else:
            flow, options = self.flow, self._options
            self._send_all(self._rebuild.place(state.values, self._optimiser, flow.num_partitions, options))

    def _finish_rebuild(self, rebuild: Reconfiguration) -> None:
        """Work by the new layout; only now may the old places forget what they hold."""
        roles, self._rebuild = rebuild.roles, None
        self._adopt(roles)
        self._copies.keep_only((backup, shard) for shard, backup in enumerate(roles.backups))
        self._send_all(rebuild.drops((*self.machines.staying, *self.machines.leaving)))
        self.flow.reset(self._clock, rebuild.parts)
        if roles.servers:
            self._send_all((roles.servers[lost.shard], lost) for lost in self.flow.replays(self.generation))
        self.phase = Phase.RUNNING if roles.servers else Phase.STOPPED

    # -- copies -------------------------------------------------------------------------------------------------------

    def _take_ack(self, message: BackupAck) -> None:
        """Note a copy; forget older ones once a newer clock is safe, and checkpoint when it is time."""
        copies = self._copies
        if not self.machines.is_alive(message.holder):
            return  # the last words of a machine that has died since
        copies.confirm(message.holder, message.shard, message.clock)
        if self._rebuild is not None:
            self._rebuild.mark_stored(message.holder, message.shard, message.clock)
            return
        checkpoint_clock = copies.checkpoint_due(self._options.checkpoint_every)
        if checkpoint_clock is not None:
            for shard in range(self._options.num_shards):
                read = Read(generation=self.generation, shard=shard, clock=checkpoint_clock)
                self._transport.send(copies.source(shard, checkpoint_clock), read)
        self.flow.log.trim(copies.recovery_clock(), copies.storage_clock())
        for holder, clock in copies.trim():
            self._transport.send(holder, Trim(generation=self.generation, clock=clock))

    def _store_start(self, start: StartingPoint) -> None:
        """Put where the run begins into the storage: there is always something to return to."""
        for values in self.flow.begin_at(start):
            self._transport.send(STORAGE, StoreBackup(generation=0, values=values))
            self._copies.confirm(STORAGE, values.shard, start.clock)
