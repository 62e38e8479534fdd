"""Summaries of published clusters, sizes of virtual clusters, samples of jobs."""

import pytest

from optim.core.errors import InvalidProblemError
from optim.workloads.traces.summaries import (
    read_quotas,
    read_samples,
    read_summaries,
)
from tests.support.public_traces import trace_file

NAMES = "gpu_job_num,avg_run_time_gpu,med_run_time_gpu,avg_que_time_gpu,med_que_time_gpu,avg_gpu_num,med_gpu_num"
RATES = "complete_rate_gpu,cancel_rate_gpu,fail_rate_gpu,complete_gpu_time,cancel_gpu_time,fail_gpu_time"


def _file(tmp_path, text):
    path = tmp_path / "file.csv"
    path.write_text(text)
    return path


def test_summaries_tell_shares_of_gpu_time(tmp_path):
    rows = "A,5,10,2,3,1,1.5,1,.6,.2,.2,50,30,20\nB,5,10,2,3,1,1.5,1,,,,,,\n"
    first, second = read_summaries(_file(tmp_path, f"id,{NAMES},{RATES}\n{rows}"))
    assert (first.id, first.avg_gpu_num, first.complete_rate_gpu) == ("A", 1.5, 0.6)
    assert first.gpu_time_shares == pytest.approx((0.5, 0.3, 0.2))
    assert (second.fail_rate_gpu, second.gpu_time_shares) == (None, None)


def test_machines_and_gpus_of_virtual_clusters(tmp_path):
    assert read_quotas(_file(tmp_path, "vc,node num\na,64\nb,8\n")) == {"a": 64, "b": 8}


def test_samples_are_run_times_with_gpus_or_service(tmp_path):
    duration, gpus = read_samples(_file(tmp_path, "duration_s,num_gpus\n5,2\n7,1\n"))
    assert (duration.tolist(), gpus.tolist()) == ([5, 7], [2, 1])
    duration, gpus = read_samples(_file(tmp_path, "duration\n5\n7\n"))
    assert (duration.tolist(), gpus.tolist()) == ([5, 7], [1, 1])
    with pytest.raises(InvalidProblemError, match="'num_gpus': expected an integer"):
        read_samples(_file(tmp_path, "duration_s,num_gpus\n5,1.5\n"))


def test_a_mark_of_the_byte_order_makes_no_other_column(tmp_path):
    assert read_samples(_file(tmp_path, "\ufeffduration_s,num_gpus\n5,2\n"))[1].tolist() == [2]


def test_the_published_files_are_read():
    assert [s.id for s in read_summaries(trace_file("acme/cluster_summary.csv"))][2:4] == ["Philly", "Helios"]
    assert len(read_summaries(trace_file("helios/helios_cluster_summary.csv"))) == 5
    assert sum(read_quotas(trace_file("philly/philly_vc_nodes.csv")).values()) == 352
    assert len(read_samples(trace_file("tiresias/yarn-gput1000.csv"))[0]) == 1001
