"""`simulate cluster --what-if` against two separate commands, and `--write-config` and back."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.models.cluster.run_file import load_run, save_run
from optim.models.cluster.waiting import waited_by_job
from optim.models.cluster.workload import US
from optim.simulation.cluster.policies.multifactor import Multifactor, MultifactorOptions
from optim.workloads.cluster.queue_files import read_queues
from tests.support.small_clusters import workload

RUNNER = CliRunner()
QUEUE = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  cohort: all
  preemption: {{reclaimWithinCohort: Any}}
  resourceGroups: [{{coveredResources: [nvidia.com/gpu], flavors: [{{name: f, resources: [{{name: nvidia.com/gpu, nominalQuota: {quota}}}]}}]}}]
"""
ROWS = ["id,submit,gpus,duration,vc,user,account,qos"]
ROWS += [
    f"j{n},{n * 977 % 9000},{1 + n % 3},{600 + n * 331 % 7000},{'ab'[n % 2]},u{n % 4},acc{n % 2},normal"
    for n in range(30)
]


def run(*words):
    """Return the output of a command run in this process."""
    return RUNNER.invoke(app, ["simulate", "cluster", *(str(word) for word in words)])


@pytest.fixture
def world(tmp_path):
    (tmp_path / "jobs.csv").write_text("\n".join(ROWS) + "\n")
    for name, quotas in (("now", (4, 4)), ("then", (6, 2))):
        text = "---\n".join(QUEUE.format(name=queue, quota=quota) for queue, quota in zip("ab", quotas, strict=True))
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "slurm.conf").write_text(
        "PriorityWeightAge=1000\nPriorityWeightFairshare=0\nPriorityWeightJobSize=5000\n"
    )
    return tmp_path


def of(world):
    return ("--trace", world / "jobs.csv", "--gpus", "1x8", "--format", "json")


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (("--policy", "hierarchical-quota", "--option", "quotas={}/now.yaml"), "then.yaml"),
        (("--policy", "fifo"), "then.yaml"),
        (("--policy", "multifactor"), "slurm.conf"),
    ],
)
def test_a_what_if_is_two_separate_runs(world, now, then):
    now = [word.format(world) for word in now]
    result = run(*of(world), *now, "--what-if", world / then)
    assert result.exit_code == 0, result.output
    first, second, *queues, summary = map(json.loads, result.stdout.splitlines())
    policy = {"then.yaml": ("hierarchical-quota", "quotas"), "slurm.conf": ("multifactor", "conf")}[then]
    alone = [now, ["--policy", policy[0], "--option", f"{policy[1]}={world / then}"]]
    waits, rows = [], []
    for number, words in enumerate(alone):
        log = world / f"{number}.npz"
        rows.append(json.loads(run(*of(world), *words, "--log", log).stdout.splitlines()[-1]))
        record = load_run(log)
        waits.append(waited_by_job(record.jobs, record.runs[0].log) / US / 3600)
    for found, row in zip((first, second), rows, strict=True):
        mine = {
            name: value for name, value in row.items() if not name.endswith("ratio_to_bound")
        }  # bounds aren't sought
        assert {name: found[name] for name in mine} == mine
    change = waits[1] - waits[0]
    assert (summary["wait_less"], summary["wait_more"]) == ((change < 0).sum(), (change > 0).sum())
    assert summary["wait_mean_h_change"] == pytest.approx(change.mean())
    for found, each in zip((first, second), waits, strict=True):
        assert found["wait_max_1_h"] == pytest.approx(each[record.jobs.gpus == 1].max())
    for queue in queues:
        mine = np.array([record.jobs.groups[group] == queue["queue"] for group in record.jobs.group])
        assert queue["wait_mean_h_now"] == pytest.approx(waits[0][mine].mean())
        assert queue["wait_mean_h_then"] == pytest.approx(waits[1][mine].mean())


