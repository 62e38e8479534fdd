"""The report is one self-contained page."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from optim.benchmarks.records import Record, summarise_decisions
from optim.benchmarks.report import render
from optim.benchmarks.suite import BenchSpec, Skipped
from optim.report.plots import Figure

VOID = {"meta", "br", "link", "img", "input"}


class Page(HTMLParser):
    """Read a page, and fail on tags that don't match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.texts, self.addresses, self.counts, self.instances = [], [], [], [], {}, []
        self.attributes = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag == "tr" and ("data-instance" in dict(attrs)):
            self.instances.append(dict(attrs)["data-instance"])
        self.attributes.update(name for name, _ in attrs)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "action"):
                self.addresses.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def make_record(solver, instance, objective, **fields):
    bound = 10.0
    return Record(
        suite="admission",
        problem="admission",
        instance=instance,
        solver=solver,
        seed=0,
        termination="completed",
        objective=objective,
        bound=bound,
        gap=None if objective is None else bound / objective - 1,
        seconds={"build": 0.1, "compile": 0.0, "solve": 1.0, "verify": 0.01},
        verified=True,
        machine={"cpu": "a processor"},
        versions={"numpy": "1"},
        code="0123",
        **fields,
    )


RECORDS = [
    make_record("online", "one", 8.0, decision_ms=summarise_decisions([0.1, 0.2, 0.4])),
    make_record("online", "two", 9.0, decision_ms=summarise_decisions([0.1, 0.3])),
    make_record("search", "one", 9.5),
    make_record("bound-only", "one", None),
    replace(make_record("search", "two", 5.0), verified=False, violations=["(4) capacity <b>: 1 < 2 & so"]),
    replace(make_record("crash", "two", None), verified=False, error="RuntimeError: x", bound=None),
]


@pytest.fixture(scope="module")
def text():
    """Render a report with every type of record."""
    skipped = Skipped(suite="admission", instance="three", solver="search", reason="too <large>")
    return render(RECORDS, [skipped])


@pytest.fixture
def page(text):
    """Read that report."""
    return Page(text)


def test_every_tag_is_closed(page):
    assert page.open == []


def test_names_no_foreign_address(text, page):
    assert "http" not in text
    assert "@import" not in text
    assert all(address.startswith("#") for address in page.addresses)


def test_ids_are_unique_and_all_references_lead_somewhere(page):
    assert len(set(page.ids)) == len(page.ids)
    assert {address[1:] for address in page.addresses} <= set(page.ids)


def test_draws_a_picture_of_each_kind(page):
    assert page.counts["svg"] == 5
    titles = {"Objective and bound", "Certified gap by solver", "Performance profiles", "Seconds by phase"}
    assert titles | {"Decision times"} <= set(page.texts)


def test_shows_each_record_machine_versions_and_what_was_left_out(page):
    text = " ".join(page.texts)
    headline = "6 records, 4 verified, 1 refused by the checker, 1 failed"
    for shown in (headline, "a processor", "numpy 1", "too <large>"):
        assert shown in text
    assert "(4) capacity <b>: 1 < 2 & so" in text


def test_records_of_no_suite_stand_under_a_heading_too():
    page = Page(render([RECORDS[-1], replace(RECORDS[-1], suite=None)], []))
    assert [text.strip() for text in page.texts].count("single solves") == 2  # among the suites, and above the records
    assert "Benchmark of admission, single solves" in page.texts


def test_pictures_take_the_colour_of_the_page(text):
    assert "currentColor" in text
    assert "#0a0b0c" not in text
    assert "#000000" not in text


@pytest.mark.parametrize("records", [[], RECORDS[-1:], pytest.param(RECORDS[3:4], marks=pytest.mark.prove)])
def test_a_page_of_few_records_is_whole_too(records):
    assert Page(render(records)).open == []


