"""Statistics against their definitions, and fits that recover the parameters of generated series, or approach them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies.generator_fit import autocorrelation, distance, drawn_traits, fit_generator, summary_statistics

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import ContainerSeries
from optim.workloads.containers import ContainerOptions, generate_containers


def series_of(*arrays):
    return ContainerSeries.from_arrays({f"c{k}": own for k, own in enumerate(arrays)}, ("cpu", "memory"), 15.0)


@given(st.integers(0, 2**32 - 1), st.integers(41, 70))
def test_traits_are_counted_sample_by_sample(seed, length):
    rng = np.random.default_rng(seed)
    own = rng.lognormal(sigma=2.0, size=(length, 2))
    found = summary_statistics(series_of(own))
    for column, values in enumerate(own.T.tolist()):
        peak, mean = max(values), sum(values) / length
        power = sum((x - mean) ** 2 for x in values)
        lagged = [
            sum((values[k] - mean) * (values[k + lag] - mean) for k in range(length - lag)) / power for lag in (1, 20)
        ]
        ramps = [abs(values[k + 40] - values[k]) >= 0.2 * peak for k in range(length - 40)]
        idle = sum(x < 0.05 * peak for x in values) / length
        assert found[column] == pytest.approx([mean / peak, idle, *lagged, sum(ramps) / len(ramps)])


def test_traits_are_medians_of_the_long_series_and_constants_are_like_themselves():
    rng = np.random.default_rng(0)
    three = [rng.random((50, 2)) * factor for factor in (1, 2, 3)]
    single = [summary_statistics(series_of(own)) for own in three]
    assert summary_statistics(series_of(*three, rng.random((30, 2)))) == pytest.approx(np.median(single, axis=0))
    assert autocorrelation(np.full((50, 1), 0.1), 20).tolist() == [1.0]
    assert summary_statistics(series_of(5 * three[0])) == pytest.approx(single[0])
    with pytest.raises(InvalidProblemError, match="no series has more than 40 samples"):
        summary_statistics(series_of(rng.random((30, 2))))


def test_idle_tails_last_as_long_as_they_should_and_have_no_phase():
    usual, tailed = (
        generate_containers(ContainerOptions(num_containers=200, idle_share=share, idle_memory=0.5), 3)
        for share in (0.0, 0.5)
    )
    tail = [own.stop - own.start for own in tailed.segments()] - usual.lengths
    assert tail.sum() / tailed.num_samples == pytest.approx(0.5, abs=0.05)
    for rows, own, idle in zip(tailed.segments(), usual.segments(), tail.tolist(), strict=True):
        busy = slice(rows.start, rows.stop - idle)
        assert np.array_equal(tailed.values[busy], usual.values[own])
        assert (tailed.phase[rows.stop - idle : rows.stop] == -1).all()
        assert (tailed.values[rows.stop - idle : rows.stop, 0] < 0.1).all()


def test_a_fit_comes_nearer_to_series_that_idle():
    idle = generate_containers(ContainerOptions(num_containers=15, idle_share=0.6), seed=5)
    found = fit_generator(idle, 6, seed=0)
    assert found.off < 0.5 * distance(found.target, drawn_traits(ContainerOptions(num_containers=6), 0))
    assert found.options.idle_share >= 0.4
    assert np.array_equal(found.generated, drawn_traits(found.options, 0))
