"""The requirements of every encoder, and the properties of each one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.phases.encoders import ENCODERS, make_encoder
from optim.phases.encoders.base import Spread, Whitening
from optim.phases.encoders.crbm import least_squares, recent_deviation
from optim.phases.preprocessing import ScaledSeries

PAPER = {"autoregression": "trained", "output": "probability", "pooling": 1, "spread": "none"}
SMALL = {
    "crbm": {"num_epochs": 10, "batch_size": 64, "num_hidden": 4, **PAPER},
    "window-statistics": {},
    "raw-window": {},
    "hmm": {"num_restarts": 1, "max_iterations": 5},
}
SINGLE = 1e-4
"""Difference of codes from arrays of other lengths in single precision."""


def drawn(lengths, seed=0, width=2):
    rng = np.random.default_rng(seed)
    total = int(np.sum(lengths))
    return ScaledSeries(values=rng.normal(size=(total, width)), lengths=np.array(lengths))


@pytest.fixture(scope="module", params=sorted(ENCODERS))
def fitted(request):
    """Each encoder, fitted to series of several lengths, some too short for a window."""
    encoder = make_encoder(request.param, SMALL[request.param])
    return encoder.fit(drawn([40, 3, 60, 1, 30]), 3, 0)


def test_has_a_code_for_each_sample_with_history_and_no_row_of_zeros(fitted):
    series = drawn([7, 2, 5, 30], seed=1)
    codes = fitted.encode(series)
    assert len(codes) == len(series.ends(fitted.num_delays))
    assert len(codes) == sum(max(0, length - fitted.num_delays) for length in series.lengths)
    assert np.isfinite(codes).all()
    assert (np.abs(codes).max(axis=1) > 0).all()


def test_codes_of_ragged_series_are_those_of_each_series_alone(fitted):
    series = drawn([20, 3, 30, 20], seed=2)  # lengths of the other tests, for which all is compiled
    starts = np.cumsum(series.lengths) - series.lengths
    alone = [
        fitted.encode(ScaledSeries(values=series.values[start : start + length], lengths=np.array([length])))
        for start, length in zip(starts, series.lengths, strict=True)
        if length > fitted.num_delays
    ]
    assert fitted.encode(series) == pytest.approx(np.concatenate(alone), abs=SINGLE)


def test_a_code_belongs_to_its_own_sample_without_lag_and_sees_no_later_one(fitted):
    series = drawn([30], seed=3)
    changed = series.values.copy()
    changed[20] += 3.0
    before, after = fitted.encode(series), fitted.encode(ScaledSeries(values=changed, lengths=series.lengths))
    differs = np.abs(before - after).max(axis=1) > SINGLE
    place = 20 - fitted.num_delays
    assert not differs[:place].any()
    assert differs[place]


def test_series_that_are_too_short_have_no_codes(fitted):
    codes = fitted.encode(drawn([1], seed=1))
    assert len(codes) == (fitted.num_delays == 0)


def test_restores_what_it_was_fitted_to(fitted):
    name = next(name for name, (options, _) in ENCODERS.items() if isinstance(fitted.options, options))
    again = make_encoder(name, SMALL[name]).restore(fitted.arrays())
    series = drawn([20], seed=4)
    assert np.array_equal(again.encode(series), fitted.encode(series))


def test_fits_the_same_for_the_same_seed(fitted):
    name = next(name for name, (options, _) in ENCODERS.items() if isinstance(fitted.options, options))
    again = make_encoder(name, SMALL[name]).fit(drawn([40, 3, 60, 1, 30]), 3, 0)
    for key, array in fitted.arrays().items():
        assert np.array_equal(again.arrays()[key], array), key


def test_raw_windows_are_oldest_first_and_within_a_sample_by_resource():
    series = ScaledSeries(values=np.arange(12.0).reshape(6, 2), lengths=np.array([6]))
    codes = make_encoder("raw-window", {"num_delays": 2}).encode(series)
    assert codes[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert codes[-1].tolist() == [6, 7, 8, 9, 10, 11]


def test_window_statistics_are_mean_deviation_and_slope():
    series = ScaledSeries(values=np.array([[1.0], [2.0], [3.0], [7.0]]), lengths=np.array([4]))
    encoder = make_encoder("window-statistics", {"num_delays": 3, "spread": "none"}).fit(series, 1, 0)
    slope = np.polyfit(np.arange(4), [1, 2, 3, 7], 1)[0]
    assert encoder.encode(series)[0] == pytest.approx([13 / 4, np.std([1, 2, 3, 7]), slope])


def test_machine_codes_are_the_sigmoid_of_sample_and_history_oldest_first():
    series = drawn([40, 3, 60, 1, 30], seed=5)
    encoder = make_encoder("crbm", SMALL["crbm"]).fit(series, 3, 0)
    part = encoder.arrays()
    expected = []
    for start, length in zip(series.starts.tolist(), series.lengths.tolist(), strict=True):
        own = series.values[start : start + length]
        for t in range(3, length):
            history = np.concatenate([own[t - 3], own[t - 2], own[t - 1]])
            logit = own[t] @ part["weights"] + history @ part["conditioning"] + part["hidden_bias"]
            expected.append(1 / (1 + np.exp(-logit)))
    assert encoder.encode(series) == pytest.approx(np.array(expected), abs=SINGLE)


def test_training_and_encoding_read_histories_in_one_order():
    # Each sample is the one three before it, by resource: any other order of the history forecasts badly.
    rng = np.random.default_rng(6)
    block = rng.normal(size=(3, 2)) * [1.0, 2.0]
    series = ScaledSeries(values=np.tile(block, (40, 1)) + 1e-3 * rng.normal(size=(120, 2)), lengths=np.array([120]))
    matrix, bias = least_squares(series, series.ends(3), 3)
    for t in (3, 50):
        history = np.concatenate([series.values[t - 3], series.values[t - 2], series.values[t - 1]])
        assert history @ matrix + bias == pytest.approx(series.values[t], abs=0.02)
    encoder = make_encoder("crbm", {**SMALL["crbm"], "autoregression": "least-squares"}).fit(series, 3, 0)
    assert encoder.arrays()["autoregression"] == pytest.approx(matrix, abs=SINGLE)
    assert encoder.forecast_errors[0] < 0.05


def test_a_forecast_from_its_history_is_shrunk_where_hardly_anything_varies():
    # Samples a and -a in turn: the best forecast by the last sample, with a penalty of 1e-6 per window, is -a^2 / (a^2
    # + 1e-6).
    for a, slope in ((2e-3, -0.8), (1e-3, -0.5), (3.0, -1.0)):
        series = ScaledSeries(values=a * (-1.0) ** np.arange(101)[:, None], lengths=np.array([101]))
        matrix, bias = least_squares(series, series.ends(1), 1)
        assert float(matrix[0, 0]) == pytest.approx(slope, rel=1e-5)
        assert float(bias[0]) == pytest.approx(0.0, abs=1e-9)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 6), st.integers(0, 3))
def test_pooling_is_the_deviation_of_the_last_codes_of_the_segment(lengths, size, delays):
    series = drawn([length + 1 for length in lengths], seed=7)
    counts = np.maximum(series.lengths - delays, 0)
    outputs = np.random.default_rng(8).normal(size=(int(counts.sum()), 3))
    found = recent_deviation(outputs, series, delays, size)
    row = 0
    for count in counts.tolist():
        for place in range(count):
            last = outputs[row + max(0, place - size + 1) : row + place + 1]
            assert found[row + place] == pytest.approx(last.std(0), abs=1e-6)
        row += count


def test_pooled_codes_are_the_roots_of_deviations():
    series = drawn([40, 3, 60, 1, 30], seed=5)
    options = {**SMALL["crbm"], "pooling": 4}
    options["spread"] = "none"
    single = make_encoder("crbm", {**options, "pooling": 1}).fit(series, 3, 0).encode(series)
    roots = make_encoder("crbm", options).fit(series, 3, 0).encode(series)
    assert roots == pytest.approx(np.sqrt(recent_deviation(single, series, options.get("num_delays", 3), 4)))


def test_whitened_codes_are_uncorrelated_with_deviation_one():
    rng = np.random.default_rng(9)
    codes = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3)) + 5
    white = Whitening.fit(codes, Spread.WHITENED).apply(codes)
    assert np.cov(white.T, ddof=0) == pytest.approx(np.eye(3), abs=1e-9)
    flat = Whitening.fit(np.column_stack([codes, np.ones(500)]), Spread.STANDARDISED)
    assert np.isfinite(flat.apply(np.column_stack([codes, np.ones(500)]))).all()


@pytest.mark.parametrize(
    ("name", "options", "cause"),
    [
        ("pca", {}, "unknown encoder 'pca'"),
        ("crbm", {"num_hidden": 0}, "num_hidden"),
        ("crbm", {"spread": "wide"}, "spread"),
        ("crbm", {"learning_rate": "inf"}, "learning_rate"),
        ("crbm", {"autoregression": "some"}, "autoregression"),
        ("raw-window", {"num_delays": -1}, "num_delays"),
        ("hmm", {"stickiness": -1}, "stickiness"),
        ("hmm", {"speed": 1}, "unknown option 'speed'"),
    ],
)
def test_wrong_options_are_refused_by_name(name, options, cause):
    with pytest.raises(InvalidOptionError, match=cause):
        make_encoder(name, options)


@pytest.mark.parametrize("errors", [(3.0, 2.0, 2.5, 2.5), (3.0, np.nan)])
def test_training_ends_once_forecasts_get_no_better_or_are_no_numbers(monkeypatch, errors):
    """Looks are ten epochs apart: of five that may be taken the last is never reached."""
    told = iter(errors)
    monkeypatch.setattr("optim.kernels.crbm.train", lambda state, *rest, **options: (state, None))
    monkeypatch.setattr("optim.kernels.crbm.forecast_error", lambda *asked: np.array([next(told)]))
    made = make_encoder("crbm", {**SMALL["crbm"], "num_epochs": 50, "patience": 20})
    made.fit(drawn([40, 3, 60, 1, 30]), 3, 0)
    assert made.forecast_errors == pytest.approx(errors, nan_ok=True)


@pytest.mark.parametrize(("asked", "calls"), [(4, [4]), (10, [10]), (19, [10, 9]), (30, [10, 10, 10])])
def test_as_many_epochs_are_trained_as_are_asked_for(monkeypatch, asked, calls):
    trained = []
    monkeypatch.setattr(
        "optim.kernels.crbm.train",
        lambda state, *rest, num_epochs, **options: (trained.append(num_epochs), (state, None))[1],
    )
    monkeypatch.setattr("optim.kernels.crbm.forecast_error", lambda *given: np.array([1.0 / len(trained)]))
    make_encoder("crbm", {**SMALL["crbm"], "num_epochs": asked}).fit(drawn([40, 3, 60, 1, 30]), 3, 0)
    assert trained == calls


def test_a_machine_whose_training_diverges_is_refused_with_the_remedy():
    # The shapes equal those of the other tests, so that there is no further compilation.
    made = make_encoder("crbm", {**SMALL["crbm"], "learning_rate": 1e9})
    with pytest.raises(InvalidOptionError, match=r"diverged with learning_rate 1e\+09; try a tenth"):
        made.fit(drawn([40, 3, 60, 1, 30]), 3, 0)
