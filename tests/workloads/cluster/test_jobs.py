"""From tables of jobs to workloads: kept columns, selection, sorting, and random fields."""

from datetime import datetime

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.philly import STATUSES
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import JobTable, ReadOptions
from tests.support.trace_files import gavel_file


def _texts(*values):
    return np.array(values, dtype=object)


def _table(**more):
    columns = {
        "ids": ("a", "b", "c", "d"),
        "submit_s": np.array([50.0, 10.0, 10.0, 90.0]),
        "workers": np.array([1, 2, 4, 8]),
        "duration_s": np.array([1.0, 2.0, 3.0, 4.0]),
        "clock": np.zeros(4, np.int64),
        "rows_read": 4,
    }
    return JobTable(**(columns | more))


def test_all_that_a_table_tells_is_kept_in_the_order_of_time():
    jobs = cluster_jobs(
        _table(
            virtual_cluster=_texts("x", "", "x", "y"),
            user=_texts("u", "v", "u", "v"),
            model=_texts("m", "m", "n", "m"),
            status=_texts("Pass", "Failed", "Pass", ""),
            app=_texts("p", "q", "", "p"),
            priority=np.array([4, 3, 2, 1]),
            min_gpus=np.array([1, 1, 2, 4]),
            max_gpus=np.array([2, 2, 4, 16]),
            demand=np.array([[0.25, 1.5, 2.0], [1, 4, 16], [1, 4, 16], [1, 0, 0]]),
            busy=np.array([0.5, 1.0, 0.001, 0.25]),
            slowdown=np.array([[1, 1.5, 2.0]] * 4),
            loss=np.array([[1, 0.0]] * 4),
            failed_s=np.array([np.nan, 2.0, np.nan, np.nan]),
        ),
        Selection(),
    )
    assert jobs.ids == ("b", "c", "a", "d")
    assert [jobs.groups[group] for group in jobs.group] == ["", "x", "x", "y"]
    assert [jobs.users[user] for user in jobs.user] == ["v", "u", "u", "v"]
    assert [jobs.models[model] for model in jobs.model] == ["m", "n", "m", "m"]
    assert [jobs.statuses[status] for status in jobs.status] == ["Failed", "Pass", "Pass", ""]
    assert jobs.app[2] == jobs.app[3]
    assert len(set(jobs.app.tolist())) == 3
    assert jobs.priority.tolist() == [3, 2, 4, 1]
    assert (jobs.min_gpus.tolist(), jobs.max_gpus.tolist()) == ([1, 2, 1, 4], [2, 4, 2, 16])
    assert (jobs.share_milli.tolist(), jobs.cpu_milli.tolist()) == ([1000, 1000, 250, 1000], [4000, 4000, 1500, 0])
    assert jobs.memory_mib.tolist() == [16384, 16384, 2048, 0]
    assert jobs.busy_milli.tolist() == [1000, 1, 500, 250]
    assert jobs.slowdown_ppm[0].tolist() == [1_000_000, 1_500_000, 2_000_000]
    assert jobs.fails_us.tolist() == [2_000_000, -1, -1, -1]
    assert jobs.loss[0].tolist() == [1, 0]
    assert [note.split(":")[0] for note in jobs.notes] == [
        "the rows weren't in the order of time and were sorted",
        "1 job was submitted at the same time as another",
        "1 job asks for part of a GPU",
    ]


def test_a_date_and_a_number_of_jobs_choose_the_first_from_then_on():
    table = _table(begin=datetime(2017, 10, 3))
    jobs = cluster_jobs(table, Selection(since="2017-10-03T00:00:20", first=1))
    assert (jobs.ids, dict(jobs.dropped)) == (("a",), {"jobs submitted earlier": 2})
    assert jobs.submit_us.tolist() == [0]
    assert cluster_jobs(_table(), Selection(since="50")).ids == ("a", "d")
    with pytest.raises(InvalidOptionError, match="the trace has no dates"):
        cluster_jobs(_table(), Selection(since="2017-10-03"))
    with pytest.raises(InvalidProblemError, match="no job of the trace is left"):
        cluster_jobs(_table(), Selection(since="1000"))


def test_a_date_chooses_among_seconds_since_1970_as_among_milliseconds(tmp_path):
    for factor in (1, 1000):
        (tmp_path / "t.csv").write_text(
            "submit,gpus,duration,id\n" + f"{1506000000 * factor},1,1,a\n{1507000000 * factor},1,1,b\n"
        )
        jobs = cluster_jobs(read_jobs(tmp_path / "t.csv", "csv", ReadOptions()), Selection(since="2017-10-01"))
        assert jobs.ids == ("b",)


