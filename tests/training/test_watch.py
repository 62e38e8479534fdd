"""Machines without a sign of life are detected, and no other machine is declared dead."""

from optim.training.processes import HeartbeatMonitor


class Hand:
    """A clock in the test's hand."""

    now = 0.0

    def __call__(self):
        return self.now


def look(watch, clock, seconds, beats):
    """Check every quarter of a second for a given time; return the silent machines."""
    found = []
    for _ in range(round(seconds * 4)):
        clock.now += 0.25
        found += watch.silent(dict(beats))
    return found


def test_a_count_that_stands_still_for_too_long_is_silence():
    clock = Hand()
    watch = HeartbeatMonitor(2.0, 10.0, clock)
    for machine in ("beats", "stopped"):
        watch.expect(machine)
        watch.arrive(machine, 0)
    assert look(watch, clock, 1.0, {"beats": 1, "stopped": 1}) == []
    # Its last sign of life was a quarter of a second in.
    assert look(watch, clock, 1.25, {"beats": 2, "stopped": 1}) == []
    assert look(watch, clock, 0.25, {"beats": 3, "stopped": 1}) == ["stopped"]
    assert look(watch, clock, 1.0, {"beats": 4, "stopped": 1}) == [], "reported once"
    assert watch.reason("stopped") == "without a sign of life for 2 s"
    watch.forget("stopped")
    assert watch.reason("stopped") is watch.reason("beats") is None


def test_a_machine_that_is_starting_has_its_own_time():
    clock = Hand()
    watch = HeartbeatMonitor(2.0, 10.0, clock)
    watch.expect("new")
    assert look(watch, clock, 9.75, {"new": 7}) == [], "a count before it is ready is of the place's last machine"
    assert look(watch, clock, 0.5, {"new": 7}) == ["new"]


def test_a_controller_that_was_stopped_itself_takes_nobody_for_dead():
    clock = Hand()
    watch = HeartbeatMonitor(2.0, 10.0, clock)
    watch.expect("a")
    watch.arrive("a", 3)
    clock.now += 3600.0
    assert watch.silent({"a": 3}) == []
    assert watch.silent({"a": 4}) == []
