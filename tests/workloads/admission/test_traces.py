"""Readers of public traces, on small made-up files and, where they are there, on the traces themselves."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.admission.instance import MICRO, AdmissionInstance
from optim.models.admission.problem import PROBLEM
from optim.models.admission.utility import SigmoidUtility
from optim.workloads.admission.traces import TRACE_FORMATS, TraceOptions, read_trace
from optim.workloads.traces.alibaba import NEVER_RAN, NO_GPU
from optim.workloads.traces.gavel import UNKNOWN_TYPE
from optim.workloads.traces.job_table import ELSEWHERE, NO_WORK
from tests.support.public_traces import trace_file

MERGED = ("job_id", "submit_s", "num_gpus", "duration_s", "vc")
POLLUX = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
GAVEL = ("vc", "idx", "job_type", "total_steps", "arrival_s", "scale_factor")
PODS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")

Rows = Sequence[Sequence[object]]

ROOMY: dict[str, Any] = {"num_slots": 10, "num_worker_servers": 20, "num_ps_servers": 20}
"""A cluster that holds everything, and a horizon of 10 slots of 15 minutes."""


def _write(path: Path, header: Sequence[str], rows: Rows) -> Path:
    lines = [",".join(header), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _philly(folder: Path, rows: Rows) -> Path:
    return _write(folder / "jobs.csv", MERGED, rows)


def _read(path: Path, **options: Any) -> AdmissionInstance:
    return read_trace(path, "philly", TraceOptions(**{**ROOMY, **options}), 0)[0]


def test_a_job_gets_its_gpus_times_its_slots_as_work(tmp_path: Path) -> None:
    instance = _read(_philly(tmp_path, [(0, 0, 4, 1801, "a"), (1, 0, 1, 900, "a")]))
    assert instance.work.tolist() == [4 * 3, 1]
    assert instance.jobs.chunks.tolist() == [8, 2]
    assert instance.jobs.ids == ("philly-0", "philly-1")


@pytest.mark.parametrize("factor", [2.0, 3.0, 1.5, 0.7, 7.3])
@pytest.mark.parametrize("slot_minutes", [15.0, 1.0, 7.1])
def test_work_is_met_exactly_whatever_the_chunks(tmp_path: Path, factor: float, slot_minutes: float) -> None:
    rows = [(i, 0, gpus, seconds, "") for i, (gpus, seconds) in enumerate([(1, 1), (3, 2000), (8, 50_000)])]
    path = _philly(tmp_path, rows)
    options = {"chunks_per_gpu": factor, "slot_minutes": slot_minutes, "num_slots": 2000}
    slots = [int(np.ceil(seconds / (60 * slot_minutes))) for _, _, _, seconds, _ in rows]
    expected = [gpus * number for (_, _, gpus, _, _), number in zip(rows, slots, strict=True)]
    assert _read(path, **options).work.tolist() == expected


def test_refuses_slots_too_short_to_meet_the_work(tmp_path: Path) -> None:
    path = _philly(tmp_path, [(0, 0, 1, 40_000, "")])
    with pytest.raises(InvalidOptionError, match="slot_minutes must be longer"):
        _read(path, chunks_per_gpu=299.0, slot_minutes=0.01, num_slots=10)


def test_one_ps_serves_four_workers(tmp_path: Path) -> None:
    instance = _read(_philly(tmp_path, [(0, 0, 4, 900, "")]))
    assert instance.ps_needed[0].tolist() == [0, 1, 1, 1, 1]  # W = 4 caps the workers
    assert (instance.jobs.gradient_micro_mb == 0).all()


def test_demands_are_those_of_the_options(tmp_path: Path) -> None:
    jobs = _read(_philly(tmp_path, [(0, 0, 1, 900, "")])).jobs
    assert (jobs.worker_demand / MICRO).tolist() == [[1, 4, 16]]
    assert (jobs.ps_demand / MICRO).tolist() == [[0, 2, 8]]


def test_target_delays_are_one_to_four_shortest_durations(tmp_path: Path) -> None:
    instance = _read(_philly(tmp_path, [(i, 0, 2, 5 * 900, "") for i in range(50)]), num_jobs=50)
    shortest = 3  # 10 worker-slots by at most 4 workers
    targets = [utility.theta3 for utility in instance.jobs.utilities if isinstance(utility, SigmoidUtility)]
    assert len(targets) == 50
    assert min(targets) >= shortest
    assert max(targets) <= 4 * shortest
    assert max(targets) > 2 * min(targets)


def test_no_job_starts_before_its_submission(tmp_path: Path) -> None:
    rows = [(0, 100, 1, 900, ""), (1, 101, 1, 900, ""), (2, 1000, 1, 900, ""), (3, 1001, 1, 900, "")]
    instance = _read(_philly(tmp_path, rows))
    # Slots begin at 100, 1000, 1900 s.
    assert instance.jobs.arrival.tolist() == [0, 1, 1, 2]


def test_the_window_is_the_busiest_span_of_the_horizon(tmp_path: Path) -> None:
    lonely = [(i, 1_000_000 * i, 1, 900, "") for i in range(3)]
    crowd = [(10 + i, 7_000_000 + 60 * i, 1, 900, "") for i in range(5)]
    path = _philly(tmp_path, [*lonely, *crowd, (99, 9_000_000, 1, 900, "")])
    instance, summary = read_trace(path, "philly", TraceOptions(**ROOMY), 0)
    assert instance.jobs.ids == tuple(f"philly-{10 + i}" for i in range(5))
    assert (summary.window_start_s, summary.window_submissions) == (7_000_000.0, 5)


def test_the_window_ends_where_a_job_could_no_longer_start(tmp_path: Path) -> None:
    # With 2 slots of 900 s, a job submitted after 900 s would arrive in slot 2.
    path = _philly(tmp_path, [(0, 0, 1, 9, ""), (1, 900, 1, 9, ""), (2, 901, 1, 9, "")])
    summary = read_trace(path, "philly", TraceOptions(**{**ROOMY, "num_slots": 2}), 0)[1]
    assert summary.window_submissions == 2


def test_a_job_that_could_no_longer_start_does_not_make_a_window_busier(tmp_path: Path) -> None:
    rows = [(0, 0, 1, 9, ""), (1, 900, 1, 9, ""), (2, 1000, 1, 9, "")]
    later = [(10 + i, 1_000_000 + 100 * i, 1, 9, "") for i in range(3)]
    summary = read_trace(_philly(tmp_path, [*rows, *later]), "philly", TraceOptions(**{**ROOMY, "num_slots": 2}), 0)[1]
    assert (summary.window_start_s, summary.window_submissions) == (1_000_000.0, 3)


def test_a_window_can_be_asked_for(tmp_path: Path) -> None:
    path = _philly(tmp_path, [(0, 0, 1, 900, ""), (1, 5000, 1, 900, ""), (2, 5001, 1, 900, "")])
    assert _read(path, window_start_s=0.0, num_slots=3).jobs.ids == ("philly-0",)
    with pytest.raises(InvalidOptionError, match="no job is submitted in the window from 1e\\+06 s"):
        _read(path, window_start_s=1e6)


def test_the_sample_is_drawn_by_the_seed(tmp_path: Path) -> None:
    path = _philly(tmp_path, [(i, 0, 1, 900, "") for i in range(100)])
    options = TraceOptions(**ROOMY, num_jobs=20)
    first, again, other = (read_trace(path, "philly", options, seed)[0] for seed in (3, 3, 4))
    assert PROBLEM.write_instance(first) == PROBLEM.write_instance(again)
    assert first.jobs.ids != other.jobs.ids
    assert len(set(first.jobs.ids)) == 20


def test_a_window_with_fewer_jobs_gives_all(tmp_path: Path) -> None:
    assert _read(_philly(tmp_path, [(0, 0, 1, 900, ""), (1, 1, 1, 900, "")])).num_jobs == 2


def test_the_cluster_holds_half_of_the_gpu_slots(tmp_path: Path) -> None:
    rows = [(i, 0, 2, 4 * 900, "") for i in range(30)]
    instance, summary = read_trace(_philly(tmp_path, rows), "philly", TraceOptions(num_slots=12), 0)
    assert summary.gpu_slots == 30 * 8
    assert summary.cluster_gpu_slots == 120
    assert instance.worker_servers.num_servers == 5  # 10 GPUs, two a server
    assert instance.ps_servers.num_servers == 3  # PSs for every second GPU, two a server


def test_jobs_that_cannot_end_in_time_do_not_size_the_cluster(tmp_path: Path) -> None:
    rows = [(i, 0, 2, 4 * 900, "") for i in range(30)]
    endless = (99, 0, 8, 900_000, "")
    summary = read_trace(_philly(tmp_path, [*rows, endless]), "philly", TraceOptions(num_slots=12), 0)[1]
    assert summary.cluster_gpu_slots == 120
    assert (summary.num_jobs, summary.schedulable_jobs) == (31, 30)


def test_jobs_that_cannot_end_on_the_cluster_do_not_size_it(tmp_path: Path) -> None:
    rows = [(i, 0, 2, 4 * 900, "") for i in range(30)]
    wide = (99, 0, 32, 10 * 900, "")  # 320 worker-slots by up to 64 workers; with it 24 GPUs, which do 288
    summary = read_trace(_philly(tmp_path, [*rows, wide]), "philly", TraceOptions(num_slots=12), 0)[1]
    assert summary.cluster_gpu_slots == 120
    assert (summary.num_jobs, summary.schedulable_jobs) == (31, 30)


def test_an_odd_gpu_is_a_server_of_its_own(tmp_path: Path) -> None:
    path = _philly(tmp_path, [(i, 0, 1, 4 * 900, "") for i in range(15)])
    servers = _read(path, num_worker_servers=None, num_slots=10).worker_servers
    assert (servers.capacity[:, 0, 0] / MICRO).tolist() == [2, 1]
    assert servers.count.tolist() == [1, 1]


def test_refuses_a_sample_of_which_most_cannot_finish(tmp_path: Path) -> None:
    path = _philly(tmp_path, [(0, 0, 1, 900, ""), (1, 0, 1, 90_000, ""), (2, 0, 1, 90_000, "")])
    with pytest.raises(InvalidProblemError, match="only 1 of 3 sampled jobs can finish before the horizon"):
        _read(path)
    assert _read(path, min_schedulable=0.3).num_jobs == 3
    assert _read(path, max_duration_s=1800.0).work.tolist() == [1, 2, 2]


def test_the_summary_counts_what_was_cut_and_left_out(tmp_path: Path) -> None:
    rows = [(0, 0, 1, 900, "a"), (1, 0, 1, 9000, "a"), (2, 0, 1, 0, "a"), (3, 0, 1, 900, "b")]
    options = TraceOptions(**ROOMY, max_duration_s=1800.0, virtual_cluster="a")
    summary = read_trace(_philly(tmp_path, rows), "philly", options, 0)[1]
    assert summary.dropped == {NO_WORK: 1, ELSEWHERE: 1}
    assert (summary.rows_read, summary.num_jobs, summary.cut_jobs) == (4, 2, 1)
    for part in ("4 rows read", f"1 {NO_WORK}", "2 can finish alone", "1 run times cut"):
        assert part in str(summary)


def test_says_which_rows_were_left_out_when_none_is_left(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblemError, match=f"no job is left of 1 rows: 1 {NO_WORK}"):
        _read(_philly(tmp_path, [(0, 0, 1, 0, "")]))


def test_reads_the_list_of_pollux_which_is_not_in_order(tmp_path: Path) -> None:
    rows = [
        ("2017-10-09 07:15:01", 900.0, 2, 1800.0, "11cb48"),
        ("2017-10-09 07:00:00", 1800.0, 1, 1800.0, "11cb48"),
    ]
    instance = _read(_write(tmp_path / "pollux.csv", POLLUX, rows))
    assert instance.jobs.ids == ("row-1", "row-0")
    assert instance.jobs.arrival.tolist() == [0, 2]
    assert instance.work.tolist() == [2, 2]


def _gavel(folder: Path, rows: Rows) -> Path:
    table = {
        "v100": {
            "('A', 1)": {"null": 2.0, "('A', 1)": [1.0, 1.0]},
            "('A', 4)": {"null": 6.0},
            "('B (batch size 2)', 2)": {"null": 10.0},
        },
        "k80": {"('A', 1)": {"null": 0.5}},
    }
    with gzip.open(folder / "simulation_throughputs.json.gz", "wt") as file:
        json.dump(table, file)
    return _write(folder / "jobs.csv", GAVEL, rows)


def test_gavels_steps_become_seconds_by_the_throughput_of_the_gpu(tmp_path: Path) -> None:
    path = _gavel(tmp_path, [("x", 0, "A", 3600, 0.0, 1)])
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
    instance, summary = read_trace(_gavel(tmp_path, rows), "gavel", TraceOptions(**ROOMY), 0)
    # Rates 6 * 8 / 4 = 12, 2 * 2 = 4, and 10 / 2 = 5: a slot each.
    assert instance.work.tolist() == [8, 2, 1]
    assert "3 of 3 jobs are extrapolated" in summary.notes[0]


def test_virtual_clusters_of_gavel_are_not_laid_over_each_other(tmp_path: Path) -> None:
    rows = [("x", 0, "A", 10, 0.0, 1), ("y", 0, "A", 10, 5.0, 1), ("y", 1, "A", 10, 6.0, 1)]
    instance = read_trace(_gavel(tmp_path, rows), "gavel", TraceOptions(**ROOMY), 0)[0]
    assert instance.jobs.ids == ("y-0", "y-1")


def test_job_types_without_a_throughput_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [("x", 0, "A", 10, 0.0, 1), ("x", 1, "C", 10, 0.0, 1)]
    summary = read_trace(_gavel(tmp_path, rows), "gavel", TraceOptions(**ROOMY), 0)[1]
    assert summary.dropped[UNKNOWN_TYPE] == 1


def test_refuses_gavels_jobs_without_a_usable_table(tmp_path: Path) -> None:
    path = _gavel(tmp_path, [("x", 0, "A", 10, 0.0, 1)])
    with pytest.raises(InvalidProblemError, match=r"GPU type 'h100' is missing \(there are: v100, k80"):
        read_trace(path, "gavel", TraceOptions(**ROOMY, gpu_type="h100"), 0)
    table = tmp_path / "simulation_throughputs.json.gz"
    table.write_text("{", encoding="utf-8")
    with pytest.raises(InvalidProblemError, match="not JSON"):
        read_trace(path, "gavel", TraceOptions(**ROOMY), 0)
    table.write_text('{"v100": {"A": 1}}', encoding="utf-8")
    with pytest.raises(InvalidProblemError, match="entry 'A' must be"):
        read_trace(path, "gavel", TraceOptions(**ROOMY), 0)
    table.unlink()
    with pytest.raises(InvalidProblemError, match="no throughput table"):
        read_trace(path, "gavel", TraceOptions(**ROOMY), 0)


def _alibaba(folder: Path, pods: Rows, nodes: Rows | None = None) -> Path:
    whole: Rows = [("n0", 96_000, 393_216, 8, "G2"), ("n1", 64_000, 262_144, 2, "T4"), ("n2", 32_000, 262_144, 0, "")]
    _write(folder / "openb_node_list_all_node.csv", NODES, whole if nodes is None else nodes)
    return _write(folder / "pods.csv", PODS, pods)


def _pod(name: str, gpus: int, milli: int, times: tuple[object, object, object], phase: str = "Failed") -> list[object]:
    return [name, 6000, 12288, gpus, milli, phase, *times]


def test_a_pod_with_part_of_a_gpu_is_one_worker_with_that_part(tmp_path: Path) -> None:
    path = _alibaba(tmp_path, [_pod("half", 1, 460, (0, 1800, 0)), _pod("two", 2, 1000, (0, 900, 0))])
    instance = read_trace(path, "alibaba", TraceOptions(num_slots=10), 0)[0]
    assert (instance.jobs.worker_demand / MICRO).tolist() == [[0.46, 6, 12], [1, 3, 6]]
    assert instance.work.tolist() == [2, 2]


def test_pods_that_never_ran_or_have_no_gpu_are_left_out_and_counted(tmp_path: Path) -> None:
    pods = [
        _pod("ran", 1, 1000, (0, 900, 0), "Running"),
        _pod("pending", 1, 1000, (0, 900, ""), "Pending"),
        _pod("cpu", 0, 0, (0, 900, 0)),
        _pod("instant", 1, 1000, (0, 5, 5)),
    ]
    summary = read_trace(_alibaba(tmp_path, pods), "alibaba", TraceOptions(num_slots=10), 0)[1]
    assert summary.dropped == {NEVER_RAN: 1, NO_GPU: 1, NO_WORK: 1}
    assert "1 of 1 pods were still running" in summary.notes[0]


def test_run_times_begin_when_a_pod_is_scheduled(tmp_path: Path) -> None:
    path = _alibaba(tmp_path, [_pod("waited", 1, 1000, (0, 2700, 1800))])
    assert read_trace(path, "alibaba", TraceOptions(num_slots=10), 0)[0].work.tolist() == [1]


def test_nodes_with_gpus_host_workers_and_the_others_pss(tmp_path: Path) -> None:
    path = _alibaba(tmp_path, [_pod("one", 1, 1000, (0, 900, 0))])
    instance = read_trace(path, "alibaba", TraceOptions(num_slots=4, num_worker_servers=2), 0)[0]
    assert set(instance.worker_servers.types) == {"G2 x 8", "T4 x 2"}
    assert instance.ps_servers.types == ("CPU",)
    assert (instance.ps_servers.capacity[0, 0] / MICRO).tolist() == [0, 32, 256]


def test_nodes_larger_than_needed_are_left_out(tmp_path: Path) -> None:
    path = _alibaba(tmp_path, [_pod(f"p{i}", 1, 1000, (0, 3600, 0)) for i in range(4)])
    servers = read_trace(path, "alibaba", TraceOptions(num_slots=4), 0)[0].worker_servers
    assert servers.types == ("T4 x 2",)  # half of 16 GPU-slots in 4 slots: 2 GPUs


def test_nodes_too_small_for_most_workers_are_passed_over(tmp_path: Path) -> None:
    nodes = [("n0", 4_000, 393_216, 1, "tiny"), ("n1", 64_000, 262_144, 2, "T4"), ("n2", 32_000, 262_144, 0, "")]
    path = _alibaba(tmp_path, [_pod("one", 1, 1000, (0, 900, 0))], nodes)
    assert read_trace(path, "alibaba", TraceOptions(num_slots=4), 0)[0].worker_servers.types == ("T4 x 2",)


def test_refuses_a_cluster_that_the_nodes_cannot_give(tmp_path: Path) -> None:
    path = _alibaba(tmp_path, [_pod("one", 1, 1000, (0, 900, 0))])
    with pytest.raises(InvalidProblemError, match="num_worker_servers must be at most 2"):
        read_trace(path, "alibaba", TraceOptions(num_worker_servers=3), 0)
    only_gpus = _alibaba(tmp_path, [_pod("one", 1, 1000, (0, 900, 0))], [("n0", 96_000, 393_216, 8, "G2")])
    with pytest.raises(InvalidProblemError, match="no node to count as num_ps_servers"):
        read_trace(only_gpus, "alibaba", TraceOptions(), 0)
    (tmp_path / "openb_node_list_all_node.csv").unlink()
    with pytest.raises(InvalidProblemError, match="no node list"):
        read_trace(path, "alibaba", TraceOptions(), 0)


def test_alibaba_has_no_virtual_clusters(tmp_path: Path) -> None:
    path = _alibaba(tmp_path, [_pod("one", 1, 1000, (0, 900, 0))])
    with pytest.raises(InvalidOptionError, match="virtual_cluster must be None"):
        read_trace(path, "alibaba", TraceOptions(virtual_cluster="a"), 0)


def _truncated_gzip() -> bytes:
    return gzip.compress(b"job_id,submit_s,num_gpus,duration_s,vc\n" + b"0,0,1,900,\n" * 1000)[:-20]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the file is empty"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n", "has a header but no rows"),
        (b"job_id,submit_s,num_gpus,vc\n0,0,1,a\n", "column 'duration_s' is missing .there are: job_id"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,9,a\n1,0,1,long,a\n", "row 3, column 'duration_s': a finite"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,inf,1,9,a\n", "row 2, column 'submit_s': a finite number"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,nan,a\n", "row 2, column 'duration_s': a finite number"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,,9,a\n", "'num_gpus': must be at least 1, got nothing"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,0,9,a\n", "'num_gpus': must be at least 1, got 0"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1.5,9,a\n", "'num_gpus': a whole number is due, got 1.5"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,-9,a\n", "'duration_s': must be at least 0, got -9"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,-1,1,9,a\n", "'submit_s': must be at least 0"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,9,a,b,c\n0,0\n1,1,1,1,1,1,1,1\n", "not a CSV file"),
        (b"timestamp,duration,num_gpus,cluster\n2017-13-45,1,1,a\n", "column 'timestamp': YYYY-MM-DD hh:mm:ss is due"),
        (b"job_id,submit_s\xff\xfe,num_gpus,duration_s,vc\n0,0,1,9,a\n", "not a CSV file"),
        (_truncated_gzip(), "gzip data is damaged or truncated"),
    ],
    ids=lambda value: value[:24].replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_bad_file_gives_one_clear_line(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidProblemError, match=text) as caught:
        read_trace(path, "philly", TraceOptions(), 0)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_gives_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblemError, match="can't be read"):
        read_trace(tmp_path / "absent.csv", "philly", TraceOptions(), 0)


def test_an_unknown_format_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="one of philly, gavel, alibaba, got 'helios'"):
        read_trace(tmp_path, "helios", TraceOptions(), 0)
    assert TRACE_FORMATS == ("philly", "gavel", "alibaba")


@pytest.mark.parametrize(
    "options",
    [
        {"num_jobs": 0},
        {"num_slots": 0},
        {"slot_minutes": 0.0},
        {"slot_minutes": 1e-9},
        {"cluster_share": float("nan")},
        {"num_worker_servers": 0},
        {"workers_per_ps": 0},
        {"target_delay": (4.0, 1.0)},
        {"ps_vcpu": -1.0},
        {"max_duration_s": 0.0},
        {"min_schedulable": 1.1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_refuses_trace_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=next(iter(options))):
        TraceOptions(**options)


@pytest.mark.trace
@pytest.mark.parametrize(
    ("name", "trace_format", "rows", "submissions"),
    [
        ("philly/philly_jobs_merged.csv.gz", "philly", 111_549, 4_336),
        ("philly/pollux_philly_82k.csv.gz", "philly", 82_247, 4_012),
        ("gavel/gavel_msr_seed0_jobs.csv.gz", "gavel", 15_264, 1_571),
        ("alibaba_v2023/openb_pod_list_default.csv.gz", "alibaba", 8_152, 629),
    ],
)
def test_samples_the_busiest_day_of_a_public_trace(name: str, trace_format: str, rows: int, submissions: int) -> None:
    path = trace_file(name)
    instance, summary = read_trace(path, trace_format, TraceOptions(), 0)
    assert (summary.rows_read, summary.window_submissions, summary.num_jobs) == (rows, submissions, 100)
    assert summary.schedulable_jobs > 90
    data = PROBLEM.write_instance(instance)
    assert PROBLEM.write_instance(PROBLEM.read_instance(data)) == data


@pytest.mark.trace
def test_the_sparse_start_of_philly_is_refused() -> None:
    options = TraceOptions(window_start_s=0.0, num_slots=192)
    with pytest.raises(InvalidProblemError, match="only 0 of 1 sampled jobs"):
        read_trace(trace_file("philly/philly_jobs_merged.csv.gz"), "philly", options, 0)


@pytest.mark.trace
def test_the_pod_list_without_times_is_refused() -> None:
    path = trace_file("alibaba_v2023/openb_pod_list_multigpu50.csv.gz")
    with pytest.raises(InvalidProblemError, match="column 'creation_time' is missing"):
        read_trace(path, "alibaba", TraceOptions(), 0)
