"""The report in a real browser, at two widths: every control works, and the console stays empty."""

from dataclasses import replace

import pytest

from optim.benchmarks.report import render
from optim.benchmarks.suite import Skipped
from tests.benchmarks.test_report import RECORDS
from tests.support.driven_browser import driven_browser

pytestmark = pytest.mark.prove

WIDTHS = (1280, 390)
SKIPPED = Skipped(suite="auction", instance="three", solver="search", reason="too <large>")
FIRST_RECORDS = "#suite-0 details table"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Write a report of two suites."""
    others = [replace(record, suite="auction", instance=f"other-{record.instance}") for record in RECORDS[:3]]
    page = tmp_path_factory.mktemp("report") / "bench.html"
    page.write_text(render([*RECORDS, *others], [SKIPPED]))
    return page


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with driven_browser(tmp_path_factory.mktemp("home")) as browser:
        yield browser


@pytest.fixture(params=WIDTHS)
def browser(started, path, request):
    """Open the report again; afterwards, check that there were no complaints and no network requests."""
    yield started.open(path, request.param)
    assert started.complaints == []


def shown(browser):
    return browser.evaluate("document.getElementById('shown').textContent")


def column(browser, table, number):
    script = f"[...document.querySelectorAll('{table} tbody tr')].filter(r => !r.hidden).map(r => r.cells[{number}].textContent)"
    return browser.evaluate(script)


def test_nothing_reaches_out_of_the_window(browser, tmp_path):
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.evaluate("parseFloat(getComputedStyle(document.querySelector('td')).fontSize)") >= 12
    picture = "document.querySelector('.picture svg')"
    # The smallest letters of a plot have at least their drawn size, 9 units, since the plot scrolls in its frame.
    assert browser.evaluate(f"{picture}.getBoundingClientRect().width / {picture}.viewBox.baseVal.width") >= 0.9
    assert len(browser.screenshot(tmp_path / "report.png")) > 10_000


def test_a_click_on_any_head_sorts_by_it_and_another_one_the_other_way(browser):
    heads = browser.evaluate("document.querySelectorAll('#suite-0 table th').length")
    assert heads > 20
    browser.click("#unfold")
    for table, number in (("#suite-0 > .wide table", 7), (FIRST_RECORDS, 0), (FIRST_RECORDS, 4)):
        button = f"{table} th:nth-child({number + 1}) button"
        browser.click(button)
        up = column(browser, table, number)
        assert browser.evaluate(f"document.querySelector('{table} th[aria-sort]').ariaSort") == "ascending"
        browser.click(button)
        down = column(browser, table, number)
        full = [value for value in up if value != "\u2013"]
        assert full == sorted(full, key=(lambda text: text) if number == 0 else float)
        assert [value for value in down if value != "\u2013"] == sorted(
            full, key=str if number == 0 else float, reverse=True
        )
        assert up[len(full) :] == down[len(full) :] == ["\u2013"] * (len(up) - len(full))


def test_the_keyboard_sorts_and_unfolds(browser):
    browser.evaluate("document.querySelector('#suite-0 > .wide th button').focus()")
    browser.key("Enter")
    assert column(browser, "#suite-0 > .wide table", 0) == sorted(column(browser, "#suite-0 > .wide table", 0))
    browser.key("Space")
    assert browser.evaluate("document.querySelector('#suite-0 > .wide th').ariaSort") == "descending"
    browser.evaluate("document.querySelector('#suite-1 summary').focus()")
    browser.key("Enter")
    assert browser.evaluate("document.querySelector('#suite-1 details').open")


def test_filters_leave_the_rows_of_a_solver_and_of_instances(browser):
    assert shown(browser) == "9 of 9 records"
    browser.evaluate("document.getElementById('by-solver').focus()")
    browser.type("o")  # of the list: online
    browser.evaluate(
        "(b => { b.value = 'online'; b.dispatchEvent(new Event('input', {bubbles: true})); })(document.getElementById('by-solver'))"
    )
    assert shown(browser) == "4 of 9 records"
    assert column(browser, "#suite-0 > .wide table", 0) == ["online"]
    browser.click("#by-instance")
    browser.type("OTHER-one")
    assert shown(browser) == "1 of 9 records"
    assert browser.evaluate("document.getElementById('suite-0').hidden && document.querySelector('nav li').hidden")
    browser.key("Enter")  # sends no form anywhere
    assert shown(browser) == "1 of 9 records"
    browser.click("#filters button[type=reset]")
    assert shown(browser) == "9 of 9 records"
    assert not browser.evaluate("document.getElementById('suite-0').hidden")


def test_records_open_one_by_one_and_all_at_once(browser):
    count = "[...document.querySelectorAll('details')].filter(d => d.open).length"
    assert browser.evaluate(count) == 0
    browser.click("#suite-1 summary")
    assert browser.evaluate(count) == 1
    browser.click("#unfold")
    assert browser.evaluate(count) == 2
    browser.click("#unfold")
    assert browser.evaluate(count) == 0


def test_every_link_of_the_navigation_leads_to_its_suite(browser):
    for number in range(2):
        browser.click(f"nav li:nth-child({number + 1}) a")
        top = browser.evaluate(f"document.getElementById('suite-{number}').getBoundingClientRect().top")
        is_at_the_end = browser.evaluate("innerHeight + scrollY >= document.documentElement.scrollHeight - 2")
        assert -2 <= top <= 120 or is_at_the_end


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_name_contrast_or_key_is_missing_folded_or_unfolded(started, path, width, theme):
    page = started.open(path, width, theme=theme)
    is_dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(part => part < 100)")
    assert is_dark == (theme == "dark")
    assert page.violations() == []
    page.click("#unfold")
    assert page.violations() == []


def test_what_is_pale_in_the_dark_is_found(started, tmp_path):
    spoilt = tmp_path / "spoilt.html"
    spoilt.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>x</title><style>body { background: #fff; color: #111 }'
        "@media (prefers-color-scheme: dark) { body { background: #111; color: #eee } p { color: #444 } }</style></head>"
        "<body><main><h1>x</h1><p>pale</p></main></body></html>"
    )
    assert started.open(spoilt, 390).violations() == []
    (found,) = started.open(spoilt, 390, theme="dark").violations()
    assert found.startswith("contrast")
