"""Bad input: one line that names the field and the remedy, exit code 2, no traceback, no output files."""

import gzip
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.models.files import save
from optim.models.reference import reference_instance


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """Give the smallest reference instance as a document."""
    path = tmp_path_factory.mktemp("documents") / "tiny-0.json"
    save(reference_instance("tiny-0"), path)
    return path.read_text()


def unknown_field(fields):
    fields["jobs"][1]["colour"] = "red"


def negative_capacity(fields):
    fields["worker_servers"][0]["capacity"][0] = -1


def negative_demand(fields):
    fields["jobs"][1]["ps"][0] = -1


def rising_utility(fields):
    fields["jobs"][2]["utility"] = {"kind": "table", "table": [1.0, 2.0]}


def not_a_number(fields):
    fields["jobs"][0]["utility"] = {"kind": "constant", "value": float("nan")}


def slower_server(fields):
    fields["jobs"][3]["worker_mbps"] = fields["jobs"][3]["ps_mbps"] + 1


def wrong_schema(fields):
    fields["schema"] = "optim/admission/999"


def missing_field(fields):
    del fields["horizon"]


BAD = {
    unknown_field: ("jobs[1]", "colour", "remove it or correct its spelling"),
    negative_capacity: ("worker_servers[0].capacity", "-1", "use 0"),
    negative_demand: ("jobs[1].ps", "-1", "use 0"),
    rising_utility: ("jobs[2].utility", "must not increase", "give values that fall or stay"),
    not_a_number: ("jobs[0].utility.value", "NaN", "finite number"),
    slower_server: ("jobs[3].worker_mbps", "must not exceed ps_mbps", "lower worker_mbps or raise ps_mbps"),
    wrong_schema: ("schema", "optim/admission/999", "must be one of optim/admission/1"),
    missing_field: ("horizon", "add it"),
}


def spoil(document, change):
    fields = json.loads(document)
    change(fields)
    return json.dumps(fields)


def assert_one_line(code, stdout, stderr, *named):
    assert code == 2
    assert stdout == ""
    (line,) = stderr.splitlines()
    assert line.startswith("optim: error: ")
    for text in named:
        assert text in line


@pytest.mark.parametrize("change", BAD, ids=lambda change: change.__name__)
def test_solve_names_the_bad_field_and_the_remedy(dummies, folder, document, change):
    (folder / "bad.json").write_text(spoil(document, change))
    result = CliRunner().invoke(app, ["solve", "bad.json", "--solver", "idle", "--out", "s.json"])
    assert_one_line(result.exit_code, result.stdout, result.stderr, "bad.json", *BAD[change])
    assert sorted(path.name for path in folder.iterdir()) == ["bad.json"]


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "admission", "--instance", "bad.json", "--solver", "idle"],
        ["verify", "bad.json", "s.json"],
        ["instance", "describe", "bad.json"],
        ["instance", "convert", "bad.json", "--out", "other.json"],
    ],
    ids=lambda command: command[0],
)
def test_each_command_names_the_bad_field(dummies, folder, document, command):
    (folder / "bad.json").write_text(spoil(document, negative_capacity))
    result = CliRunner().invoke(app, command)
    assert_one_line(result.exit_code, result.stdout, result.stderr, *BAD[negative_capacity])
    assert not {"other.json", "bench.jsonl", "bench.html"} & {path.name for path in folder.rglob("*")}


