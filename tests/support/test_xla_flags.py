"""Flags that the installed XLA knows."""

import importlib.util
import subprocess
import sys

import pytest

from tests.conftest import QUICKLY_COMPILED_BY_XLA
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
