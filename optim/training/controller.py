"""The controller: it knows all machines, assigns partitions and shards, and recovers from failures.

A *planned* change (machines added, evicted with a warning, another stage) waits for a clock boundary, drains what the
backups lack, moves what has to move and goes on: nothing is computed twice. A *failure* of a machine that only computed
has its partitions computed by others. A failure of a server takes every shard back to the last clock of which copies
of all shards are left; what was computed since is computed again.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from optim.core.errors import InvalidOptionError, NotAllowedError, TrainingError
from optim.training.application import Application
from optim.training.checkpoints import StartingPoint, initial_point
from optim.training.dataflow import Dataflow
from optim.training.machine import Lost, Transport
from optim.training.messages import (
    Applied,
    BackupAck,
    Delta,
    Failed,
    Message,
    Pushed,
    Read,
    Ready,
    Rewind,
    ShardReady,
    State,
    StoreBackup,
    Sync,
    Trim,
)
from optim.training.pushing import NonFinitePushes
from optim.training.replication import Order, Reconfiguration, ReplicaCatalog, Rollback
from optim.training.stages import NEVER, STORAGE, ClusterOptions, Roles, Stage, assign_balanced, assign_roles

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
        if options.staleness > 0 and optimiser.num_slots > 0:
            raise InvalidOptionError(
                f"staleness {options.staleness} needs an optimiser without slots, got {type(optimiser).__name__}: a "
                "worker sees its own unapplied gradients only where they simply add; use Sgd, or staleness 0"
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
        self._send_all((owners[k], flow.compute(k, self.generation, owners[k])) for k in flow.startable(limit))

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
        parts = [self.flow.parameters[part].copy() for part in self.flow.ranges]
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
        due = copies.checkpoint_due(self._options.checkpoint_every)
        if due is not None:
            for shard in range(self._options.num_shards):
                read = Read(generation=self.generation, shard=shard, clock=due)
                self._transport.send(copies.source(shard, due), read)
        self.flow.log.trim(copies.recovery_clock(), copies.storage_clock())
        for holder, clock in copies.trim():
            self._transport.send(holder, Trim(generation=self.generation, clock=clock))

    def _store_start(self, start: StartingPoint) -> None:
        """Put where the run begins into the storage: there is always something to return to."""
        for values in self.flow.begin_at(start):
            self._transport.send(STORAGE, StoreBackup(generation=0, values=values))
            self._copies.confirm(STORAGE, values.shard, start.clock)
