"""The extension that fills the site's tables imports, and the pages have a table of every world's policies."""

import re
import sys

import pytest

from optim.core.policies import WORLDS
from optim.models.catalogue import problem_names
from optim.workloads.instances import numbered
from tests.support.code_blocks import ROOT, blocks_of

pytest.importorskip("sphinx", reason="the site's builder isn't installed: pip install 'mlcluster-optim[docs]'")
EXTENSIONS = ROOT / "docs" / "extensions"
POLICIES = "{policies} "


def arguments(name):
    """Return the arguments of a directive in all pages."""
    texts = [page.read_text() for page in sorted((ROOT / "docs").rglob("*.md"))]
    return [words for text in texts for words in re.findall(rf"^```{{{name}}} (.+)$", text, re.M)]


@pytest.fixture(name="tables")
def fixture_tables(monkeypatch):
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    import registry_tables

    yield registry_tables
    sys.modules.pop("registry_tables")


def test_pages_have_a_table_of_the_policies_of_every_world(tables):
    blocks = [
        block
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if "```" in page.read_text()
        for block in blocks_of(page)
    ]
    found = {block.language.removeprefix(POLICIES) for block in blocks if block.language.startswith(POLICIES)}
    assert found == set(WORLDS)
    assert not any(block.code.strip() for block in blocks if block.language.startswith(POLICIES))


def test_every_value_of_an_enumeration_on_a_page_has_a_meaning(tables):
    kinds = [tables.named(path) for path in arguments("values")]
    assert len(kinds) >= 4
    assert {kind: set(tables.value_meanings(kind)) for kind in kinds} == {
        kind: {value.name for value in kind} for kind in kinds
    }


def test_every_class_on_a_page_describes_its_fields(tables):
    kinds = [tables.named(path) for paths in arguments("fields") for path in paths.split()]
    assert len(kinds) >= 10
    bare = [kind for kind in kinds if not tables.option_meanings(kind) or "" in tables.option_meanings(kind).values()]
    assert bare == []


def test_every_name_on_a_page_has_a_summary(tables):
    blocks = [paths.split() for paths in arguments("summaries")]
    assert blocks
    assert all(tables.summary(f"{first}{name}") for first, *names in blocks for name in names)


def test_a_docstring_ends_above_its_first_section(tables):
    assert tables.above_sections("Do it.\n\n- so\n\nRaises\n------\nNever") == "Do it.\n\n- so"
    assert "submit" in tables.above_sections(tables.named("optim.workloads.traces.plain_tables.read_plain").__doc__)


def test_the_pages_list_every_reference_instance_with_its_sizes(tables):
    for problem in problem_names():
        page = ROOT / "docs" / "reference" / f"{problem}.md"
        (block,) = (one for one in blocks_of(page) if one.language.startswith(f"{{instances}} {problem} "))
        notes = tables.told(block.code.splitlines())
        assert set(notes) == set(numbered(tables.instance_sizes(problem)))
        sizes = block.language.split()[2:]
        assert {size for each in tables.instance_sizes(problem).values() for size in each} >= set(sizes)
    text = tables.instance_table(
        "admission", ("jobs", "worker_servers"), dict.fromkeys(numbered(tables.instance_sizes("admission")), "trait")
    )
    assert "| `tiny-0` to `tiny-2` | 6 | 2 | trait |" in text
    assert "| `xl-0` | 10,000 | 500 | trait |" in text
