"""Sub-commands are listed without being loaded, and their help ends with examples that can be typed."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.testing import CliRunner

from optim.cli.commands import COMMANDS, EXAMPLES, load
from optim.cli.main import app
from optim.cli.messages import ExitCode

RUNNER = CliRunner()


def leaves(command, path):
    """Yield each command below one, with its path."""
    if isinstance(command, TyperGroup):
        for name, each in command.commands.items():
            yield from leaves(each, f"{path} {name}")
    else:
        yield path, command


@pytest.fixture(scope="module")
def commands():
    return dict(pair for name in COMMANDS for pair in leaves(load(name), name))


def test_a_command_is_built_once():
    assert load("solve") is load("solve")


def test_what_the_list_says_of_a_command_is_what_its_help_says():
    for name, listed in COMMANDS.items():
        said = (load(name).help or "").split("\n\n")[0].replace("\n", " ")
        assert said == listed.help, name
    shown = " ".join(RUNNER.invoke(app, ["--help"], env={"COLUMNS": "300"}).output.split())
    for name, listed in COMMANDS.items():
        assert f"{name} {listed.help}" in shown


def test_every_exit_code_is_told_by_the_help_and_on_the_page():
    shown = " ".join(RUNNER.invoke(app, ["--help"], env={"COLUMNS": "300"}).output.split())
    told = shown[shown.index("Exit codes:") :]
    page = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text()
    assert "{values} optim.cli.messages.ExitCode" in page, "the page draws them from the code"
    for code in ExitCode:
        assert f" {code.value} " in told, code


def test_every_command_has_three_examples_and_shows_them(commands):
    assert set(commands) == set(EXAMPLES)
    for path, command in commands.items():
        assert len(set(EXAMPLES[path])) == 3, path
        assert command.epilog.count("optim ") == 3
    shown = RUNNER.invoke(app, ["solve", "--help"], env={"COLUMNS": "200"}).output
    assert shown.rindex("Examples:") > shown.rindex("--time-limit  ")
    assert "optim solve small-0 --solver search --time-limit 10" in shown


@pytest.mark.parametrize(("path", "words"), [(path, words) for path, three in EXAMPLES.items() for words in three])
def test_every_example_can_be_typed(commands, path, words):
    with commands[path].make_context(path, shlex.split(words)) as context:
        assert context.args == []


def test_an_example_with_a_misspelt_option_would_be_found(commands):
    with pytest.raises(Exception, match="--sovler"):
        commands["solve"].make_context("solve", ["small-0", "--sovler", "online"])


def test_help_and_version_load_no_sub_command_and_no_numpy():
    code = (
        "import sys; from optim.cli.main import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "print([n for n in sys.modules if n in ('numpy', 'optim.cli.bench', 'optim.cli.simulate')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_misspelt_command_is_answered_with_the_likely_one():
    assert "Did you mean 'solve'" in RUNNER.invoke(app, ["slove"]).output
