"""Flags that the installed XLA knows, and when tests set them."""

import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.conftest import QUICKLY_COMPILED_BY_XLA, is_quick
from tests.support.xla_flags import known_flags

ALWAYS = "--xla_force_host_platform_device_count=2"


def test_flags_that_xla_doesnt_know_are_left_out() -> None:
    assert known_flags(["--xla_never_was=1", ALWAYS, "--xla_force_host_platform_device=2"]) == ALWAYS


def test_without_jax_there_are_none(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert known_flags([ALWAYS]) == ""


@pytest.mark.prove
def test_jax_starts_with_those_that_tests_set() -> None:
    flags = known_flags((*QUICKLY_COMPILED_BY_XLA, "--xla_never_was=1", ALWAYS))
    counted = "import os, sys; os.environ['XLA_FLAGS'] = sys.argv[1]; import jax; print(len(jax.devices('cpu')))"
    ran = subprocess.run(
        [sys.executable, "-c", counted, flags], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ran.stdout, ran.returncode) == ("2\n", 0), ran.stderr


@pytest.mark.parametrize(
    ("profile", "marks", "expected"),
    [
        (None, "not prove", True),
        (None, "not prove and not trace", True),
        (None, "prove", False),
        (None, "prove or not prove", False),
        ("prove", "prove or not prove", False),
        ("prove", "not prove", False),
        ("dev", "not prove", True),
        ("dev", "prove or not prove", True),
    ],
)
def test_what_is_marked_for_a_release_runs_as_users_run_it(profile: str | None, marks: str, expected: bool) -> None:
    config = SimpleNamespace(option=SimpleNamespace(hypothesis_profile=profile, markexpr=marks))
    assert is_quick(config) is expected
