"""Readers of container files and of Prometheus' answers."""

import json

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.workloads.containers import read_containers, read_prometheus
from tests.support.public_traces import TRACE_DIR


def container_file(name):
    path = TRACE_DIR / "containers" / name
    if not path.is_file():
        pytest.skip(f"the container file {name} is not there; set OPTIM_TRACE_DIR to the folder that has it")
    return path


@pytest.mark.parametrize(
    ("name", "containers", "samples"),
    [
        ("ai4dl_dlaas_sample.csv.gz", 4, 204),
        ("mit_supercloud_job_10s.csv.gz", 1, 11172),
        ("bitbrains_rnd_2013_07_60vm.csv.gz", 60, 489465),
    ],
)
def test_public_files_have_the_series_that_they_state(name, containers, samples):
    series = read_containers(container_file(name))
    assert len(set(series.containers)) == containers
    # A double time stamp counts once.
    assert 0.99 * samples <= series.num_samples <= samples
    assert series.names == ("cpu", "memory")


def test_supercloud_job_peaks_at_its_published_utilisation():
    series = read_containers(container_file("mit_supercloud_job_10s.csv.gz"))
    assert series.values[:, 0].max() == pytest.approx(31.984)
    assert series.values[:, 0].mean() == pytest.approx(1.4339, abs=1e-4)


def test_own_form_takes_any_resources_limits_and_truth(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        "container,time_s,cpu,disk,cpu_limit,phase\nb,30,0.2,5,2,run\nb,0,0.1,4,2,start\na,0,1,7,4,\nb,15,,4,2,run\n",
    )
    series = read_containers(path)
    assert series.containers == ("b", "a")
    assert series.names == ("cpu", "disk")
    assert series.time_s.tolist() == [0, 30, 0]
    assert series.values.tolist() == [[0.1, 4], [0.2, 5], [1, 7]]
    assert series.phase_names == ("run", "start")
    assert series.phase.tolist() == [1, 0, -1]
    assert series.limit[:, 0].tolist() == [2, 4]
    assert np.isnan(series.limit[:, 1]).all()


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "the file has no header"),
        ("a,b\n1,2\n", "no known form"),
        ("container,time_s\nx,0\n", "no column of a resource"),
        ("container,time_s,cpu\nx,0,-1\n", "at least 0"),
        ("container,time_s,cpu\nx,0,much\n", "finite number"),
        ("container,time_s,cpu\nx,0,\n", "no row has all"),
        ("container,time_s,cpu,cpu\nx,0,1,2\n", "column 'cpu' comes twice"),
    ],
)
def test_bad_files_are_refused_with_their_name_and_cause(tmp_path, text, cause):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InvalidProblemError, match=cause) as caught:
        read_containers(path)
    assert "bad.csv" in str(caught.value)


def answer(*series):
    return json.dumps(
        {
            "status": "success",
            "data": {
                "resultType": "matrix",
                "result": [
                    {"metric": metric, "values": [[time, str(value)] for time, value in values]}
                    for metric, values in series
                ],
            },
        }
    )


POD = {"namespace": "ml", "pod": "p-0", "container": "train"}


def test_prometheus_counters_become_rates_and_bytes_gib(tmp_path):
    path = tmp_path / "range.json"
    path.write_text(
        answer(
            ({"__name__": "container_cpu_usage_seconds_total", **POD}, [(0, 100), (15, 115), (30, 3), (45, 18)]),
            (
                {"__name__": "container_memory_working_set_bytes", **POD},
                [(0, 2**30), (15, 2**31), (30, 2**30), (45, "NaN")],
            ),
        )
    )
    series = read_prometheus({"#0": path})
    assert series.containers == ("ml/p-0/train",)
    assert series.time_s.tolist() == [15, 30]
    # The counter fell from 115 to 3: it began anew.
    assert series.values.tolist() == [[1.0, 2.0], [0.2, 1.0]]


def test_overlapping_and_unsorted_answers_count_each_time_stamp_once(tmp_path):
    path = tmp_path / "range.json"
    samples = [(30, 130), (0, 100), (15, 115), (15, 115), (45, "NaN")]
    path.write_text(answer(({"__name__": "container_cpu_usage_seconds_total", **POD}, samples)))
    series = read_prometheus({"#0": path})
    assert series.time_s.tolist() == [15, 30]
    assert series.values[:, 0].tolist() == [1.0, 1.0]


def test_nameless_prometheus_series_take_the_name_given(tmp_path):
    cpu, gpu = tmp_path / "cpu.json", tmp_path / "gpu.json"
    cpu.write_text(answer((POD, [(0, 0.5), (15, 0.7)])))
    gpu.write_text(answer((POD, [(0, 90), (15, 80)])))
    series = read_prometheus({"cpu": cpu, "gpu": gpu})
    assert series.names == ("cpu", "gpu")
    assert series.values.tolist() == [[0.5, 90.0], [0.7, 80.0]]
    with pytest.raises(InvalidProblemError, match="have no name"):
        read_prometheus({"#0": cpu})


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{}", "range query"),
        ("[1]", "save the whole answer of /api/v1/query_range"),
        ('{"status":"success","data":{"resultType":"vector","result":[]}}', "query_range"),
        ('{"status":"success","data":{"resultType":"matrix","result":[]}}', "no series"),
        (answer((POD, [(0, "much")])), "no number"),
        (answer((POD, [(0, 1)]), (POD, [(0, 1)])), "sum them"),
    ],
)
def test_other_answers_are_refused(tmp_path, text, cause):
    path = tmp_path / "answer.json"
    path.write_text(text)
    with pytest.raises(InvalidProblemError, match=cause):
        read_prometheus({"cpu": path})
