"""Machines join, leave and die while messages are late, repeated and lost: no update is lost, none counts twice."""

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from optim.training.stages import Stage
from tests.support.training.world import World

STEPS = 40

number = st.integers(0, 2**20)


class ElasticTraining(RuleBasedStateMachine):
    """The rules; everything is compared with the oracle after each step."""

    world: World

    @initialize(
        num_partitions=st.sampled_from([1, 2, 4]),
        num_shards=st.sampled_from([1, 2]),
        staleness=st.sampled_from([0, 0, 1, 3]),
        sync_every=st.integers(1, 3),
        checkpoint_every=st.integers(1, 5),
        reliable=st.integers(1, 3),
        transient=st.integers(0, 3),
        stage=st.sampled_from(list(Stage)),
        replay_mb=st.sampled_from([0.0, 1.0]),
    )
    def begin(self, reliable, transient, stage, **options):
        self.world = World(**options)
        self.world.policy.wanted = stage
        self.world.add("reliable", reliable)
        if transient:
            self.world.add("transient", transient)
        self.world.run(transient + reliable, np.random.default_rng(0))

    @rule(seed=number, count=st.integers(1, 60))
    def push_pull_and_clock(self, seed, count):
        self.world.run(count, np.random.default_rng(seed))

    @rule(choice=number)
    def deliver(self, choice):
        links = self.world.busy
        if links:
            self.world.deliver(links[choice % len(links)])

    @precondition(lambda self: len(self.world.transport.machines) < 9)
    @rule(tier=st.sampled_from(["reliable", "transient", "transient"]), count=st.integers(1, 3))
    def add(self, tier, count):
        self.world.add(tier, count)

    @precondition(lambda self: self.world.controller.machines.staying)
    @rule(choice=number)
    def evict(self, choice):
        machines = self.world.controller.machines.staying
        self.world.evict(machines[choice % len(machines)])

    @precondition(lambda self: self.world.controller.machines.staying)
    @rule(choice=number)
    def kill(self, choice):
        machines = (*self.world.controller.machines.staying, *self.world.controller.machines.joining)
        self.world.kill(machines[choice % len(machines)])

    @rule(choice=number)
    def sync(self, choice):
        self.world.sync(choice % self.world.num_shards)

    @rule(stage=st.sampled_from(list(Stage)))
    def migrate(self, stage):
        self.world.wish(stage)

    @rule(choice=number, index=number)
    def repeat_to_machine(self, choice, index):
        names = sorted(self.world.transport.machines)
        self.world.repeat_to_machine(names[choice % len(names)], index)

    @rule(choice=number, index=number)
    def repeat_to_controller(self, choice, index):
        names = sorted(self.world.transport.outboxes)
        self.world.repeat_to_controller(names[choice % len(names)], index)

    @rule(choice=number)
    def lose_replies_of_the_dead(self, choice):
        names = sorted(self.world.transport.outboxes)
        self.world.lose_replies(names[choice % len(names)])

    @rule(seed=number)
    def settle(self, seed):
        self.world.settle(np.random.default_rng(seed))

    def teardown(self):
        if hasattr(self, "world"):
            self.world.settle(np.random.default_rng(0))


TestElasticTraining = ElasticTraining.TestCase
TestElasticTraining.settings = settings(stateful_step_count=STEPS, suppress_health_check=[HealthCheck.too_slow])
