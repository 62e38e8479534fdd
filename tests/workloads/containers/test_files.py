"""Readers of container files and of Prometheus' answers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import CPU, ContainerSeries
from optim.phases.preprocessing import split_containers
from optim.workloads.containers import read_containers, read_prometheus
from optim.workloads.containers.series_rows import series_of_rows
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
        pytest.param("bitbrains_rnd_2013_07_60vm.csv.gz", 60, 489465, marks=pytest.mark.prove),  # large
    ],
)
def test_public_files_have_the_series_that_they_state(name, containers, samples):
    series = read_containers(container_file(name))
    assert len(set(series.containers)) == containers
    # A double time stamp counts once.
    assert 0.99 * samples <= series.num_samples <= samples
    assert series.names == ("cpu", "memory")


def test_virtual_machines_use_shares_of_their_cores(tmp_path):
    path = tmp_path / "machines.csv"
    path.write_text(
        "vm,t_s,cores,cpu_mhz,cpu_cap_mhz,mem_kb,mem_cap_kb\n"
        "7,600,2,1463,5852,524288,8388608\n7,300,2,5852,5852,1048576,8388608\n9,300,4,10,0,0,1048576\n7,600,2,0,5852,0,8388608\n"
    )
    series = read_containers(path)
    assert series.containers == ("7", "9")
    assert series.names == ("cpu", "memory")
    assert series.time_s.tolist() == [300, 600, 300]
    assert series.values.tolist() == [[2.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert series.limit.tolist() == [[2.0, 8.0], [4.0, 1.0]]


def test_machines_of_which_capacity_or_use_is_not_told_have_no_row(tmp_path):
    path = tmp_path / "machines.csv"
    rows = ["7,0,2,1463,5852,1048576,0", "7,300,2,1463,,1048576,0", "7,600,2,,5852,1048576,0", "7,900,2,,0,1048576,0"]
    path.write_text(
        "\n".join(["vm,t_s,cores,cpu_mhz,cpu_cap_mhz,mem_kb,mem_cap_kb", *rows, "7,1200,2,9,0,1048576,0\n"])
    )
    series = read_containers(path)
    assert series.time_s.tolist() == [0, 1200]
    assert series.values.tolist() == [[0.5, 1.0], [0.0, 1.0]]


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
        ("container,time_s\nx,0\n", "no resource column"),
        ("container,time_s,cpu\nx,0,-1\n", "at least 0"),
        ("container,time_s,cpu\nx,0,much\n", "finite number"),
        ("container,time_s,cpu\nx,0,\n", "no row has all"),
        ("container,time_s,cpu,cpu\nx,0,1,2\n", "column 'cpu' appears twice"),
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
    # The counter fell from 115 to 3: it was reset.
    assert series.values.tolist() == [[1.0, 2.0], [0.2, 1.0]]


def test_overlapping_and_unsorted_answers_count_each_time_stamp_once(tmp_path):
    path = tmp_path / "range.json"
    samples = [(30, 130), (0, 100), (15, 7), (15, 115), (45, "NaN")]
    path.write_text(answer(({"__name__": "container_cpu_usage_seconds_total", **POD}, samples)))
    series = read_prometheus({"#0": path})
    assert series.time_s.tolist() == [15, 30]
    assert series.values[:, 0].tolist() == [1.0, 1.0]


def cadvisor(pod, container, *, begin=0, scale=1.0):
    """Return cAdvisor's series of one container: CPU seconds and bytes."""
    labels = {"namespace": "ml", "pod": pod} | ({"container": container} if container else {})
    times = [begin + 15 * k for k in range(4)]
    return (
        ({"__name__": "container_cpu_usage_seconds_total", **labels}, [(t, scale * t) for t in times]),
        ({"__name__": "container_memory_working_set_bytes", **labels}, [(t, scale * 2**30) for t in times]),
    )


