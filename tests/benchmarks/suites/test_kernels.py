"""The kernels' suite: every side does the same work, and no row depends on a clock."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from optim.benchmarks.kernels import loop
from optim.benchmarks.kernels.contest import JAX
from optim.benchmarks.kernels.dense_cases import DenseCase
from optim.benchmarks.kernels.roof import TIMES_THE_CACHE, Roof, third_level_cache
from optim.benchmarks.kernels.server import ServerProcess
from optim.benchmarks.kernels.sparse_cases import SparseCase
from optim.benchmarks.kernels.stream_cases import StreamCase
from optim.benchmarks.registry import SUITES
from optim.benchmarks.spec import BenchRequest
from optim.benchmarks.suites.kernels import STREAMS, case_of
from optim.cli.main import app
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never
from optim.kernels.parameter_server import Adagrad, Adam, Momentum, Sgd, apply_pushes

TINY = {"parameters": 5000, "small_parameters": 3000, "pushed": 40, "width": 4, "rows": 30, "rounds": 2}

DENSE = [
    DenseCase(rule=rule, workers=3, parameters=40_001, is_half=is_half)
    for rule in ("sgd", "momentum", "adagrad", "adam")
    for is_half in (False, True)
]
SPARSE = [SparseCase(rule=rule, pushed=50, width=4, rows=30) for rule in ("sgd", "adagrad", "adam", "pull")]


def works(**request):
    return list(SUITES.get("kernels").build(BenchRequest(**request)))


class ServerHere:
    """Stands for the server's process, which takes a second to start: one test has the real one."""

    def __init__(self, start, pushes, rate):
        self.held, self.pushes, self.rate = start.copy(), pushes, np.float32(rate)

    def update(self):
        self.held -= self.rate * np.mean(self.pushes, axis=0)

    def parameters(self):
        return self.held

    def close(self):
        pass


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    """Let the roof's buffers be small: nothing is judged by them here."""
    monkeypatch.setattr("optim.benchmarks.kernels.roof.third_level_cache", lambda: 1 << 16)
    monkeypatch.setattr("optim.benchmarks.kernels.dense_cases.ServerProcess", ServerHere)


def test_a_server_in_a_process_of_its_own_applies_what_lies_in_shared_memory():
    rng = np.random.default_rng(0)
    start, pushes = rng.random(5000, dtype=np.float32), [rng.random(5000, dtype=np.float32) for _ in range(3)]
    server = ServerProcess(start, pushes, 0.1)
    for _ in range(2):
        server.update()
    assert server.parameters() == pytest.approx(start - 0.2 * np.mean(pushes, axis=0), abs=1e-6)
    before = server.parameters()
    pushes[1][:] = 0  # each round writes what the workers have then
    server.update()
    assert server.parameters() == pytest.approx(before - 0.1 * (pushes[0] + pushes[2]) / 3, abs=1e-6)
    server.close()
    with pytest.raises((RuntimeError, ValueError)):
        server.update()


STREAM = [StreamCase(kernel=kernel, parameters=4001, workers=5 if kernel == "async-sgd" else 1) for kernel in STREAMS]


@pytest.mark.parametrize("case", [*DENSE, *SPARSE, *STREAM], ids=lambda case: f"{case.kernel}")
def test_kernel_and_numpy_agree_round_after_round(case):
    contest = case.contest(np.random.default_rng(1))
    for _ in range(4):
        contest.calls[JAX]()
        contest.calls["numpy"]()
        contest.calls.get("process", lambda: None)()
        assert contest.error() <= 1e-4
    contest.close()


@pytest.mark.prove
@pytest.mark.parametrize("size", ["small", "full"])
def test_every_row_is_measured_and_verified(size):
    records = [work.run(Never(), SilentProgress()) for work in works(size=size, options=TINY)]
    assert all(record.objective is None for record in records), "a checksum is no objective"
    assert all(record.error is None and record.verified and record.has_answer for record in records)
    kernels = [record.parameters["kernel"] for record in records]
    assert {"dense-sgd", "dense-adam", "sparse-sgd", "sparse-adagrad"} <= set(kernels)
    for record in records:
        row = record.parameters | record.measures
        assert row["milliseconds"] > 0
        assert row["gigabytes_per_s"] > 0
        speed = row["gigabytes_per_s"]
        assert row["share_of_roof"] == pytest.approx(speed / row["roof_gigabytes_per_s"])
        assert row["share_of_in_place"] == pytest.approx(speed / row["in_place_gigabytes_per_s"])
        assert row["numpy_ms"] > 0
        assert {"workers", "parameters", "shape", "device", "numba_ms", "torch_ms", "ray_ms"} <= set(row)


def test_numba_does_the_same_work_where_it_has_a_state_of_its_own():
    rng = np.random.default_rng(0)
    total, left, gradient = np.zeros(200, np.float32), np.zeros(200, np.float32), rng.random(200, dtype=np.float32)
    loop.push_int8(total, left, gradient, rng.random(200, dtype=np.float32), 127.0)
    assert total + left == pytest.approx(gradient, abs=1e-6)
    assert np.abs(left).max() <= np.abs(gradient).max() / 127
    held, weights = gradient.copy(), np.array([1.0, 0.5], np.float32)
    loop.damped_sgd(held, np.stack([gradient, gradient]), weights, 0.1)
    assert held == pytest.approx(gradient * 0.85, abs=1e-6)


