"""Runs on disk are read back unchanged; other files are rejected in one line."""

import json
from dataclasses import replace

import numpy as np
import pytest

from optim.core.archives import read_arrays, write_arrays
from optim.core.errors import InvalidProblemError
from optim.models.cluster.check import check_runs
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import measure
from optim.models.cluster.run_file import LoggedRun, RunRecord, digest_of, load_run, save_run
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import bound
from optim.simulation.cluster.engine import simulate
from tests.support.small_clusters import workload


@pytest.fixture
def path(tmp_path):
    """A file of one run with bounds."""
    jobs, cluster = workload([(0, 1, 3), (1, 2, 2)]), Cluster.grid("1x2")
    run = simulate(jobs, cluster, make_policy("srtf", jobs))
    logged = LoggedRun(policy="srtf", log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    save_run(
        RunRecord(jobs=jobs, cluster=cluster, overhead_us=30_000_000, runs=(logged,), **bound(jobs, cluster, 5)),
        tmp_path / "run.npz",
    )
    return tmp_path / "run.npz"


def test_a_run_comes_back_as_it_was_written(path):
    record = load_run(path)
    assert all(found.is_ok for _, found in check_runs(record))
    again = path.with_name("again.npz")
    save_run(record, again)
    assert load_run(again).runs[0].log.rows() == record.runs[0].log.rows()
    assert set(record.bounds) == {"jct_mean_h", "makespan_h", "slowdown_max"}


def test_columns_and_names_that_came_later_are_written_where_they_are_given(path):
    record = load_run(path)
    assert "jobs.account" not in read_arrays(path, "a run", "")
    count = len(record.jobs)
    given = replace(record.jobs, account=np.arange(count) % 2, accounts=("a", "b"), qos_names=("high",))
    again = path.with_name("again.npz")
    save_run(replace(record, jobs=given), again)
    found = load_run(again).jobs
    assert (found.account.tolist(), found.accounts, found.qos_names) == (given.account.tolist(), ("a", "b"), ("high",))
    assert digest_of(found, record.cluster) != digest_of(record.jobs, record.cluster)


FORMER_COLUMNS = {
    "jobs.gpu_type_slowdown_ppm": "jobs.kind_ppm",
    "jobs.min_gpus": "jobs.least_gpus",
    "jobs.max_gpus": "jobs.most_gpus",
}
FORMER_FIELDS = {
    "failed_attempts": "failed_tries",
    "price_bound_limit_h": "most_by_prices_h",
    "max_retries": "most_retries",
}


def test_a_file_with_the_names_of_earlier_releases_is_the_same_run(path):
    record, arrays = load_run(path), read_arrays(path, "a run", "")
    header = arrays["header"].tobytes().decode()
    assert all(f'"{name}"' in header for name in FORMER_FIELDS)
    for name, former in FORMER_FIELDS.items():
        header = header.replace(f'"{name}"', f'"{former}"')
    former = {FORMER_COLUMNS.get(name, name): values for name, values in arrays.items()}
    assert set(FORMER_COLUMNS.values()) < set(former)
    write_arrays(path, former | {"header": np.frombuffer(header.encode(), np.uint8)})
    again = load_run(path)
    assert all(found.is_ok for _, found in check_runs(again))
    assert (again.jobs, again.cluster) == (record.jobs, record.cluster)
    assert (again.runs[0].metrics, again.runs[0].rules) == (record.runs[0].metrics, record.runs[0].rules)
    assert again.price_bound_limit_h == record.price_bound_limit_h is not None


def test_a_column_under_both_its_names_is_refused(path):
    arrays = read_arrays(path, "a run", "")
    write_arrays(path, arrays | {"jobs.least_gpus": arrays["jobs.min_gpus"]})
    with pytest.raises(InvalidProblemError, match=r"unknown array 'jobs\.least_gpus'"):
        load_run(path)


def test_the_digest_of_jobs_and_cluster_is_that_of_earlier_releases(path):
    """Keys in files begin with the digest, so a renamed column keeps its former name in the digest."""
    record = load_run(path)
    assert digest_of(record.jobs, record.cluster) == "dcee3651de5918f6"


@pytest.mark.parametrize("missing", ["header", "jobs.gpus", "log0.first", "price", "cluster.rack"])
def test_a_run_without_a_part_is_refused(path, missing):
    arrays = read_arrays(path, "a run", "")
    del arrays[missing]
    write_arrays(path, arrays)
    with pytest.raises(InvalidProblemError, match="not a run of optim simulate cluster"):
        load_run(path)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("log0.first", np.array([0, 5])),
        ("log0.time_us", np.array([0.5])),
        ("jobs.gpus", np.array([[1, 2]])),
        ("header", np.frombuffer(b"{}", np.uint8)),
        ("header", np.frombuffer(json.dumps({"schema": "other"}).encode(), np.uint8)),
    ],
)
def test_a_run_with_columns_of_another_form_is_refused(path, name, values):
    write_arrays(path, {**read_arrays(path, "a run", ""), name: values})
    with pytest.raises(InvalidProblemError, match="run"):
        load_run(path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 but damaged"])
def test_what_is_no_archive_is_refused(tmp_path, content):
    file = tmp_path / "bad.npz"
    file.write_bytes(content)
    with pytest.raises(InvalidProblemError, match="write one with --log FILE"):
        load_run(file)


def test_figures_of_ones_own_that_are_no_numbers_are_left_out(path):
    record = load_run(path)
    run = replace(
        record.runs[0], figures={"a": np.int64(3), "b": float("nan"), "c": float("inf"), "d": np.float32(0.5)}
    )
    save_run(replace(record, runs=(run,)), path)
    assert load_run(path).runs[0].figures == {"a": 3.0, "d": 0.5}