def test_each_container_of_a_pod_counts_once_and_neither_its_sum_nor_its_pause_does(tmp_path):
    path = tmp_path / "range.json"
    told = [("p-0", None, 3.0), ("p-0", "POD", 0.1), ("p-0", "train", 2.0), ("p-0", "logs", 0.9), ("p-1", None, 1.5)]
    path.write_text(answer(*(series for pod, name, scale in told for series in cadvisor(pod, name, scale=scale))))
    series = read_prometheus({"#0": path})
    # The second pod has only its sum, which therefore represents the pod.
    assert series.containers == ("ml/p-0/train", "ml/p-0/logs", "ml/p-1")
    assert series.values[series.starts].tolist() == [[2.0, 2.0], [0.9, 0.9], [1.5, 1.5]]
    assert series.unit_index.tolist() == [0, 0, 1]


@given(seed=st.integers(0, 2**32 - 1), pods=st.integers(2, 6), containers=st.integers(1, 4), share=st.floats(0.1, 0.9))
def test_no_split_parts_the_containers_of_a_pod(seed, pods, containers, share):
    names = [f"pod-{pod}/c-{number}" for pod in range(pods) for number in range(containers)]
    series = ContainerSeries.from_arrays({name: [[1.0]] * 5 for name in names}, ("cpu",), 15.0)
    series = replace(series, units={name: name.partition("/")[0] for name in names})
    learned, held = (
        {name.partition("/")[0] for name in series.select(part).containers}
        for part in split_containers(series, share, np.random.default_rng(seed))
    )
    assert not learned & held
    assert learned | held == {f"pod-{pod}" for pod in range(pods)}


def test_queries_that_begin_at_different_moments_are_matched(tmp_path):
    path, later = tmp_path / "cpu.json", tmp_path / "memory.json"
    cpu, _ = cadvisor("p-0", "train")
    _, memory = cadvisor("p-0", "train", begin=7)
    path.write_text(answer(cpu))
    later.write_text(answer(memory))
    series = read_prometheus({"#0": path, "#1": later})
    assert np.diff(series.time_s).tolist() == [15.0, 15.0]
    assert series.values.tolist() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize(("offset", "first"), [(14, 0), (15, 1), (16, 1)])
def test_queries_half_a_step_apart_keep_every_sample_that_both_have(tmp_path, offset, first):
    """Of twelve samples each; from half a step on, a sample belongs to the moment after it, so that the last has no partner."""
    cpu, memory = tmp_path / "cpu.json", tmp_path / "memory.json"
    begin = 1_700_000_000.1
    cpu.write_text(answer((POD, [(begin + 30 * k, k) for k in range(12)])))
    memory.write_text(answer((POD, [(begin + offset + 30 * k, k) for k in range(12)])))
    series = read_prometheus({"cpu": cpu, "memory": memory}, units={"cpu": "cores", "memory": "GiB"})
    assert series.values.tolist() == [[k + first, k] for k in range(12 - first)]
    assert np.diff(series.time_s) == pytest.approx(30.0)


def test_a_short_counter_with_a_sample_that_is_no_number_has_the_step_of_the_others(tmp_path):
    path = tmp_path / "range.json"
    cpu, memory = cadvisor("p-0", "train")
    labels, samples = cpu
    path.write_text(answer((labels, [samples[0], (15, "NaN"), *samples[2:]]), memory))
    assert read_prometheus({"#0": path}).time_s.tolist() == [30, 45]
    path.write_text(answer((labels, [samples[0], *samples[2:]]), memory))
    assert read_prometheus({"#0": path}).time_s.tolist() == [30, 45]


def test_queries_of_different_steps_are_refused_with_both(tmp_path):
    path = tmp_path / "range.json"
    cpu, _ = cadvisor("p-0", "train")
    memory = ({**cpu[0], "__name__": "container_memory_working_set_bytes"}, [(30 * k, 1) for k in range(4)])
    path.write_text(answer(cpu, memory))
    with pytest.raises(InvalidProblemError, match=r"different steps \(cpu 15 s, memory 30 s\); use one step"):
        read_prometheus({"#0": path})


