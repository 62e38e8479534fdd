"""Gavel's jobs: steps become seconds by the table of throughputs."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.workloads.admission.traces import TraceOptions, read_trace
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.gavel import NO_WORK, UNKNOWN_TYPE, read_throughputs
from optim.workloads.traces.job_table import ReadOptions
from tests.support.trace_files import ROOMY, gavel_file


def test_gavels_steps_become_seconds_by_the_throughput_of_the_gpu(tmp_path: Path) -> None:
    path = gavel_file(tmp_path, [("x", 0, "A", 3600, 0.0, 1)])
    lasts = {
        gpu: read_trace(path, "gavel", TraceOptions(**ROOMY, gpu_type=gpu), 0)[0].work.tolist()
        for gpu in ("v100", "k80")
    }
    assert lasts == {"v100": [2], "k80": [8]}


def test_throughputs_of_other_numbers_of_gpus_are_extrapolated_and_counted(tmp_path: Path) -> None:
    rows = [
        ("x", 0, "A", 900 * 12, 0.0, 8),
        ("x", 1, "A", 900 * 4, 0.0, 2),
        ("x", 2, "B (batch size 2)", 900 * 5, 0.0, 1),
    ]
    instance, summary = read_trace(gavel_file(tmp_path, rows), "gavel", TraceOptions(**ROOMY), 0)
    # Rates 6 * 8 / 4 = 12, 2 * 2 = 4, and 10 / 2 = 5: a slot each.
    assert instance.work.tolist() == [8, 2, 1]
    assert "3 of 3 jobs are extrapolated" in summary.notes[0]


def test_virtual_clusters_of_gavel_are_not_laid_over_each_other(tmp_path: Path) -> None:
    rows = [("x", 0, "A", 10, 0.0, 1), ("y", 0, "A", 10, 5.0, 1), ("y", 1, "A", 10, 6.0, 1)]
    instance = read_trace(gavel_file(tmp_path, rows), "gavel", TraceOptions(**ROOMY), 0)[0]
    assert instance.jobs.ids == ("y-0", "y-1")


def test_job_types_without_a_throughput_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [("x", 0, "A", 10, 0.0, 1), ("x", 1, "C", 10, 0.0, 1)]
    summary = read_trace(gavel_file(tmp_path, rows), "gavel", TraceOptions(**ROOMY), 0)[1]
    assert summary.dropped[UNKNOWN_TYPE] == 1


def test_refuses_gavels_jobs_without_a_usable_table(tmp_path: Path) -> None:
    path = gavel_file(tmp_path, [("x", 0, "A", 10, 0.0, 1)])
    with pytest.raises(
        InvalidProblemError, match=r"GPU type 'h100' is missing from the throughput table \(there are: v100, k80"
    ):
        read_trace(path, "gavel", TraceOptions(**ROOMY, gpu_type="h100"), 0)
    table = tmp_path / "simulation_throughputs.json.gz"
    table.write_text("{", encoding="utf-8")
    with pytest.raises(InvalidProblemError, match="not JSON"):
        read_trace(path, "gavel", TraceOptions(**ROOMY), 0)
    table.write_text('{"v100": {"A": 1}}', encoding="utf-8")
    with pytest.raises(InvalidProblemError, match="entry 'A' must be"):
        read_trace(path, "gavel", TraceOptions(**ROOMY), 0)
    table.write_text('{"v100": {"(\'A\', 1)": {"null": "fast"}}}', encoding="utf-8")
    with pytest.raises(InvalidProblemError, match=r"entry .* must be \('type', GPUs\) with a rate 'null'"):
        read_trace(path, "gavel", TraceOptions(**ROOMY), 0)
    table.unlink()
    with pytest.raises(InvalidProblemError, match="no throughput table"):
        read_trace(path, "gavel", TraceOptions(**ROOMY), 0)


def test_rates_tell_run_times_on_every_gpu_type_and_the_slowdown_of_scattered_gangs(tmp_path: Path) -> None:
    path = gavel_file(tmp_path, [("x", 0, "A", 10, 0.0, 1), ("x", 1, "A", 10, 1.0, 4)])
    content = json.loads(gzip.decompress((tmp_path / "simulation_throughputs.json.gz").read_bytes()))
    content["v100_unconsolidated"] = {"('A', 4)": {"null": 4.0}}
    (tmp_path / "table.json").write_text(json.dumps(content), encoding="utf-8")
    table = read_jobs(path, "gavel", ReadOptions(throughputs=tmp_path / "table.json"))
    assert table.types == ("v100", "k80")
    assert table.type_ratio is not None
    assert table.type_ratio.tolist() == [[1, 4], [1, 3]]
    assert table.slowdown is not None
    assert table.slowdown.tolist() == [[1, 1, 1], [1, 1.5, 1.5]]


def test_rates_of_two_jobs_on_the_same_gpus_are_kept(tmp_path: Path) -> None:
    gavel_file(tmp_path, [("x", 0, "A", 10, 0.0, 1)])
    table = read_throughputs(tmp_path / "simulation_throughputs.json.gz")
    assert table.beside["v100"] == {(("A", 1), ("A", 1)): (1.0, 1.0)}
    bad = tmp_path / "bad.json"
    bad.write_text("""{"v100": {"('A', 1)": {"null": 2, "('A', 1)": [1]}}}""", encoding="utf-8")
    with pytest.raises(InvalidProblemError, match="must have two rates"):
        read_throughputs(bad)


def test_jobs_without_a_step_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [("x", 0, "A", 10, 0.0, 1), ("x", 1, "A", 0, 0.0, 1)]
    table = read_jobs(gavel_file(tmp_path, rows), "gavel", ReadOptions())
    assert table.ids == ("x-0",)
    assert table.dropped[NO_WORK] == 1


FORMS = {
    7: "{kind}\t{command}\t-step\t1\t{steps}\t{arrival}\t{gpus}",
    8: "{kind}\t{command}\tdir\t-step\t1\t{steps}\t{arrival}\t{gpus}",
    9: "{kind}\t{command}\t-step\t1\t{steps}\t{gpus}\t1\t-1.0\t{arrival}",
    10: "{kind}\t{command}\tdir\t-step\t1\t{steps}\t{gpus}\t1\t-1.0\t{arrival}",
    11: "{kind}\t{command}\tdir\t-step\t1\t{steps}\t{gpus}\tstatic\t1\t-1.0\t{arrival}",
    12: "{kind}\t{command}\tdir\t-step\t1\t{steps}\t{gpus}\tgns\t1\t-1.0\t99\t{arrival}",
}
"""How public simulators write a job, by the number of fields."""
COMMAND = 'cd %s/x && python3 t.py --text "a, b'


def _tabs(folder: Path, form: str, rows: list[tuple[str, object, object, object]]) -> Path:
    gavel_file(folder, [])  # for its throughput table
    path = folder / "a.trace"
    names = ("kind", "steps", "arrival", "gpus")
    path.write_text("".join(form.format(command=COMMAND, **dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("width", FORMS)
def test_tables_of_tabs_without_a_header_are_read_in_each_public_form(tmp_path: Path, width: int) -> None:
    rows = [("A", 3600, "0.000000", 1), ("B (batch size 2)", 50, 6.5, 2), ("A", 100, 7, 0), ("C", 5, 8, 1)]
    table = read_jobs(_tabs(tmp_path, FORMS[width], rows), "gavel", ReadOptions())
    assert (table.ids, table.model.tolist()) == (("row-0", "row-1"), ["A", "B (batch size 2)"])
    assert (table.submit_s.tolist(), table.workers.tolist()) == ([0, 6.5], [1, 2])
    assert table.duration_s.tolist() == [1800, 5]
    assert {reason: count for reason, count in table.dropped.items() if count} == {
        "jobs without a GPU": 1,
        UNKNOWN_TYPE: 1,
    }
    assert np.array_equal(table.clock, [0, 0])


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("A\tx\t1\n", "its first row has 3 fields separated by tabs; Gavel's tables have 7 to 12"),
        ("A\tx\t-s\t1\t5\t0\t1\nA\tx\t-s\t1\t5\t0\n", r"row 2 has fewer fields than the first row \(6, not 7\)"),
        ("A\tx\t-s\t1\t5\t0\t1\nA\tx\t-s\t1\t5\t0\t1\t2\n", r"row 2 has more fields than the first row \(8, not 7\)"),
        ("A\tx\t-s\t1\t5\t0\t1\nA\tx\t-s\t1\tmany\t0\t1\n", "row 2, column 'total_steps': expected a finite number"),
        ("A\tx\t-s\t1\t5\t0\t1.5\n", "row 1, column 'scale_factor': expected an integer, got 1.5"),
    ],
)
def test_a_bad_table_of_tabs_gives_one_clear_line(tmp_path: Path, text: str, cause: str) -> None:
    gavel_file(tmp_path, [])
    path = tmp_path / "a.trace"
    path.write_text(text)
    with pytest.raises(InvalidProblemError, match=cause):
        read_jobs(path, "gavel", ReadOptions())
