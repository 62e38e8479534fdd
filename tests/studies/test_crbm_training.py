"""The ways of training are timed alike: milliseconds of an epoch, whatever part of one was run."""

from types import SimpleNamespace

import pytest
from optim_studies import crbm
from optim_studies.crbm import CrbmOptions, TrainingBench

from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.kernels.crbm import Rates


def test_windows_taken_one_at_a_time_are_scaled_to_an_epoch(monkeypatch):
    """10 of 40 windows in 2 s, by 3 s of processors: an epoch takes 8 s and 12 s."""
    taken = []

    def timed(call):
        call()
        return 2.0, 3.0

    monkeypatch.setattr(crbm, "timed", timed)
    bench = object.__new__(TrainingBench)  # without the machines, which are of no account here
    bench.options, bench.seed = CrbmOptions(windows=40, alone=10), 0
    bench.plain = SimpleNamespace(one_by_one=lambda rows, rate: taken.extend(rows.tolist()))
    monkeypatch.setattr(TrainingBench, "_plain_loss", lambda self: 0.5)
    figures, seconds = bench.one_by_one(Never(), SilentProgress())
    assert len(set(taken)) == 10
    assert figures == pytest.approx({"ms": 8e3, "cpu_ms": 12e3, "us_a_window": 2e5, "loss": 0.5})
    assert seconds == {"solve": 2.0}


def test_both_sides_are_told_by_their_median_turns_in_milliseconds_an_epoch(monkeypatch):
    """Of each turn the wall clock comes first, then the processor; a turn is of four epochs."""
    turns = {"kernel": [(0.4, 0.8), (0.2, 1.2), (9.0, 0.4)], "numpy": [(2.0, 1.6), (2.8, 3.2), (0.4, 2.4)]}
    monkeypatch.setattr(crbm, "race", lambda *_, **__: turns)
    monkeypatch.setattr(crbm, "timed", lambda _: (7.0, 0.0))
    bench = object.__new__(TrainingBench)  # nothing is trained, so that nothing is compiled
    bench.options, bench.seed = CrbmOptions(epochs=4, repeats=3), 0
    bench.rates, bench.state = Rates(), SimpleNamespace(parameters=None)
    monkeypatch.setattr(TrainingBench, "_loss", lambda *_: 0.5)
    monkeypatch.setattr(TrainingBench, "_plain_loss", lambda _: 0.6)
    figures, seconds = bench.batched(Never(), SilentProgress())
    assert (figures["ms"], figures["cpu_ms"]) == (pytest.approx(100.0), pytest.approx(200.0))
    assert (figures["numpy_ms"], figures["numpy_cpu_ms"]) == (pytest.approx(500.0), pytest.approx(600.0))
    assert (figures["speedup"], figures["cpu_speedup"]) == (pytest.approx(5.0), pytest.approx(3.0))
    assert seconds == {"compile": 7.0, "solve": pytest.approx(9.6)}
