"""Tests marked for a release run the code that users run."""

from types import SimpleNamespace

import pytest

from tests.conftest import is_quick


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
def test_only_runs_without_release_tests_compile_quickly(profile: str | None, marks: str, expected: bool) -> None:
    config = SimpleNamespace(option=SimpleNamespace(hypothesis_profile=profile, markexpr=marks))
    assert is_quick(config) is expected
