"""Tests of the heartbeat monitor: time without heartbeats, and machines that are killed because of it."""

import time

from optim.training.processes import Processes, Pulse
from optim.training.stages import ClusterOptions
from tests.support.training.oracle import CountingApplication


def test_silence_lasts_from_the_look_that_saw_the_count_change_last():
    pulse = Pulse(is_ready=True)
    seen = []
    for count in (1, 1, 1, 2, 2):
        pulse.look(count, 0.25)
        seen.append(pulse.silent_s)
    assert seen == [0.0, 0.25, 0.5, 0.0, 0.25]


def test_a_machine_that_is_starting_is_silent_whatever_its_place_has_counted():
    pulse = Pulse()
    for count in (7, 8):
        pulse.look(count, 0.25)
    assert (pulse.count, pulse.silent_s) == (-1, 0.5)
    pulse.is_ready = True
    pulse.look(0, 0.25)
    assert (pulse.count, pulse.silent_s) == (0, 0.0), "its time to start counts no longer"


class Stuck(CountingApplication):
    """An application that a machine never receives, since unpickling it never ends."""

    def __reduce__(self):
        return time.sleep, (600,)


def test_a_machine_that_never_gets_ready_is_killed_with_the_cause():
    with Processes(Stuck(1, 1), ClusterOptions(silence_s=0.2, start_s=0.3)) as transport:
        transport.start("a")
        lost = transport.receive(60)
        assert (lost.machine, lost.reason) == ("a", "without a heartbeat for 0.3 s")
        assert transport.process_ids == {}
