"""`optim solvers cluster` lists the policies of `simulate cluster` with their options."""

import json

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from tests.support.policies import CLUSTER_POLICIES, WRAPPERS

RUNNER = CliRunner()


def run(*words):
    return RUNNER.invoke(app, ["solvers", "cluster", *words])


def test_all_policies_and_wrappers_are_listed_with_the_defaults_of_their_options():
    rows = [json.loads(line) for line in run("--format", "json").stdout.splitlines()]
    assert {row["policy"] for row in rows} == {*CLUSTER_POLICIES, *WRAPPERS, "engine"}
    by_name = {row["policy"]: row["options"] for row in rows}
    assert by_name["fifo"] == {"backfill": False}
    assert by_name["engine"]["overhead_s"] == 30.0
    table = run().stdout
    assert all(name in table for name in by_name)


@pytest.mark.parametrize("name", sorted({*CLUSTER_POLICIES, *WRAPPERS, "engine"}))
def test_every_option_of_every_policy_has_a_meaning(name):
    rows = [json.loads(line) for line in run(name, "--format", "json").stdout.splitlines()]
    assert all(row["meaning"] for row in rows), rows
    assert run(name).exit_code == 0


def test_an_unknown_policy_names_those_that_there_are():
    result = run("nonsense")
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
    assert json.loads(run(f"{path}:Mine", "--format", "json").stdout) == {
        "option": "width",
        "default": 3,
        "meaning": "Widest gang.",
    }
