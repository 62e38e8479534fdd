"""Reported answers of Prometheus, damaged: the correct samples, a remark, or one line; never a wrong figure without a message."""

import copy
import gzip
import json
import random

import pytest

from optim.core.errors import OptimError
from optim.workloads.containers import read_prometheus
from tests.support.public_traces import TRACE_DIR

CASES = {
    "05-prom-restarted-pod": ("cpu", "mem"),
    "06-prom-dup-scrape": ("cpu", "mem"),
    "07-prom-sum-counter": ("cpu", "mem"),
    "08-prom-old-labels": ("cpu", "mem"),
    "10-prom-cgroup-slices": ("mem",),
}
CORES = 2.0
"""Of each container in each of the cases."""
TOL = 0.01
NEW_NAMES = ["pod", "pod_name", "container", "container_name", "namespace", "id", "job", "__name__", "zone"]
NEW_METRICS = [
    "container_cpu_usage_seconds",
    "memory_mib",
    "container_memory_working_set_bytes_total",
    "cpu_cores",
    "x:y_bytes:sum",
]


def load(case):
    folder = TRACE_DIR / "reports" / case
    if not folder.is_dir():
        pytest.skip(f"the case {case} is not there; set OPTIM_TRACE_DIR to the folder that has reports/")
    return {name: json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes())) for name in CASES[case]}


def memory_of(answers):
    """Return GiB by pod and time from the original answer: of the latest container with a sample at a time."""
    found = {}
    for series in answers["mem"]["data"]["result"]:
        metric = series["metric"]
        pod, container = (metric.get(name, metric.get(f"{name}_name")) for name in ("pod", "container"))
        if container == "main":
            found.setdefault(pod, {}).update({time: float(value) / 2**30 for time, value in series["values"]})
    return found


def drop(rng, result):
    """Drop a series, a label, or some samples."""
    series = rng.choice(result)
    what = rng.randrange(3)
    if what == 0:
        result.remove(series)
    elif what == 1 and series["metric"]:
        del series["metric"][rng.choice(sorted(series["metric"]))]
    else:
        for _ in range(rng.randint(1, 5)):
            series["values"].pop(rng.randrange(len(series["values"])))


def double(rng, result):
    """Double a series, under another job's name or not, or a sample."""
    series = copy.deepcopy(rng.choice(result))
    if rng.random() < 0.5:
        series["metric"]["job"] = "second"
        if rng.random() < 0.5:
            series["values"] = [[time, str(float(value) * 1.001)] for time, value in series["values"]]
    elif rng.random() < 0.5:
        own = rng.choice(result)
        place = rng.randrange(len(own["values"]))
        own["values"].insert(place, list(own["values"][place]))
        return
    result.append(series)


def rename(rng, result):
    """Rename a label, in one series or in all."""
    old, new = rng.choice(NEW_NAMES), rng.choice(NEW_NAMES)
    for series in result if rng.random() < 0.5 else [rng.choice(result)]:
        if old in series["metric"]:
            series["metric"][new] = series["metric"].pop(old)


def unit(rng, result):
    """Use another metric's name, none, or samples in another unit, with or without a name that gives the unit."""
    name = rng.choice(["", *NEW_METRICS])
    for series in result if rng.random() < 0.7 else [rng.choice(result)]:
        series["metric"]["__name__"] = name
        if not name:
            del series["metric"]["__name__"]
        if name == "memory_mib":
            series["values"] = [[time, str(float(value) / 2**20)] for time, value in series["values"]]


def order(rng, result):
    """Shuffle series, and the samples of one."""
    rng.shuffle(result)
    rng.shuffle(rng.choice(result)["values"])


MUTATIONS = (drop, double, rename, unit, order)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.prove)])
def test_no_figure_is_off_by_more_than_a_hundredth_without_a_word(case, count, tmp_path):
    answers = load(case)
    truth = memory_of(answers)
    said = {"counters": ["cpu"], "units": {"memory": "bytes"}} if case.startswith("07") else {}
    usual = set(read_prometheus(written(answers, tmp_path), **said).remarks)
    outcomes = {"right": 0, "said": 0, "refused": 0}
    for number in range(count):
        rng = random.Random(f"{case}/{number}")
        mutation = rng.choice(MUTATIONS)
        spoilt = copy.deepcopy(answers)
        name = rng.choice(CASES[case])
        mutation(rng, spoilt[name]["data"]["result"])
        files = written(spoilt, tmp_path)
        message, series = "", None
        try:
            series = read_prometheus(files, **said)
        except OptimError as error:
            message = str(error)
        assert "\n" not in message
        if series is None or set(series.remarks) - usual:
            outcomes["refused" if series is None else "said"] += 1
            continue
        wrong = list(faults(series, truth))
        assert not wrong, (case, number, mutation.__name__, wrong[:3])
        outcomes["right"] += 1
    assert outcomes["right"], outcomes


def written(answers, folder):
    """Write answers; return the files by resource."""
    files = {{"mem": "memory"}.get(name, name): folder / f"{name}.json" for name in answers}
    for path, answer in zip(files.values(), answers.values(), strict=True):
        path.write_text(json.dumps(answer))
    return files


def faults(series, truth):
    """Yield samples that are off by more than a hundredth, or missing."""
    pods = [next((part for part in name.split("/") if part in truth), None) for name in series.containers]
    if sorted(map(str, pods)) != sorted(truth):
        yield f"containers {series.containers}"
        return
    if series.num_samples < 0.95 * sum(len(own) for own in truth.values()):
        yield f"{series.num_samples} samples"
    for segment, rows in enumerate(series.segments()):
        own = truth[pods[segment]]
        for time, values in zip(series.time_s[rows], series.values[rows], strict=True):
            found = dict(zip(series.names, values, strict=True))
            if abs(found["memory"] - own[time]) > TOL * own[time]:
                yield f"memory {found['memory']} for {own[time]} at {time}"
            if abs(found.get("cpu", CORES) - CORES) > TOL * CORES:
                yield f"cpu {found['cpu']} at {time}"