@pytest.mark.parametrize(
    ("rule", "loop", "settings"),
    [
        (Sgd(learning_rate=0.1), loop.dense_sgd, (0.1,)),
        (Momentum(learning_rate=0.1, decay=0.8), loop.dense_momentum, (0.1, 0.8)),
        (Adagrad(learning_rate=0.1), loop.dense_adagrad, (0.1, 1e-10)),
        (Adam(learning_rate=0.1), loop.dense_adam, (0.1, 0.9, 0.999, 1e-8, 1)),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "learning_rate") else "",
)
def test_numba_makes_the_kernels_update_part_by_part(rule, loop, settings):
    rng = np.random.default_rng(0)
    start, pushes = rng.random(90, dtype=np.float32), [rng.random(90, dtype=np.float32) for _ in range(3)]
    own = [start.copy(), *(np.zeros(90, np.float32) for _ in range(rule.num_slots))]
    for low, high in ((0, 40), (40, 90)):
        loop(*own, tuple(pushes), *settings, low, high)
    parameters = jnp.array(start)
    sent = [jnp.array(push) for push in pushes]
    found, slots = apply_pushes(
        parameters, rule.initial_slots(parameters), sent, jnp.ones(3), jnp.int32(0), optimiser=rule
    )
    for mine, other in zip((found, *slots), own, strict=True):
        assert np.asarray(mine) == pytest.approx(other, abs=1e-5)


def test_the_command_prints_the_promised_fields_of_each_kernel(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = [word for name, value in TINY.items() for word in ("--option", f"{name}={value}")]
    result = CliRunner().invoke(app, ["bench", "kernels", *options, "--format", "json", "--no-report"])
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert {"dense-sgd", "dense-adam", "sparse-sgd", "sparse-adagrad", *STREAMS} == {row["kernel"] for row in rows}
    fields = ("workers", "parameters", "shape", "device", "milliseconds", "gigabytes_per_s", "share_of_roof")
    for row in rows:
        assert row["verified"]
        assert row["share_of_roof"] == pytest.approx(row["gigabytes_per_s"] / row["roof_gigabytes_per_s"])
        assert row["share_of_in_place"] == pytest.approx(row["gigabytes_per_s"] / row["in_place_gigabytes_per_s"])
        assert row["speedup_over_numpy"] == pytest.approx(row["numpy_ms"] / row["milliseconds"])
        assert {*fields, "numpy_ms", "numba_ms", "xla_ms", "torch_ms", "ray_ms", "process_ms"} <= set(row)
        assert row["parameters"]["parameters"] >= row["shape"][-1]


def test_the_answer_is_no_time():
    first, again = (next(iter(works(options=TINY))).run(Never(), SilentProgress()) for _ in range(2))
    assert first.findings == again.findings != {}


def test_full_size_holds_the_sizes_that_are_asked_about():
    subjects = [case_of(work.subject.drawn_from[0], work.chosen) for work in works(size="full")]
    dense = {(case.kernel, case.workers, case.parameters) for case in subjects if isinstance(case, DenseCase)}
    assert {("dense-sgd", 4, 1 << 24), ("dense-sgd", 16, 1 << 24), ("dense-adam", 4, 1 << 24)} <= dense
    sparse = {(case.kernel, *case.shape) for case in subjects if isinstance(case, SparseCase)}
    assert {("sparse-sgd", 262_144, 64, 1_000_000), ("sparse-adagrad", 262_144, 64, 1_000_000)} <= sparse


def test_bytes_are_those_that_must_be_moved():
    assert DenseCase(rule="sgd", workers=4, parameters=100).moved == 4 * 100 * 6
    assert DenseCase(rule="adam", workers=4, parameters=100).moved == 4 * 100 * 10
    assert DenseCase(rule="sgd", workers=4, parameters=100, is_half=True).moved == 100 * (2 * 4 + 8)
    assert SparseCase(rule="pull", pushed=10, width=8, rows=50).moved == 8 * 10 * 8
    assert StreamCase(kernel="async-sgd", parameters=100, workers=16).moved == 4 * 100 * 18
    assert StreamCase(kernel="push", parameters=100).moved == 12 * 100
    one = SparseCase(rule="adagrad", pushed=1, width=8, rows=1000)
    assert one.moved == pytest.approx(4 * 8 + 4 + 16 * 8, abs=1)


def test_the_roofs_buffers_are_larger_than_any_cache(monkeypatch):
    roof = Roof()
    assert roof.moved == 8 * TIMES_THE_CACHE * (1 << 16) // 4
    roof.in_place()
    roof.copy()
    assert np.asarray(roof._target[:3]).tolist() == [1.5] * 3
    monkeypatch.undo()
    assert third_level_cache() >= 1 << 18


@pytest.mark.parametrize("request_", [{"solvers": ("simplex",)}, {"options": {"tol": 1}}, {"options": {"rounds": 0}}])
def test_refuses_other_sides_and_options(request_):
    with pytest.raises(InvalidOptionError):
        works(**request_)
