"""What every picture holds, by its curves, bars, marks and texts, compared with what is kept; nothing is rendered."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from optim_studies import forecast, paper

from optim.benchmarks import report
from optim.benchmarks.report import gap_profile, objective_profile
from optim.benchmarks.suites import cluster
from optim.report import auction, plots
from optim.report.admission import draw_run, watch
from optim.report.cluster import cluster_figures, render_cluster
from optim.report.containers import render_containers, trade_figure
from optim.report.plots import compact_svg
from optim.report.training import draw_replays
from optim.rightsizing.comparison import Row, TradePoint
from optim.simulation.emulation.lease_run import TrainingRow
from optim.simulation.emulation.timeline import Change
from tests.support.admission.seeded import seeded_instance as admission_instance
from tests.support.auction.seeded import loose_plan, seeded_auction
from tests.support.drawn import told
from tests.support.kept import assert_kept
from tests.support.logged_runs import kept_records
from tests.support.random_records import paper_records, random_records

KEPT = Path(__file__).parent / "kept"


@pytest.fixture(autouse=True)
def in_parts(monkeypatch):
    """Have pictures hold what is told of them instead of what they look like."""
    monkeypatch.setattr(plots, "as_svg", lambda drawing, name: json.dumps([name, told(drawing)], default=str))


def said(figures):
    return {figure.title: [figure.caption, json.loads(figure.svg)] for figure in figures}


def test_pictures_of_any_suite():
    records = random_records()
    found = {f"many: {title}": one for title, one in said(report.standard_figures(records)).items()}
    costs = [replace(record, problem="bidding") for record in records]
    found |= {f"costs: {title}": one for title, one in said(report.standard_figures(costs[:4])).items()}
    found["profiles"] = [
        objective_profile(records),
        objective_profile(costs),
        gap_profile({"a": [0.1, 0.3, 0.0], "b": []}),
    ]
    assert_kept(KEPT / "standard.json", found)


def test_pictures_of_the_paper_and_of_policies():
    found = said(paper.draw(paper_records()))
    curve = {name: [0.2, None, 0.5] for name in forecast.LINES}
    records = [
        replace(record, labels={"axis": axis}, findings={**curve, "x": [1.0, 2.0, 4.0 + record.seed], "ratio_to_bound": 1.5 + record.seed, "rho_max": 2.0, "rho_space_max": None})
        for record, axis in zip(random_records(3), 8 * list(forecast.PLOT_AXES), strict=True)
    ]  # fmt: skip
    found |= said(forecast.plot_forecast(records)) | said(cluster.draw(records)) | said(cluster.draw([]))
    assert_kept(KEPT / "suites.json", found)


def test_pictures_of_clusters():
    records = kept_records()
    assert_kept(
        KEPT / "clusters.json",
        {
            **said(cluster_figures(records["planned-3"])),
            "page": render_cluster(replace(records["troubled"], runs=records["troubled"].runs[1:])),
        },
    )


def test_pictures_of_auctions_runs_and_training(monkeypatch, tmp_path):
    from matplotlib.figure import Figure

    found = {}
    for seed in (1,):
        instance = seeded_auction(seed)
        plan = loose_plan(instance, np.random.default_rng(seed))
        panels = Figure().subplots(1, 3)
        auction.draw_bids(panels[0], instance)
        auction.draw_cluster(panels[1], instance, plan)
        auction.draw_payments(panels[2], instance, plan)
        found[f"auction {seed}"] = told(panels[0].figure)
    for seed in (1,):
        run = admission_instance(seed)
        found[f"run {seed}"] = told(draw_run(run, watch(run)))
    events = [
        Change.GRANTED,
        Change.WORKING,
        "clock",
        Change.SAVED,
        "clock",
        Change.WARNED,
        Change.LOST,
        Change.RESTARTED,
        "clock",
    ]
    rows = [
        TrainingRow(policy=policy, event=str(event), hours=0.25 * k, machines=k % 4, processes=1, clock=k, loss=None if k < 2 else 2.0 / k, bill_usd=0.1 * k, free_hours=0.05 * k, lost_clocks=k // 7, seconds=float(k))
        for policy in ("proteus", "standard") for k, event in enumerate(events)
    ]  # fmt: skip
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: found.update(training=told(figure)))
    draw_replays(rows, tmp_path / "replays.png")
    assert_kept(KEPT / "others.json", found)


def test_pictures_and_page_of_containers():
    rng = np.random.default_rng(2)
    numbers = [name for name in Row.__dataclass_fields__ if name not in ("policy", "resource", "unit", "per_day_unit")]
    rows = [
        Row(policy=policy, resource=resource, unit="cores", per_day_unit="kills", **{name: float(rng.integers(1, 99)) / 100 for name in numbers})
        for policy in ("prev-step-rules", "vpa", "oracle") for resource in ("cpu", "memory", "all")
    ]  # fmt: skip
    more = [name for name in TradePoint.__dataclass_fields__ if name not in ("policy", "resource")]
    points = [
        TradePoint(policy=policy, resource=resource, **{name: float(rng.integers(1, 99)) / 100 for name in more})
        for policy in ("prev-step-rules", "vpa", "oracle") for resource in ("cpu", "memory") for _ in range(3)
    ]  # fmt: skip
    page = render_containers(rows, points, "1 kill")
    assert_kept(KEPT / "containers.json", {"page": page, **said([trade_figure(rows, points)])})


def test_texts_are_made_shorter():
    texts = [
        '<svg width="1"><path d="M 10.123456 20.5 L 3.0001 -0.00001 z" style="fill: none; stroke: #000000"/></svg>',
        '<svg><g id="a"><use x="1.500000" y="2.25" href="#m"/><use x="1.5" y="9" href="#m"/></g></svg>',
        '<svg><path d="M 0 0 L 0.1 0 L 0.2 0 L 5 5 "/><text style="font-size: 9px">0.50</text></svg>',
    ]
    assert_kept(KEPT / "compact.json", {"texts": [compact_svg(text) for text in texts]})
