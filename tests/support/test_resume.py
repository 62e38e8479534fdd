"""A resumed run repeats only failed, skipped and unreached tests, with worker processes as well."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
from pathlib import Path

IS_MENDED = Path(__file__).with_name("mended").exists()

@pytest.fixture
def ending():
    yield
    assert IS_MENDED

@pytest.mark.parametrize("number", range(3))
def test_that_passes(number):
    assert number < 3

def test_that_fails():
    assert IS_MENDED

def test_whose_end_fails(ending):
    pass

def test_that_is_skipped():
    pytest.skip("not here")
"""
PLUGIN = """
from pathlib import Path
from tests.support.resume import Resume

def pytest_configure(config):
    config.pluginmanager.register(Resume(Path("noted/of_this_state")))
"""


@pytest.mark.prove
@pytest.mark.parametrize("workers", [[], pytest.param(["--numprocesses", "2"], marks=pytest.mark.prove)])
def test_what_passed_is_not_run_again(tmp_path, workers):
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_some.py").write_text(TESTS)

    def run():
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "-p", "no:cacheprovider", *workers]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
        counts = re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout.splitlines()[-1])
        return {what: int(number) for number, what in counts}

    assert run() == {"passed": 4, "failed": 1, "skipped": 1, "error": 1}
    noted = (tmp_path / "noted" / "of_this_state").read_text().splitlines()
    assert sorted(noted) == [f"test_some.py::test_that_passes[{number}]" for number in range(3)]
    assert run() == {"passed": 1, "failed": 1, "skipped": 1, "error": 1}
    (tmp_path / "mended").touch()
    assert run() == {"passed": 2, "skipped": 1}
    assert run() == {"skipped": 1}


@pytest.mark.prove
@pytest.mark.skipif(shutil.which("make") is None, reason="the command is make's")
def test_a_stopped_release_goes_on(tmp_path):
    noted = tmp_path / "noted"
    noted.touch()
    said = subprocess.run(
        ["make", "--dry-run", "prove", f"PROOF={noted}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    (line,) = (line for line in said.replace("\\\n", " ").splitlines() if str(noted) in line and "pytest" in line)
    words = shlex.split(line.split("||")[0])
    options = words[words.index("pytest") + 1 :]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--markers"], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
