"""Codes, their spread and what goes into training come out as they were kept."""

from pathlib import Path

import numpy as np

from optim.phases.encoders import make_encoder
from optim.phases.encoders.base import Spread, Whitening
from optim.phases.encoders.crbm import CrbmOptions, _split_ends, least_squares, recent_deviation
from optim.phases.preprocessing import ScaledSeries
from tests.support.kept import assert_kept, outcome

KEPT = Path(__file__).parent / "kept"


def drawn(seed, lengths=(9, 3, 20, 1, 14)):
    rng = np.random.default_rng(seed)
    return ScaledSeries(values=rng.normal(size=(sum(lengths), 2)).cumsum(axis=0), lengths=np.array(lengths))


def test_codes_and_spreads_come_out_as_before():
    series, found = drawn(1), {}
    for name, options in (("window-statistics", {}), ("raw-window", {}), ("raw-window", {"num_delays": 0})):
        encoder = make_encoder(name, options).fit(series, 3, 0)
        again = make_encoder(name, options).restore(encoder.arrays())
        found[f"{name} {options}"] = [encoder.num_delays, encoder.encode(series), again.encode(drawn(2))]
    codes = drawn(3).values @ np.array([[1.0, 0.5, 2.0], [0.0, 1.0, -1.0]])
    for spread in Spread:
        fitted = Whitening.fit(codes, spread)
        other = Whitening.restore(fitted.arrays())
        lengths = np.sort(np.abs(fitted.apply(codes)).sum(axis=0))  # whitened directions may be turned round
        found[str(spread)] = [fitted.origin, lengths, np.abs(other.apply(codes[:5])).sum()]
    found["unknown"] = [outcome(make_encoder, "none"), outcome(make_encoder, "hmm", {"num_delays": 3})]
    assert_kept(KEPT / "codes.json", found)


def test_what_machines_are_trained_on_comes_out_as_before():
    series, many = drawn(5), drawn(6, tuple(range(1, 16)))
    outputs = np.random.default_rng(7).normal(size=(len(series.ends(3)), 4))
    found = {f"pooled {size}": recent_deviation(outputs, series, 3, size) for size in (1, 2, 8)}
    found["nothing"] = recent_deviation(outputs[:0], series, 3, 4)
    found["split"] = [_split_ends(each, delays, seed) for each in (series, many) for delays, seed in ((1, 0), (3, 2))]
    found["rule"] = [least_squares(each, each.ends(delays), delays) for each in (series, many) for delays in (1, 3)]
    wrong = (
        {"num_delays": 0},
        {"num_epochs": 0},
        {"learning_rate": 0.0},
        {"pooling": 0},
    )
    found["options"] = [outcome(CrbmOptions, **options) for options in wrong]
    assert_kept(KEPT / "training.json", found)
