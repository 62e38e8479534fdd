"""The recommender's histograms against a transcription of their rules, one sample and one container at a time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.rightsizing import make_plan, make_world
from optim.rightsizing.vpa import LEVEL_BUCKETS, RATE_BUCKETS, DecayingHistograms
from tests.support.containers.worlds import series_of

GIB = 2**30
DAY_S = 86_400


class PlainHistogram:
    """One decaying histogram, as the recommender keeps it."""

    def __init__(self, first, cap):
        self.first = first
        self.number = math.ceil(math.log(cap * 0.05 / first + 1, 1.05)) + 1
        self.weights = [0.0] * self.number

    def bucket(self, value):
        if value < self.first:
            return 0
        return min(int(math.log(value * 0.05 / self.first + 1) / math.log(1.05)), self.number - 1)

    def begin(self, bucket):
        return self.first * (1.05**bucket - 1) / 0.05

    def add(self, value, weight):
        self.weights[self.bucket(value)] += weight

    def subtract(self, value, weight):
        left = self.weights[self.bucket(value)] - weight
        self.weights[self.bucket(value)] = 0.0 if left < 1e-4 else left

    def percentile(self, level):
        full = [k for k, weight in enumerate(self.weights) if weight >= 1e-4]
        if not full:
            return 0.0
        reached, bucket = 0.0, full[0]
        while bucket < full[-1]:
            reached += self.weights[bucket]
            if reached >= level * sum(self.weights):
                break
            bucket += 1
        return self.begin(bucket + 1) if bucket < self.number - 1 else self.begin(bucket)


class PlainRecommender:
    """CPU once per minute; memory as the peak of each day, stamped at its end; kills raise the peak."""

    def __init__(self):
        self.cpu = PlainHistogram(0.01, 1000.0)
        self.memory = PlainHistogram(1e7, 1e12)
        self.window_end = None
        self.peak = 0.0

    def observe(self, time_s, cores, used_bytes):
        self.cpu.add(cores, 0.1 * 2 ** (time_s / DAY_S))
        if self.window_end is None:
            self.window_end = time_s
        if time_s >= self.window_end:
            self.window_end += (time_s - self.window_end) // DAY_S * DAY_S + DAY_S
            self.peak = 0.0
        self.raise_peak(used_bytes)

    def raise_peak(self, used_bytes):
        if used_bytes <= self.peak:
            return
        weight = 2 ** (self.window_end / DAY_S)
        if self.peak > 0:
            self.memory.subtract(self.peak, weight)
        self.memory.add(used_bytes, weight)
        self.peak = used_bytes

    def kill(self, requested_bytes):
        used = max(requested_bytes, self.peak)
        self.raise_peak(max(used + 100 * 2**20, 1.2 * used))

    def target(self):
        cores, used = 1.15 * self.cpu.percentile(0.9), 1.15 * self.memory.percentile(0.9)
        return max(cores, 0.025), max(used, 250 * 2**20)


def plain_targets(cpu, memory_gib, cycle_samples, first):
    """Targets of the cycles 1, 2, ... of one container."""
    own, given_gib, targets = PlainRecommender(), first[1], []
    for cycle in range(1, -(-len(cpu) // cycle_samples)):
        rows = range((cycle - 1) * cycle_samples, cycle * cycle_samples)
        for row in rows:
            if row % 4 == 3:
                own.observe(row * 15, cpu[row], memory_gib[row] * GIB)
        if max(memory_gib[row] for row in rows) > given_gib:
            own.kill(given_gib * GIB)
        cores, used = own.target()
        given_gib = used / GIB
        targets.append((cores, given_gib))
    return np.array(targets)


@pytest.mark.parametrize("seed", range(4))
def test_targets_are_those_of_the_transcription(seed):
    rng = np.random.default_rng(seed)
    arrays = [
        np.stack([rng.gamma(1.0, 0.4, size=n), rng.gamma(4.0, 0.1) * np.exp(np.cumsum(rng.normal(0, 0.1, n)))], axis=1)
        for n in (410, 333, 120, 30)
    ]
    world = make_world(series_of(arrays), series_of([np.full(8, 0.2)]))
    found = make_plan(world, "vpa").allocate(np.full(2, 1.15))
    for place, own in enumerate(arrays):
        wanted = plain_targets(own[:, 0], own[:, 1], 40, world.first)
        np.testing.assert_allclose(found[place, 1 : 1 + len(wanted)], wanted.reshape(-1, 2), rtol=1e-12)


def test_peaks_of_several_days_stay_side_by_side():
    """One sample a minute over three days, memory of 4, 2 and 1 GiB a day."""
    memory = np.repeat([4.0, 2.0, 1.0], 4 * 1440)
    own = np.stack([np.full(len(memory), 0.5), memory], axis=1)
    world = make_world(series_of([own]), series_of([np.full(8, 9.0)]))
    wanted = plain_targets(own[:, 0], own[:, 1], 40, world.first)
    found = make_plan(world, "vpa").allocate(np.full(2, 1.15))[0, 1:]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@given(values=st.lists(st.floats(0, 3000), min_size=1, max_size=30), level=st.floats(0.01, 1.0))
def test_a_percentile_lies_within_a_bucket_above_that_of_the_samples(values, level):
    own = DecayingHistograms(RATE_BUCKETS, 1)
    for value in values:
        own.add(np.array([0]), np.array([value]), 1.0, 0.0)
    plain = PlainHistogram(0.01, 1000.0)
    for value in values:
        plain.add(value, 1.0)
    found = own.percentile(level, 1)[0]
    assert found == pytest.approx(plain.percentile(level), rel=1e-12)
    rank = sorted(values)[max(0, math.ceil(level * len(values) - 1e-9) - 1)]
    assert found >= min(rank, 1000.0) * (1 - 1e-9)
    assert found <= max(rank * 1.05 + 0.011, 0.0)


def test_buckets_are_as_many_as_in_the_recommender_and_begin_where_they_should():
    assert RATE_BUCKETS.count == PlainHistogram(0.01, 1000.0).number
    assert LEVEL_BUCKETS.count == PlainHistogram(1e7, 1e12).number
    begins = RATE_BUCKETS.begin(np.arange(4))
    assert begins == pytest.approx([0.0, 0.01, 0.0205, 0.031525])


def test_an_hour_of_steady_memory_is_recommended_within_a_bucket():
    world = make_world(series_of([np.full(240, 2.0)]), series_of([np.full(8, 9.0)]))
    target = make_plan(world, "vpa").allocate(np.full(2, 1.15))[0, 1:, 1]
    assert (target == target[0]).all()
    assert 1.15 * 2.0 <= target[0] <= 1.15 * 2.0 * 1.06
