"""The kernels' suite: which rows there are, what they tell, and that none depends on a clock."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from optim.benchmarks.kernels.dense_cases import DenseCase
from optim.benchmarks.kernels.sparse_cases import SparseCase
from optim.benchmarks.registry import SUITES
from optim.benchmarks.spec import BenchRequest
from optim.benchmarks.suites.kernels import STREAMS, case_of
from optim.cli.main import app
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never

TINY = {"parameters": 5000, "small_parameters": 3000, "pushed": 40, "width": 4, "rows": 30, "rounds": 2}


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


@pytest.mark.parametrize("request_", [{"solvers": ("simplex",)}, {"options": {"tol": 1}}, {"options": {"rounds": 0}}])
def test_refuses_other_sides_and_options(request_):
    with pytest.raises(InvalidOptionError):
        works(**request_)
