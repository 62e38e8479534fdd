"""Crops of series: consecutive samples of one segment, never more than requested."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optim.phases.preprocessing import ScaledSeries


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_stretches_are_consecutive_samples_of_their_segments(lengths, most, seed):
    values = np.arange(float(sum(lengths)))[:, None]
    series = ScaledSeries(values=values, lengths=np.array(lengths))
    found = series.random_crops(most, np.random.default_rng(seed))
    assert found.lengths.tolist() == [min(own, most) for own in lengths]
    begin = 0
    for place, (start, length) in enumerate(zip(found.starts, found.lengths, strict=True)):
        own = found.values[start : start + length, 0]
        assert own[0] >= begin
        assert own[-1] < begin + lengths[place]
        assert np.diff(own).tolist() == [1.0] * (length - 1)
        begin += lengths[place]


def test_every_stretch_may_come_up():
    series = ScaledSeries(values=np.arange(6.0)[:, None], lengths=np.array([6]))
    starts = {float(series.random_crops(4, np.random.default_rng(seed)).values[0, 0]) for seed in range(40)}
    assert starts == {0.0, 1.0, 2.0}
