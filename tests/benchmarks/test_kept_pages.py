"""What pages, tables, comparisons and work lists hold for records that nobody ran, compared with what is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optim.benchmarks.cases import options_for
from optim.benchmarks.compare import Selection, compare, golden_names, row_key, row_order, strip
from optim.benchmarks.measuring import medians
from optim.benchmarks.records import (
    finite,
    open_results,
    plain,
    read_records,
    record_from_json,
    row_of,
    summarise_decisions,
)
from optim.benchmarks.report import render
from optim.benchmarks.runner import plan_work
from optim.benchmarks.suite import SUITES, BenchRequest, Skipped, Subject, choose_suites
from optim.benchmarks.summary import (
    case_of,
    certified_gap,
    common_figures,
    compare_solvers,
    performance_profile,
    shifted_geometric_mean,
)
from optim.models.admission.problem import PROBLEM
from optim.report import plots
from optim.report.page import figure_element, page, table
from optim.report.plots import Figure
from optim.statistics import Interval, wilson, with_halves
from optim.workloads.instances import InstanceRequest, find_instance, find_profiles, generated, profiled
from tests.support.admission.seeded import seeded_document, seeded_instance
from tests.support.drawn import told
from tests.support.kept import assert_kept, outcome, parts
from tests.support.random_records import paper_records, random_records

KEPT = Path(__file__).parent / "kept"
SKIPPED = [Skipped(suite="admission", instance="i", solver="s", reason="too <large>"), Skipped(suite="x", instance="i", solver="s", reason="no")]  # fmt: skip


@pytest.fixture(autouse=True)
def without_rendering(monkeypatch):
    """Have pictures hold what is told of them instead of what they look like."""
    monkeypatch.setattr(plots, "as_svg", lambda drawing, name: f"<svg>{name} {len(told(drawing))}</svg>")


def test_pages(monkeypatch):
    monkeypatch.setattr(
        "optim.benchmarks.report._pictures", lambda spec, records: f"{len(records)} of {spec and spec.name}"
    )
    records = random_records()
    lists = {
        "all": (records, SKIPPED), "paper": (paper_records()[:12], ()), "none": ([], SKIPPED), "one": (records[:1], ()),
        "strange": ([replace(one, suite="none such", termination="infeasible") for one in records[:5]], ()),
    }  # fmt: skip
    found = {name: render(*given) for name, given in lists.items()}
    found["page"] = page(
        "a <title>", ["<p>x</p>", '<svg id="a"><use href="#a"/></svg>', '<svg id="a"><use href="#a"/></svg>']
    )
    found["figure"] = figure_element(Figure(title="t <1>", caption="c & d", svg="<svg></svg>"))
    rows = [["a", 1, 2.5, None, True], ["<b>", float("nan"), -1e-9, 1e12, "x"], ["c", 0, float("inf"), 123456.789, ""]]
    found["table"] = [
        table(list("vwxyz"), rows, kind, caption=caption) for kind in ("sortable", "prose") for caption in ("", "c")
    ]
    found["marks"] = table(["v"], [["a"], ["b"]], marks=[{"solver": "s"}, {"instance": "<i>"}])
    assert_kept(KEPT / "pages.json", found)


def test_comparisons():
    records, found = random_records(), {}
    for name, kept in {
        "many": records,
        "one seed": [one for one in records if not one.seed],
        "first": records[:1],
    }.items():
        comparison = compare_solvers(kept)
        found[f"summary {name}"] = [comparison, [parts(one) for one in comparison.solvers]]
    found["rows"] = [
        [row_key(one), row_order(one), case_of(one), certified_gap(one), strip(one), row_of(one)] for one in records[:6]
    ]
    found["figures"] = common_figures(records, lambda record: record.objective)
    golden = [strip(one) for one in records]
    changes = {
        "same": records, "fewer": records[::2], "seed": [one for one in records if one.seed],
        "better": [replace(one, objective=one.objective and one.objective * 1.1, gap=one.gap and one.gap / 2) for one in records],
        "worse": [replace(one, objective=one.objective and one.objective * 0.9, gap=one.gap and one.gap * 2) for one in records],
        "bound": [replace(one, bound=one.bound and one.bound + 1) for one in records], "findings": [replace(one, findings={"x": 1.0}) for one in records],
        "unproven": [replace(one, verified=False, violations=["row"]) for one in records], "error": [replace(one, error="E: x") for one in records],
        "late": [replace(one, termination="time_limit") for one in records], "digest": [replace(one, instance_digest="other") for one in records],
        "cheap": [replace(one, problem="bidding", objective=one.objective and one.objective * 0.9) for one in records],
    }  # fmt: skip
    whole = Selection(suites=("admission",), seeds=(0, 1))
    part = Selection(suites=("admission",), seeds=(1,), solvers=("online", "fifo"), instances=("instance-1",))
    for name, now in changes.items():
        found[name] = [[[one, one.is_regression] for one in compare(now, golden, chosen)] for chosen in (whole, part)]
    assert_kept(KEPT / "comparisons.json", found)


def test_numbers_and_rows(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(1, 99, 12) / 4
    lines = [
        b'{"schema": "optim/record/1", "problem": "p", "instance": "i", "solver": "s", "seed": 1, "termination": "t", "seconds": {}, "verified": true, "new": 1}',
        b"{}",
        b"[",
        b'{"schema": "other"}',
    ]
    with open_results(tmp_path / "rows.jsonl") as results:
        for number, record in enumerate(random_records()[:4]):
            results.append(replace(record, key=f"k{number}"))
    (tmp_path / "rows.jsonl").write_bytes((tmp_path / "rows.jsonl").read_bytes() + b'{"cut')
    found = {
        "means": [shifted_geometric_mean(values, shift) for shift in (0.0, 0.01, 10.0)],
        "profile": performance_profile({"a": [1.0, 2.0, None, 4.0], "b": [2.0, 1.0, 3.0, None], "c": [None] * 4}),
        "interval": [Interval.of(values[:count].tolist()) for count in (2, 3, 12)], "halves": with_halves({"x": Interval.of([1.0, 2.0, 4.0])}),
        "wilson": [tuple(map(float, wilson(hits / 10, 10))) for hits in (0, 3, 10)], "medians": [medians({"a": [(1.0, 2.0), (3.0, 1.0), (2.0, 9.0)]}, which) for which in (0, 1)],
        "decisions": [summarise_decisions(given) for given in ([], [1.0], values.tolist())],
        "finite": [finite(value) for value in (None, 1, float("nan"), float("inf"), -0.0)],
        "plain": plain({"a": np.int64(3), "b": np.float32(0.5), "c": [np.bool_(True), (1, 2)], "d": {"e": np.zeros(2)}, "f": float("nan")}),
        "read": [outcome(record_from_json, line) for line in lines], "file": read_records(tmp_path / "rows.jsonl"),
    }  # fmt: skip
    assert_kept(KEPT / "numbers.json", found)


def test_what_is_chosen_and_planned():
    requests = [
        InstanceRequest(), InstanceRequest(jobs=3, slots=4), InstanceRequest(names=("tiny-0",)), InstanceRequest(profile="published"),
        InstanceRequest(names=("none",)), InstanceRequest(names=("tiny-0",), jobs=3), InstanceRequest(trace=Path("x")),
        InstanceRequest(trace_format="csv"), InstanceRequest(options={"num_jobs": 3}), InstanceRequest(problem="auction", options={"num_apps": 2}),
        InstanceRequest(problem="auction", jobs=2), InstanceRequest(profile="published", trace=Path("x")), InstanceRequest(problem="bidding", slots=2),
    ]  # fmt: skip
    words = [
        ((), ()),
        (("admission",), ()),
        (("admission", "auction"), ("paper",)),
        (("cluster",), ("cluster",)),
        (("nothing",), ()),
        (("bidding",), ("paper",)),
    ]
    subject = Subject(seeded_instance(3))
    request = BenchRequest(
        sources=(generated({"num_jobs": 2, "num_slots": 3}),),
        solvers=("online", "branch-and-price"),
        seeds=(0, 1),
        time_limit_s=1.0,
    )
    planned = plan_work([SUITES.get("admission"), SUITES.get("admission")], request)
    found = {
        "sources": [[outcome(one.sources), outcome(lambda given=one: given.problem_name), outcome(lambda given=one: given.is_profile_only)] for one in requests],
        "suites": [[spec.name for spec in chosen] if not isinstance(chosen := outcome(choose_suites, *given), str) else chosen for given in words],
        "for instances": [[spec.name for spec in choose_suites((), instances_of=problem, is_profiled=profile)] for problem in (None, "admission", "auction") for profile in (False, True)],
        "all": [[spec.name, spec.problem, spec.sizes, spec.columns, spec.takes_instances, spec.figures is not None] for spec in SUITES],
        "options": [outcome(options_for, "admission", ("online", "search"), given) for given in ({}, {"price": "paper"}, {"search.seconds": 1}, {"none": 1}, {"fifo.x": 1})],
        "subject": [subject.name, subject.topic, subject.digest, subject.parameters], "golden": golden_names(),
        "planned": [[one.identity(), one.resolved_options()] for one in planned.work], "left out": planned.skipped,
        "found": [outcome(lambda name: find_instance(name).name, name) for name in ("tiny-0", "tiny-0.json", "tiny-0.json.gz", "nothing", "x/tiny-0")],
        "profiles": [outcome(find_profiles, name) for name in ("published", "nothing")], "drawn": profiled("published", "admission"),
        "unchanged": PROBLEM.write_instance(seeded_instance(3)) is not None and seeded_document(3)["name"],
    }  # fmt: skip
    assert_kept(KEPT / "chosen.json", found)
