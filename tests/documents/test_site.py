"""The site builds without a warning and without a network, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?:https?:)?//|<link\b[^>]*\bhref=["'](?:https?:)?//"""
)
"""Whatever a page would fetch from another host when it is opened."""


@pytest.fixture(name="site", scope="module")
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


@pytest.mark.prove
def test_builds_without_a_warning_and_can_be_searched(site):
    assert (site / "searchindex.js").stat().st_size > 10_000
    for page in ("index", "first-answer", "reference/api/optim", "mathematics/admission", "notebooks/admission"):
        assert (site / f"{page}.html").exists(), page


@pytest.mark.prove
def test_loads_nothing_from_another_host(site):
    assert [page.name for page in site.rglob("*.html") if LOADS.search(page.read_text())] == []
    assert LOADS.search('<script src="https://x.org/a.js">')


@pytest.mark.prove
def test_every_public_name_has_an_entry(site):
    import optim

    text = (site / "reference" / "api" / "optim.html").read_text()
    assert [name for name in optim.__all__ if f'id="optim.{name}"' not in text] == []


@pytest.mark.prove
def test_equations_can_be_linked_to(site):
    text = (site / "mathematics" / "admission.html").read_text()
    assert 'id="eq-A.4"' in text
    assert text.count("<math ") > 20
    assert "\\lceil" not in text, "a formula that wasn't turned into MathML"
