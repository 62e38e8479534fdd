"""The extension that fills the site's tables imports, and the pages have a table of every world's policies."""

import sys

import pytest

from optim.core.policies import WORLDS
from tests.support.code_blocks import ROOT, blocks_of

pytest.importorskip("sphinx", reason="the site's builder isn't installed: pip install 'mlcluster-optim[docs]'")
EXTENSIONS = ROOT / "docs" / "extensions"
POLICIES = "{policies} "


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