def test_jobs_on_clocks_of_their_own_are_not_laid_over_each_other():
    apart = {"virtual_cluster": _texts("x", "y", "y", "x"), "clock": np.array([0, 1, 1, 0])}
    with pytest.raises(
        InvalidProblemError, match=r"2 separate clocks.* choose one virtual cluster by .*\(there are: x, y\)"
    ):
        cluster_jobs(_table(**apart), Selection())
    with pytest.raises(InvalidProblemError, match="choose one virtual cluster"):
        cluster_jobs(_table(**apart), Selection(first=1))
    with pytest.raises(InvalidProblemError, match="2 separate clocks"):
        cluster_jobs(_table(clock=apart["clock"]), Selection())
    many = {name: np.arange(12) for name in ("submit_s", "workers", "duration_s", "clock")} | {
        "ids": tuple("abcdefghijkl")
    }
    with pytest.raises(InvalidProblemError, match=r"12 separate clocks.*\(there are: v0, v1, v10, v11, v2, \.\.\.\)"):
        cluster_jobs(_table(**many, virtual_cluster=_texts(*(f"v{n}" for n in range(12)))), Selection())
    # The remaining times are on one clock.
    assert cluster_jobs(_table(**apart), Selection(since="20")).ids == ("a", "d")
    assert cluster_jobs(_table(clock=np.full(4, 3)), Selection()).ids == ("b", "c", "a", "d")


@pytest.mark.parametrize("chosen", ["x", "y"])
def test_one_virtual_cluster_of_gavels_jobs_is_played(tmp_path, chosen):
    path = gavel_file(tmp_path, [("x", 0, "A", 3600, 0.0, 1), ("y", 0, "A", 3600, 5.0, 1), ("y", 1, "A", 3600, 9.0, 1)])
    with pytest.raises(InvalidProblemError, match=r"trace\.virtual_cluster=NAME"):
        cluster_jobs(read_jobs(path, "gavel", ReadOptions()), Selection())
    jobs = cluster_jobs(read_jobs(path, "gavel", ReadOptions(virtual_cluster=chosen)), Selection())
    assert jobs.groups == (chosen,)


def test_run_times_are_those_of_the_clusters_types_of_gpu():
    ratio = np.array([[1.0, 4.0], [1.0, np.nan], [np.nan, 2.0], [np.nan, np.nan]])
    table = _table(types=("fast", "slow"), type_ratio=ratio)
    both = Cluster(gpus=np.array([8, 8]), kind=np.array([0, 1]), kinds=("slow", "fast"))
    jobs = cluster_jobs(table, Selection(), both)
    assert jobs.ids == ("b", "c", "a")
    assert jobs.gpu_type_slowdown_ppm.tolist() == [[0, 1_000_000], [1_000_000, 0], [4_000_000, 1_000_000]]
    assert jobs.duration_us.tolist() == [2_000_000, 6_000_000, 1_000_000]
    assert dict(jobs.dropped) == {"jobs that no GPU of the cluster can run": 1}
    assert cluster_jobs(table, Selection(), Cluster.grid("1x8")).gpu_type_slowdown_ppm.shape == (4, 0)
    other = Cluster(gpus=np.array([8]), kinds=("h100",))
    with pytest.raises(InvalidProblemError, match="GPU type 'h100' has no throughput in the trace"):
        cluster_jobs(table, Selection(), other)


def test_failures_are_drawn_only_where_asked_for_and_not_told():
    plain, drawn = (cluster_jobs(_table(), Selection(failures=failures)) for failures in ("none", "study"))
    assert (plain.statuses, plain.fails_us.tolist()) == (("",), [-1] * 4)
    assert drawn.statuses == STATUSES
    assert any("drawn from tables 6 and 7" in note for note in drawn.notes)
    told = cluster_jobs(_table(status=_texts("Pass", "Pass", "Pass", "Pass")), Selection(failures="study"))
    assert told.statuses == ("Pass",)
    assert any("no outcomes were drawn" in note for note in told.notes)


@pytest.mark.parametrize(
    ("options", "cause"),
    [({"first": 0}, "at least 1"), ({"oversized": "maybe"}, "refuse or drop"), ({"failures": "some"}, "none or study")],
)
def test_selections_out_of_range_are_refused(options, cause):
    with pytest.raises(InvalidOptionError, match=cause):
        Selection(**options)
