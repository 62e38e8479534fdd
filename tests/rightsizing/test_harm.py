"""Kills, throttling and restarts against sums one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.rightsizing.engine import Restarts, post_warmup_weight, violations_of
from tests.support.containers.worlds import INTERVAL_S, drawn_worlds, world_of

RESTARTS = Restarts(checkpoint_s=100.0, startup_s=45.0)


@given(world=drawn_worlds(), seed=st.integers(0, 2**32 - 1))
def test_harm_is_what_a_walk_along_the_samples_finds(world, seed):
    allocation = np.random.default_rng(seed).uniform(0, 4, (*world.samples.shape, 2))
    found = violations_of(world, allocation, RESTARTS)
    for place, length in enumerate(world.lengths.tolist()):
        kills = throttled = restart_s = 0
        delayed, charge, later = 0.0, np.zeros(2), [0, 0]
        for cycle in range(-(-length // 4)):
            own = world.values[place, 4 * cycle : min(4 * cycle + 4, length)]
            cpu, memory = allocation[place, cycle]
            throttled += int((own[:, 0] > cpu).sum())
            later[0] += int((own[:, 0] > cpu).sum()) if cycle else 0
            delayed += float(sum(x - cpu for x in own[:, 0] if x > cpu))
            fatal = [4 * cycle + k for k, x in enumerate(own[:, 1]) if x > memory]
            if fatal:
                kills += 1
                later[1] += 1 if cycle else 0
                lost_s = (fatal[0] * INTERVAL_S) % 100.0 + 45.0
                restart_s += lost_s
                charge += lost_s / INTERVAL_S * np.array([cpu, max(memory, world.values[place, fatal[0], 1])])
        assert found.kills[place].tolist() == [0, kills]
        assert found.throttled[place].tolist() == [throttled, 0]
        assert found.delayed[place] == pytest.approx([delayed, 0.0])
        assert found.restart_s[place] == pytest.approx(restart_s)
        assert found.charge[place] == pytest.approx(charge)
        shares = [later[0] / max(length - 4, 1), later[1] / max(-(-length // 4) - 1, 1)]
        assert found.post_warmup[place] == pytest.approx(shares)


def test_a_kill_is_charged_at_what_was_used_then_and_not_at_a_later_peak():
    world = world_of([np.array([1.0, 2.1, 10.0, 1.0])])
    restarts = Restarts(checkpoint_s=1e9, startup_s=48 * INTERVAL_S)
    given = np.full((1, 1, 2), [20.0, 2.0])
    # Killed at the second sample: one sample is done again after 48 of start-up.
    assert violations_of(world, given, restarts).charge[0].tolist() == pytest.approx([49 * 20.0, 102.9])


def test_series_of_one_unit_share_its_weight():
    world = world_of([np.full(12, 2.0), np.full(8, 2.0)])
    object.__setattr__(world, "group", np.zeros(2, dtype=np.int64))
    found = violations_of(world, np.zeros((2, 3, 2)), RESTARTS)
    # Two later cycles of one series, one of the other: all of three were harmed.
    assert found.post_warmup.sum(axis=0) == pytest.approx([1.0, 1.0])
    assert found.post_warmup[:, 1] == pytest.approx([2 / 3, 1 / 3])


def test_what_ends_within_its_first_cycle_has_nothing_decided_that_could_count():
    world = world_of([np.full(9, 2.0), np.full(4, 2.0)])
    # Of the longer series, five samples and two cycles are after the warm-up; rates are per sample, allocations per
    # cycle.
    assert post_warmup_weight(world).tolist() == [[1 / 5, 1 / 2], [0.0, 0.0]]


@pytest.mark.parametrize("wrong", [{"checkpoint_s": 0.0}, {"startup_s": -1.0}, {"checkpoint_s": float("nan")}])
def test_restarts_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError):
        Restarts(**wrong)
