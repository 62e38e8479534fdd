"""Several sizes of a cluster in one command."""

import json

import pytest
from typer.testing import CliRunner

from optim.cli.cluster_sizes import worth_of_machines
from optim.cli.main import app
from optim.models.cluster.cluster import Cluster


@pytest.fixture
def jobs(tmp_path):
    """A gang of two behind a long job, and a short one that strict first come, first served delays."""
    path = tmp_path / "jobs.csv"
    path.write_text("id,submit,gpus,duration,estimate\na,0,1,3600,3600\nb,60,2,3600,3600\nc,120,1,600,600\n")
    return path


def _run(*words):
    return CliRunner().invoke(app, ["simulate", "cluster", *map(str, words)])


def test_each_size_equals_a_run_of_its_own(jobs):
    words = ("--trace", jobs, "--policy", "fifo,easy", "--format", "json")
    rows = [json.loads(line) for line in _run(*words, "--gpus", "2x2,1x2").stdout.splitlines()]
    assert [(row["gpus"], row["policy"]) for row in rows] == [
        ("1x2", "fifo"), ("1x2", "easy"), ("2x2", "fifo"), ("2x2", "easy")
    ]  # fmt: skip
    for size, part in (("1x2", rows[:2]), ("2x2", rows[2:])):
        alone = [json.loads(line) for line in _run(*words, "--gpus", size).stdout.splitlines()][1:3]
        assert [row["jct_mean_h"] for row in part] == [row["jct_mean_h"] for row in alone]
        assert [row["ratio_to_bound"] for row in part] == pytest.approx([row["ratio_to_bound"] for row in alone])


def test_jobs_left_on_any_size_are_told_of(jobs, tmp_path):
    lazy = tmp_path / "lazy.py"
    lazy.write_text(
        "from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy\n\n"
        "class Lazy(PlanningPolicy):\n    def plan(self, view):\n"
        "        begun = {job: view.room().find(job) for job in view.waiting.tolist() if job == 0}\n"
        "        return Plan(gpus=dict(view.running) | begun)\n"
    )
    result = _run("--trace", jobs, "--policy", f"{lazy}:Lazy", "--gpus", "1x2,2x2")
    assert result.exit_code == 1, result.output
    assert "Lazy left jobs unfinished" in result.stderr


def test_what_machines_are_worth_is_said(jobs):
    """By hand: strict, a ends after 60, b after 119 and c after 128 min; with easy c ends after 10; with 2x2 no job waits."""
    said = _run("--trace", jobs, "--policy", "fifo,easy", "--gpus", "1x2,2x2").stdout
    assert "1x2 to 2x2 (1 more machine) under fifo: 1.71 h to 0.72 h on average (-0.98 h)" in said
    assert "easy instead of fifo on 1x2: 1.05 h (-0.66 h), saves less than the machines" in said


def _topology(path, counts):
    machines = [
        {"count": count, "gpus": 2, "kind": kind, "partitions": ["p"]}
        for kind, count in zip(("h100", "a100"), counts, strict=True)
    ]
    path.write_text(json.dumps({"schema": "optim/cluster/1", "machines": machines}))
    return path


def test_sizes_may_be_topologies_of_the_same_types(tmp_path):
    table = tmp_path / "typed.csv"
    table.write_text(
        "id,submit,gpus,duration,gpu_type,partition\na,0,2,3600,a100,p\nb,0,2,3600,a100,p\nc,0,2,3600,h100,p\n"
    )
    small, large = _topology(tmp_path / "small.json", (1, 1)), _topology(tmp_path / "large.json", (1, 2))
    words = ("--trace", table, "--policy", "fifo", "--format", "json")
    rows = [json.loads(line) for line in _run(*words, "--gpus", f"{large},{small}").stdout.splitlines()]
    assert [(row["gpus"], row["jct_mean_h"]) for row in rows] == [
        (str(small), pytest.approx(4 / 3)), (str(large), 1)
    ]  # fmt: skip
    result = _run(*words, "--gpus", f"{small},4x8")
    assert result.exit_code == 2
    assert "the same types and partitions" in result.stderr


@pytest.mark.parametrize(
    ("other", "verdict"), [(1.0, "more than"), (2.0, "as much as"), (3.0, "less than"), (5.0, "no saving")]
)
def test_the_verdict_compares_the_policy_with_the_machines(other, verdict):
    rows = [
        {"gpus": "1x8", "policy": "fifo", "jct_mean_h": 5.0},
        {"gpus": "1x8", "policy": "easy", "jct_mean_h": other},
        {"gpus": "2x8", "policy": "fifo", "jct_mean_h": 2.0},
    ]
    worlds = [("1x8", Cluster.grid("1x8")), ("2x8", Cluster.grid("2x8"))]
    assert verdict in worth_of_machines(rows, worlds)[1]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--gpus", "1x2,2x2", "--log", "run.npz", "--jobs-csv", "j.csv"), "excludes --log, --jobs-csv; omit"),
        (("--gpus", "1x4,2x2"), "two sizes with the same number of GPUs"),
        (("--gpus", "1x2,zzz"), "zzz: no such file; a cluster is MACHINESxGPUS, such as 60x8, or a topology file"),
    ],
)
def test_what_does_not_go_with_several_sizes_is_one_line(jobs, words, cause):
    result = _run("--trace", jobs, *words)
    assert (result.exit_code, result.stderr.strip().count("\n")) == (2, 0)
    assert cause in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no --gpus: simulated on 60x8 (480 GPUs); give the size of your cluster"),
        (("--gpus", "16"), "--gpus 16 is read as 16x1: 16 machines of one GPU; one machine of 16 GPUs is 1x16"),
        (("--gpus", "16x1"), ""),
    ],
)
def test_an_assumed_size_is_named(jobs, words, said):
    result = _run("--trace", jobs, "--policy", "fifo", "--bound-steps", 0, *words)
    assert result.exit_code == 0, result.output
    assert ("no --gpus" in result.stderr, "is read as" in result.stderr) == (said[:2] == "no", said[:2] == "--")
    assert said in " ".join(result.stderr.split())


def test_jobs_that_are_generated_need_no_size():
    result = _run("--generate", "philly", "--jobs", 5, "--policy", "fifo", "--bound-steps", 0)
    assert (result.exit_code, "no --gpus" in result.stderr) == (0, False)
