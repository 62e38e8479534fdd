"""`optim run` executes plans and rounds with processes, or trains an application, and reports the result."""

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

import optim
from optim.cli.main import app
from optim.cli.messages import ExitCode
from optim.cli.output import OutputFormat
from optim.cli.run import ApplicationRun, PushChoice, RoundChoice, chosen, run_rounds
from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import Adagrad, Sgd
from optim.simulation.emulation import lease_rounds
from optim.simulation.emulation.job_run import JobRow, PlanOptions
from optim.simulation.emulation.lease_rounds import AppRow, RoundRow
from optim.training.application import UserApplication
from optim.training.applications import MatrixFactorisation, TopicModel
from optim.training.drill import KillRow
from optim.training.transport import InProcess
from tests.simulation.emulation.test_lease_rounds import app as rounds_app
from tests.simulation.emulation.test_lease_rounds import instance_of


def run(*words):
    command = [sys.executable, "-m", "optim.cli", "run", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def solution(tmp_path_factory):
    """The online algorithm's answer to tiny-0, as a file."""
    path = tmp_path_factory.mktemp("run") / "solution.json"
    instance = optim.reference_instance("tiny-0")
    optim.save_solution(optim.solve(instance, "online"), instance, path)
    return path


@pytest.mark.prove
def test_every_admitted_job_is_trained_to_the_bits_of_an_undisturbed_run(solution):
    done = run("tiny-0", solution, "--slot-seconds", "1", "--cores", "0.2", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["job"] for row in rows} == {"j0000", "j0001"}
    for row in rows:
        assert row["is_exact"] is True
        assert row["realised_slots"] > 0
        assert row["last_loss"] < row["first_loss"]
        assert row["changes"] >= 2
        assert row["error"] > -1
    assert "built-in applications in turn: matrix-factorisation, logistic-regression, topic-model" in done.stderr
    assert "slot 0" in done.stderr
    assert "time scale: a slot of " in done.stderr
    assert "completion error: median " in done.stderr
    assert "utility: planned " in done.stderr


def test_what_was_planned_is_told_beside_what_came_of_it(solution, monkeypatch):
    """Without training: only the messages about rows matter here."""
    row = JobRow(
        job="j", application="a", planned_slots=2.0, realised_slots=3.0, error=0.5, planned_utility=8.0,
        realised_utility=4.0, clocks=1, gradients=1, changes=0, first_loss=1.0, last_loss=0.5, is_exact=True,
    )  # fmt: skip
    monkeypatch.setattr("optim.simulation.emulation.plan_run.run_plan", lambda *_, **__: [row])
    done = CliRunner().invoke(app, ["run", "tiny-0", str(solution), "--format", "json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"instance": "tiny-0", "seed": 0, **asdict(row)}
    _, scale, error, utility = done.stderr.strip().splitlines()
    assert "time scale: a slot of " in scale
    assert "median 50.0%" in error
    assert error.endswith("0 of 1 jobs unfinished")
    assert utility.endswith("utility: planned 8, realised 4")


@pytest.mark.prove
def test_every_app_with_a_lease_trains_on_what_it_was_granted(tmp_path):
    instance = optim.reference_instance("auction-tiny-0")
    decision = optim.solve(instance, "exact")
    optim.save_solution(decision, instance, tmp_path / "a.json")
    words = ("--slot-seconds", "3", "--gradient-seconds", "0.3", "--cores", "0.1", "--format", "json")
    done = run("auction-tiny-0", tmp_path / "a.json", *words)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    granted = decision.decision.granted_gpus(instance.num_apps)
    assert {row["job"]: row["gpus"] for row in rows} == {
        name: count for name, count in zip(instance.apps.ids, granted.tolist(), strict=True) if count
    }
    for row in rows:
        assert row["is_exact"] is True
        assert row["realised_min"] <= row["planned_min"]
        assert (row["realised_rho"] > row["planned_rho"]) == (row["realised_slots"] > row["planned_slots"])
    assert "time scale: a lease of 1200 s runs in 3 s" in done.stderr
    assert "completion error: median " in done.stderr
    assert "log welfare of the apps with leases: planned " in done.stderr


@pytest.mark.prove
def test_rounds_of_leases_tell_what_was_planned_and_what_it_came_to(tmp_path):
    instance = instance_of(rounds_app("a", 60.0, 2), rounds_app("b", 30.0, 1), gpus=2)
    optim.save(instance, tmp_path / "auction.json")
    optim.save_solution(optim.solve(instance, "exact"), instance, tmp_path / "a.json")
    words = ("--rounds", "2", "--slot-seconds", "1.5", "--cores", "0.4", "--format", "json")
    done = run(tmp_path / "auction.json", tmp_path / "a.json", *words)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    leases, apps = ([row for row in rows if ("round" in row) == is_lease] for is_lease in (True, False))
    assert {row["round"] for row in leases} == {0, 1}
    assert [row["app"] for row in apps] == ["a", "b"]
    for row in apps:
        own = [each for each in leases if each["app"] == row["app"]]
        assert row["realised_leases"] == len(own)
        assert row["realised_min"] == pytest.approx(sum(each["realised_min"] for each in own))
        assert row["is_exact"] in (True, None)
    assert "round 1: " in done.stderr
    assert "all leases: " in done.stderr
    assert "serial GPU minutes planned" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected INSTANCE SOLUTION, got 0 arguments"),
        (("--application", "chess"), "unknown application 'chess'"),
        (("--application", "none_such:Thing"), "give ./FILE.py:CLASS, or a module of this folder or of PYTHONPATH"),
        (("--data", "x.csv"), "require --application NAME"),
        (("tiny-0", "x.json", "--clocks", "5"), "require --application NAME"),
        (("tiny-0", "x.json", "--workers", "3"), "require --application NAME"),
        (("--kill-servers", "2", "--rate", "0.5"), "require --application NAME"),
        (("--application", "topic-model", "--cores", "1"), "require INSTANCE SOLUTION"),
        (("--kill-servers", "2", "--slot-seconds", "1"), "require INSTANCE SOLUTION"),
        (("tiny-0", "--application", "topic-model"), "expected INSTANCE SOLUTION, got 1 arguments"),
        (("tiny-0", "x.json", "--application", "chess"), "unknown application 'chess'"),
        (("tiny-0", "x.json", "--application", "topic-model", "--kill-servers", "2"), "excludes --rounds"),
        (("tiny-0",), "expected INSTANCE SOLUTION, got 1 arguments"),
        (("tiny-0", "nowhere.json"), "nowhere.json"),
        (("spot-hour-0", "nowhere.json"), "spot-hour-0 is neither an admission nor an auction instance"),
        (
            ("tiny-0", "x.json", "--kill-servers", "2"),
            "--kill-servers trains a built-in job; omit tiny-0 x.json",
        ),
        (("--kill-servers", "2", "--rounds", "2"), "omit --rounds and --fairness"),
        (("--application", "topic-model", "--rounds", "2"), "excludes --rounds"),
        (("tiny-0", "x.json", "--rounds", "2"), "require an auction"),
        (("auction-tiny-0", "x.json", "--fairness", "0.5"), "require an auction, and --fairness at least two rounds"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_two(words, message):
    done = CliRunner().invoke(app, ["run", *words])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("is_equal", [True, False])
def test_a_drill_tells_its_kills_as_a_table_or_as_lines_of_json(is_equal, monkeypatch):
    kills = [
        KillRow(machine="m", process_id=7, from_clock=9, to_clock=6, replayed_to=6, clocks_compared=4, is_equal=equal)
        for equal in (True, is_equal)
    ]
    monkeypatch.setattr("optim.training.drill.kill_servers", lambda *_: iter(kills))
    lines = CliRunner().invoke(app, ["run", "--kill-servers", "2", "--format", "json"])
    assert [json.loads(line) for line in lines.stdout.splitlines()] == [asdict(kill) for kill in kills]
    table = CliRunner().invoke(app, ["run", "--kill-servers", "2", "--format", "table"])
    assert table.stdout.endswith(
        f"{1 + is_equal} of 2 recovered runs have the same training losses as the undisturbed run\n"
    )
    assert "process_id" in table.stdout
    assert lines.exit_code == table.exit_code == (0 if is_equal else 3)


@pytest.mark.prove
def test_an_application_goes_on_from_its_checkpoints_on_data_of_ones_own(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(f"{u} {i} {(u * i) % 5}" for u in range(12) for i in range(6)))
    words = ("--application", "matrix-factorisation", "--data", path, "--workers", "1", "--format", "json")
    whole = run(*words, "--clocks", "15")
    assert whole.returncode == 0, whole.stderr
    first = run(*words, "--clocks", "10", "--checkpoint", tmp_path / "run")
    again = run(*words, "--clocks", "15", "--checkpoint", tmp_path / "run")
    assert "resuming from clock 10" in again.stderr
    assert again.stdout == whole.stdout
    assert whole.stdout.startswith(first.stdout)
    losses = [json.loads(line)["loss"] for line in whole.stdout.splitlines()]
    assert losses[-1] < losses[0]


INSTANCE = instance_of(rounds_app("a", 120.0, 3), rounds_app("b", 60.0, 1))


def lease(number, name, planned, realised):
    return RoundRow(
        round=number, app=name, gpus=2, placement="slot", left_min=120.0, planned_min=planned, realised_min=realised,
        error=realised / planned - 1, clocks=7, start_s=1.5 + number,
    )  # fmt: skip


def of_app(name, rho=None, is_exact=True):
    return AppRow(
        app=name, planned_leases=2, realised_leases=2, planned_min=60.0, realised_min=50.0, planned_finish_min=40.0,
        realised_finish_min=rho and 45.0, planned_rho=1.25, realised_rho=rho, is_exact=is_exact,
    )  # fmt: skip


LEASES = [lease(0, "a", 40.0, 30.0), lease(0, "b", 20.0, 20.0), lease(1, "a", 40.0, 40.0)]


@pytest.fixture
def told(monkeypatch, capsys):
    """Execute synthetic rounds, and return the exit code and the output."""

    def tell(apps, output=OutputFormat.JSON, is_stopped=False, leases=tuple(LEASES)):
        asked = {}

        def play(instance, plan, options, rounds, folder, **others):
            asked.update(rounds=rounds, folder=folder, is_there=folder.is_dir())
            return list(leases), apps

        monkeypatch.setattr(lease_rounds, "play_rounds", play)
        choice = RoundChoice(rounds=2, fairness=0.5)
        listening = {"is_stopped": lambda: is_stopped, "on_slot": print}
        code = run_rounds(INSTANCE, None, PlanOptions(slot_s=6.0, seed=3), choice, listening, output)
        assert (asked["rounds"].rounds, asked["rounds"].fairness, asked["is_there"]) == (2, 0.5, True)
        assert not asked["folder"].exists(), "checkpoints are left behind"
        return code, capsys.readouterr()

    return tell


def test_rows_and_sums_are_told(told):
    code, said = told([of_app("a", rho=1.5), of_app("b")])
    assert code is ExitCode.DONE
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["app"] for row in rows] == ["a", "b", "a", "a", "b"]
    assert {(row["instance"], row["seed"]) for row in rows} == {("rounds", 3)}
    assert "a lease of 1200 s runs in 6 s (factor 0.005)" in said.err
    assert "(2.5 s at most)" in said.err
    assert "round 0: 60 serial GPU minutes planned, 50 realised by 2 apps, 4 GPUs" in said.err
    assert "all leases: 100 serial GPU minutes planned, 90 realised, error -10.0%" in said.err
    assert "1 of 2 apps done, 2 planned; largest rho of finished apps: 1.5, planned 1.25" in said.err


def test_tables_have_a_title_each(told):
    _, said = told([of_app("a"), of_app("b")], OutputFormat.TABLE)
    assert "serial GPU minutes per lease" in said.out
    assert "planned in the first round" in said.out
    assert "apps done" not in said.err


def test_bits_that_differ_and_whoever_stops_it_show_in_the_exit_code(told):
    code, said = told([of_app("a"), of_app("b", is_exact=False)])
    assert code is ExitCode.REFUSED
    assert "differs from that of an undisturbed run" in said.err
    code, said = told([of_app("a", is_exact=None)], is_stopped=True, leases=())
    assert code is ExitCode.INTERRUPTED
    assert "all leases" not in said.err


TARGET = 3


class Own(UserApplication):
    """A line through two points; the name of the file is unchanged."""

    def __init__(self, path=""):
        self.path = path

    def sizes(self):
        return [1, 1]

    def start(self):
        return [0.0]

    def loss(self, parameters, partition, clock):
        return float((parameters[0] - partition) ** 2)

    def slope(self, parameters, partition, clock):
        return 2 * (parameters - partition)


class Absent(Own):
    """An application whose constructor raises an error of two lines."""

    def __init__(self):
        raise LookupError("no data\nhere")


class Words(Own):
    """An application whose parameters aren't numbers."""

    def start(self):
        return ["a"]


class Empty(Own):
    """An application without partitions."""

    def sizes(self):
        return []


@pytest.fixture
def here(monkeypatch, tmp_path):
    """Machines in this process, and ratings in a file."""

    @contextmanager
    def processes(application, options, *, max_machines):
        assert max_machines == 2
        yield InProcess(application)

    monkeypatch.setattr("optim.training.processes.Processes", processes)
    (tmp_path / "ratings.csv").write_text("\n".join(f"{u} {i} {(u * i) % 5}" for u in range(12) for i in range(6)))
    return tmp_path


def losses(*words):
    result = CliRunner().invoke(app, ["run", *map(str, words), "--format", "json"])
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def test_a_run_goes_on_from_its_checkpoints_to_the_losses_of_a_whole_one(here):
    words = ("--application", "matrix-factorisation", "--data", here / "ratings.csv")
    whole, said = losses(*words, "--clocks", "25")
    assert "going on" not in said
    assert [row["clock"] for row in whole] == list(range(25))
    assert whole[-1]["loss"] < whole[0]["loss"]
    first, _ = losses(*words, "--clocks", "20", "--checkpoint", here / "run")
    again, said = losses(*words, "--clocks", "25", "--checkpoint", here / "run")
    assert "resuming from clock 20" in said
    assert again == whole
    assert whole[:20] == first


def test_a_table_has_every_tenth_clock_and_the_last(here):
    result = CliRunner().invoke(app, ["run", "--application", "logistic-regression", "--clocks", "14"])
    assert result.exit_code == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[4:7]] == ["0", "10", "13"]


def application_run(**fields):
    known = {
        "data": None,
        "clocks": 1,
        "workers": 1,
        "rate": 2.0,
        "checkpoint": None,
        "seed": 3,
        "pushes": PushChoice(),
    }
    return ApplicationRun(**known | fields)


def test_applications_come_with_the_rule_that_suits_them(here):
    own, rule = chosen(application_run(name="matrix-factorisation", data=here / "ratings.csv"))
    assert isinstance(own, MatrixFactorisation)
    assert (own.num_users, own.num_items, own.seed) == (12, 6, 3)
    assert rule == Adagrad(learning_rate=2.0)
    own, rule = chosen(application_run(name="topic-model"))
    assert isinstance(own, TopicModel)
    assert rule == Sgd(learning_rate=1.0), "no further than to the natural gradient's end"
    _, rule = chosen(application_run(name="logistic-regression", pushes=PushChoice(staleness=2)))
    assert rule == Sgd(learning_rate=2.0), "what isn't applied yet simply adds only without slots"


def test_a_class_of_ones_own_gets_the_file(here):
    own, _ = chosen(application_run(name=f"{__name__}:Own", data=here / "x"))
    assert (own.path, own.num_partitions) == (str(here / "x"), 2)
    assert chosen(application_run(name=f"{__name__}:Own"))[0].path == ""


def test_an_application_may_be_a_file_or_a_module_of_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    for place, name in (("below/aside_a.py", "./below/aside_a.py:Mine"), ("aside_b.py", "aside_b:Mine")):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(f"from {__name__} import Own\n\n\nclass Mine(Own):\n    pass\n")
        assert type(chosen(application_run(name=name))[0]).__name__ == "Mine"


@pytest.mark.parametrize("name", ["chess", "none_such:Thing", f"{__name__}:Missing"])
def test_unknown_applications_are_refused(name):
    with pytest.raises(InvalidOptionError):
        chosen(application_run(name=name))
    with pytest.raises(InvalidOptionError, match="rate"):
        application_run(name=name, rate=0.0)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Absent", "LookupError: no data here (test_run.py:"),
        ("Words", "ValueError: could not convert string to float"),
        ("Empty", "must have sizes of at least 0, and at least one above 0, got []"),
        ("UserApplication", "TypeError: Can't instantiate abstract class"),
        ("PushChoice", "PushChoice has no num_partitions"),
        ("TARGET", "TypeError: 'int' object is not callable"),
        ("None", "has no attribute 'None'"),
        ("a b", "unknown application"),
    ],
)
def test_an_own_class_that_fails_is_told_in_one_line(name, cause):
    result = CliRunner().invoke(app, ["run", "--application", f"{__name__}:{name}"])
    assert result.exit_code == 2
    assert cause in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "cause"), [("def f(:", "SyntaxError"), ("1/0", "ZeroDivisionError: division by zero")]
)
def test_an_own_module_that_fails_is_told_in_one_line(text, cause, monkeypatch, tmp_path):
    (tmp_path / "fails_when_read.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(app, ["run", "--application", "fails_when_read:Own"])
    assert result.exit_code == 2
    assert cause in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
