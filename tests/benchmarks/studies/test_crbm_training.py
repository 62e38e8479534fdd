"""The ways of training are timed alike: milliseconds of an epoch, whatever part of one was run."""

from types import SimpleNamespace

import pytest

from optim.benchmarks.studies import crbm_training
from optim.benchmarks.studies.crbm_training import CrbmOptions, TrainingBench
from optim.core.progress import SilentProgress
from optim.core.stopping import Never


def test_windows_taken_one_at_a_time_are_scaled_to_an_epoch(monkeypatch):
    """10 of 40 windows in 2 s, by 3 s of processors: an epoch takes 8 s and 12 s."""
    taken = []

    def timed(call):
        call()
        return 2.0, 3.0

    monkeypatch.setattr(crbm_training, "timed", timed)
    bench = object.__new__(TrainingBench)  # without the machines, which are of no account here
    bench.options, bench.seed = CrbmOptions(windows=40, alone=10), 0
    bench.plain = SimpleNamespace(one_by_one=lambda rows, rate: taken.extend(rows.tolist()))
    monkeypatch.setattr(TrainingBench, "_plain_loss", lambda self: 0.5)
    figures, seconds = bench.one_by_one(Never(), SilentProgress())
    assert len(set(taken)) == 10
    assert figures == pytest.approx({"ms": 8e3, "cpu_ms": 12e3, "us_a_window": 2e5, "loss": 0.5})
    assert seconds == {"solve": 2.0}
