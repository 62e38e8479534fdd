"""A training cluster in which a test controls when each message arrives, how often, and which machines die meanwhile."""

from dataclasses import dataclass

import numpy as np

from optim.kernels.parameter_server import Sgd
from optim.training.controller import Controller, Phase
from optim.training.messages import Compute, Host, Kept, Pushed, Read
from optim.training.stages import STORAGE, ClusterOptions, Stage
from optim.training.transport import InProcess, Lost
from tests.support.training.oracle import CountingApplication, Log

PATIENCE = 3000
"""Deliveries after which a cluster that has not finished two clocks is stuck."""


@dataclass
class Wish:
    """A policy whose stage a test can set at any time."""

    wanted: Stage = Stage.BACKED_UP

    def stage(self, reliable, transient):
        if reliable == 0:
            return Stage.TRADITIONAL
        if transient == 0 and self.wanted is not Stage.TRADITIONAL:
            return Stage.RELIABLE
        return self.wanted


class Recording(InProcess):
    """A transport that remembers its messages, so that it can deliver them again."""

    def __init__(self, application):
        self.sent, self.replied, self.on_compute, self.on_computed = {}, {}, None, None
        super().__init__(application)

    def send(self, machine, message):
        super().send(machine, message)
        if machine in self.inboxes:
            self.sent.setdefault(machine, []).append(message)
        if isinstance(message, Compute) and self.on_compute is not None:
            self.on_compute(message)
        if isinstance(message, Host):
            self.check_nobody_serves_earlier(message.generation)

    def check_nobody_serves_earlier(self, generation):
        """No machine can still apply a clock of an older generation: between processes, shards share one memory."""
        late = [name for name, machine in self.machines.items() if machine.served and machine.generation < generation]
        assert not late, f"{late} may still write parameters of a generation before {generation}"

    def run_machine(self, machine):
        message, before = self.inboxes[machine][0], len(self.outboxes[machine])
        super().run_machine(machine)
        self.replied.setdefault(machine, []).extend(list(self.outboxes[machine])[before:])
        if isinstance(message, Compute) and self.on_computed is not None:
            self.on_computed(message)


