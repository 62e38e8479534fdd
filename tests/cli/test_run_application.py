"""`optim run --application`, with machines that are objects of this process."""

import json
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.cli.run import ApplicationRun, PushChoice, chosen
from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import Adagrad, Sgd
from optim.training.application import UserApplication
from optim.training.applications import MatrixFactorisation, TopicModel
from optim.training.transport import InProcess

TARGET = 3


class Own(UserApplication):
    """A line through two points; the file's name is kept."""

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
    """Data that aren't there."""

    def __init__(self):
        raise LookupError("no data\nhere")


class Words(Own):
    """Parameters that aren't numbers."""

    def start(self):
        return ["a"]


class Empty(Own):
    """No partitions."""

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
    assert "going on from clock 20" in said
    assert again == whole
    assert whole[:20] == first


def test_a_table_has_every_tenth_clock_and_the_last(here):
    result = CliRunner().invoke(app, ["run", "--application", "logistic-regression", "--clocks", "14"])
    assert result.exit_code == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[4:7]] == ["0", "10", "13"]


def run(**fields):
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
    own, rule = chosen(run(name="matrix-factorisation", data=here / "ratings.csv"))
    assert isinstance(own, MatrixFactorisation)
    assert (own.num_users, own.num_items, own.seed) == (12, 6, 3)
    assert rule == Adagrad(learning_rate=2.0)
    own, rule = chosen(run(name="topic-model"))
    assert isinstance(own, TopicModel)
    assert rule == Sgd(learning_rate=1.0), "no further than to the natural gradient's end"
    _, rule = chosen(run(name="logistic-regression", pushes=PushChoice(staleness=2)))
    assert rule == Sgd(learning_rate=2.0), "what isn't applied yet simply adds only without slots"


def test_a_class_of_ones_own_gets_the_file(here):
    own, _ = chosen(run(name=f"{__name__}:Own", data=here / "x"))
    assert (own.path, own.num_partitions) == (str(here / "x"), 2)
    assert chosen(run(name=f"{__name__}:Own"))[0].path == ""


@pytest.mark.parametrize("name", ["chess", "none_such:Thing", f"{__name__}:Missing"])
def test_unknown_applications_are_refused(name):
    with pytest.raises(InvalidOptionError):
        chosen(run(name=name))
    with pytest.raises(InvalidOptionError, match="rate"):
        run(name=name, rate=0.0)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Absent", "LookupError: no data here (test_run_application.py:"),
        ("Words", "ValueError: could not convert string to float"),
        ("Empty", "must have partitions of no or more examples, one at least of some, got []"),
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
