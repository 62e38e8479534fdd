"""The site builds without a warning and without a network, and loads no external files."""

import re

import pytest

from tests.support.code_blocks import ROOT

LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?:https?:)?//|<link\b[^>]*\bhref=["'](?:https?:)?//"""
)
"""Everything that an opened page would fetch from another host."""


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

    folder = site / "reference" / "api"
    text = (folder / "optim.html").read_text()
    names = [name for name in optim.__all__ if not (folder / f"optim.{name}.html").exists()]
    assert [name for name in names if f'id="optim.{name}"' not in text] == []


@pytest.mark.prove
def test_equations_can_be_linked_to(site):
    text = (site / "mathematics" / "admission.html").read_text()
    numbers = re.findall(r"\\tag\{([^}]*)\}", (ROOT / "docs" / "mathematics" / "admission.md").read_text())
    assert "A.4" in numbers
    assert [number for number in numbers if f'id="eq-{number}"' not in text] == []
    assert text.count("<math ") >= len(numbers)
    assert "\\lceil" not in text, "a formula that wasn't turned into MathML"
