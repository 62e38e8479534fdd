"""The series in an answer of Prometheus: restarts, double scrapes, sums, units, and messages about them."""

import gzip
import json

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.workloads.containers import read_containers, read_prometheus
from tests.support.public_traces import TRACE_DIR

CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
GIB = 2**30
POD = {"namespace": "ml", "pod": "p-0", "container": "main"}


def written(path, *series, **more):
    """Write series, pairs of labels and samples, as an answer."""
    result = [
        {"metric": labels, "values": [[time, str(value)] for time, value in samples]} for labels, samples in series
    ]
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}, **more}))
    return path


def counted(begin, end, rate=2.0, step=60, first=0.0):
    return [(time, first + rate * (time - begin)) for time in range(begin, end + 1, step)]


def held(begin, end, gib, step=60):
    return [(time, gib * GIB) for time in range(begin, end + 1, step)]


def test_a_restarted_container_goes_on_with_its_later_series_and_has_rates_of_its_own(tmp_path):
    first, second = ({"__name__": CPU, **POD, "id": f"/kubepods/p/{name}"} for name in ("c0", "c1"))
    stale = [(time, 2.0 * 1200) for time in range(1260, 1441, 60)]
    cpu = written(tmp_path / "cpu.json", (first, counted(0, 1200) + stale), (second, counted(1200, 2400)))
    first, second = ({**labels, "__name__": MEMORY} for labels in (first, second))
    memory = written(tmp_path / "mem.json", (first, held(0, 1440, 1.2)), (second, held(1200, 2400, 0.5)))
    series = read_prometheus({"cpu": cpu, "memory": memory})
    assert series.time_s.tolist() == list(range(60, 2401, 60))
    assert series.values[:, 0].tolist() == [2.0] * 40
    np.testing.assert_allclose(series.values[:, 1], [1.2] * 19 + [0.5] * 21)
    assert [remark for remark in series.remarks if "restarted within its pod, 2 series" in remark]


def test_what_two_jobs_scrape_counts_once_even_a_moment_apart(tmp_path):
    own = {"__name__": CPU, **POD, "id": "/kubepods/p/c0"}
    apart = [(time, value + 0.5) for time, value in counted(0, 1500)]
    path = written(tmp_path / "cpu.json", ({**own, "job": "a"}, counted(0, 1200)), ({**own, "job": "b"}, apart))
    assert read_prometheus({"cpu": path}).values[:, 0].tolist() == [2.0] * 25
    # Without an id only equal samples are sure to be the same ones.
    bare = {"__name__": CPU, **POD}
    same = written(
        tmp_path / "same.json", ({**bare, "job": "a"}, counted(0, 1200)), ({**bare, "job": "b"}, counted(0, 1200))
    )
    assert read_prometheus({"cpu": same}).values[:, 0].tolist() == [2.0] * 20
    other = written(tmp_path / "other.json", ({**bare, "job": "a"}, counted(0, 1200)), ({**bare, "job": "b"}, apart))
    with pytest.raises(InvalidProblemError, match="two series at the same time"):
        read_prometheus({"cpu": other})


def test_answers_of_two_days_are_one_series(tmp_path):
    labels = {"__name__": CPU, **POD, "id": "/kubepods/p/c0"}
    days = [written(tmp_path / f"{n}.json", (labels, counted(0, 1200)[n * 10 : n * 10 + 10])) for n in (0, 1)]
    series = read_prometheus({"#0": days[0], "#1": days[1]})
    assert series.values[:, 0].tolist() == [2.0] * 19
    assert not series.remarks


def test_old_labels_name_containers(tmp_path):
    old = {"__name__": CPU, "namespace": "ml", "pod_name": "p-0", "container_name": "main"}
    pause, total = {**old, "container_name": "POD"}, {**old, "container_name": ""}
    path = written(tmp_path / "cpu.json", *((labels, counted(0, 300)) for labels in (old, pause, total)))
    series = read_prometheus({"cpu": path})
    assert series.containers == ("ml/p-0/main",)
    assert series.remarks == ("left out: 1 pause containers, 1 sums of pods",)


def test_sums_of_control_groups_are_no_containers(tmp_path):
    groups = [
        "/", "/system.slice", "/system.slice/kubelet.service", "/kubepods", "/kubepods/burstable", "/docker",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7.slice/cri-containerd-77.scope",
    ]  # fmt: skip
    sums = [({"__name__": MEMORY, "id": group}, held(0, 300, 9)) for group in groups]
    docker = ({"__name__": MEMORY, "id": "/docker/7f", "name": "web"}, held(0, 300, 1))
    series = read_prometheus({"memory": written(tmp_path / "mem.json", docker, *sums)})
    assert series.containers == ("/docker/7f",)
    assert series.remarks == ("left out: 7 sums of control groups",)
    with pytest.raises(InvalidProblemError, match=r"no series of a container .*6 sums of control groups"):
        read_prometheus({"memory": written(tmp_path / "sums.json", *sums[:5], sums[6])})


