"""`optim solvers`: every option of every solver and policy is listed with its default and its meaning."""

import json
import re
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.core.options import option_meanings
from optim.core.policies import policies_of
from optim.solvers.solve import solvers_of
from tests.support.policies import CLUSTER_POLICIES, WRAPPERS


def run(*words):
    return CliRunner().invoke(app, ["solvers", *words])


@pytest.mark.parametrize("problem", ["admission", "bidding", "auction"])
def test_every_option_of_every_solver_is_explained(problem):
    for solver in solvers_of(problem):
        result = run(problem, solver.name, "--format", "json")
        assert result.exit_code == 0
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert [row["option"] for row in rows] == [field.name for field in fields(solver.options_type)]
        assert all(row["meaning"] for row in rows), solver.name


def test_an_unknown_solver_is_answered_with_the_nearest():
    result = run("admission", "serch")
    assert result.exit_code == 2
    assert "did you mean search?" in result.stderr


@pytest.mark.parametrize(("name", "owner"), [("online", "admission"), ("dinkelbach", "bidding"), ("srtf", "cluster")])
def test_a_name_alone_is_explained_where_it_is_the_only_one(name, owner):
    assert run(name).stdout == run(owner, name).stdout != ""


def test_a_name_of_several_problems_is_answered_with_each_command():
    said = run("exact").stderr
    assert "'optim solvers admission exact' or 'optim solvers auction exact'" in said


def test_the_table_of_one_solver_names_its_defaults():
    printed = run("admission", "search").stdout
    assert "lp_tol" in printed
    assert "0.0001" in printed


@pytest.mark.parametrize("problem", ["admission", "auction", "bidding"])
def test_no_two_options_of_a_solver_are_explained_by_one_sentence(problem):
    for solver in solvers_of(problem):
        meanings = list(option_meanings(solver.options_type).values())
        assert len(set(meanings)) == len(meanings), solver.name


@pytest.mark.parametrize(
    "words", [["admission", "online"], ["admission"], ["cluster", "fifo"], ["cluster"], ["cluster", "engine"]]
)
def test_defaults_are_written_as_options_take_them(words):
    said = CliRunner().invoke(app, ["solvers", *words], env={"COLUMNS": "300"}).stdout
    assert not re.search(r"=(yes|no)\b|  (yes|no)  ", said)
    assert re.search(r"[= ](true|false)\b", said)


def test_all_policies_and_wrappers_are_listed_with_the_defaults_of_their_options():
    rows = [json.loads(line) for line in run("cluster", "--format", "json").stdout.splitlines()]
    assert {row["policy"] for row in rows} == {*CLUSTER_POLICIES, *WRAPPERS, "engine"}
    by_name = {row["policy"]: row["options"] for row in rows}
    assert by_name["fifo"] == {"backfill": False}
    assert by_name["engine"]["overhead_s"] == 30.0
    table = run("cluster").stdout
    assert all(name in table for name in by_name)


@pytest.mark.parametrize("name", sorted({*CLUSTER_POLICIES, *WRAPPERS, "engine"}))
def test_every_option_of_every_policy_has_a_meaning(name):
    rows = [json.loads(line) for line in run("cluster", name, "--format", "json").stdout.splitlines()]
    assert all(row["meaning"] for row in rows), rows
    assert run("cluster", name).exit_code == 0


def test_an_unknown_policy_names_those_that_there_are():
    result = run("cluster", "nonsense")
    assert result.exit_code == 2
    assert "unknown policy 'nonsense'; there are: allox, borg" in result.stderr


def test_a_policy_of_ones_own_is_explained_too(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy\n"
        "class Mine(PlanningPolicy):\n"
        "    @dataclass(frozen=True)\n"
        "    class Options:\n"
        "        '''Options.\n\n"
        "        Parameters\n"
        "        ----------\n"
        "        width\n"
        "            Widest gang.\n"
        "        '''\n\n"
        "        width: int = 3\n"
        "    def plan(self, view):\n"
        "        return Plan(gpus=dict(view.running))\n"
    )
    assert json.loads(run("cluster", f"{path}:Mine", "--format", "json").stdout) == {
        "option": "width",
        "default": 3,
        "meaning": "Widest gang.",
    }


@pytest.mark.parametrize("world", ["spot", "zones", "containers"])
def test_every_policy_of_a_simulation_is_listed_with_its_options(world):
    rows = [json.loads(line) for line in run(world, "--format", "json").stdout.splitlines()]
    assert [row["policy"] for row in rows] == list(policies_of(world))
    for row in rows:
        options = policies_of(world)[row["policy"]].options_type
        assert list(row["options"]) == [each.name for each in fields(options)]
        assert run(world, row["policy"]).exit_code == 0
    table = CliRunner().invoke(app, ["solvers", world], env={"COLUMNS": "400"}).stdout
    assert all(entry.summary[:30] in table for entry in policies_of(world).values())
    assert "sees the future: " in table or not any(entry.is_reference for entry in policies_of(world).values())
    wrong = run(world, "nonsense")
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)
    assert "unknown policy of" in wrong.stderr
