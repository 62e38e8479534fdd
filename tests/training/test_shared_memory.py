"""Long vectors are in shared memory while their messages are in transit: no two vectors share a row, and bits don't change."""

import itertools
import os

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.training import processes
from optim.training.messages import Applied, Compute, Push, Pushed, Ready
from optim.training.processes import LINE_BYTES, MemoryPlan, SharedMemory

RANGES = ((0, 2), (2, 6))
PLAN = MemoryPlan(ranges=RANGES, num_partitions=3, depth=2, max_machines=4)


@pytest.fixture
def ends():
    """The controller's end and a machine's, which map one file."""
    controller = SharedMemory(PLAN)
    machine = SharedMemory(PLAN, Duplicate(os.dup(controller.descriptor)))
    yield controller, machine
    controller.close()
    machine.close()


class Duplicate:
    """A file as it arrives in a machine's process."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def detach(self):
        return self._descriptor


def vector(*numbers):
    return np.array(numbers, dtype=np.float32)


def pushed(partition, clock, gradient, rows=None, generation=1):
    return Pushed(
        generation=generation, machine="m", partition=partition, clock=clock, gradient=gradient, rows=rows, weight=1.0, loss=0.5
    )  # fmt: skip


def push(partition, clock, shard, gradient, rows=None):
    return Push(
        generation=1, shard=shard, partition=partition, clock=clock, gradient=gradient, rows=rows, weight=1.0
    )  # fmt: skip


def serve(machine, controller, clock, *shards):
    """Have servers apply a clock; return the parts as the controller sees them."""
    applied = [Applied(generation=1, shard=k, clock=clock, parameters=part) for k, part in enumerate(shards)]
    return [controller.arrived(machine.from_machine(message, place=k)) for k, message in enumerate(applied)]


def test_every_row_that_may_be_in_use_at_once_is_another():
    clocks = range(7, 7 + PLAN.depth)
    rows = [PLAN.published(clock) for clock in clocks]
    for place, clock in itertools.product(range(PLAN.max_machines), clocks):
        rows += [PLAN.gradient(place, partition, clock) for partition in range(PLAN.num_partitions)]
    assert sorted(rows) == list(range(PLAN.num_rows))
    assert PLAN.rows_at >= 8 * PLAN.max_machines
    assert PLAN.rows_at % LINE_BYTES == 0
    assert PLAN.num_bytes == PLAN.rows_at + PLAN.num_rows * 6 * 4


def test_parameters_come_to_the_machine_without_travelling(ends):
    controller, machine = ends
    serve(machine, controller, 3, vector(1, 2), vector(3, 4, 5, 6))
    order = Compute(generation=1, partition=0, clock=3, read_clock=3, parameters=vector())
    travelling = controller.to_machine(order)
    assert len(travelling.message.parameters) == 0
    assert machine.arrived(travelling).parameters.tolist() == [1, 2, 3, 4, 5, 6]
    serve(machine, controller, 4, vector(9, 8), vector(7, 6, 5, 4))
    other = Compute(generation=1, partition=1, clock=4, read_clock=4, parameters=vector())
    assert machine.arrived(controller.to_machine(other)).parameters.tolist() == [9, 8, 7, 6, 5, 4]
    assert machine.arrived(travelling).parameters.tolist() == [1, 2, 3, 4, 5, 6], "the clock before is still read"


def test_a_gradient_comes_to_the_controller_and_its_parts_to_the_servers(ends):
    controller, machine = ends
    travelling = machine.from_machine(pushed(2, 5, vector(1, 2, 3, 4, 5, 6)), place=3)
    assert len(travelling.message.gradient) == 0
    whole = controller.arrived(travelling)
    assert (whole.partition, whole.gradient.tolist()) == (2, [1, 2, 3, 4, 5, 6])
    for shard, (start, stop) in enumerate(RANGES):
        part = controller.to_machine(push(2, 5, shard, whole.gradient[start:stop]))
        assert len(part.message.gradient) == 0
        assert machine.arrived(part).gradient.tolist() == whole.gradient[start:stop].tolist()


def test_a_gradient_by_rows_is_cut_where_its_rows_are(ends):
    controller, machine = ends
    rows = np.array([0, 2], dtype=np.int32)
    whole = controller.arrived(machine.from_machine(pushed(0, 0, vector(1, 2, 5, 6), rows), place=0))
    assert whole.gradient.tolist() == [1, 2, 5, 6]
    part = controller.to_machine(push(0, 0, 1, whole.gradient[2:], rows[1:]))
    assert machine.arrived(part).gradient.tolist() == [5, 6]


def test_of_a_gradient_computed_twice_the_last_is_pushed_on(ends):
    controller, machine = ends
    for place, number in ((0, 1.0), (2, 7.0)):
        last = controller.arrived(machine.from_machine(pushed(1, 4, vector(*[number] * 6)), place))
    travelling = controller.to_machine(push(1, 4, 0, last.gradient[:2]))
    assert len(travelling.message.gradient) == 0
    assert machine.arrived(travelling).gradient.tolist() == [7, 7]


def test_parameters_lie_there_once_for_their_server_the_controller_and_the_workers(ends):
    controller, machine = ends
    parts = serve(machine, controller, 2, vector(1, 2), vector(3, 4, 5, 6))
    assert [part.parameters.tolist() for part in parts] == [[1, 2], [3, 4, 5, 6]]
    order = Compute(generation=1, partition=0, clock=2, read_clock=2, parameters=vector())
    read = machine.arrived(controller.to_machine(order)).parameters
    parts[1].parameters[0] = 9.0
    assert read.tolist() == [1, 2, 9, 4, 5, 6], "none of the three has a copy"


def test_a_push_that_is_replayed_travels_whole(ends):
    controller, machine = ends
    first = controller.arrived(machine.from_machine(pushed(2, 5, vector(1, 2, 3, 4, 5, 6)), place=3))
    again = Push(generation=2, shard=0, partition=2, clock=5, gradient=first.gradient[:2].copy(), weight=1.0)
    machine.from_machine(pushed(2, 7, vector(0, 0, 0, 0, 0, 0)), place=3)  # writes the same row
    assert machine.arrived(controller.to_machine(again)).gradient.tolist() == [1, 2]


def test_short_messages_travel_as_they_are(ends):
    controller, machine = ends
    ready = Ready(machine="m")
    assert controller.arrived(machine.from_machine(ready, place=0)) is ready
    assert machine.arrived(controller.to_machine(ready)) is ready


def test_memory_that_no_system_gives_is_refused():
    before = os.listdir("/proc/self/fd")
    with pytest.raises(InvalidOptionError, match="no shared memory of"):
        SharedMemory(MemoryPlan(ranges=((0, 1 << 58),), num_partitions=3, depth=2, max_machines=4))
    assert os.listdir("/proc/self/fd") == before, "its file is closed"


def test_a_system_without_such_files_is_told(monkeypatch):
    def refuse(name):
        raise OSError(38, f"no memory under the name of {name}")

    monkeypatch.setattr(processes.os, "memfd_create", refuse)
    with pytest.raises(InvalidOptionError, match="no memory under the name of optim-training; ask for fewer"):
        SharedMemory(PLAN)
