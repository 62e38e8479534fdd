"""The questions of the guide for operators, each answered by its command on a cluster of two types, partitions and five users."""

import csv
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from tests.support.sacct_cluster import write_cluster

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "operators.md"
JOBS = "--trace jobs.txt --trace-format sacct --gpus topology.json"
ANSWERS = {
    "When will job X start?": r"start_10 +start_50 +start_90",
    "Why is it pending?": r"easy \(backfill\)",
    "Does the simulation match what happened?": r"simulated [\d.]+ h under easy .*, recorded [\d.]+ h",
    "Is `easy` better than `fifo`, or by chance?": r"easy instead of fifo: -[\d.]+ h \[.*\], 5 weeks",
    "Who starves?": r"fifo \(strict\)",
    "Who waits, by user and partition?": r"easy: waits by user, hours(.|\n)*easy: waits by partition, hours",
    "Which limit should I give?": r"50, 90, 95 and 99 % quantiles of run times by user(.|\n)*limit_95",
    "What if I change the quotas?": r"jobs? waits? less(.|\n)*GPU-hours borrowed",
    "What if I set priority weights?": r"jobs? waits? less",
    "What if running jobs may be stopped, and whom does it cost?": r"lost_gpu_hours|lost_gpu",
    "What are more machines worth?": r"4 more machines\) under easy: [\d.]+ h to [\d.]+ h",
    "What does a maintenance window cost?": r"easy \(backfill\)",
    "Which GPUs are held but idle, and whose?": r"idle_h",
    "How far is the present policy from the best possible?": r"lower bound(.|\n)*srtf \(backfill\) \*",
    "How do I set it in Slurm?": r"PriorityWeightFairshare=10000",
}


def questions():
    """Return the rows of the guide's table: question and words of its command."""
    rows = re.findall(r"^\| ([^|]+\?) \| `optim ([^`]+)` \|", GUIDE.read_text(), flags=re.MULTILINE)
    return [(question, command.replace(" J ", f" {JOBS} ").split()) for question, command in rows]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Five weeks of jobs, some running and some pending, and the files that the guide names."""
    folder = tmp_path_factory.mktemp("operator")
    write_cluster(folder, weeks=5)
    return folder


def ask(cluster, monkeypatch, words):
    monkeypatch.chdir(cluster)
    if words.count("--gpus") > 1:  # the last counts
        at = words.index("--gpus")
        words = [*words[:at], *words[at + 2 :]]
    words = [word.replace("200", "8") if words[at - 1] == "--forecast" else word for at, word in enumerate(words)]
    more = [] if words[0] == "containers" else ["--bound-steps", "3"]
    return CliRunner().invoke(app, [*words, *more], env={"COLUMNS": "250"})


def test_the_guide_has_fifteen_questions():
    assert [question for question, _ in questions()] == list(ANSWERS)


@pytest.mark.prove
@pytest.mark.parametrize(("question", "words"), questions(), ids=[question for question, _ in questions()])
def test_each_question_is_answered_by_one_command(cluster, monkeypatch, question, words):
    result = ask(cluster, monkeypatch, words)
    assert result.exit_code == 0, result.output
    assert re.search(ANSWERS[question], result.stdout), result.stdout


@pytest.mark.prove
def test_the_files_of_a_state_tell_of_each_pending_job(cluster, monkeypatch):
    """Starts lie after now and in order, and causes add up to the wait."""
    for question, words in questions()[:2]:
        assert ask(cluster, monkeypatch, words).exit_code == 0, question
    pending = {line.split("|")[0] for line in (cluster / "jobs.txt").read_text().splitlines() if "|PENDING|" in line}
    starts = list(csv.DictReader((cluster / "starts.csv").read_text().splitlines()))
    assert {row["job"] for row in starts} == pending
    assert all(row["start_10"] <= row["start_50"] <= row["start_90"] for row in starts)
    jobs = [row for row in csv.DictReader((cluster / "jobs.csv").read_text().splitlines()) if row["id"] in pending]
    assert len(jobs) == len(pending)
    for row in jobs:
        causes = ("over_quota", "fragmented", "full", "order")
        assert sum(float(row[f"wait_{cause}_h"]) for cause in causes) == pytest.approx(float(row["wait_h"]), abs=1e-5)
    assert any(row["promised"] >= row["reserved"] > "2026" for row in jobs)


def test_limits_are_those_of_the_table(cluster, monkeypatch):
    """By a separate reading of the table: 95 % of a user's jobs take at most the limit, which is one of their run times."""
    words = next(words for question, words in questions() if question.startswith("Which limit"))
    lines = ask(cluster, monkeypatch, [*words, "--format", "json"]).stdout.splitlines()
    found = {row["user"]: row for row in map(json.loads, lines) if row.get("limits_by") == "user"}
    table = [line.split("|") for line in (cluster / "jobs.txt").read_text().splitlines()[1:]]
    assert set(found) == {"ann", "ben", "cem", "dee", "eva"}
    for user, row in found.items():
        runs = sorted(int(each[7]) / 3600 for each in table if each[1] == user and each[11] == "COMPLETED")
        assert row["jobs"] == len(runs)
        assert row["longest_h"] == pytest.approx(runs[-1])
        assert sum(run <= row["limit_95_h"] + 1e-9 for run in runs) >= 0.95 * len(runs)
        assert row["limit_95_h"] == pytest.approx(min(runs, key=lambda run: abs(run - row["limit_95_h"])))
        assert 1 < row["stated_over_run"] < 4


