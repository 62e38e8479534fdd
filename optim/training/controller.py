"""The controller: it knows all machines, deals out partitions and shards, and brings the run through every change.

A *planned* change (machines added, evicted with a warning, another stage) waits for a clock boundary, drains what the
backups lack, moves what has to move and goes on: nothing is computed twice. A *failure* of a machine that only computed
has its partitions computed by others. A failure of a server takes every shard back to the last clock of which copies
of all shards are left; what was computed since is computed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.training.application import Application
from optim.training.dataflow import Dataflow
from optim.training.ledger import CopyLedger
from optim.training.messages import (
    Applied,
    Delta,
    Drop,
    Host,
    Hosted,
    Install,
    Kept,
    Message,
    Pushed,
    Read,
    Ready,
    Rebase,
    Rewind,
    ShardValues,
    State,
    Sync,
    Trim,
    Vector,
)
from optim.training.options import ClusterOptions
from optim.training.partitions import deal
from optim.training.roles import STORAGE, Roles, lay_out
from optim.training.stages import Stage
from optim.training.transport import Lost, Transport

if TYPE_CHECKING:
    from optim.kernels.parameter_server import AbstractOptimiser

NEVER = 2**62
"""A clock that no run reaches."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """A return to an earlier clock.

    Attributes
    ----------
    from_clock
        Clocks complete when it happened.
    to_clock
        Clocks kept.
    """

    from_clock: int
    to_clock: int


class Controller:
    """Elastic training of one application over a transport.

    Attributes
    ----------
    phase, generation
        What it does now, and how many rebuilds there were.
    roles, owners
        The layout, and the worker of each partition.
    reliable, transient
        Machines of each tier, those about to leave left out.
    joining
        Machines that are not ready yet, and the tier that they will belong to.
    leaving
        Machines that were warned and work until the next boundary.
    flow
        What is computed, applied and readable.
    rollbacks
        What failures have undone.
    stop_at
        The clock to stop at.
    """

    def __init__(
        self, transport: Transport, application: Application, optimiser: "AbstractOptimiser", options: ClusterOptions
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
        self.reliable: list[str] = []
        self.transient: list[str] = []
        self.leaving: list[str] = []
        self.joining: dict[str, list[str]] = {}
        self.flow = Dataflow(application, optimiser, num_shards=options.num_shards, staleness=options.staleness)
        self.rollbacks: list[Rollback] = []
        self.stop_at = NEVER
        self._transport, self._optimiser, self._options = transport, optimiser, options
        self._known = {STORAGE}
        self._is_changed = False
        self._copies = CopyLedger(options.num_shards)
        self._waiting: set[tuple[type[Message], int]] = set()
        self._moving: set[int] = set()
        self._arriving: Roles | None = None
        self._clock = 0  # of the boundary, or of the rebuild
        self._parts: list[Vector] = []
        self._checkpoint_clock: int | None = None
        self._install_initial(application)

    # -- membership ---------------------------------------------------------------------------------------------------

    def add(self, *, reliable: Sequence[str] = (), transient: Sequence[str] = ()) -> None:
        """Take machines in; they join at the next clock boundary after they are ready, and disturb nobody before."""
        for machine in (*reliable, *transient):
            if machine in self._known:
                raise NotAllowedError(f"there is or was a machine {machine!r}; give each machine a name of its own")
        for machine in (*reliable, *transient):
            self._known.add(machine)
            self._transport.start(machine)
        self.joining.update(dict.fromkeys(reliable, self.reliable))
        self.joining.update(dict.fromkeys(transient, self.transient))

    def evict(self, machines: Sequence[str]) -> None:
        """Let machines go that have been warned: at the next clock boundary, with nothing lost."""
        for machine in machines:
            if machine not in self.machines and machine not in self.joining:
                raise NotAllowedError(
                    f"no machine {machine!r} to evict; there are {', '.join(self.machines) or 'none'}"
                )
        for machine in [name for name in machines if self.joining.pop(name, None) is not None]:
            self._transport.stop(machine)
        self.leaving.extend(name for name in machines if name in self.machines)
        self._forget(machines)
        self._change()

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
        for shard, server in enumerate(self.roles.servers):
            self._transport.send(server, Sync(generation=self.generation, shard=shard))

    @property
    def saved_clock(self) -> int:
        """The last clock of which the storage has a checkpoint."""
        return self._copies.storage_clock()

    def reconsider(self) -> None:
        """Ask the policy for the stage again: it may have learnt something."""
        self._change()

    def lost(self, machine: str) -> None:
        """Go on without a machine that is gone with all that it held."""
        self.joining.pop(machine, None)
        if machine not in self.machines and machine not in self.leaving:
            return
        self.leaving = [name for name in self.leaving if name != machine]
        self._forget([machine])
        self._copies.forget_holder(machine)
        is_alone = not any(self._is_alive(worker) for worker in self.roles.workers)
        if machine in self.roles.servers or self.phase is Phase.REBUILDING or is_alone:
            self._roll_back()
        else:
            self._is_changed = True
            if machine in self.roles.workers:
                self._hand_over(machine)
            self._advance()

    @property
    def machines(self) -> tuple[str, ...]:
        """All machines that are to stay, reliable ones first."""
        return (*self.reliable, *self.transient)

    def _is_alive(self, machine: str) -> bool:
        return machine == STORAGE or machine in self.machines or machine in self.leaving

    def _forget(self, machines: Sequence[str]) -> None:
        for tier in (self.reliable, self.transient):
            tier[:] = [name for name in tier if name not in machines]

    # -- messages -----------------------------------------------------------------------------------------------------

    def receive(self, message: Message | Lost) -> None:
        """Take the next message, and do what follows from it."""
        if isinstance(message, Lost):
            self.lost(message.machine)
            return
        if isinstance(message, Ready):
            tier = self.joining.pop(message.machine, None)
            if tier is not None:
                tier.append(message.machine)
                self._change()
            return
        if self._is_stale(message):
            return
        match message:
            case Pushed():
                for push in self.flow.pushed(message):
                    self._transport.send(self.roles.servers[push.shard], push)
            case Applied():
                self.flow.applied(message)
            case Delta():
                self._transport.send(self.roles.backups[message.values.shard], message)
            case Kept():
                self._kept(message)
            case State():
                self._placed(message)
            case Hosted():
                self._waiting.discard((Hosted, message.shard))
        self._advance()

    def _is_stale(self, message: Message) -> bool:
        return message.generation != self.generation

    # -- phases -------------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        """Begin a planned change, or note it for when the present one is over."""
        self._is_changed = True
        self._advance()

    def _advance(self) -> None:
        """Go through all phases whose condition holds, then let workers work."""
        if self.phase is Phase.STOPPED and self.machines:
            self._rebuild(self._copies.recovery_clock(), is_planned=False)
        if self.phase is Phase.RUNNING and self._is_changed:
            self.phase, self._clock = Phase.DRAINING, self.flow.boundary
        if self.phase is Phase.DRAINING and self.flow.is_settled_at(self._clock):
            self._leave_boundary()
        if self.phase is Phase.SYNCING and self._is_synced():
            self._rebuild(self._clock, is_planned=True)
        if self.phase is Phase.REBUILDING and not self._waiting:
            self._finish_rebuild()
            self._advance()
            return
        self._start_work()

    def _start_work(self) -> None:
        """Have every partition computed that may be."""
        if self.phase not in (Phase.RUNNING, Phase.DRAINING):
            return
        limit = self._clock if self.phase is Phase.DRAINING else self.stop_at
        for partition in self.flow.startable(limit):
            self._transport.send(self.owners[partition], self.flow.compute(partition, self.generation))

    def _leave_boundary(self) -> None:
        """With all at one clock: change workers only, or drain to the copies before shards move."""
        roles = self._plan()
        if roles.has_same_shards(self.roles):
            self._adopt(roles)
            self.phase, self._is_changed = Phase.RUNNING, False
            return
        self.phase = Phase.SYNCING
        for shard, server in enumerate(self.roles.servers):
            self._transport.send(server, Sync(generation=self.generation, shard=shard))

    def _is_synced(self) -> bool:
        """Tell whether every copy that can be had holds the boundary's clock."""
        return all(
            self._copies.has(backup, shard, self._clock)
            for shard, backup in enumerate(self.roles.backups)
            if self._is_alive(backup)
        )

    def _plan(self) -> Roles:
        """Return the layout for the machines that are to stay; without any, all goes to the storage."""
        num_shards = self._options.num_shards
        if not self.machines:
            return Roles(stage=Stage.TRADITIONAL, workers=(), servers=(), backups=(STORAGE,) * num_shards)
        stage = self._options.policy.stage(len(self.reliable), len(self.transient))
        max_actives = self._options.max_actives
        return lay_out(stage, self.reliable, self.transient, num_shards, max_actives=max_actives, previous=self.roles)

    def _adopt(self, roles: Roles) -> None:
        """Work by a layout, and give back the machines that were waiting to leave and have no part in it."""
        self.roles = roles
        if roles.workers:
            self.owners = deal(self.flow.num_partitions, roles.workers, self.owners)
        staying = {*roles.workers, *roles.servers, *roles.backups}
        for machine in [name for name in self.leaving if name not in staying]:
            self._copies.forget_holder(machine)
            self._transport.stop(machine)
        self.leaving = [name for name in self.leaving if name in staying]

    def _hand_over(self, machine: str) -> None:
        """Have a lost worker's partitions computed by the others, at once: nobody could finish the clock without."""
        workers = [name for name in self.roles.workers if self._is_alive(name)]
        gone = [partition for partition, owner in enumerate(self.owners) if owner == machine]
        self.owners = deal(self.flow.num_partitions, workers, self.owners)
        self.flow.compute_again(gone)

    # -- rebuilding ---------------------------------------------------------------------------------------------------

    def _roll_back(self) -> None:
        """Return to the last clock of which copies of all shards are left."""
        before = self._clock if self.phase is Phase.REBUILDING else int(self.flow.completed.min())
        clock = self._copies.recovery_clock()
        if self.phase is not Phase.REBUILDING or clock < before:
            self.rollbacks.append(Rollback(from_clock=before, to_clock=clock))
        self._rebuild(clock, is_planned=False)

    def _rebuild(self, clock: int, *, is_planned: bool) -> None:
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
        self._waiting.clear()
        self._moving.clear()
        self._checkpoint_clock = None
        self._copies.rewind(clock)
        for holder in self._copies.holders():
            self._transport.send(holder, Rewind(generation=self.generation, clock=clock))
        self._arriving = roles = self._plan()
        self._parts = [self.flow.parameters[part].copy() for part in self.flow.ranges]
        for shard in range(self._options.num_shards):
            old = self.roles.servers[shard] if is_planned else None
            new = roles.servers[shard] if roles.servers else None
            has_copy = self._copies.has(roles.backups[shard], shard, clock)
            if new is not None:
                self._waiting.add((Hosted, shard))
                if new == old:
                    every = self._sync_every(roles, shard)
                    rebase = Rebase(generation=self.generation, shard=shard, clock=clock, sync_every=every)
                    self._transport.send(new, rebase)
                else:
                    self._moving.add(shard)
            if not has_copy:
                self._waiting.add((Kept, shard))
            if new is None or new != old or not has_copy:
                self._waiting.add((State, shard))
                source = old if old is not None else self._copies.source(shard, clock)
                self._transport.send(source, Read(generation=self.generation, shard=shard, clock=clock))

    def _placed(self, state: State) -> None:
        """Hand a shard's values to its new server and to who lacks a copy; outside a rebuild they are a checkpoint."""
        shard, install = state.values.shard, Install(generation=self.generation, values=state.values)
        if self._arriving is None:
            self._transport.send(STORAGE, install)
            return
        if (State, shard) not in self._waiting:
            return
        self._waiting.discard((State, shard))
        self._parts[shard] = state.values.parameters
        if (Kept, shard) in self._waiting:
            self._transport.send(self._arriving.backups[shard], install)
        if shard in self._moving:
            host = Host(
                generation=self.generation,
                values=state.values,
                optimiser=self._optimiser,
                num_partitions=self.flow.num_partitions,
                sync_every=self._sync_every(self._arriving, shard),
            )
            self._transport.send(self._arriving.servers[shard], host)

    def _finish_rebuild(self) -> None:
        """Work by the new layout; only now may the old places forget what they hold."""
        roles = self._arriving
        if roles is None:
            return
        self._arriving = None
        self._adopt(roles)
        self._copies.keep_only((backup, shard) for shard, backup in enumerate(roles.backups))
        for machine in (*self.machines, *self.leaving):
            served = tuple(shard for shard, server in enumerate(roles.servers) if server == machine)
            copies = tuple(shard for shard, backup in enumerate(roles.backups) if backup == machine)
            self._transport.send(machine, Drop(generation=self.generation, shards=served, copies=copies))
        self.flow.reset(self._clock, self._parts)
        self.phase = Phase.RUNNING if roles.servers else Phase.STOPPED

    def _sync_every(self, roles: Roles, shard: int) -> int:
        """Return the pace of a shard's deltas: those to the storage are checkpoints."""
        options = self._options
        return options.checkpoint_every if roles.backups[shard] == STORAGE else options.sync_every

    # -- copies -------------------------------------------------------------------------------------------------------

    def _kept(self, message: Kept) -> None:
        """Note a copy; forget older ones once a newer clock is safe, and checkpoint when it is time."""
        copies = self._copies
        if not self._is_alive(message.holder):
            return  # the last words of a machine that has died since
        copies.confirm(message.holder, message.shard, message.clock)
        if self._arriving is not None:
            if message.clock == self._clock and message.holder == self._arriving.backups[message.shard]:
                self._waiting.discard((Kept, message.shard))
            return
        clock, stored = copies.recovery_clock(), copies.storage_clock()
        if self._checkpoint_clock is not None and stored >= self._checkpoint_clock:
            self._checkpoint_clock = None
        if self._checkpoint_clock is None and clock >= stored + self._options.checkpoint_every:
            self._checkpoint_clock = clock
            for shard in range(self._options.num_shards):
                source = copies.source(shard, clock)
                self._transport.send(source, Read(generation=self.generation, shard=shard, clock=clock))
        for holder in copies.holders():
            safe = stored if holder == STORAGE else clock
            if copies.trim(holder, safe):
                self._transport.send(holder, Trim(generation=self.generation, clock=safe))

    def _install_initial(self, application: Application) -> None:
        """Put the parameters of clock 0 into the storage: there is always something to return to."""
        initial = application.initial_parameters()
        for shard, part in enumerate(self.flow.ranges):
            parameters = initial[part].copy()
            slots = tuple(np.zeros_like(parameters) for _ in range(self._optimiser.num_slots))
            values = ShardValues(shard, 0, parameters, slots)
            self._transport.send(STORAGE, Install(generation=0, values=values))
            self._copies.confirm(STORAGE, shard, 0)