@pytest.mark.parametrize(
    ("now", "then", "names"),
    [
        (("fifo",), "then.yaml", ("fifo", "hierarchical-quota")),
        (
            ("hierarchical-quota", "--option", "quotas={}/now.yaml"),
            "then.yaml",
            ("hierarchical-quota", "hierarchical-quota (what-if)"),
        ),
        (
            ("hierarchical-quota", "--option", "quotas={}/then.yaml"),
            "then.yaml",
            ("hierarchical-quota", "hierarchical-quota (what-if)"),
        ),
        (("easy",), "slurm.conf", ("easy", "multifactor")),
    ],
)
def test_the_log_of_a_what_if_is_verified(world, now, then, names):
    log, table = world / "both.npz", world / "jobs.csv.out"
    words = ("--policy", *(word.format(world) for word in now), "--what-if", world / then, "--log", log)
    result = run(*of(world)[:4], *words, "--jobs-csv", table, "--waits")
    assert result.exit_code == 0, result.output
    record = load_run(log)
    assert tuple(each.policy for each in record.runs) == names
    assert record.settings["what_if"] == str(world / then)
    assert record.bounds["jct_mean_h"] > 0
    assert ("keys" in record.settings) == (now[-1] != "quotas={}/then.yaml"), "equal runs have equal keys"
    assert RUNNER.invoke(app, ["verify", str(log)]).exit_code == 0
    waits = [waited_by_job(record.jobs, each.log) / US / 3600 for each in record.runs]
    mean = float(re.search(r"mean wait ([+-][0-9.]+) h", result.stdout)[1])
    assert mean == pytest.approx((waits[1] - waits[0]).mean(), abs=5e-4)
    assert {line.split(",")[0] for line in table.read_text().splitlines()[1:]} == set(names)
    assert f"{names[1]}: waits by user" in " ".join(result.stdout.split()).replace(" *", "")
    other = replace(record, runs=(record.runs[0], replace(record.runs[1], policy="las (what-if)")))
    save_run(other, log)
    assert RUNNER.invoke(app, ["verify", str(log)]).exit_code == (3 if "keys" in record.settings else 0)


def test_the_table_says_who_waits_less_and_what_queues_lend(world):
    result = run(*of(world)[:4], "--option", f"quotas={world / 'now.yaml'}", "--what-if", world / "then.yaml")
    assert result.exit_code == 0, result.output
    for text in (
        "queues: now (--policy), then (--what-if)",
        "hierarchical-quota *",
        "* stops running jobs",
        "jobs wait less",
        "waits that increase most:",
        "GPU-hours borrowed",
        "queues temporarily over quota",
    ):
        assert text in result.stdout


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--what-if", "nowhere.yaml"), "nowhere.yaml is not a file"),
        (("--what-if", "{}/then.yaml", "--policy", "fifo,srtf"), "takes one policy, got fifo, srtf"),
        (
            ("--what-if", "{}/then.yaml", "--policy", "fifo", "--report", "{}/a.html"),
            "--report and --what-if exclude each other",
        ),
        (("--write-config", "slurm", "--policy", "fifo", "--waits"), "--waits and --write-config exclude each other"),
        (("--what-if", "{}/then.yaml", "--write-config", "kueue"), "exclude each other"),
        (("--write-config", "yarn"), "--write-config must be"),
        (("--write-config", "kueue", "--policy", "srtf"), "policy srtf has no kueue settings"),
        (("--what-if", "{}/jobs.csv", "--policy", "fifo"), "object 1 isn't a mapping"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_line(world, words, cause):
    result = run(*of(world), *(word.format(world) for word in words))
    assert result.exit_code == 2
    assert cause in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_bad_quota_file_is_one_line(world):
    (world / "bad.yaml").write_text(
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: x}\nspec: {parent: y}\n---\n"
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: y}\nspec: {parent: x}\n---\n"
        + QUEUE.format(name="a", quota=1)
    )
    result = run(*of(world), "--policy", "hierarchical-quota", "--option", f"quotas={world / 'bad.yaml'}")
    assert result.exit_code == 2
    assert "cohort 'x' is an ancestor of itself, by 'x of y'; remove the cycle" in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 4  # the header's remarks of the jobs, and the error