DAMAGED = {
    "truncated gzip": lambda text: gzip.compress(text.encode())[:-20],
    "damaged gzip": lambda text: gzip.compress(text.encode())[:20] + b"x" * 40,
    "half a file": lambda text: text.encode()[:100],
    "no JSON": lambda text: b"hello",
    "empty file": lambda text: b"",
    "no text": lambda text: b"\xff\xfe\x00{",
    "a list": lambda text: b"[1, 2]",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_one_line(dummies, folder, document, damage):
    (folder / "bad.json.gz").write_bytes(DAMAGED[damage](document))
    result = CliRunner().invoke(app, ["solve", "bad.json.gz", "--solver", "idle"])
    assert_one_line(result.exit_code, result.stdout, result.stderr, "bad.json.gz")


@pytest.mark.parametrize(
    ("text", "named"),
    [("", "s.json: the file is empty"), ("[1]", "give a file of fields and values"), (None, "give a solution file")],
    ids=["empty", "a list", "an instance"],
)
def test_verify_says_what_a_file_is_that_holds_no_solution(folder, document, text, named):
    (folder / "s.json").write_text(document if text is None else text)
    result = CliRunner().invoke(app, ["verify", "tiny-0", "s.json"])
    assert_one_line(result.exit_code, result.stdout, result.stderr, named)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("solve nowhere.json --solver idle", "nowhere.json: no such file"),
        ("solve tiny-0 --solver nonsense", "unknown solver of admission 'nonsense'"),
        ("solve lottery tiny-0 --solver idle", "unknown problem 'lottery'"),
        ("solve tiny-0 --solver idle --option wait_s=-1", "wait_s must be at least 0, got -1.0"),
        ("bench admission --instance tiny-0 --solver ,", "expected a list of names, got ','"),
        ("simulate containers --policy ,", "give at least one name, or omit the option"),
        ("simulate spot --policy , --zone a", "give at least one name, or omit the option"),
        ("solve tiny-0 --solver idle --option wait_s", "--option must be NAME=VALUE, got 'wait_s'"),
        ("solve tiny-0 --solver idle --option number=1 --option number=2", "given twice"),
        ("solve tiny-0 --solver idle --option colour=1", "unknown option 'colour'"),
        ("solve tiny-0 --solver idle --options-file no.toml", "no.toml: can't be read: No such file"),
        ("solve tiny-0 --solver idle --option wait_s=x", "option 'wait_s' must be a number, got 'x'"),
        ("solve tiny-0 --solver online --option price=x", "must be one of zero-start, "),
        ("solve tiny-0 --solver idle --time-limit -1", "--time-limit must be at least 0"),
        ("solve tiny-0 --solver idle --time-limit nan", "--time-limit must be at least 0"),
        ("solve tiny-0 --solver idle --seed -1", "--seed"),
        ("solve tiny-0 --solver idle --out nowhere/s.json", "nowhere/s.json: can't be written"),
        ("solve tiny-0 --solver idle --format xml", "--format"),
        ("solve a b c --solver idle", "expected [PROBLEM] INSTANCE"),
        ("verify tiny-0", "expected [PROBLEM] INSTANCE SOLUTION"),
        ("verify tiny-0 nowhere.json", "nowhere.json: can't be read"),
        ("bench nonsense", "unknown suite 'nonsense'; there are: admission"),
        ("bench admission --size huge", "has no size 'huge'; it has: small, full"),
        ("bench admission --instance tiny-0 --jobs 5", "leave out sizes"),
        ("bench admission --slot-minutes 5", "add --trace FILE"),
        ("bench admission --trace no.csv", "no.csv"),
        ("bench admission --instance tiny-0 --seed x", "--seed must be a whole number"),
        ("bench admission --instance tiny-0 --solver nonsense", "unknown solver of admission 'nonsense'"),
        ("bench admission --instance tiny-0 --solver idle --compare no.jsonl", "no.jsonl: no such file"),
        ("bench --processes 0", "--processes"),
        ("bench --nonsense", "No such option: --nonsense"),
        ("instance schema nonsense", "unknown problem 'nonsense'; there are: admission"),
        ("instance generate admission --instance-option colour=1", "unknown option 'colour'"),
        ("instance generate admission --jobs 0", "--jobs"),
        ("bench admission --instance tiny-0 --instance-option epochs=1", "leave out sizes"),
        ("bench --trace no.csv --trace-format nonsense", "must be one of philly, gavel, alibaba"),
        ("bench --trace no.csv --trace-format philly", "no.csv: can't be read"),
        ("instance generate nonsense", "unknown problem 'nonsense'"),
        ("instance convert", "convert needs one file, or --trace"),
        ("solvers nonsense", "unknown problem 'nonsense'"),
        ("nonsense", "No such command 'nonsense'"),
    ],
)
def test_wrong_use_is_one_line(dummies, folder, arguments, named):
    result = CliRunner().invoke(app, arguments.split())
    assert_one_line(result.exit_code, result.stdout, result.stderr, named)
    assert list(folder.iterdir()) == []


@pytest.mark.prove
@pytest.mark.parametrize("change", [not_a_number, unknown_field], ids=lambda change: change.__name__)
def test_the_installed_command_says_the_same(folder, document, change):
    (folder / "bad.json").write_text(spoil(document, change))
    command = [sys.executable, "-m", "optim.cli", "instance", "describe", "bad.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert_one_line(done.returncode, done.stdout, done.stderr, *BAD[change])


def test_a_results_file_of_something_else_is_left_alone(dummies, folder):
    (folder / "notes.txt").write_text("my notes\n")
    command = ["bench", "admission", "--instance", "tiny-0", "--solver", "idle", "--results", "notes.txt"]
    result = CliRunner().invoke(app, command)
    assert_one_line(result.exit_code, result.stdout, result.stderr, "notes.txt: line 1 is not a benchmark record")
    assert (folder / "notes.txt").read_text() == "my notes\n"