SHORT = "JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|Timelimit|AllocTRES|State"


def test_keeping_types_says_backfill_where_pooling_them_says_preemption(tmp_path):
    """By hand, a stopped job starting again. L (10 h, a100) is an hour from its end, and X (100 h, h100) began six minutes ago, when the first of
    five jobs of 12 minutes comes that need an a100, one when the other is done. Pooled, `srtf` stops X: they wait 0 h instead of 5, and X
    loses 1.1: better. On its own type L is all that can be stopped, and loses 10 h for the 5 h, where `easy` lets L end."""
    rows = [SHORT]
    for name, kind, minute, length in (
        ("L", "a100", 0, 600),
        ("X", "h100", 534, 6000),
        *((f"S{nth}", "a100", 540 + 12 * nth, 12) for nth in range(5)),
    ):
        submit = f"2026-03-02T{minute // 60:02}:{minute % 60:02}:00"
        limit = f"{length // 1440}-{length % 1440 // 60:02}:{length % 60:02}:00"
        tres = f"gres/gpu:{kind}=1,gres/gpu=1"
        rows.append(f"{name}|u|a|p|{submit}|{submit}|{submit}|{length * 60}|{limit}|{tres}|COMPLETED")
    (tmp_path / "jobs.txt").write_text("\n".join(rows) + "\n")
    machines = [{"count": 1, "gpus": 1, "kind": kind} for kind in ("a100", "h100")]
    (tmp_path / "types.json").write_text(json.dumps({"schema": "optim/cluster/1", "machines": machines}))
    means = {}
    for gpus in ("2x1", tmp_path / "types.json"):
        words = ("--trace", tmp_path / "jobs.txt", "--trace-format", "sacct", "--gpus", gpus, "--policy", "easy,srtf")
        settings = ("--option", "preempted=restart", "--option", "overhead_s=0", "--format", "json")
        result = CliRunner().invoke(app, ["simulate", "cluster", *map(str, (*words, *settings))])
        assert result.exit_code == 0, result.output
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        means[str(gpus)] = {row["policy"]: 7 * row["jct_mean_h"] for row in rows if "jct_mean_h" in row}
    pooled, typed = means.values()
    assert (pooled["easy"], pooled["srtf"]) == (pytest.approx(116.0), pytest.approx(112.1))
    assert (typed["easy"], typed["srtf"]) == (pytest.approx(116.0), pytest.approx(121.0))


COHORT = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {{name: {}}}\nspec: {{parent: {}}}\n"
WRONG = {
    "GPUs of a type that the cluster hasn't": (
        lambda state: state.replace("gres/gpu:h100", "gres/gpu:b200"),
        ("--state", "{}/bad.txt", "--policy", "easy"),
        "GPU type 'b200', but the cluster has",
    ),
    "a partition that the cluster hasn't": (
        lambda state: state.replace("|train|", "|gold|"),
        ("--state", "{}/bad.txt", "--policy", "easy"),
        "partition 'gold'",
    ),
    "more held than there is": (
        lambda state: re.sub(r"gpu:h100=\d+,gres/gpu=\d+", "gpu:h100=24,gres/gpu=24", state),
        ("--state", "{}/bad.txt", "--policy", "easy"),
        "running jobs have",
    ),
    "a negative limit": (
        lambda state: re.sub(r"\|0-\d\d:00:00\|", "|-1:00:00|", state),
        ("--state", "{}/bad.txt", "--policy", "easy"),
        "Timelimit",
    ),
    "a negative estimate of one's own table": (
        lambda state: "id,submit,gpus,duration,estimate\na,0,1,60,60\nb,0,1,60,-60\n",
        ("--trace", "{}/bad.txt", "--policy", "easy"),
        "row 3, column 'estimate'",
    ),
    "cohorts in a circle": (
        lambda state: COHORT.format("a", "b") + "---\n" + COHORT.format("b", "a") + "---\n" + QUEUE,
        ("--trace", "{}/jobs.txt", "--trace-format", "sacct", "--what-if", "{}/bad.yaml", "--policy", "fifo"),
        "bad.yaml",
    ),
    "a kind that isn't known": (
        lambda state: QUEUE.replace("ClusterQueue", "Gadget"),
        ("--trace", "{}/jobs.txt", "--trace-format", "sacct", "--what-if", "{}/bad.yaml", "--policy", "fifo"),
        "kind 'Gadget'",
    ),
}
QUEUE = (
    "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: train}\nspec:\n  cohort: a\n  resourceGroups:\n"
    "  - coveredResources: [gpu]\n    flavors: [{name: h100, resources: [{name: gpu, nominalQuota: 1}]}]\n"
)


@pytest.mark.parametrize("what", WRONG)
def test_what_an_operator_gets_wrong_is_one_line_and_exit_code_2(tmp_path, what):
    spoil, words, said = WRONG[what]
    write_cluster(tmp_path, weeks=1)
    bad = tmp_path / next(Path(word).name for word in words if "/bad." in word)
    bad.write_text(spoil((tmp_path / "jobs.txt").read_text()))
    words = [word.format(tmp_path) for word in words]
    result = CliRunner().invoke(app, ["simulate", "cluster", *words, "--gpus", str(tmp_path / "topology.json")])
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("optim: error")]
    assert len(lines) == 1
    assert said in lines[0]
    assert "Traceback" not in result.output
