"""Schedules of divisible gangs against one simulated microsecond by microsecond, and the prices derived from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.solvers.cluster.price_bound import fluid_flows, prices_of_fluid

JOBS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=5)


def flows_of(rows, gpus, key, is_by_work):
    release, width, duration = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    mark, marginal = np.zeros(2 * len(rows), np.int64), np.zeros(2 * len(rows), np.int64)
    flow, spells = fluid_flows(
        release, duration, width.astype(float), float(gpus), np.array(key, float), is_by_work, mark, marginal
    )
    return flow, mark[:spells], marginal[:spells]


def by_microseconds(rows, gpus, rank):
    """Simulate static ranks one microsecond after the other: the most urgent first, the last on the remaining GPUs."""
    left, end, now = [duration * width for _, width, duration in rows], [0] * len(rows), 0
    while any(work > 1e-9 for work in left):
        free = gpus
        for job in sorted(range(len(rows)), key=lambda each: rank[each]):
            release, width, _ = rows[job]
            if left[job] > 1e-9 and release <= now:
                x = min(free, width)
                free -= x
                left[job] -= x
                end[job] = now + 1
        now += 1
    return [when - release for when, (release, _, _) in zip(end, rows, strict=True)]


@given(JOBS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_static_ranks_of_single_gpus_are_played_as_microsecond_by_microsecond(rows, gpus, random):
    rows = [(release, 1, duration) for release, _, duration in sorted(rows)]
    rank = list(range(len(rows)))
    random.shuffle(rank)
    assert flows_of(rows, gpus, rank, is_by_work=False)[0].tolist() == by_microseconds(rows, gpus, rank)


@given(JOBS, st.integers(1, 5))
def test_the_most_urgent_waits_for_nobody(rows, gpus):
    rows = sorted((100 * release, width, 100 * duration) for release, width, duration in rows)
    flow, _, _ = flows_of(rows, gpus, range(len(rows)), is_by_work=False)
    assert flow[0] == pytest.approx(rows[0][2] * max(1, rows[0][1] / gpus), abs=1)


@given(JOBS, st.integers(1, 5))
def test_no_more_gpus_are_used_than_there_are(rows, gpus):
    """Jobs that end by a time were worked on before: no set of jobs ends before its work could be done."""
    rows = sorted((100 * release, width, 100 * duration) for release, width, duration in rows)
    flow, _, _ = flows_of(rows, gpus, [width for _, width, _ in rows], is_by_work=True)
    for until in sorted(release + when for (release, _, _), when in zip(rows, flow, strict=True)):
        over = [row for row, when in zip(rows, flow, strict=True) if row[0] + when <= until]
        assert (
            sum(width * duration for _, width, duration in over) <= gpus * (until - min(row[0] for row in over)) + 1e-6
        )
    assert all(
        when >= duration * max(1, width / gpus) - 1e-6 for (_, width, duration), when in zip(rows, flow, strict=True)
    )


def test_two_jobs_on_divisible_gpus():
    """3 GPUs; two of each and 60 microseconds: the second gets one GPU for 60, then two: 60 and 90."""
    flow, mark, marginal = flows_of([(0, 2, 60), (0, 2, 60)], 3, [1, 2], is_by_work=False)
    assert flow.tolist() == [60, 90]
    assert (mark.tolist(), marginal.tolist()) == ([0, 60], [1, -1])


def test_a_job_that_comes_between_leaves_the_price_where_it_was():
    """One GPU: 10 of 40 microseconds, one of 10 between, the rest: lines of 1/40 and, over it, of 1/10 a microsecond."""
    flow, mark, marginal = flows_of([(0, 1, 40), (10, 1, 10)], 1, [1, 1], is_by_work=True)
    assert flow.tolist() == [50, 10]
    assert marginal.tolist() == [0, 1, 0]
    edge = np.array([0, 10, 20, 50])
    price = prices_of_fluid(mark, marginal, 50, np.ones(2), np.array([40, 10]), edge)
    assert price == pytest.approx([45 / 40, 30 / 40 + 5 / 10, 15 / 40])


def test_nothing_costs_anything_while_a_gpu_is_free():
    _, mark, marginal = flows_of([(0, 1, 40), (10, 1, 10), (200, 1, 5)], 2, [1, 1, 1], is_by_work=True)
    price = prices_of_fluid(mark, marginal, 205, np.ones(3), np.array([40, 10, 5]), np.array([0, 10, 20, 100, 205]))
    assert price[[0, 2, 3]].tolist() == [0, 0, 0]


def test_a_gang_larger_than_the_cluster_is_slower():
    assert flows_of([(0, 8, 5)], 2, [1], is_by_work=True)[0].tolist() == [20]
