"""`optim solvers`: every option of every solver is listed with its default and its meaning."""

import json
import re
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.core.options import option_meanings
from optim.solvers.solve import solvers_of


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
