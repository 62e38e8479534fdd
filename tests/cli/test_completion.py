"""Completion in shells: the available names, quickly."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import optim
from optim.benchmarks.suite import SUITES
from optim.cli import commands
from optim.cli.main import app
from optim.core.registry import REGISTRY
from optim.models.catalogue import problem_names

SHELLS = {
    "bash": {"COMP_WORDS": "optim solve small-0 --solver sea", "COMP_CWORD": "4"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "optim solve small-0 --solver sea"},
    "fish": {"_TYPER_COMPLETE_ARGS": "optim solve small-0 --solver sea", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


def complete(environment):
    """Run the command as a shell does to complete a word."""
    return CliRunner().invoke(app, [], env=environment, prog_name="optim")


@pytest.mark.prove  # loads all solvers
def test_names_are_those_of_the_registries():
    known = {name for problem in problem_names() for name in optim.solver_names(problem)}
    assert known == {one.name for problem in problem_names() for one in REGISTRY.of_problem(problem)}
    assert set(commands.registered_solvers()) <= known
    own = {
        one.name for p in problem_names() for one in REGISTRY.of_problem(p) if type(one).__module__.startswith("optim.")
    }
    assert set(commands.registered_solvers()) == own
    assert set(commands.suite_names()) <= {spec.name for spec in SUITES}
    mine = {spec.name for spec in SUITES if spec.build.__module__.startswith("optim.")}
    assert mine <= set(commands.suite_names())


def test_completes_the_last_of_several_names():
    assert commands.complete_solver("sea") == ["search"]
    assert commands.complete_solver("online,branch-and") == ["online,branch-and-price"]
    assert "online,online" not in commands.complete_solver("online,on")
    assert commands.complete_instance("auction-t") == ["auction-tiny-0"]
    assert commands.complete_suite("them") == ["themis", "themis-lies"]
    assert commands.complete_problem_or_instance("ad")[0] == "admission"
    assert "proteus" in commands.complete_policy("spot")("pro")
    assert commands.complete_policy("zones")("uniform") == ["uniform-progress", "uniform-progress-zones"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_is_offered_the_solver(shell):
    done = complete({**SHELLS[shell], "_OPTIM_COMPLETE": f"complete_{shell}"})
    assert "search" in done.stdout, done.stderr
    assert "greedy" not in done.stdout


def test_a_policy_is_offered_without_loading_any():
    words = {"COMP_WORDS": "optim simulate cluster --policy tir", "COMP_CWORD": "4", "_OPTIM_COMPLETE": "complete_bash"}
    command = [sys.executable, "-X", "importtime", "-m", "optim.cli"]
    done = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["tiresias", "tiresias-gittins"]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "optim.cli.simulate_cluster" in loaded
    assert loaded.isdisjoint({"numpy", "numba", "scipy", "jax"})


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_shown(shell):
    done = complete({"_OPTIM_COMPLETE": f"source_{shell}"})
    assert f"complete_{shell}" in done.stdout, done.stderr