@pytest.mark.parametrize(
    ("metric", "resource", "factor"),
    [
        (MEMORY, "memory", 1 / GIB),
        ("namespace:container_memory_usage_bytes:sum", "memory", 1 / GIB),
        ("node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate", "cpu", 1.0),
        ("pod:container_network_receive_bytes_total:rate5m", "network", 1e-6),
        ("my_cores", "cpu", 1.0),
        ("rss_mib", "memory", 1 / 1024),
        ("my_cache_bytes", "cache", 1 / GIB),
    ],
)
def test_names_tell_units_and_what_is_a_rate_already(tmp_path, metric, resource, factor):
    path = written(tmp_path / "some.json", ({"__name__": metric, **POD}, [(0, 8), (60, 9)]))
    assert read_prometheus({resource: path}).values[:, 0].tolist() == [8 * factor, 9 * factor]


@pytest.mark.parametrize(
    ("resource", "said", "value", "right"),
    [
        ("memory", {"units": {"memory": "bytes"}}, GIB, 1.0),
        ("memory", {"units": {"memory": "MiB"}}, 512, 0.5),
        ("cpu", {"units": {"cpu": "millicores"}}, 1500, 1.5),
        ("network", {"units": {"network": "bytes/s"}}, 5e6, 5.0),
        ("disk", {"units": {"disk": "bytes"}}, GIB, 1.0),
    ],
)
def test_units_that_are_given_count(tmp_path, resource, said, value, right):
    path = written(tmp_path / "some.json", (POD, [(0, value), (60, value)]))
    assert read_prometheus({resource: path}, **said).values[0, 0] == pytest.approx(right)


@pytest.mark.parametrize(
    "said", [{"counters": ["cpu"]}, {"units": {"cpu": "seconds"}}, {"counters": ["cpu"], "units": {"cpu": "seconds"}}]
)
def test_counters_that_are_given_become_rates(tmp_path, said):
    path = written(tmp_path / "cpu.json", (POD, counted(0, 600, first=1e6)))
    assert read_prometheus({"cpu": path}, **said).values[:, 0].tolist() == [2.0] * 10


@pytest.mark.parametrize(
    ("labels", "samples", "resource", "said", "message"),
    [
        (POD, held(0, 300, 1), "memory", {}, r"--unit memory=UNIT with one of bytes, .*GiB"),
        (POD, held(0, 300, 1), "memory", {"units": {"memory": "GiB"}}, "1.07374e.09 GiB, above the plausible maximum"),
        (POD, counted(0, 300, first=1e6), "cpu", {"units": {"cpu": "cores"}}, "above the plausible maximum of 10000; .*--counter"),
        (POD, held(0, 300, 1), "memory", {"counters": ["memory"]}, "memory is a gauge, not a counter"),
        (POD, held(0, 300, 1), "memory", {"units": {"memory": "apples"}}, "memory must be in one of bytes"),
        (POD, counted(0, 300), "cpu", {"counters": ["cpu"], "units": {"cpu": "cores"}}, "a counter of cpu must be in one of seconds"),
        (POD, counted(0, 300), "cpu", {"counters": ["cpu"], "units": {"cpu": "cores"}}, "give --unit cpu=seconds for rates in cores"),
        (POD, counted(0, 300), "cpu", {"counters": ["cpu"], "units": {"cpu": "millicores"}}, "give --unit cpu=milliseconds for"),
        (POD, counted(0, 300), "network", {"counters": ["network"], "units": {"network": "bits/s"}}, "KiB, MiB, GiB, TiB"),
        (POD, held(0, 300, 1), "memory", {"units": {"memory": "GiB", "cpu": "cores"}}, "--unit cpu: no such resource"),
        ({"__name__": MEMORY, **POD}, held(0, 300, 1), "cpu", {}, f"{MEMORY} is memory, not cpu; give memory="),
        ({"__name__": "rss_pages", **POD}, held(0, 300, 1), "memory", {}, "the name rss_pages gives no unit"),
        ({"__name__": "up_seconds", **POD}, held(0, 300, 1), "cpu", {}, "the name up_seconds gives no unit"),
        ({"__name__": "rss_mib", **POD}, held(0, 300, 1), "memory", {"units": {"memory": "bytes"}}, "the unit of rss_mib isn't that of --unit"),
        (POD, [(60 * k, 9 - k) for k in range(9)], "cpu", {"counters": ["cpu"]}, "falls in 8 of 8 steps"),
    ],
)  # fmt: skip
def test_units_that_are_not_known_are_asked_for_and_impossible_ones_refused(
    tmp_path, labels, samples, resource, said, message
):
    path = written(tmp_path / "some.json", (labels, samples))
    with pytest.raises((InvalidProblemError, InvalidOptionError), match=message):
        read_prometheus({resource: path}, **said)


