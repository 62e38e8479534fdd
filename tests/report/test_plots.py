"""Performance profiles, and compressed plots that look the same."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from optim.benchmarks.records import Record
from optim.benchmarks.report import colours_of, draw_profiles, gap_profile, objective_profile
from optim.report.plots import FigureList, compact_svg


def made(solver, instance, objective, *, problem="admission", gap=None, seconds=1.0, **more):
    return Record(
        problem=problem, instance=instance, solver=solver, seed=0, termination="completed", objective=objective,
        gap=gap, seconds={"solve": seconds}, verified=True, **more,
    )  # fmt: skip


def told(profile):
    return {name: (np.round(x, 6).tolist(), y.tolist()) for name, (x, y) in profile.items()}


@pytest.mark.parametrize(("problem", "best", "worse"), [("admission", 8.0, 4.0), ("bidding", 4.0, 8.0)])
def test_the_best_objective_is_the_largest_or_the_least_cost(problem, best, worse):
    records = [
        made("a", "one", best, problem=problem),
        made("b", "one", worse, problem=problem),
        made("a", "two", worse, problem=problem),
        made("b", "two", worse, problem=problem),
        made("a", "three", best, problem=problem),
    ]
    profile = told(objective_profile(records))
    assert profile["a"] == ([1.0], [1.0])
    assert profile["b"] == ([1.0, 2.0], [pytest.approx(1 / 3), pytest.approx(2 / 3)])


@pytest.mark.parametrize("worthless", [0.0, -1.0, None])
def test_a_case_without_a_positive_objective_is_left_out(worthless):
    records = [made("a", "one", 8.0), made("b", "one", 4.0)]
    nothing = [made(name, "two", worthless) for name in "ab"]
    assert told(objective_profile(records + nothing)) == told(objective_profile(records))


def test_gaps_add_up_to_shares():
    assert told(gap_profile({"a": [0.02, 0.0, 0.02, 0.5]})) == {"a": ([0.0, 2.0, 50.0], [0.25, 0.75, 1.0])}


def pictures(records):
    gallery = FigureList()
    draw_profiles(gallery, records, colours_of(records))
    return gallery


def picture(records):
    (found,) = pictures(records)
    return found


def test_times_and_gaps_are_compared_where_all_solvers_have_them():
    records = [
        *(made("a", name, 8.0, gap=0.1) for name in ("one", "two", "three")),
        *(made("b", name, 9.0, gap=0.0) for name in ("one", "two")),
        made("no-bound", "one", 7.0),
        replace(made("crash", "one", None), verified=False, error="RuntimeError: x"),
    ]
    found = picture(records)
    caption, drawn = found.caption, found.svg
    assert "on one instance with a solution from all 3 solvers" in caption
    assert "on 2 instances with a gap from all 2 solvers" in caption
    for label in ("factor of the best objective", "factor of the shortest time", "certified gap in per cent"):
        assert label in drawn
    assert re.findall(r">(a|b|no-bound|crash)</text>", drawn) == ["a", "b", "no-bound"]


def test_what_no_two_share_is_not_drawn():
    apart = [made("a", "one", 8.0), made("b", "two", 9.0)]
    found = picture(apart)
    assert "Time" not in found.caption
    assert "seconds / least" not in found.svg
    assert pictures(apart[:1]) == pictures([]) == []


PLAIN = """<svg role="img" viewBox="0 0 648.04 288" version="1.1">
 <defs><style type="text/css">*{stroke-linejoin: round}</style></defs>
 <g id="figure_1"><g id="patch_1"><path d="M 0 0 \nL 648 0 \nz\n" style="fill: none"/></g>
  <g id="axes_1"><defs><path id="tick" d="M 0 0 \nL 0 3.456 \n" style="stroke: currentColor"/></defs>
   <g clip-path="url(#box)"><use href="#tick" x="101.58476" y="-0.004" style="stroke: currentColor"/></g>
   <!-- a remark --><g style="fill: red; opacity: 0.5" transform="translate(98.704763 268.214838)">
    <text> a  b<tspan x="0" style="font-size: 9px; font-family: 'DejaVu Sans'">one &lt; 2</tspan></text></g>
   <defs><clipPath id="box"><rect x="1" y="2" width="10.04" height="3"/></clipPath></defs></g></g></svg>"""


def test_shapes_keep_their_places_and_styles():
    text = compact_svg(PLAIN)
    root = ET.fromstring(text)
    (use,) = root.iter("use")
    assert (use.get("x"), use.get("y")) == ("101.6", "0")
    tick = next(one for one in root.iter("path") if one.get("id") == use.get("href")[1:])
    assert tick.get("d") == "M0 0L0 3.46"
    rules = dict(re.findall(r"\.(\w+)\{([^}]*)\}", root.find("style").text))
    assert rules[tick.get("class")] == "stroke:currentColor"
    (label,) = root.iter("tspan")
    assert (label.text, rules[label.get("class")]) == ("one < 2", "font-size:9px")
    group = next(one for one in root.iter("g") if one.get("transform"))
    assert (group.get("transform"), rules[group.get("class")]) == ("translate(98.7 268.2)", "fill:red;opacity:0.5")
    clip = next(one for one in root.iter("g") if one.get("clip-path"))
    assert clip.get("clip-path") == f"url(#{next(root.iter('clipPath')).get('id')})"


def test_what_nobody_sees_is_left_out():
    text = compact_svg(PLAIN)
    assert len(text) < 0.75 * len(PLAIN)
    assert "remark" not in text
    assert not re.search(r"<(\w+)[^<>]*></\1>", text), "an element without content takes one tag"
    assert "figure_1" not in text
    assert text.count("<path") == 1  # that of the tick: the other is neither filled nor stroked
    assert next(ET.fromstring(text).iter("text")).text == " a  b"


def test_two_pictures_share_no_id_but_their_styles():
    one, two = compact_svg(PLAIN), compact_svg(PLAIN.replace("101.58", "102.58"))
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    classes = [set(re.findall(r'class="([^"]+)"', text)) for text in (one, two)]
    assert classes[0] == classes[1]


def test_arcs_and_small_numbers_stay():
    text = compact_svg(
        '<svg viewBox="0 0 1 1"><path d="M -0.25 1e-05 C 1 -2.5 -3.125 4 5 25.04 z" style="fill: #123456"/></svg>'
    )
    assert 'd="M-.25 0C1 -2.5 -3.12 4 5 25z"' in text or 'd="M-.25 0C1-2.5-3.12 4 5 25z"' in text
