"""The kernels' suite: its rows, their contents, and their independence of clocks."""

import json

import pytest
from optim_studies.kernels.cases import DenseCase, SparseCase
from optim_studies.kernels.study import STREAMS, _figures, case_of
from typer.testing import CliRunner

from optim.benchmarks.suite import SUITES, BenchRequest
from optim.cli.main import app
from optim.core.errors import InvalidOptionError
from optim.core.progress import SilentProgress
from optim.core.stopping import Never

TINY = {"parameters": 5000, "small_parameters": 3000, "pushed": 40, "width": 4, "rows": 30, "rounds": 2}


def works(**request):
    return list(SUITES.get("kernels").build(BenchRequest(**request)))


@pytest.fixture(autouse=True)
def small_cache(monkeypatch, server_here):
    """Make the buffers of the roofline small: these tests do not judge times."""
    monkeypatch.setattr("optim_studies.kernels.memory_speed.roof_bytes", lambda: 1 << 16)


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
        assert row["share_of_roof"] is row["share_of_in_place"] is None, "all of it lies in the cache"
        assert row["roof_gigabytes_per_s"] > 0 and row["in_place_gigabytes_per_s"] > 0  # noqa: PT018
        assert row["numpy_ms"] > 0
        assert {"workers", "parameters", "shape", "device", "numba_ms", "torch_ms", "ray_ms"} <= set(row)


@pytest.mark.prove
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
        assert row["share_of_roof"] is row["share_of_in_place"] is None, "all of it lies in the cache"
        assert row["share_of_loop"] is None or 0 < row["share_of_loop"] <= 1
        assert row["roof_set_mb"] > 0
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


def test_no_share_is_above_one_and_the_best_passes_are_the_roofs(monkeypatch):
    class Passes:
        """A pass in place of 10 GB/s at best, and a copy of 5."""

        set_bytes = 1 << 20

        def speeds(self, best_s):
            assert best_s["roof_copy"] == 1.0, "the fastest of the rounds"
            return {"roof_in_place": 10e9, "roof_copy": 5e9}

    monkeypatch.setattr("optim.core.limits.last_level_cache", lambda: 10**6)
    rounds = {
        "jax": [(1.0, 1.0)] * 3,
        "roof_copy": [(2.0, 1), (1.0, 1), (9.0, 1)],
        "numba": [(4.0, 4)],
        "c": [(0.9, 1)],
    }
    found = _figures(8 * 10**9, Passes(), rounds)
    assert (found["share_of_roof"], found["share_of_in_place"]) == (1.0, 0.8)
    assert (found["share_of_loop"], found["best_loop"]) == (0.9, "c")
    assert (found["roof_gigabytes_per_s"], found["working_set_mb"], found["roof_set_mb"]) == (5.0, 8000.0, 1.048576)
    assert (found["processor_ms"], found["numba_ms"], found["numba_processor_ms"]) == (1000.0, 4000.0, 4000.0)
    assert found["torch_ms"] is found["torch_processor_ms"] is None
    assert _figures(10**6, Passes(), rounds)["share_of_roof"] is None, "in the cache"
    assert _figures(8 * 10**9, Passes(), rounds | {"c": [(1.5, 1)]})["share_of_loop"] == 1.0