def test_rates_that_never_fall_are_doubted(tmp_path):
    grown = written(tmp_path / "cpu.json", (POD, counted(0, 600)))
    flat = written(tmp_path / "flat.json", (POD, [(60 * k, 2.0) for k in range(9)]))
    assert (
        "if it is a counter, give --counter cpu" in read_prometheus({"cpu": grown}, units={"cpu": "cores"}).remarks[0]
    )
    assert not read_prometheus({"cpu": flat}, units={"cpu": "cores"}).remarks


def test_memory_of_next_to_nothing_is_doubted(tmp_path):
    path = written(tmp_path / "mem.json", (POD, held(0, 300, 1 / 2048)))
    assert "check its unit" in read_prometheus({"memory": path}, units={"memory": "bytes"}).remarks[0]
    assert not read_prometheus({"memory": path}, units={"memory": "KiB"}).remarks


@pytest.mark.parametrize(
    ("differing", "message"),
    [
        ({"interface": ("eth0", "eth1")}, r"in several parts \(interface='eth0' and 'eth1'\); add the rate of each"),
        ({"cluster": ("a", "b")}, "they differ in cluster='a' and 'b'; choose one"),
    ],
)
def test_series_at_the_same_time_are_refused_by_what_they_differ_in(tmp_path, differing, message):
    metric = "container_network_receive_bytes_total"
    ((name, texts),) = differing.items()
    own = [({"__name__": metric, **POD, name: text}, counted(0, 900, rate=rate)) for rate, text in enumerate(texts, 1)]
    with pytest.raises(InvalidProblemError, match=message):
        read_prometheus({"network": written(tmp_path / "net.json", *own)})


def test_what_an_answer_says_of_itself_is_passed_on(tmp_path):
    series = ({"__name__": MEMORY, **POD}, held(0, 300, 1))
    path = written(tmp_path / "mem.json", series, warnings=["store 3 didn't answer"], isPartial=True)
    said = "\n".join(read_prometheus({"memory": path}).remarks)
    assert "store 3 didn't answer" in said
    assert "the response is partial" in said


@pytest.mark.parametrize(
    "labels",
    [
        {"__name__": "container_spec_memory_limit_bytes"},
        {"__name__": "kube_pod_container_resource_limits", "resource": "memory", "unit": "byte"},
    ],
)
def test_limits_of_memory_are_limits_and_no_resource(tmp_path, labels):
    other = {**POD, "pod": "p-1"}
    used = [({"__name__": MEMORY, **pod}, held(0, 300, 1)) for pod in (POD, other)]
    told = [({**labels, **POD}, [*held(0, 120, 4), *held(180, 300, 2)]), ({**labels, **other}, held(0, 300, 0))]
    files = {"#0": written(tmp_path / "mem.json", *used), "#1": written(tmp_path / "limits.json", *told)}
    series = read_prometheus(files)
    assert series.names == ("memory",)
    np.testing.assert_array_equal(series.limit, [[2.0], [np.nan]])
    with pytest.raises(InvalidProblemError, match="limits or kills only"):
        read_prometheus({"#1": files["#1"]})


def many(tmp_path, number, with_memory):
    pods = [{"namespace": "ml", "pod": f"p-{k}", "container": "main"} for k in range(number)]
    cpu = [({"__name__": CPU, **pod}, counted(0, 600)) for pod in pods]
    memory = [({"__name__": MEMORY, **pod}, held(0, 600, 1)) for pod in pods[:with_memory]]
    return {"cpu": written(tmp_path / "cpu.json", *cpu), "memory": written(tmp_path / "mem.json", *memory)}


def test_containers_that_lack_a_resource_are_told_and_refused_where_most_do(tmp_path):
    series = read_prometheus(many(tmp_path, 8, 6))
    assert len(series.containers) == 6
    assert "2 of 8 containers are left out" in series.remarks[0]
    assert "ml/p-6/main, ml/p-7/main" in series.remarks[0]
    few = many(tmp_path, 30, 5)
    with pytest.raises(InvalidProblemError, match=r"25 of 30 containers .*\(25 memory\).*--drop-incomplete"):
        read_prometheus(few)
    assert len(read_prometheus(few, drop_incomplete=True).containers) == 5
    with pytest.raises(InvalidProblemError, match=r"mem.json: no series of a container"):
        read_prometheus(many(tmp_path, 30, 0), drop_incomplete=True)


