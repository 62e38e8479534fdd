"""Pollux' workloads: run times, slowdowns and loss curves from measured steps."""

import gzip

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions
from optim.workloads.traces.pollux_workload import read_curve, read_step_times


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def folder(tmp_path):
    """Jobs with the measurements of one application."""
    place = tmp_path / "traces" / "net"
    _write(
        place / "placements.csv.gz",
        "placement,local_bsz,step_time,sync_time\n2,10,1.0,0\n2,20,2.0,0\n11,10,1.5,0\n4,10,1.0,0\n22,10,3,0\n1111,10,2,0\n",
    )
    _write(
        place / "scalability.csv.gz",
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,8,10,4.0,0\n2,8,10,2.0,0\n",
    )
    _write(place / "validation-30.csv.gz", "progress,iteration,metric\n1,50,0.4\n2,100,0.8\n")
    _write(place / "validation-40.csv.gz", "progress,iteration,metric\n1,50,9\n2,100,3\n3,200,5\n")
    (tmp_path / "jobs").mkdir()
    path = tmp_path / "jobs" / "workload.csv"
    path.write_text("name,time,application,num_replicas,batch_size\na,5,net,2,30\nb,7,net,4,40\n")
    return path


def test_run_times_are_iterations_times_measured_steps(folder):
    table = read_jobs(folder, "pollux", ReadOptions())
    assert table.ids == ("a", "b")
    assert table.duration_s.tolist() == [150, 200]  # 100 steps of 1.5 s between 10 and 20 per GPU; 200 of 1 s
    assert table.model.tolist() == ["net", "net"]
    assert table.slowdown.tolist() == [[1, 1.5, 1.5], [1, 3, 2]]


def test_a_workload_is_known_by_its_columns_behind_a_mark_of_the_byte_order(folder):
    folder.write_text("\ufeffapplication,name,time,num_replicas,batch_size\nnet,a,5,2,30\n")
    assert read_jobs(folder, "pollux", ReadOptions()).duration_s.tolist() == [150]


def test_jobs_are_submitted_from_the_beginning_on_and_not_before(folder):
    folder.write_text(folder.read_text().replace("a,5", "a,0").replace("b,7", "b,0.5"))
    assert read_jobs(folder, "pollux", ReadOptions()).submit_s.tolist() == [0, 0.5]
    folder.write_text(folder.read_text().replace("a,0", "a,-0.5"))
    with pytest.raises(InvalidProblemError, match="time"):
        read_jobs(folder, "pollux", ReadOptions())


def test_a_virtual_cluster_is_refused_as_a_workload_has_none(folder):
    with pytest.raises(InvalidOptionError, match=r"virtual_cluster must be None .* which has none; leave it out"):
        read_jobs(folder, "pollux", ReadOptions(virtual_cluster="x"))


def test_the_loss_falls_from_one_to_nothing(folder):
    table = read_jobs(folder, "pollux", ReadOptions())
    assert table.loss[:, 0].tolist() == [1, 1]
    assert table.loss[:, -1].tolist() == [0, 0]
    assert table.loss[0, 16] == pytest.approx(0.5)  # an accuracy of 0.4 of the last 0.8
    assert table.loss[1, 16] == 0  # a loss is as good as at the end after half of the steps
    assert (np.diff(table.loss, axis=1) <= 0).all()


def test_the_nearest_measurement_is_taken(folder):
    times = read_step_times(folder.parent.parent / "traces" / "net")
    assert times.at(1, 2, 15) == 1.5
    assert times.at(1, 2, 40) == 4.0  # in two parts of 20
    assert times.at(2, 8, 10) == 2.0
    assert times.at(1, 3, 10) == times.at(1, 4, 10)


def test_what_is_missing_is_named(folder, tmp_path):
    with pytest.raises(InvalidProblemError, match="validation-50"):
        read_curve(tmp_path / "traces" / "net", 50)
    folder.write_text("name,time,application,num_replicas,batch_size\na,5,../net,2,30\n")
    with pytest.raises(InvalidProblemError, match="no folder of step times"):
        read_jobs(folder, "pollux", ReadOptions())
    alone = tmp_path / "else" / "deep" / "workload.csv"
    alone.parent.mkdir(parents=True)
    alone.write_text(folder.read_text())
    with pytest.raises(InvalidProblemError, match="give its path as steps"):
        read_jobs(alone, "pollux", ReadOptions())
