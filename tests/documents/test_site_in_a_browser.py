"""Every page of the site in a real browser: names, contrast, keyboard, and no page wider than its window."""

import pytest

from tests.support.browser import opened, violations

SPOILT = """<!doctype html><html><head><meta charset="utf-8"></head><body>
<h2>no first rank</h2><p style="color:#aaa;background:#fff">pale words</p>
<button></button><a href="#x"><img src="none.png" width="20" height="20"></a>
<div role="button">a button for mice</div><div style="width:3000px">wide</div><p id="a">a</p><p id="a">a</p></body></html>"""
KINDS = ("language", "title", "headings", "landmark", "id", "name", "contrast", "keyboard", "width")


@pytest.mark.prove
@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1280, "dark"), (1280, "light"), (390, "dark")])
def test_no_page_shuts_anybody_out(site, tmp_path, width, theme):
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if "_static" not in path.parts)
    found = violations(site, pages, tmp_path, width=width, theme=theme)
    assert set(found) == {f"/{page}" for page in pages}
    assert {page: wrong for page, wrong in found.items() if wrong} == {}


@pytest.mark.prove
def test_the_search_finds_a_solver_without_a_server(site, tmp_path):
    page = opened(f"{(site / 'search.html').as_uri()}?q=dinkelbach", tmp_path)
    assert "reference/bidding.html" in page


@pytest.mark.prove
def test_what_shuts_somebody_out_is_found(tmp_path):
    (tmp_path / "spoilt.html").write_text(SPOILT)
    found = violations(tmp_path, ["spoilt.html"], tmp_path / "home", width=390)["/spoilt.html"]
    assert {line.split(":")[0] for line in found} == set(KINDS)