class World:
    """The cluster, the oracle, and the comparisons between them."""

    def __init__(self, *, num_partitions=2, num_shards=2, staleness=0, sync_every=2, checkpoint_every=4, replay_mb=0.0):
        self.application = CountingApplication(num_partitions, 5)
        self.transport = Recording(self.application)
        self.transport.on_compute, self.transport.on_computed = self._note_compute, self._note_computed
        self.policy = Wish()
        self.staleness, self.num_shards, self.replay_mb = staleness, num_shards, replay_mb
        self.era = self.noted = 0
        self.eras = {}
        self.noted_calls = 0
        self.kept_alive = []
        self.confirmed = {}
        self.log = Log(self.application.initial_parameters(), num_partitions)
        self.count = 0
        options = ClusterOptions(
            num_shards=num_shards,
            staleness=staleness,
            sync_every=sync_every,
            checkpoint_every=checkpoint_every,
            policy=self.policy,
            replay_mb=replay_mb,
        )
        self.controller = Controller(self.transport, self.application, Sgd(learning_rate=1.0), options)
        for shard in range(num_shards):
            self.confirmed[STORAGE, shard] = {0}
            self.transport.run_machine(STORAGE)  # durable from the start

    # -- possible events ----------------------------------------------------------------------------------------------

    def add(self, tier, count=1):
        names = [f"{tier}-{self.count + i}" for i in range(count)]
        self.count += count
        self.controller.add(**{tier: names})
        self.check()

    def evict(self, machine):
        self.controller.evict([machine])
        self.check()

    def kill(self, machine):
        """Remove a machine; the controller has not received the message about it yet."""
        self.transport.kill(machine)

    def _note_death(self, machine):
        """Let the oracle determine the state that remains, before the controller learns of a machine's death."""
        if machine not in (*self.controller.machines.staying, *self.controller.machines.leaving):
            return
        roles = self.controller.roles
        takes_state = machine in roles.servers or self.controller.phase is Phase.REBUILDING
        members = (*self.controller.machines.staying, *self.controller.machines.leaving)
        others = [name for name in roles.workers if name != machine and name in members]
        takes_state = takes_state or not others  # without workers, everything is assigned again
        self.confirmed = {key: clocks for key, clocks in self.confirmed.items() if key[0] != machine}
        if takes_state:
            clock = self.last_common_clock()
            self.log.roll_back(self.log.complete if self.replay_mb else clock)
            self.confirmed = {key: {at for at in clocks if at <= clock} for key, clocks in self.confirmed.items()}
            self.era += 1

    def last_common_clock(self):
        """The last clock of which every shard has a confirmed copy on a machine that is thought to live."""
        common = None
        members = (*self.controller.machines.staying, *self.controller.machines.leaving, STORAGE)
        for shard in range(self.num_shards):
            clocks = set()
            for (holder, index), confirmed in self.confirmed.items():
                if index != shard or holder not in members:
                    continue
                if holder not in self.transport.machines:  # dead, but not yet detected
                    clocks |= confirmed
                elif shard in self.transport.machines[holder].copies:
                    clocks |= confirmed & set(self.transport.machines[holder].copies[shard])
            common = clocks if common is None else common & clocks
        return max(common)

    def wish(self, stage):
        self.policy.wanted = stage
        self.controller.reconsider()
        self.check()

    def sync(self, shard):
        """Ask one server for a copy when no checkpoint is due."""
        servers = self.controller.roles.servers
        if servers and self.controller.phase in (Phase.RUNNING, Phase.DRAINING):
            clock, generation = self.controller.flow.read_clock, self.controller.generation
            self.transport.send(servers[shard], Read(generation=generation, shard=shard, clock=clock))

    def run_machine(self, machine):
        """Let a machine process its next message."""
        self.transport.run_machine(machine)
        self._check_machine(machine)

    def take(self, machine):
        """Let the controller process the next message of a machine."""
        self._receive(self.transport.outboxes[machine].popleft())

    def repeat_to_machine(self, machine, index):
        history = self.transport.sent.get(machine, [])
        if history and machine in self.transport.inboxes:
            self.transport.inboxes[machine].append(history[index % len(history)])

    def repeat_to_controller(self, machine, index):
        history = self.transport.replied.get(machine, [])
        if history:
            self._receive(history[index % len(history)])

    def lose_replies(self, machine):
        """Lose the messages of a dead machine."""
        if machine not in self.transport.machines:
            outbox = self.transport.outboxes[machine]
            news = [message for message in outbox if isinstance(message, Lost)]
            outbox.clear()
            outbox.extend(news)

    @property
    def busy(self):
        """Links that hold messages, as (whether towards the controller, machine)."""
        inward = [(False, name) for name, inbox in self.transport.inboxes.items() if inbox]
        return inward + [(True, name) for name, outbox in self.transport.outboxes.items() if outbox]

    def deliver(self, link):
        is_reply, machine = link
        (self.take if is_reply else self.run_machine)(machine)

    def run(self, count, rng):
        """Deliver a number of messages, each from a link drawn at random."""
        for _ in range(count):
            links = self.busy
            if not links:
                return
            self.deliver(links[rng.integers(len(links))])
        self.check()

    def settle(self, rng):
        """Continue until two more clocks are complete; a cluster with machines always makes progress."""
        if not self.controller.machines.staying and not self.controller.machines.joining:
            return
        target = self.log.complete + 2
        for _ in range(PATIENCE):
            if self.log.complete >= target:
                self.check()
                return
            links = self.busy
            if not links and not self.controller.machines.staying and not self.controller.machines.joining:
                return  # the last machine has died
            assert links, f"no message is under way in phase {self.controller.phase}, at {self.log.complete} clocks"
            self.deliver(links[rng.integers(len(links))])
        raise AssertionError(f"stuck in phase {self.controller.phase} at {self.log.complete} clocks")

    # -- invariants ---------------------------------------------------------------------------------------------------

    def check(self):
        flow = self.controller.flow
        assert self.controller.phase in (Phase.REBUILDING, Phase.STOPPED) or flow.completed.tolist() == [
            self.log.pushed(p) for p in range(self.log.num_partitions)
        ]
        pushed = [self.log.pushed(partition) for partition in range(self.log.num_partitions)]
        assert max(pushed) - min(pushed) <= self.staleness + 1
        for name in self.transport.machines:
            self._check_machine(name)

    def _check_machine(self, name):
        """The parameters that a machine serves and stores follow from the log."""
        machine, generation = self.transport.machines[name], self.controller.generation
        for shard, served in machine.served.items():
            if served.generation == generation:
                values = served.values()
                self._compare(shard, values.clock, values.parameters, f"served by {name}")
        if machine.generation == generation:
            for shard, copies in machine.copies.items():
                for clock, values in copies.items():
                    self._compare(shard, clock, values.parameters, f"copied by {name}")

    def _compare(self, shard, clock, parameters, where):
        assert clock <= self.log.complete, f"clock {clock} {where}, {self.log.complete} are complete"
        expected = self.log.parameters(clock)[self.controller.flow.ranges[shard]]
        assert np.array_equal(parameters, expected), f"shard {shard} at clock {clock} {where}"

    def _note_compute(self, message):
        self.kept_alive.append(message)
        self.eras[id(message)] = self.era

    def _note_computed(self, message):
        """A machine has received an order to compute, perhaps its last one before it is returned."""
        if self.application.calls == self.noted_calls:
            return  # the order was too old to be followed
        self.noted_calls = self.application.calls
        self.eras[self.application.calls] = self.eras[id(message)]
        if self.eras[id(message)] == self.era:
            self._check_view(message)

    def _check_view(self, message):
        """A worker sees all complete clocks that it must, and its own gradients."""
        partition, clock, view = self.application.views[-1]
        assert message.read_clock >= clock - self.staleness
        expected = self.log.parameters(message.read_clock)
        for at in range(message.read_clock, clock):
            expected -= self.log.updates[at][partition] / self.log.num_partitions
        assert np.array_equal(view, expected), f"partition {partition} at clock {clock} saw other parameters"

    def _receive(self, message):
        if isinstance(message, Pushed):
            is_of_now = self.eras[int(message.loss)] == self.era
            if is_of_now and message.clock == self.log.pushed(message.partition):
                self.log.push(message.partition, message.clock, message.gradient)
        if isinstance(message, Lost):
            self._note_death(message.machine)
            self.controller.receive(message)
            self.check()
            return
        members = (*self.controller.machines.staying, *self.controller.machines.leaving, STORAGE)
        is_news = isinstance(message, Kept) and message.generation == self.controller.generation
        if is_news and message.holder in members:
            self.confirmed.setdefault((message.holder, message.shard), set()).add(message.clock)
        self.controller.receive(message)
