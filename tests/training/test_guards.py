"""The state machine detects the fault that each guard prevents: each guard is removed once."""

import pytest
from msgspec import structs

from optim.training.controller import Controller, Membership, ReplicaCatalog
from optim.training.dataflow import Dataflow
from optim.training.machine import Machine
from optim.training.server import ServedShard
from tests.support.training.adversary import storm

MOST_STORMS = 200


def add_whatever_arrives(self, push, take=ServedShard.push):
    clock = max(push.clock, self.clock)
    number = len(self._pending.get(clock, {}))
    return take(self, structs.replace(push, clock=clock, partition=number))


def newest_copy_of_any_shard(self):
    return max(clock for _, _, clock in self._copies)


def keep_the_clocks(self, clock, parts, reset=Dataflow.reset):
    before = self.completed.copy()
    reset(self, clock, parts)
    self.completed[:] = before


def host_again(self, message, handle=Machine._host):
    self.served.pop(message.values.shard, None)
    return handle(self, message)


def overwrite(self, values):
    self.copies[values.shard] = {values.clock: values}


def blind_to_own(self, partition, generation, compute=Dataflow.compute):
    return structs.replace(compute(self, partition, generation), unapplied=())


GUARDS = {
    "a server takes a partition once a clock": [(ServedShard, "push", add_whatever_arrives)],
    "a server waits for all partitions": [
        (ServedShard, "_is_complete", lambda self, clock: len(self._pending.get(clock, {})) > 0)
    ],
    "a machine ignores older generations": [(Machine, "_is_stale", lambda self, message: False)],
    "the controller ignores older generations": [(Controller, "_is_stale", lambda self, message: False)],
    "the controller takes a gradient once": [(Dataflow, "is_next", lambda self, message: True)],
    "all shards go back to a clock that all copies hold": [
        (ReplicaCatalog, "recovery_clock", newest_copy_of_any_shard)
    ],
    "every partition goes back with the shards": [(Dataflow, "reset", keep_the_clocks)],
    "a backup keeps the clocks before its newest": [(Machine, "_add_copy", overwrite)],
    "copies of an undone future are forgotten": [(Machine, "_forget_after", lambda self, clock: None)],
    "a shard is hosted once a generation": [(Machine, "_host", host_again)],
    "a lost worker's partitions are handed over at once": [(Controller, "_hand_over", lambda self, machine: None)],
    "a change waits for a boundary": [(Dataflow, "is_settled_at", lambda self, clock: True)],
    "the last words of the dead count for nothing": [(Membership, "is_alive", lambda self, machine: True)],
    "a worker sees all complete clocks that it must": [(Dataflow, "_sees_enough", lambda self, clock: True)],
    "a worker sees its own gradients": [(Dataflow, "compute", blind_to_own)],
}


FOUND_FROM = {
    "a server takes a partition once a clock": 9,
    "a machine ignores older generations": 4,
    "the controller ignores older generations": 34,
    "the controller takes a gradient once": 3,
    "copies of an undone future are forgotten": 50,
    "a lost worker's partitions are handed over at once": 7,
    "a change waits for a boundary": 1,
    "the last words of the dead count for nothing": 1,
}
"""The first sequence that reveals a guard's absence; it is tried first, and then all the others."""


@pytest.mark.parametrize("guard", GUARDS)
def test_finds_the_fault_when_a_guard_is_removed(guard, monkeypatch):
    for change in GUARDS[guard]:
        monkeypatch.setattr(*change)
    first = FOUND_FROM.get(guard, 0)
    # A wrong number, a standstill, or a request that is impossible.
    with pytest.raises((AssertionError, LookupError, ValueError, TypeError, RuntimeError)):
        play((first + seed) % MOST_STORMS for seed in range(MOST_STORMS))


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, MOST_STORMS), marks=pytest.mark.prove)])
def test_finds_no_fault_with_all_guards_in_place(seeds):
    play(seeds)


def play(seeds):
    for seed in seeds:
        storm(seed)