def test_tables_take_units_and_tell_what_they_lack(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("container,time_s,cpu,memory,memory_limit\n" + "".join(
        f"{name},{60 * k},500,{GIB if name != 'c' else ''},{2 * GIB}\n" for name in "abc" for k in range(5)
    ))  # fmt: skip
    with pytest.raises(InvalidProblemError, match=r"memory of container 'a' is 1.07374e.09 GiB.*--unit memory=UNIT"):
        read_containers(path, units={"cpu": "millicores"})
    series = read_containers(path, units={"cpu": "millicores", "memory": "bytes"})
    assert series.values.tolist() == [[0.5, 1.0]] * 10
    assert series.limit[:, 1].tolist() == [2.0, 2.0]
    assert "1 of 3 containers are left out" in series.remarks[0]
    with pytest.raises(InvalidOptionError, match="no such resource"):
        read_containers(path, units={"disk": "bytes"})


def report(tmp_path, case, *names):
    """Return the files of a reported case, unpacked."""
    folder = TRACE_DIR / "reports" / case
    if not folder.is_dir():
        pytest.skip(f"the case {case} is not there; set OPTIM_TRACE_DIR to the folder that has reports/")
    for name in names:
        (tmp_path / f"{name}.json").write_bytes(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))
    return {{"mem": "memory"}.get(name, name): tmp_path / f"{name}.json" for name in names}


@pytest.mark.parametrize(
    ("case", "said", "pods"),
    [
        ("05-prom-restarted-pod", {}, "trainer"),
        ("06-prom-dup-scrape", {}, "trainer"),
        ("07-prom-sum-counter", {"counters": ["cpu"], "units": {"memory": "bytes"}}, "trainer"),
        ("08-prom-old-labels", {}, "trainer"),
        ("10-prom-cgroup-slices", {}, "t"),
    ],
)
def test_reported_cases_have_four_containers_of_the_right_size(tmp_path, case, said, pods):
    files = report(tmp_path, case, *(("mem",) if pods == "t" else ("cpu", "mem")))
    series = read_prometheus(files, **said)
    assert series.containers == tuple(f"ml/{pods}-{k}/main" for k in range(4))
    memory = series.values[:, series.names.index("memory")]
    assert memory.max() == pytest.approx(1.1 if pods == "t" else 1.2, abs=1e-3)
    assert memory.min() > 0.79
    if "cpu" in files:
        np.testing.assert_allclose(series.values[:, 0], 2.0, rtol=1e-9)
        assert series.lengths.tolist() == [359] * 4


def killed(*points):
    return [(time, str(count)) for time, count in points]


OOM, RESTARTS = "container_oom_events_total", "kube_pod_container_status_restarts_total"


def kills_of(tmp_path, *events, limit=None):
    used = [({"__name__": MEMORY, **POD}, [(60 * k, str(2**30 * v)) for k, v in enumerate([1, 1.98, 0.5, 1, 1, 1])])]
    files = {"#0": written(tmp_path / "mem.json", *used), "#1": written(tmp_path / "events.json", *events)}
    if limit is not None:
        labels = {"__name__": "kube_pod_container_resource_limits", "resource": "memory", **POD}
        files["#2"] = written(tmp_path / "limits.json", (labels, held(0, 300, limit)))
    return read_prometheus(files).kills


def test_kills_are_rises_of_the_counter_at_the_sample_before(tmp_path):
    # Counts that were there before the query began are older. A kill between 60 and 120 s belongs to the sample at 60 s.
    told = killed((0, 3), (60, 3), (120, 4), (180, 4), (240, 6), (300, 6))
    kills = kills_of(tmp_path, ({"__name__": OOM, **POD}, told))
    assert kills[:, 0].tolist() == [0, 1, 0, 2, 0, 0]


def test_counter_of_a_restarted_container_begins_with_kills_of_its_own(tmp_path):
    first, second = killed((0, 0), (60, 1)), killed((180, 1), (240, 1))
    kills = kills_of(
        tmp_path, ({"__name__": OOM, **POD, "id": "a"}, first), ({"__name__": OOM, **POD, "id": "b"}, second)
    )
    assert kills[:, 0].tolist() == [1, 0, 1, 0, 0, 0]


@pytest.mark.parametrize(("limit", "expected"), [(2, [0, 1, 0, 0, 0, 0]), (4, [0] * 6), (None, [0] * 6)])
def test_restarts_are_kills_where_memory_stood_at_its_limit(tmp_path, limit, expected):
    told = killed((0, 0), (60, 0), (120, 1), (180, 1), (240, 2), (300, 2))
    assert kills_of(tmp_path, ({"__name__": RESTARTS, **POD}, told), limit=limit)[:, 0].tolist() == expected


def test_restarts_say_nothing_beside_kills(tmp_path):
    restarts = ({"__name__": RESTARTS, **POD}, killed((0, 0), (120, 1), (300, 1)))
    kills = kills_of(tmp_path, ({"__name__": OOM, **POD}, killed((0, 0), (300, 0))), restarts, limit=2)
    assert kills[:, 0].tolist() == [0] * 6