def test_a_suite_shows_its_own_pictures_and_an_unknown_one_does_without(monkeypatch):
    drawn = Figure(title="What only this suite draws", caption="", svg="<svg></svg>")
    known = BenchSpec(name="pictured", problem="admission", summary="one", build=list, figures=lambda records: [drawn])
    monkeypatch.setattr("optim.benchmarks.report.SUITES", SimpleNamespace(find={known.name: known}.get))
    monkeypatch.setattr("optim.benchmarks.report.standard_figures", lambda records: ())
    for suite, number in (("pictured", 1), ("of other days", 0)):
        assert Page(render([replace(RECORDS[0], suite=suite)])).texts.count(drawn.title) == number


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize(("commit", "shown"), [("abcdef", "abcdef"), (None, "0123")])
def test_tells_the_commit_and_outside_a_checkout_the_digest_of_the_code(commit, shown):
    assert shown in Page(render([replace(RECORDS[2], commit=commit)])).texts


def test_rows_can_be_filtered_by_instance_and_suites_are_linked(page, text):
    assert sorted(page.instances) == sorted(record.instance for record in RECORDS)
    assert {address for address in page.addresses if address.startswith("#suite")} == {"#suite-0"}
    assert "6 of 6 records" in page.texts
    assert text.count("<details>") == 1


def test_every_picture_has_a_name_and_rules_are_told_once(text):
    assert text.count("<svg ") == len(re.findall(r'<svg aria-label="[^"]+"', text)) == 5
    assert "<style>" not in text[text.index("<body>") :]


@pytest.fixture
def without_pictures(monkeypatch):
    """Make imports of matplotlib fail: pages without plots are made quickly."""
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("without_pictures")
def test_failures_and_timeouts_are_counted_in_sight():
    late = replace(RECORDS[2], termination="time_limit")
    assert "6 records, 4 verified, 1 refused by the checker, 1 failed, 1 ended by the time limit" in " ".join(
        Page(render([late, *RECORDS[:2], *RECORDS[3:]])).texts
    )


@pytest.mark.usefixtures("without_pictures")
def test_without_matplotlib_the_page_has_its_tables_and_says_what_is_missing():
    page = Page(render(RECORDS))
    assert "svg" not in page.counts
    assert any("pip install 'mlcluster-optim[plot]'" in text for text in page.texts)
    assert len(page.instances) == len(RECORDS)


@pytest.mark.usefixtures("without_pictures")
def test_a_column_that_no_record_fills_is_left_out():
    few = [replace(record, bound=None, gap=None, decision_ms=None) for record in RECORDS[:2]]
    heads = re.findall(r"<button>([^<]+)</button>", render(few))
    assert "objective" in heads
    assert "bound" not in heads
    assert "p99 ms" not in heads


HOSTILE = (
    "</td></tr></table><script>x()</script>",
    "\" onload='x()",
    "&lt;b&gt;",
    "a\n\tb",
    "]]><!--",
    "<img src=x onerror=x()>",
    "--",
)


@pytest.mark.parametrize("name", [*HOSTILE[:2], *(pytest.param(name, marks=pytest.mark.prove) for name in HOSTILE[2:])])
def test_a_page_read_back_has_the_same_names_and_no_other_tags(name):
    """Names of instances, solvers, suites, errors and omitted pairs."""

    def read(used):
        record = replace(make_record(used, used, None, violations=[used]), suite=used)
        return Page(render([record], [Skipped(suite=used, instance=used, solver=used, reason=used)]))

    found, plain = read(name), read("plain")
    assert found.instances == [name if one == "plain" else one for one in plain.instances]
    in_pictures = {"text", "tspan"}  # a plot has one for each line of a name
    assert {tag: count for tag, count in found.counts.items() if tag not in in_pictures} == {
        tag: count for tag, count in plain.counts.items() if tag not in in_pictures
    }
    assert found.attributes == plain.attributes
    assert sum(name in text for text in found.texts) > 10
