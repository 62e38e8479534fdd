"""Racing: sides take turns, and slow ones leave."""

import pytest

from optim.benchmarks.measuring import MIN_ROUNDS, SIDE_S, medians, race
from optim.core.progress import SilentProgress
from optim.core.stopping import IterationLimit, Never


@pytest.fixture
def lasting(monkeypatch):
    """Make sides that take so many seconds of a clock of their own."""
    now = [0.0]
    monkeypatch.setattr("optim.benchmarks.measuring.time.perf_counter", lambda: now[0])

    def side(seconds):
        def call():
            now[0] += seconds

        return call

    return side


def test_a_slow_side_leaves_the_race_and_the_others_go_on(lasting):
    calls = {"ours": lasting(SIDE_S), "slow": lasting(SIDE_S), "fast": lasting(1e-3)}
    times = race(calls, 6, Never(), SilentProgress(), always=("ours",))
    assert {name: len(taken) for name, taken in times.items()} == {"ours": 6, "slow": MIN_ROUNDS, "fast": 6}
    assert medians(times)["slow"] == pytest.approx(SIDE_S)


def test_a_race_of_slow_sides_alone_is_over_once_they_have_taken_their_time(lasting):
    times = race({"only": lasting(1.0)}, 50, Never(), SilentProgress(), side_s=4.5)
    assert len(times["only"]) == 5


def test_a_race_ends_when_it_is_told_to(lasting):
    times = race({"only": lasting(1e-3)}, 50, IterationLimit(3), SilentProgress())
    assert len(times["only"]) == 4


def test_medians_are_of_the_wall_clock_or_of_the_processor():
    times = {"a": [(1.0, 10.0), (3.0, 30.0), (2.0, 50.0)]}
    assert medians(times) == {"a": 2.0}
    assert medians(times, 1) == {"a": 30.0}
