"""The site, built once for all tests of this folder."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(name="site", scope="session")
def fixture_site(tmp_path_factory):
    """The pages, built without running notebooks (another test does)."""
    if find_spec("sphinx") is None:
        pytest.skip("the site's builder isn't installed: pip install 'mlcluster-optim[docs]'")
    goal = tmp_path_factory.mktemp("site")
    words = ["-b", "html", "-W", "--keep-going", "-q", "-D", "nb_execution_mode=off", "-d", f"{goal}/doctrees"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "no_proxy": "", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, str(ROOT / "docs"), f"{goal}/html"],
        check=False, capture_output=True, text=True, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return goal / "html"
