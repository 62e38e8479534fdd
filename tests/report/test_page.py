"""Parts of pages: tables are sortable and escaped, plots share no id."""

import re

from optim.report.page import figure_element, page, table
from optim.report.plots import Figure

SVG = (
    '<svg role="img"><style>.s1{fill:red}</style><path id="f00aa1-0" class="s1" d="M0 0"/><use href="#f00aa1-0"/></svg>'
)


def test_the_same_picture_twice_shares_no_id_and_tells_its_rules_once():
    element = figure_element(Figure(title="A & <b>", caption="c", svg=SVG))
    text = page("t", [element, element, element])
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(set(ids)) == len(ids) == 3
    assert re.findall(r'href="#(f[^"]+)"', text) == ids
    assert text.count(".s1{fill:red}") == 1
    assert text.count('aria-label="A &amp; &lt;b&gt;"') == 3


def test_cells_are_escaped_and_numbers_sorted_by_more_digits_than_are_shown():
    text = table(("name", "number"), [("<b>", 1.23456789), ("x", None), ("y", True), ("z", 2)])
    assert "<td>&lt;b&gt;</td><td class=n data-v=1.23456789>1.2346</td>" in text
    assert '<td class="none">&ndash;</td>' in text
    assert '<td class="yes">yes</td>' in text
    assert "<td class=n>2</td>" in text
    assert '<th scope="col" class=n><button>number</button></th>' in text


def test_prose_cannot_be_sorted_and_rows_carry_their_marks():
    assert "<button>" not in table(("a",), [("b",)], "prose")
    assert '<tr data-solver="&quot;s&quot;">' in table(("a",), [("b",)], marks=[{"solver": '"s"'}])
