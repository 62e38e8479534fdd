"""Readers of public traces, on small made-up files and, if available, on the traces themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.admission.data import MICRO, SigmoidUtility
from optim.models.admission.problem import PROBLEM
from optim.models.cluster.workload import ELSEWHERE
from optim.workloads.admission.generator import UtilityMix
from optim.workloads.admission.traces import TRACE_FORMATS, TraceOptions, read_trace
from optim.workloads.traces.job_table import NO_WORK
from tests.support.public_traces import trace_file
from tests.support.trace_files import ROOMY, philly_file, read_philly_instance


def test_a_job_gets_its_gpus_times_its_slots_as_work(tmp_path: Path) -> None:
    instance = read_philly_instance(philly_file(tmp_path, [(0, 0, 4, 1801, "a"), (1, 0, 1, 900, "a")]))
    assert instance.work.tolist() == [4 * 3, 1]
    assert instance.jobs.chunks.tolist() == [8, 2]
    assert instance.jobs.ids == ("philly-0", "philly-1")


@pytest.mark.parametrize("factor", [2.0, 3.0, 1.5, 0.7, 7.3])
@pytest.mark.parametrize("slot_minutes", [15.0, 1.0, 7.1])
def test_work_is_met_exactly_whatever_the_chunks(tmp_path: Path, factor: float, slot_minutes: float) -> None:
    rows = [(i, 0, gpus, seconds, "") for i, (gpus, seconds) in enumerate([(1, 1), (3, 2000), (8, 50_000)])]
    path = philly_file(tmp_path, rows)
    options = {"chunks_per_gpu": factor, "slot_minutes": slot_minutes, "num_slots": 2000}
    slots = [int(np.ceil(seconds / (60 * slot_minutes))) for _, _, _, seconds, _ in rows]
    expected = [gpus * number for (_, _, gpus, _, _), number in zip(rows, slots, strict=True)]
    assert read_philly_instance(path, **options).work.tolist() == expected


def test_refuses_slots_too_short_to_meet_the_work(tmp_path: Path) -> None:
    path = philly_file(tmp_path, [(0, 0, 1, 40_000, "")])
    with pytest.raises(InvalidOptionError, match="slot_minutes must be longer"):
        read_philly_instance(path, chunks_per_gpu=299.0, slot_minutes=0.01, num_slots=10)


def test_one_ps_serves_four_workers(tmp_path: Path) -> None:
    instance = read_philly_instance(philly_file(tmp_path, [(0, 0, 4, 900, "")]))
    assert instance.ps_needed[0].tolist() == [0, 1, 1, 1, 1]  # W = 4 caps the workers
    assert (instance.jobs.gradient_micro_mb == 0).all()


def test_demands_are_those_of_the_options(tmp_path: Path) -> None:
    jobs = read_philly_instance(philly_file(tmp_path, [(0, 0, 1, 900, "")])).jobs
    assert (jobs.worker_demand / MICRO).tolist() == [[1, 4, 16]]
    assert (jobs.ps_demand / MICRO).tolist() == [[0, 2, 8]]


def test_target_delays_are_one_to_four_shortest_durations(tmp_path: Path) -> None:
    instance = read_philly_instance(philly_file(tmp_path, [(i, 0, 2, 5 * 900, "") for i in range(50)]), num_jobs=50)
    shortest = 3  # 10 worker-slots by at most 4 workers
    targets = [utility.theta3 for utility in instance.jobs.utilities if isinstance(utility, SigmoidUtility)]
    assert len(targets) == 50
    assert min(targets) >= shortest
    assert max(targets) <= 4 * shortest
    assert max(targets) > 2 * min(targets)


def test_no_job_starts_before_its_submission(tmp_path: Path) -> None:
    rows = [(0, 100, 1, 900, ""), (1, 101, 1, 900, ""), (2, 1000, 1, 900, ""), (3, 1001, 1, 900, "")]
    instance = read_philly_instance(philly_file(tmp_path, rows))
    # Slots begin at 100, 1000, 1900 s.
    assert instance.jobs.arrival.tolist() == [0, 1, 1, 2]


def test_the_window_is_the_busiest_span_of_the_horizon(tmp_path: Path) -> None:
    lonely = [(i, 1_000_000 * i, 1, 900, "") for i in range(3)]
    crowd = [(10 + i, 7_000_000 + 60 * i, 1, 900, "") for i in range(5)]
    path = philly_file(tmp_path, [*lonely, *crowd, (99, 9_000_000, 1, 900, "")])
    instance, summary = read_trace(path, "philly", TraceOptions(**ROOMY), 0)
    assert instance.jobs.ids == tuple(f"philly-{10 + i}" for i in range(5))
    assert (summary.window_start_s, summary.window_submissions) == (7_000_000.0, 5)


def test_the_window_ends_where_a_job_could_no_longer_start(tmp_path: Path) -> None:
    # With 2 slots of 900 s, a job submitted after 900 s would arrive in slot 2.
    path = philly_file(tmp_path, [(0, 0, 1, 9, ""), (1, 900, 1, 9, ""), (2, 901, 1, 9, "")])
    summary = read_trace(path, "philly", TraceOptions(**{**ROOMY, "num_slots": 2}), 0)[1]
    assert summary.window_submissions == 2


def test_a_job_that_could_no_longer_start_does_not_make_a_window_busier(tmp_path: Path) -> None:
    rows = [(0, 0, 1, 9, ""), (1, 900, 1, 9, ""), (2, 1000, 1, 9, "")]
    later = [(10 + i, 1_000_000 + 100 * i, 1, 9, "") for i in range(3)]
    summary = read_trace(
        philly_file(tmp_path, [*rows, *later]), "philly", TraceOptions(**{**ROOMY, "num_slots": 2}), 0
    )[1]
    assert (summary.window_start_s, summary.window_submissions) == (1_000_000.0, 3)


def test_a_window_can_be_asked_for(tmp_path: Path) -> None:
    path = philly_file(tmp_path, [(0, 0, 1, 900, ""), (1, 5000, 1, 900, ""), (2, 5001, 1, 900, "")])
    assert read_philly_instance(path, window_start_s=0.0, num_slots=3).jobs.ids == ("philly-0",)
    with pytest.raises(InvalidOptionError, match="no job is submitted in the window from 1e\\+06 s"):
        read_philly_instance(path, window_start_s=1e6)


def test_the_sample_is_drawn_by_the_seed(tmp_path: Path) -> None:
    path = philly_file(tmp_path, [(i, 0, 1, 900, "") for i in range(100)])
    options = TraceOptions(**ROOMY, num_jobs=20)
    first, again, other = (read_trace(path, "philly", options, seed)[0] for seed in (3, 3, 4))
    assert PROBLEM.write_instance(first) == PROBLEM.write_instance(again)
    assert first.jobs.ids != other.jobs.ids
    assert len(set(first.jobs.ids)) == 20


def test_a_window_with_fewer_jobs_gives_all(tmp_path: Path) -> None:
    assert read_philly_instance(philly_file(tmp_path, [(0, 0, 1, 900, ""), (1, 1, 1, 900, "")])).num_jobs == 2


@pytest.mark.parametrize(("num_jobs", "gpus"), [(30, 60), (10, 20), (8, 16), (1, 2)])
def test_the_cluster_has_as_many_gpus_a_job_as_the_trace_held_at_once(tmp_path: Path, num_jobs: int, gpus: int) -> None:
    rows = [(i, 0, 2, 4 * 900, "") for i in range(30)]
    path = philly_file(tmp_path, rows)
    instance, summary = read_trace(path, "philly", TraceOptions(num_slots=12, num_jobs=num_jobs), 0)
    assert summary.cluster_gpu_slots == 12 * gpus
    assert instance.worker_servers.num_servers == gpus // 2  # two a server
    assert instance.ps_servers.num_servers == -(-gpus // 4)  # PSs for every second GPU, two a server


def test_jobs_far_from_the_window_tell_of_the_cluster_too(tmp_path: Path) -> None:
    crowd = [(i, 900 * i, 1, 900, "") for i in range(6)]
    wide = (99, 50_000_000, 7, 100, "")
    summary = read_trace(philly_file(tmp_path, [*crowd, wide]), "philly", TraceOptions(num_slots=12), 0)[1]
    assert (summary.window_submissions, summary.cluster_gpu_slots) == (6, 12 * 7)


def test_a_job_that_ends_when_another_begins_leaves_it_its_gpus(tmp_path: Path) -> None:
    path = philly_file(tmp_path, [(0, 0, 3, 900, ""), (1, 900, 3, 900, ""), (2, 1799, 1, 900, "")])
    summary = read_trace(path, "philly", TraceOptions(num_slots=12), 0)[1]
    assert summary.cluster_gpu_slots == 12 * 4


@pytest.mark.parametrize(("share", "gpu_slots"), [(0.5, 180), (1.0, 360), (0.01, 12)])
def test_a_share_of_the_gpu_slots_is_of_those_of_all_sampled_jobs(tmp_path: Path, share: float, gpu_slots: int) -> None:
    rows = [(i, 0, 2, 4 * 900, "") for i in range(30)]
    endless = (99, 0, 8, 15 * 900, "")
    path = philly_file(tmp_path, [*rows, endless])
    options = TraceOptions(num_slots=12, cluster_share=share, min_schedulable=0.0)
    assert read_trace(path, "philly", options, 0)[1].cluster_gpu_slots == gpu_slots


def test_the_summary_says_how_much_of_the_work_is_covered_and_what_is_invented(tmp_path: Path) -> None:
    rows = [(i, 0, 2, 4 * 900, "") for i in range(30)]
    endless = (99, 0, 8, 90 * 900, "")
    summary = read_trace(philly_file(tmp_path, [*rows, endless]), "philly", TraceOptions(num_slots=12), 0)[1]
    assert (summary.num_jobs, summary.schedulable_jobs) == (31, 30)
    assert summary.covered == 240 / (240 + 720)
    for part in (
        "these need 240 of the 960 sampled GPU-slots (25%), the cluster has 816",
        "assumed: utilities, up to 2 workers per recorded GPU, PSs of 2 vCPUs and 8 GB, bandwidth (one PS for 4 workers)",
        "workers' 4 vCPUs and 16 GB, servers of 2 GPUs and of 2 PSs",
    ):
        assert part in str(summary)
    assert max(map(len, summary.lines)) < 250, "longer lines lose their middle on a terminal"


def test_an_odd_gpu_is_a_server_of_its_own(tmp_path: Path) -> None:
    path = philly_file(tmp_path, [(i, 0, 1, 4 * 900, "") for i in range(15)])
    options = {"num_worker_servers": None, "cluster_share": 0.5, "num_slots": 10}
    servers = read_philly_instance(path, **options).worker_servers
    assert (servers.capacity[:, 0, 0] / MICRO).tolist() == [2, 1]
    assert servers.count.tolist() == [1, 1]


def test_refuses_a_sample_of_which_most_cannot_finish(tmp_path: Path) -> None:
    path = philly_file(tmp_path, [(0, 0, 1, 900, ""), (1, 0, 1, 90_000, ""), (2, 0, 1, 90_000, "")])
    with pytest.raises(InvalidProblemError, match="only 1 of 3 sampled jobs can finish before the horizon"):
        read_philly_instance(path)
    assert read_philly_instance(path, min_schedulable=0.3).num_jobs == 3
    assert read_philly_instance(path, max_duration_s=1800.0).work.tolist() == [1, 2, 2]


def test_the_summary_counts_what_was_cut_and_left_out(tmp_path: Path) -> None:
    rows = [(0, 0, 1, 900, "a"), (1, 0, 1, 9000, "a"), (2, 0, 1, 0, "a"), (3, 0, 1, 900, "b")]
    options = TraceOptions(**ROOMY, max_duration_s=1800.0, virtual_cluster="a")
    summary = read_trace(philly_file(tmp_path, rows), "philly", options, 0)[1]
    assert {reason: count for reason, count in summary.dropped.items() if count} == {NO_WORK: 1, ELSEWHERE: 1}
    assert (summary.rows_read, summary.num_jobs, summary.cut_jobs) == (4, 2, 1)
    for part in ("4 rows read", "1 job without run time", "2 can finish alone", "1 run times cut"):
        assert part in str(summary)


def test_says_which_rows_were_left_out_when_none_is_left(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblemError, match="no job is left of 1 rows: 1 job without run time"):
        read_philly_instance(philly_file(tmp_path, [(0, 0, 1, 0, "")]))


def test_an_unknown_format_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="one of philly, gavel, alibaba"):
        read_trace(tmp_path, "nothing", TraceOptions(), 0)
    assert TRACE_FORMATS[:3] == ("philly", "gavel", "alibaba")


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
        pytest.param("philly/pollux_philly_82k.csv.gz", "philly", 82_247, 4_012, marks=pytest.mark.prove),
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
@pytest.mark.prove
def test_the_sparse_start_of_philly_is_refused() -> None:
    options = TraceOptions(window_start_s=0.0, num_slots=192)
    with pytest.raises(InvalidProblemError, match="only 0 of 1 sampled jobs"):
        read_trace(trace_file("philly/philly_jobs_merged.csv.gz"), "philly", options, 0)


@pytest.mark.trace
def test_the_pod_list_without_times_is_refused() -> None:
    path = trace_file("alibaba_v2023/openb_pod_list_multigpu50.csv.gz")
    with pytest.raises(InvalidProblemError, match="column 'creation_time' is missing"):
        read_trace(path, "alibaba", TraceOptions(), 0)


def test_a_job_that_just_ends_on_the_cluster_sizes_it(tmp_path: Path) -> None:
    # 4 GPUs alone do 24 worker-slots in 6 slots, and with a share of 1 they equal the job's need.
    path = philly_file(tmp_path, [(0, 0, 4, 6 * 900, "")])
    instance, summary = read_trace(path, "philly", TraceOptions(num_slots=6, cluster_share=1.0), 0)
    assert (summary.gpu_slots, summary.cluster_gpu_slots, instance.work.tolist()) == (24.0, 24.0, [24])


@pytest.mark.parametrize("weights", [(0.5, 0.0, 0.0), (0.0, 0.2, 0.3)])
def test_any_class_of_utilities_may_be_left_out(weights: tuple[float, float, float]) -> None:
    names = ("insensitive", "sensitive", "critical")
    drawn = UtilityMix(**dict(zip(names, weights, strict=True))).draw(np.full(200, 5.0), np.random.default_rng(0))
    kinds = {0 if one.theta2 == 0 else 1 if one.theta2 <= 1 else 2 for one in drawn}
    assert kinds == {kind for kind, weight in enumerate(weights) if weight}


@pytest.mark.parametrize("weights", [(0.0, 0.0, 0.0), (-0.5, 1.0, 1.0), (float("inf"), 1.0, 1.0)])
def test_classes_without_weight_are_refused(weights: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidOptionError, match="class weights must be at least 0"):
        UtilityMix(insensitive=weights[0], sensitive=weights[1], critical=weights[2])


def test_the_error_of_a_short_horizon_says_how_short_it_is_and_what_changes_it(tmp_path: Path) -> None:
    path = philly_file(tmp_path, [(n, 60 * n, 1, 36_000, "") for n in range(4)])
    options = TraceOptions(**{**ROOMY, "num_slots": 4}, slot_minutes=30.0)
    with pytest.raises(InvalidProblemError) as caught:
        read_trace(path, "philly", options, 0)
    said = str(caught.value)
    assert "only 0 of 4 sampled jobs" in said
    assert (
        "the horizon is 4 slots of 30 min, 2 h, and half of the jobs run 10 h or longer; raise --slots or --slot-minutes"
        in said
    )


def test_attempts_of_one_job_are_one_job_here_too(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration,id\n0,1,900,a\n60,1,900,a\n120,1,900,b\n")
    instance = read_trace(path, "csv", TraceOptions(**ROOMY), 0)[0]
    assert (instance.jobs.ids, instance.work.tolist()) == (("a", "b"), [2, 1])


def test_workers_that_fit_no_server_are_said_with_the_resource_and_the_option_that_helps(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration,cpus,memory_gb\n" + "0,1,900,8,64\n60,2,900,4,128\n120,1,900,2,8\n")
    options = {**ROOMY, "gpus_per_server": 2}
    with pytest.raises(InvalidProblemError) as caught:
        read_trace(path, "csv", TraceOptions(**options), 0)
    said = str(caught.value)
    assert (
        "only 1 of 3 sampled jobs can run at all: one worker needs up to 64 GB of memory, but the largest server has 32"
        in said
    )
    assert "--instance-option worker_memory_gb=64 (per GPU of a server) or gpus_per_server=4" in said
    for cure in ({"worker_memory_gb": 64.0}, {"gpus_per_server": 4}):
        assert read_trace(path, "csv", TraceOptions(**{**options, **cure}), 0)[1].schedulable_jobs == 3
