"""Machines within this process: messages to a removed machine are lost, and its name is free again."""

import numpy as np
import pytest

from optim.core.errors import NotAllowedError
from optim.training.messages import Compute, Pushed, Ready
from optim.training.transport import InProcess, Lost
from tests.support.training.oracle import CountingApplication

WORK = Compute(generation=0, partition=0, clock=0, read_clock=0, parameters=np.zeros(1, np.float32))


def heard(transport):
    """Return all that arrives at the controller."""
    return list(iter(transport.receive, None))


@pytest.fixture
def transport():
    """One machine, m, that has reported that it is ready."""
    found = InProcess(CountingApplication(1, 1))
    found.start("m")
    assert [type(message) for message in heard(found)] == [Ready]
    return found


def test_a_machine_given_back_does_what_it_was_sent_before_and_nothing_after(transport):
    transport.send("m", WORK)
    transport.stop("m")
    transport.send("m", WORK)
    assert [type(message) for message in heard(transport)] == [Pushed]


def test_a_machine_taken_away_does_nothing_more_and_is_reported_once(transport):
    transport.send("m", WORK)
    transport.kill("m")
    transport.kill("m")
    transport.send("m", WORK)
    assert [type(message) for message in heard(transport)] == [Lost]


@pytest.mark.parametrize("end", [InProcess.stop, InProcess.kill])
def test_a_name_is_free_once_its_machine_is_gone(transport, end):
    with pytest.raises(NotAllowedError, match="a machine named 'm' exists already"):
        transport.start("m")
    end(transport, "m")
    transport.start("m")
    assert heard(transport)[-1] == Ready(machine="m")
