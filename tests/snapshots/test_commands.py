"""Output of commands for small inputs, the default of every option, and small examples of every file format."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import optim
from optim.benchmarks.suite import FULL, SMALL, SUITES, BenchRequest, Skipped
from optim.cli.commands import COMMANDS as COMMANDS_BY_NAME
from optim.cli.commands import load
from optim.cli.main import app
from optim.core.registry import describe_options
from optim.models.auction.problem import PROBLEM as AUCTION
from optim.models.bidding.problem import PROBLEM as BIDDING
from optim.models.catalogue import problem_names
from optim.models.files import write_solution
from optim.solvers.solve import solver_named, solver_names
from tests.support.auction.seeded import seeded_auction
from tests.support.bidding.small_markets import published_vector
from tests.support.snapshots import assert_snapshot, line

COMMANDS = """
instance describe tiny-0
instance describe auction.json
instance describe bidding.json --format json
instance convert tiny-0
instance convert auction.json --out again.json
instance generate auction --apps 3 --gpus 8 --machines 2 --seed 1
instance generate nothing
instance generate admission --jobs x
instance generate admission --jobs 3 --instance-option none=1
instance describe nothing
solvers admission
solvers auction exact
solvers nothing
verify tiny-0 nothing.json
solve tiny-0 --solver online --seed 3 --out s.json
verify tiny-0 s.json
verify auction.json s.json
solve tiny-0 --solver none
solve tiny-0 --solver online --option price=none
solve tiny-0 --solver online --time-limit -1
solve nothing --solver online
bench nothing
bench admission --option none=1
bench admission --instance nothing
simulate cluster --generate philly --jobs 20 --gpus 2x4 --policy fifo,srtf
simulate cluster --policy none
simulate nothing
simulate packing --policy none
simulate spot --policy none
""".strip().splitlines()
CLOCK = re.compile(
    r"seconds|_s\b|_ms\b|memory|elapsed|version|python|numpy|took|finished|/home|/root|/work", re.IGNORECASE
)
"""Lines that depend on this machine or its clock."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with an auction and a decision of bidding, on a terminal of 140 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    (tmp_path / "auction.json").write_bytes(AUCTION.write_instance(seeded_auction(7)))
    (tmp_path / "bidding.json").write_bytes(BIDDING.write_instance(published_vector()))
    return tmp_path


def as_lines(text, folder):
    """Return the output without timing lines; of a document, one line per field and per entry of its lists."""
    try:
        document = json.loads(text)
    except ValueError:
        shown = [each.rstrip() for each in text.replace(str(folder), "").splitlines()]
        return [each for each in shown if each and not CLOCK.search(each)]
    lines = []
    for name, value in document.items():
        is_table = isinstance(value, list) and value and isinstance(value[0], dict)
        lines += [f"{name}: {json.dumps(each)}" for each in (value if is_table else [value])]
    return lines


def test_output(folder):
    lines = []
    for command in COMMANDS:
        result = CliRunner().invoke(app, command.split())
        lines += [f"$ optim {command}    (exit code {result.exit_code})"]
        lines += [f"  {each}" for each in as_lines(result.stdout, folder) + as_lines(result.stderr, folder)]
    assert_snapshot("commands", "output", lines)


def test_defaults_of_commands():
    lines = []

    def walk(command, path):
        for one in command.params:
            default = one.default() if callable(one.default) else one.default
            text = str(default).replace(str(Path.cwd()), "")
            lines.append(line(f"{path} {one.opts[0]}", text, "required" if one.required else "", width=46))
        for name, below in getattr(command, "commands", {}).items():
            walk(below, f"{path} {name}")

    for name in COMMANDS_BY_NAME:
        walk(load(name), name)
    assert_snapshot("defaults", "commands", lines)


@pytest.mark.parametrize("problem", problem_names())
def test_defaults_of_solvers(problem):
    lines = []
    for name in solver_names(problem):
        solver = solver_named(problem, name)
        if type(solver).__module__.startswith("optim."):
            lines += [
                line(f"{name} {option}", str(value), width=46) for option, value in describe_options(solver).items()
            ]
    assert_snapshot("defaults", problem, lines)


@pytest.mark.parametrize("name", ["tiny-0", "auction-tiny-0", "spot-vector"])
def test_formats(name):
    instance = optim.reference_instance(name)
    solver = {"tiny-0": "online", "auction-tiny-0": "exact", "spot-vector": "greedy"}[name]
    document = json.loads(write_solution(optim.solve(instance, solver), instance))
    lines = []

    def walk(value, place):
        if isinstance(value, dict):
            for key, each in value.items():
                walk(each, f"{place}.{key}")
        elif isinstance(value, list):
            kinds = [each for each in value if isinstance(each, dict | list)]
            walk(kinds[0], f"{place}[]") if kinds else lines.append(line(place, value[:3], width=46))
        else:
            lines.append(line(place, value, width=46))

    walk({key: value for key, value in document.items() if key not in ("versions", "stats")}, "")
    assert_snapshot("formats", f"solution of {name} by {solver}", lines)


def test_work_of_suites():
    lines = []
    for spec in SUITES:
        if spec.name in ("bidding", "fractional", "auction", "paper", "pricing", "peers"):
            continue
        for size in (SMALL, FULL):
            work = [one for one in spec.build(BenchRequest(size=size, seeds=(0,))) if not isinstance(one, Skipped)]
            topics = dict.fromkeys(str(one.solver) for one in work)
            lines.append(line(f"{spec.name} {size}", len(work), list(topics)[:8]))
    assert_snapshot("suites", "pieces of work, first solvers", lines)
