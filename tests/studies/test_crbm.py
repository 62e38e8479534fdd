"""Studies of the encoder's training: NumPy and the kernel train the same model with the same timing; bad requests are rejected."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optim_studies import crbm
from optim_studies.crbm import CrbmOptions, PlainCrbm, TrainingBench

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.kernels.crbm import CrbmParameters, Rates, Sampling
from optim.kernels.crbm.divergence import contrastive_divergence, pack, unpack

TINY = {"windows": 1500, "epochs": 4, "repeats": 2, "alone": 20, "many": 2, "batch": 256, "machines": 2}


def works(**request):
    return list(SUITES.get("crbm").build(BenchRequest(**request)))


def record_of(way):
    (work,) = works(solvers=(way,), options=TINY)
    return work.run(Never(), SilentProgress())


@pytest.mark.prove
def test_both_sides_reach_the_same_error_on_unseen_containers():
    record = record_of("batched")
    assert record.verified
    measures, loss = record.measures, record.findings["loss"]
    assert measures["numpy_loss"] == pytest.approx(loss, rel=0.01)
    assert measures["speedup"] == pytest.approx(measures["numpy_ms"] / measures["ms"])
    assert measures["us_a_window"] == pytest.approx(1e3 * measures["ms"] / TINY["windows"])
    assert record.seconds["compile"] > 0


@pytest.mark.parametrize(
    "way", ["one-by-one", *(pytest.param(way, marks=pytest.mark.prove) for way in ("many-epochs", "sweep"))]
)
def test_every_way_of_training_ends_with_a_finite_error(way):
    record = record_of(way)
    assert record.verified
    assert np.isfinite(record.findings["loss"])
    assert record.measures["us_a_window"] > 0


def test_one_window_at_a_time_steps_along_the_kernels_statistics():
    rng = np.random.default_rng(0)
    shapes = [(2, 4), (6, 2), (6, 4), (2,), (4,)]
    start = CrbmParameters(*(rng.standard_normal(shape).astype(np.float32) for shape in shapes))
    window = rng.standard_normal((1, 8)).astype(np.float32)
    plain = PlainCrbm(
        windows=window,
        num_visible=2,
        weights=start.weights.copy(),
        dynamic=np.concatenate([start.autoregression, start.conditioning], axis=1),
        bias=np.concatenate([start.visible_bias, start.hidden_bias]),
    )
    plain.one_by_one(np.array([0]), 0.5)
    # Compiled at once instead of operation by operation.
    statistics_of = jax.jit(contrastive_divergence, static_argnames=("num_visible", "num_gibbs_steps", "sampling"))
    found = statistics_of(
        jax.jit(pack)(CrbmParameters(*(jnp.asarray(one) for one in start))),
        jnp.asarray(window.T),
        np.ones(1, np.float32),
        np.zeros(2, np.uint32),
        np.uint32(0),
        num_visible=2,
        num_gibbs_steps=1,
        sampling=Sampling.MEAN_FIELD,
    )
    for before, after, step in zip(start, plain.fields().values(), unpack(np.asarray(found.gradient), 2), strict=True):
        np.testing.assert_allclose(after, before + 0.5 * np.asarray(step), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("request_", [{"solvers": ("simplex",)}, {"options": {"tol": 1}}, {"options": {"epochs": 0}}])
def test_refuses_other_ways_and_options(request_):
    with pytest.raises(InvalidOptionError):
        works(**request_)


def test_containers_that_idle_have_finite_standardised_windows(monkeypatch):
    idle = np.where(np.arange(4000)[:, None] % 2, [[1.0, 3.0]], 0.0)
    series = SimpleNamespace(values=idle, lengths=np.array([2000, 2000]))
    monkeypatch.setattr(crbm, "generate_containers", lambda options, seed: series)
    crbm.drawn_windows.cache_clear()
    values, ends, held = crbm.drawn_windows(3000, 3, 0)
    crbm.drawn_windows.cache_clear()
    assert values.mean(axis=0) == pytest.approx(0, abs=1e-5)
    assert values.std(axis=0) == pytest.approx(1, rel=1e-5)
    assert len(ends) == 3000
    assert len(held) > 0


def test_windows_taken_one_at_a_time_are_scaled_to_an_epoch(monkeypatch):
    """10 of 40 windows in 2 s, by 3 s of processors: an epoch takes 8 s and 12 s."""
    taken = []

    def timed(call):
        call()
        return 2.0, 3.0

    monkeypatch.setattr(crbm, "timed", timed)
    bench = object.__new__(TrainingBench)  # without the machines, which this method doesn't use
    bench.options, bench.seed = CrbmOptions(windows=40, alone=10), 0
    bench.plain = SimpleNamespace(one_by_one=lambda rows, rate: taken.extend(rows.tolist()))
    monkeypatch.setattr(TrainingBench, "_plain_loss", lambda self: 0.5)
    figures, seconds = bench.one_by_one(Never(), SilentProgress())
    assert len(set(taken)) == 10
    assert figures == pytest.approx({"ms": 8e3, "cpu_ms": 12e3, "us_a_window": 2e5, "loss": 0.5})
    assert seconds == {"solve": 2.0}


def test_both_sides_are_told_by_their_median_turns_in_milliseconds_an_epoch(monkeypatch):
    """Each turn is (wall-clock seconds, processor seconds) for four epochs."""
    turns = {"kernel": [(0.4, 0.8), (0.2, 1.2), (9.0, 0.4)], "numpy": [(2.0, 1.6), (2.8, 3.2), (0.4, 2.4)]}
    monkeypatch.setattr(crbm, "race", lambda *_, **__: turns)
    monkeypatch.setattr(crbm, "timed", lambda _: (7.0, 0.0))
    bench = object.__new__(TrainingBench)  # no training, so no compilation
    bench.options, bench.seed = CrbmOptions(epochs=4, repeats=3), 0
    bench.rates, bench.state = Rates(), SimpleNamespace(parameters=None)
    monkeypatch.setattr(TrainingBench, "_loss", lambda *_: 0.5)
    monkeypatch.setattr(TrainingBench, "_plain_loss", lambda _: 0.6)
    figures, seconds = bench.batched(Never(), SilentProgress())
    assert (figures["ms"], figures["cpu_ms"]) == (pytest.approx(100.0), pytest.approx(200.0))
    assert (figures["numpy_ms"], figures["numpy_cpu_ms"]) == (pytest.approx(500.0), pytest.approx(600.0))
    assert (figures["speedup"], figures["cpu_speedup"]) == (pytest.approx(5.0), pytest.approx(3.0))
    assert seconds == {"compile": 7.0, "solve": pytest.approx(9.6)}
