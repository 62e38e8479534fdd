"""A run's clock and its slowdown: equal in all processes, and paused while processes start."""

import math
import pickle
import tempfile
import threading
import time
from pathlib import Path

import pytest

from optim.simulation.emulation import job_run
from optim.simulation.emulation.job_run import SharedClock, SharedSlowdown


class World:
    """The module `time`, in which only sleeps advance the clock."""

    def __init__(self):
        self.now, self.naps, self.on_nap = 1000.0, [], lambda: None

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds
        self.on_nap()


@pytest.fixture
def world(monkeypatch):
    """A replacement of the module `time`, which the test controls."""
    found = World()
    monkeypatch.setattr(job_run, "time", found)
    return found


@pytest.fixture
def clock(world):
    """A new clock, driven by `world`."""
    found = SharedClock()
    yield found
    found.close()


def test_a_clock_is_held_at_zero_until_it_is_let_go(world, clock):
    world.now += 7.0
    assert (clock.monotonic(), clock.paused_s) == (0.0, 0.0)
    clock.resume()
    assert (clock.monotonic(), clock.paused_s) == (0.0, 7.0)
    world.now += 2.5
    assert clock.monotonic() == 2.5


def test_what_it_is_held_for_is_none_of_its_seconds(world, clock):
    clock.resume()
    for _ in range(2):
        world.now += 4.0
        clock.pause()
        held_at = clock.monotonic()
        world.now += 3.0
        assert clock.monotonic() == held_at
        clock.resume()
    world.now += 1.0
    assert (clock.monotonic(), clock.paused_s) == (9.0, 6.0)


def test_all_who_have_it_see_the_same_time(world, clock):
    there = pickle.loads(pickle.dumps(clock))
    clock.resume()
    world.now += 5.0
    assert there.monotonic() == 5.0
    clock.pause()
    world.now += 5.0
    assert there.monotonic() == 5.0


def test_who_sleeps_while_it_is_held_sleeps_on_until_its_seconds_are_over(world, clock):
    clock.resume()

    def on_nap():
        if len(world.naps) == 1:  # the clock pauses after half of the nap, which then continues
            world.now -= 5.0
            clock.pause()
            world.now += 5.0
        elif len(world.naps) == 4:
            clock.resume()

    world.on_nap = on_nap
    clock.sleep(10.0)
    look = job_run.LOOK_S
    assert world.naps == [10.0, look, look, look, pytest.approx(5.0)]
    assert clock.monotonic() == pytest.approx(10.0)
    assert clock.paused_s == pytest.approx(5.0 + 3 * look)


def test_no_seconds_are_slept_at_once_even_while_it_is_held(world, clock):
    clock.sleep(0.0)
    assert world.naps == []


def test_a_sleeper_in_another_thread_waits_for_the_clock():
    clock, ended = SharedClock(), threading.Event()
    try:
        sleeper = threading.Thread(target=lambda: (clock.sleep(0.01), ended.set()), daemon=True)
        sleeper.start()
        assert not ended.wait(0.1)
        clock.resume()
        assert ended.wait(30.0)
        sleeper.join()
        assert clock.monotonic() >= 0.01
        assert clock.paused_s >= 0.1
    finally:
        clock.close()


def test_a_clock_tells_the_worlds_seconds_where_nobody_replaced_them():
    clock = SharedClock()
    try:
        clock.resume()
        before = time.monotonic() - clock.monotonic()
        time.sleep(0.01)
        assert math.isclose(time.monotonic() - clock.monotonic(), before, abs_tol=1e-3)
    finally:
        clock.close()


def test_a_clock_needs_no_folder_that_can_be_written_to_and_leaves_nothing_there(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clock = SharedClock()
    clock.resume()
    assert list(tmp_path.iterdir()) == []
    clock.close()


def test_a_pace_that_nobody_has_leaves_no_file_and_one_that_was_handed_over_leaves_it_to_its_owner():
    slowdown = SharedSlowdown()
    path, there = Path(slowdown.path), pickle.loads(pickle.dumps(slowdown))
    there.read()
    del there
    assert path.exists()
    del slowdown
    assert not path.exists()


def test_a_pace_that_is_written_is_read_in_other_processes():
    slowdown = SharedSlowdown()
    try:
        there = pickle.loads(pickle.dumps(slowdown))
        assert there.read() == 1.0
        slowdown.write(1.25)
        assert there.read() == 1.25
    finally:
        slowdown.close()
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickle.dumps(slowdown)).read()
