"""Updates of a server are timed where cache and memory allow, and every machine gets a cost."""

import numpy as np
import pytest

from optim.profiling import machine_benchmarks
from optim.profiling.machine_benchmarks import PUSHES, TERMS, measure_update, update_points
from optim.profiling.timing import Timing

MIB, GB = 2**20, 10**9


def seconds_of(pushes, size, edge):
    """Return simulated seconds; beyond the cache's edge a byte takes three times as long."""
    slower = 1 if (pushes + 2) * 4 * size <= edge else 3
    return 1e-6 * (1 + pushes) + slower * 1e-12 * 4 * size * (1 + pushes)


@pytest.fixture
def timed(monkeypatch):
    """The timings, by (pushes, size), on a machine whose cache the test defines."""
    found = {"edge": 0.7 * 32 * MIB}

    def time_update(pushes, size, clock, repeats):
        del clock
        found[pushes, size] = repeats
        return Timing(seconds=np.full(5, seconds_of(pushes, size, found["edge"])))

    monkeypatch.setattr(machine_benchmarks, "_time_update", time_update)
    return found


@pytest.mark.parametrize("allowed", [4 * GB, 24 * GB])
@pytest.mark.parametrize("cache", [8 * MIB, 32 * MIB, 96 * MIB, 256 * MIB, 480 * MIB])
def test_caches_of_all_sizes_leave_points_on_both_sides_within_the_memory(cache, allowed, timed):
    points, timed["edge"] = update_points(cache, allowed), 0.7 * cache
    sets = np.array([(w + 2) * 4 * n for w, n in points])
    assert sets.max() <= allowed / 4
    assert (sets > 0.7 * cache).sum() >= len(TERMS) + 2
    assert (sets <= 0.7 * cache).sum() >= len(TERMS) + 2
    cost = measure_update(cache, None, allowed_bytes=allowed)
    assert [c.value for c in cost.in_cache] == pytest.approx([1e-6, 1e-6, 1e-12, 1e-12], rel=1e-3)
    assert [c.value for c in cost.beyond] == pytest.approx([1e-6, 1e-6, 3e-12, 3e-12], rel=1e-3)
    assert cost.untold == []
    assert cost.error < 1e-6


def test_one_fit_stands_for_both_sides_where_no_memory_lies_beyond_the_cache(timed):
    timed["edge"] = 0.7 * 480 * MIB
    cost = measure_update(480 * MIB, None, allowed_bytes=GB)
    assert cost.in_cache == cost.beyond
    assert [c.value for c in cost.beyond] == pytest.approx([1e-6, 1e-6, 1e-12, 1e-12], rel=1e-3)
    assert cost.untold == ["times beyond the cache from the others: 0 points"]


def test_short_updates_are_timed_more_often_than_long_ones(timed):
    measure_update(32 * MIB, None, allowed_bytes=4 * GB, repeats=2)
    repeats = {point: times for point, times in timed.items() if isinstance(point, tuple)}
    assert {times for (_, size), times in repeats.items() if size == 2**18} == {20}
    assert {times for (_, size), times in repeats.items() if size > 2**18} == {2}
    assert {pushes for pushes, _ in repeats} == set(PUSHES)