def test_which_of_both_settings_cannot_be_played_is_said(world):
    (world / "narrow.yaml").write_text(
        (world / "then.yaml").read_text().replace("nominalQuota: 2", "nominalQuota: 1, borrowingLimit: 0")
    )
    words = (
        "--policy",
        "hierarchical-quota",
        "--option",
        f"quotas={world}/now.yaml",
        "--what-if",
        world / "narrow.yaml",
    )
    result = run(*of(world), *words)
    assert result.exit_code == 2
    assert f"--what-if {world}/narrow.yaml: policy hierarchical-quota cannot be simulated" in result.stderr


def test_queues_that_are_printed_for_kueue_are_read_back(world):
    words = ("--policy", "hierarchical-quota", "--option", f"quotas={world / 'now.yaml'}")
    result = run(*of(world)[:4], *words, "--write-config", "kueue")
    assert result.exit_code == 0, result.output
    (world / "again.yaml").write_text(result.stdout)
    assert read_queues(world / "again.yaml").tree(8) == read_queues(world / "now.yaml").tree(8)


def test_priorities_that_are_printed_for_slurm_are_read_back(world):
    (world / "qos.txt").write_text("Name|Priority|Preempt|UsageFactor\nnormal|10|low|1\nlow|0||0.5\n")
    given = {
        "weight_age": 7,
        "favor_small": "true",
        "half_life_h": 0,
        "max_age_h": 12,
        "fair_tree": "false",
        "calc_period_min": 2,
    }
    words = [word for name, value in given.items() for word in ("--option", f"multifactor.{name}={value}")]
    words += ["--option", f"multifactor.qos={world / 'qos.txt'}"]
    result = run(*of(world)[:4], "--policy", "multifactor", *words, "--write-config", "slurm")
    assert result.exit_code == 0, result.output
    (world / "again.conf").write_text(result.stdout)
    again = Multifactor(MultifactorOptions(conf=world / "again.conf"), workload([(0, 1, 1)]))
    assert again.settings == MultifactorOptions(
        weight_age=7, favor_small=True, half_life_h=0, max_age_h=12, fair_tree=False, calc_period_min=2
    )
    commands = re.findall(r"^#   sacctmgr -i (.*)$", result.stdout, re.MULTILINE)
    assert not any(command.startswith("add account") for command in commands), (
        "the shares are this simulation's assumption"
    )
    assert "not translated: accounts and users: no file states them" in result.stderr
    assert "modify qos normal set priority=10 usagefactor=1 preempt=low" in commands
    assert "PreemptType=preempt/qos" in result.stdout
    assert "not translated: several partitions" in result.stderr


def test_accounts_are_printed_if_a_file_states_them(world):
    table = world / "shares.txt"
    users = "".join(f"acc{k % 2}||u{k}|2\n" for k in range(10))
    table.write_text("Account|ParentName|User|Share\nroot|||1\nacc0|root||1\nacc1|root||3\n" + users)
    words = ("--policy", "multifactor", "--option", f"multifactor.associations={table}", "--write-config", "slurm")
    result = run(*of(world)[:4], *words)
    assert result.exit_code == 0, result.output
    assert "#   sacctmgr -i add account acc1 parent=root fairshare=3\n" in result.stdout
    assert "#   sacctmgr -i add user u1 account=acc1 fairshare=2\n" in result.stdout
    assert "modify qos" not in result.stdout


@pytest.mark.parametrize(
    ("own", "text", "said"),
    [
        (("easy",), "SchedulerParameters=bf_job_part_count_reserve=1\n", "counts jobs per partition"),
        (("conservative", "depth=50"), "SchedulerParameters=bf_job_part_count_reserve=50\n", "every bf_interval"),
        (
            ("conservative",),
            "SchedulerParameters=bf_job_part_count_reserve=0\n",
            "tries the first bf_max_job_test (500)",
        ),
    ],
)
def test_reservations_are_settings_of_slurm(world, own, text, said):
    words = [word for each in (f"reservations={own[0]}", *own[1:]) for word in ("--option", f"multifactor.{each}")]
    result = run(*of(world)[:4], "--policy", "multifactor", *words, "--write-config", "slurm")
    assert result.exit_code == 0, result.output
    assert text in result.stdout
    assert "SchedulerType=sched/backfill\n" in result.stdout
    assert "bf_max_job_test" not in result.stdout  # a small one turns backfill off
    assert said in result.stderr


