"""What fills the site's tables imports, and its pages have a line for every policy."""

import sys

import pytest

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


def test_pages_have_a_line_for_every_policy(tables):
    blocks = [
        block
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if "```" in page.read_text()
        for block in blocks_of(page)
    ]
    found = {
        block.language.removeprefix(POLICIES): set(tables.told(block.code.splitlines()))
        for block in blocks
        if block.language.startswith(POLICIES)
    }
    assert found.keys() <= tables.POLICY_NAMES.keys()
    assert {"cluster", "containers", "spot"} <= found.keys()
    for world, told in found.items():
        assert told in (set(), set(tables.POLICY_NAMES[world])), world
