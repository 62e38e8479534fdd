"""A single machine: its stored state, its answers, and its messages after errors."""

import sys
import warnings

import numpy as np

from optim.core.user_code import MAX_TEXT
from optim.kernels.parameter_server import Sgd
from optim.training.applications import LogisticRegression
from optim.training.machine import Machine
from optim.training.messages import (
    Compute,
    Copy,
    Failed,
    Host,
    Keep,
    Kept,
    Opened,
    Push,
    Read,
    ShardValues,
)

JOB = LogisticRegression(num_observations=8, num_features=2, num_classes=2, num_partitions=2)


def values(shard=0, clock=3):
    return ShardValues(shard, clock, np.full(4, shard + clock, np.float32), ())


def host(machine, shard, clock=3, generation=1):
    order = Host(
        generation=generation,
        values=values(shard, clock),
        optimiser=Sgd(learning_rate=0.1),
        num_partitions=2,
        sync_every=9,
    )
    return machine.handle(order)


def test_what_is_dropped_is_served_and_kept_no_more():
    machine = Machine("m", JOB)
    for shard in range(3):
        (served,) = host(machine, shard)
        assert (served.generation, served.shard, served.clock) == (1, shard, 3)
        assert np.array_equal(served.parameters, values(shard).parameters)
        assert machine.handle(Copy(generation=1, values=values(shard))) == [
            Kept(generation=1, shard=shard, clock=3, holder="m")
        ]
    assert machine.handle(Keep(generation=1, shards=(1,), copies=(0, 2))) == []
    assert set(machine.served) == {1}
    assert set(machine.copies) == {0, 2}
    late = Push(generation=1, shard=0, partition=0, clock=3, gradient=np.ones(4, np.float32), weight=1.0)
    assert machine.handle(late) == []


def test_a_copy_is_read_before_what_is_served_and_only_at_its_clock():
    machine = Machine("m", JOB)
    host(machine, 0, clock=4)
    machine.handle(Copy(generation=1, values=values(0, 3)))
    (of_copy,) = machine.handle(Read(generation=1, shard=0, clock=3))
    (of_served,) = machine.handle(Read(generation=1, shard=0, clock=4))
    assert (of_copy.values.clock, of_served.values.clock) == (3, 4)
    assert machine.handle(Read(generation=1, shard=0, clock=5)) == []
    assert machine.handle(Read(generation=1, shard=1, clock=4)) == []


def test_a_shard_is_hosted_once_a_generation():
    machine = Machine("m", JOB)
    host(machine, 0, clock=3, generation=2)
    # Hosted again in the same generation, it keeps the updates applied since.
    (served,) = host(machine, 0, clock=7, generation=2)
    assert (served.clock, machine.served[0].clock) == (3, 3)
    host(machine, 0, clock=7, generation=3)
    assert machine.served[0].clock == 7


def test_copies_of_a_future_that_will_not_be_are_forgotten_and_old_ones_trimmed():
    machine = Machine("m", JOB)
    for clock in (2, 4, 6):
        machine.handle(Copy(generation=1, values=values(0, clock)))
    machine.handle(Copy(generation=1, values=values(1, 6)))
    back = Keep(generation=2, last=4)
    assert machine.handle(back) == [Opened(generation=2, machine="m")]
    assert list(machine.copies[0]) == [2, 4]
    assert not machine.copies[1]
    machine.handle(Copy(generation=2, values=values(0, 5)))
    machine.handle(back)
    assert list(machine.copies[0]) == [2, 4, 5], "repeated, it accepts no message of its generation"
    machine.handle(Keep(generation=2, first=4))
    assert list(machine.copies[0]) == [4, 5]


def test_messages_of_an_older_generation_are_worth_nothing():
    machine = Machine("m", JOB)
    host(machine, 0, generation=5)
    assert machine.handle(Read(generation=4, shard=0, clock=3)) == []
    assert len(machine.handle(Read(generation=5, shard=0, clock=3))) == 1


class Wrong(LogisticRegression):
    """An application that fails with a long text of two lines."""

    def gradient(self, parameters, partition, clock):
        raise ArithmeticError("first\n second " + "x" * 500)


def test_a_failure_is_one_short_line_that_names_where_it_was():
    order = Compute(generation=2, partition=0, clock=0, read_clock=0, parameters=JOB.initial_parameters())
    (failed,) = Machine("m", Wrong(num_observations=8, num_partitions=2)).handle(order)
    assert isinstance(failed, Failed)
    assert (failed.machine, failed.generation) == ("m", 2)
    assert failed.text.startswith("ArithmeticError: first second xxx")
    assert "(test_machine.py:" in failed.text
    assert failed.text.endswith(" in gradient)")
    assert "\n" not in failed.text
    assert len(failed.text) < MAX_TEXT + 100


class Leaves(LogisticRegression):
    """An application that calls `sys.exit`, or whose numbers overflow."""

    rate = 0.0

    def gradient(self, parameters, partition, clock):
        if self.rate:
            return parameters * np.float32(1e30) * np.float32(1e30), 0.0
        sys.exit("no data")


def test_code_that_would_end_the_process_is_told_like_any_failure():
    order = Compute(generation=2, partition=0, clock=0, read_clock=0, parameters=JOB.initial_parameters())
    (failed,) = Machine("m", Leaves(num_observations=8, num_partitions=2)).handle(order)
    assert failed.text.startswith("SystemExit: no data (test_machine.py:")


def test_what_is_told_as_not_finite_is_not_warned_of_besides():
    class Overflows(Leaves):
        rate = 1.0

    order = Compute(generation=2, partition=0, clock=0, read_clock=0, parameters=JOB.initial_parameters() + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (pushed,) = Machine("m", Overflows(num_observations=8, num_features=2, num_classes=2, num_partitions=2)).handle(
            order
        )
    assert not pushed.is_finite
