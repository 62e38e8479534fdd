"""Bounded staleness: the condition for a start, the updates that a read must see, and its two limits."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.kernels.parameter_server import ASYNCHRONOUS, complete_clock, join, may_start, slowest_clock, visible_clocks

WORKERS = 4


def run(choices, staleness, begin):
    """Let workers run as chosen; yield the clocks completed and those in execution after every event.

    A choice names a worker: one that executes a clock completes it, one that may start does, any other waits.
    """
    clocks, live = begin(np.zeros(WORKERS, np.int32)), begin(np.ones(WORKERS, bool))
    executing: dict[int, int] = {}
    for worker in choices:
        if worker in executing:
            clocks = complete_clock(clocks, worker)
            del executing[worker]
        elif bool(may_start(clocks, live, staleness)[worker]):
            executing[worker] = int(clocks[worker])
        yield np.asarray(clocks), dict(executing)


runs = st.lists(st.integers(0, WORKERS - 1), max_size=60)


@given(runs, st.integers(0, 3))
def test_clocks_stay_within_the_staleness(choices, staleness):
    for clocks, executing in run(choices, staleness, np.asarray):
        assert clocks.max() - clocks.min() <= staleness + 1
        assert all(started - clocks.min() <= staleness for started in executing.values())


@given(runs)
def test_without_staleness_workers_go_clock_by_clock(choices):
    for clocks, executing in run(choices, 0, np.asarray):
        assert set(executing.values()) <= {clocks.min()}


@given(runs)
def test_asynchronous_workers_never_wait(choices):
    for clocks, _ in run(choices, ASYNCHRONOUS, np.asarray):
        assert may_start(clocks, np.ones(WORKERS, bool), ASYNCHRONOUS).all()


@given(runs, st.integers(0, 3))
def test_the_slowest_never_waits(choices, staleness):
    for clocks, _ in run(choices, staleness, np.asarray):
        assert may_start(clocks, np.ones(WORKERS, bool), staleness)[clocks.argmin()]


@given(st.lists(st.integers(0, 9), min_size=WORKERS, max_size=WORKERS), st.integers(0, 3))
def test_numpy_and_jax_decide_alike(completed, staleness):
    live = np.array([True, False, True, True])
    clocks = np.array(completed, np.int32)
    found = may_start(jnp.asarray(clocks), jnp.asarray(live), staleness)
    assert np.asarray(found).tolist() == may_start(clocks, live, staleness).tolist()


def test_the_rule_counts_completed_clocks():
    clocks, live = np.array([3, 5, 4, 6], np.int32), np.ones(WORKERS, bool)
    assert may_start(clocks, live, 2).tolist() == [True, True, True, False]


def test_a_worker_that_leaves_holds_up_nobody():
    clocks, live = np.array([0, 3, 3, 3], np.int32), np.ones(WORKERS, bool)
    assert may_start(clocks, live, 1).tolist() == [True, False, False, False]
    live[0] = False
    assert may_start(clocks, live, 1).tolist() == [False, True, True, True]


def test_a_worker_that_joins_starts_at_the_slowest_of_the_living():
    clocks, live = np.array([9, 5, 7, 0], np.int32), np.array([True, True, True, False])
    clocks, live = join(clocks, live, 3)
    assert (clocks.tolist(), live.tolist()) == ([9, 5, 7, 5], [True] * 4)
    assert clocks.dtype == np.int32


def test_the_first_worker_goes_on_where_its_place_was():
    clocks, live = join(np.array([4, 2], np.int32), np.array([False, False]), 0)
    assert (clocks.tolist(), live.tolist()) == ([4, 2], [True, False])


def test_with_nobody_alive_nothing_holds_anybody_up_and_nobody_starts():
    clocks, live = np.array([4, 2], np.int32), np.array([False, False])
    assert slowest_clock(clocks, live) > 2**30
    assert not may_start(clocks, live, 0).any()


@pytest.mark.parametrize(("clock", "staleness", "seen"), [(5, 0, 5), (5, 2, 3), (1, 3, 0), (7, ASYNCHRONOUS, 0)])
def test_a_read_must_see_all_clocks_but_the_last_few(clock, staleness, seen):
    assert visible_clocks(clock, staleness) == seen


@given(runs, st.integers(0, 3))
def test_what_a_started_clock_must_see_is_complete(choices, staleness):
    for clocks, executing in run(choices, staleness, np.asarray):
        assert all(visible_clocks(started, staleness) <= clocks.min() for started in executing.values())
