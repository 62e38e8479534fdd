"""Common fixtures of tests of logged runs."""

import pytest

from tests.support.changed_runs import write_run


@pytest.fixture(scope="session")
def logged(tmp_path_factory):
    """A file of two runs; tests must not change it."""
    path = tmp_path_factory.mktemp("run") / "run.npz"
    write_run(path)
    return path