def test_series_without_a_name_take_the_name_and_unit_that_are_given(tmp_path):
    cpu, gpu = tmp_path / "cpu.json", tmp_path / "gpu.json"
    cpu.write_text(answer((POD, [(0, 0.5), (15, 0.7)])))
    gpu.write_text(answer((POD, [(0, 90), (15, 80)])))
    series = read_prometheus({"cpu": cpu, "gpu": gpu}, units={"cpu": "cores", "gpu": "%"})
    assert series.names == ("cpu", "gpu")
    assert series.resources[1].unit == "%"
    assert series.values.tolist() == [[0.5, 90.0], [0.7, 80.0]]
    with pytest.raises(InvalidProblemError, match="have no name"):
        read_prometheus({"#0": cpu})
    for files, wanted in (({"cpu": cpu}, "--unit cpu=UNIT .* --counter cpu"), ({"gpu": gpu}, "--unit gpu=UNIT")):
        with pytest.raises(InvalidProblemError, match=wanted):
            read_prometheus(files)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{}", "range query"),
        ("[1]", "save the full response of /api/v1/query_range"),
        ('{"status":"success","data":{"resultType":"vector","result":[]}}', "query_range"),
        ('{"status":"success","data":{"resultType":"matrix","result":[]}}', "no series"),
        (answer((POD, [(0, "much")])), "isn't a number"),
        (
            '{"status":"error","errorType":"bad_data","error":"unknown function"}',
            r"error \(bad_data\): unknown function",
        ),
        (answer(*[(POD, [(60 * k, n + k) for k in range(12)]) for n in (1, 2)]), "two series at the same time"),
    ],
)
def test_other_answers_are_refused(tmp_path, text, cause):
    path = tmp_path / "answer.json"
    path.write_text(text)
    with pytest.raises(InvalidProblemError, match=cause):
        read_prometheus({"cpu": path}, units={"cpu": "cores"})


def test_rows_in_any_order_become_series_and_of_equal_times_the_last_one_counts():
    keys = np.array(["b", "a", "b", "b", "a"], dtype=object)
    times = np.array([15.0, 0.0, 0.0, 15.0, 15.0])
    values = np.array([[1.0], [2.0], [3.0], [4.0], [np.nan]])
    series = series_of_rows("somewhere", keys, times, values, (CPU,), units={"a": "pod"})
    assert series.containers == ("b", "a")
    assert series.values[:, 0].tolist() == [3.0, 4.0, 2.0]
    assert series.lengths.tolist() == [2, 1]
    # A container without a unit represents itself, regardless of its name.
    assert series_of_rows("x", keys, times, values, (CPU,), units={"a": "b"}).unit_index.tolist() == [0, 1]


def test_the_last_limits_that_are_known_count_for_each_container_and_resource(tmp_path):
    path = tmp_path / "own.csv"
    rows = ["b,0,1,1,2,8", "b,15,1,1,4,", "b,30,1,1,,", "a,0,1,1,,", "a,15,1,1,,16", "c,0,1,1,,"]
    path.write_text("\n".join(["container,time_s,cpu,memory,cpu_limit,memory_limit", *rows]) + "\n")
    limit = read_containers(path).limit
    np.testing.assert_array_equal(limit, [[4, 8], [np.nan, 16], [np.nan, np.nan]])


def test_kills_of_a_table_belong_to_the_row_before(tmp_path):
    path = tmp_path / "own.csv"
    rows = ["a,0,1,5", "a,60,2,1", "a,120,,2", "a,180,1,0", "a,240,,4", "b,0,1,", "b,60,1,"]
    path.write_text("container,time_s,memory,memory_kills\n" + "\n".join(rows) + "\n")
    series = read_containers(path)
    assert series.names == ("memory",)
    # Those before the first row count in it; those of rows that are left out aren't lost.
    np.testing.assert_array_equal(series.kills[:, 0], [6, 2, 4, np.nan, np.nan])
    path.write_text("container,time_s,memory,memory_kills\na,0,1,-1\n")
    with pytest.raises(InvalidProblemError, match="memory_kills"):
        read_containers(path)