def test_each_setting_of_the_file_that_is_not_written_is_named(world):
    with (world / "slurm.conf").open("a") as file:
        file.write("PriorityWeightTRES=gres/gpu=1000\nPriorityFlags=ACCRUE_ALWAYS\n")
    words = ("--policy", "multifactor", "--option", f"conf={world / 'slurm.conf'}", "--write-config", "slurm")
    result = run(*of(world)[:4], *words)
    assert result.exit_code == 0, result.output
    for name in ("PriorityWeightTRES", "PriorityFlags=ACCRUE_ALWAYS"):
        assert name not in result.stdout
        assert f"not translated: {name} of {world / 'slurm.conf'}: without effect in the simulation\n" in result.stderr


def test_each_field_of_queues_that_is_not_written_is_named(world):
    quotas = world / "then.yaml"
    quotas.write_text(quotas.read_text().replace("spec:", "spec:\n  admissionChecks: [sample]", 1))
    words = ("--policy", "hierarchical-quota", "--option", f"quotas={quotas}", "--write-config", "kueue")
    result = run(*of(world)[:4], *words)
    assert result.exit_code == 0, result.output
    assert "admissionChecks" not in result.stdout
    assert "not translated: ClusterQueue.admissionChecks of " in result.stderr


def test_the_scheduler_of_the_file_is_named_where_another_was_simulated(world):
    with (world / "slurm.conf").open("a") as file:
        file.write("SchedulerType=sched/backfill\n")
    words = ("--policy", "multifactor", "--option", f"conf={world / 'slurm.conf'}")
    result = run(*of(world)[:4], *words, "--write-config", "slurm")
    assert "SchedulerType=sched/builtin\n" in result.stdout
    said = "not translated: SchedulerType=sched/backfill is not applied: multifactor runs strict, as sched/builtin"
    assert said in " ".join(result.stderr.split())
    again = run(*of(world)[:4], *words, "--option", "multifactor.reservations=easy", "--write-config", "slurm")
    assert "SchedulerType=sched/backfill\n" in again.stdout
    assert "not applied" not in again.stderr


@pytest.mark.parametrize(
    ("then", "option"),
    [("slurm.conf", "multifactor.reservations=easy"), ("then.yaml", "hierarchical-quota.queue_by=user")],
)
def test_options_of_the_second_policy_carry_its_name(world, then, option):
    (world / "then.yaml").write_text((world / "then.yaml").read_text().replace("{name: a}", "{name: u0}"))
    policy, _, name = option.partition(".")
    file = {"slurm.conf": "conf", "then.yaml": "quotas"}[then]
    more = ["--option", "hierarchical-quota.default_queue=b"] if then == "then.yaml" else []
    result = run(*of(world), "--policy", "fifo", "--what-if", world / then, "--option", option, *more)
    assert result.exit_code == 0, result.output
    alone = run(*of(world), "--policy", policy, "--option", f"{file}={world / then}", "--option", name, *more)
    found, row = json.loads(result.stdout.splitlines()[1]), json.loads(alone.stdout.splitlines()[-1])
    assert (found["policy"], found["jct_mean_h"]) == (policy, row["jct_mean_h"])
    refused = run(*of(world), "--policy", "fifo", "--what-if", world / then, "--option", f"{policy}.no_such=1")
    assert "no_such" in refused.stderr
    assert refused.exit_code == 2


def test_quotas_that_lend_nothing_are_limits_of_slurm(world):
    alone = QUEUE.replace("  cohort: all\n", "")
    (world / "fixed.yaml").write_text(alone.format(name="a", quota=4) + "---\n" + QUEUE.format(name="b", quota=4))
    words = ("--policy", "hierarchical-quota", "--option", f"quotas={world / 'fixed.yaml'}")
    result = run(*of(world)[:4], *words, "--write-config", "slurm")
    assert result.exit_code == 0, result.output
    assert result.stdout == "#   sacctmgr -i add qos a set grptres=gres/gpu=4\nPartitionName=a QOS=a\n"
    assert "queue 'b' borrows" in result.stderr
