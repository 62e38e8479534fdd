"""Plots for notebooks show the data of the solution."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

import optim
from optim.core.errors import MissingDependencyError, NotAllowedError


@pytest.fixture(scope="module")
def admission():
    instance = optim.reference_instance("tiny-0")
    return instance, optim.reference_solution("tiny-0")


@pytest.fixture(scope="module")
def auction():
    instance = optim.reference_instance("auction-tiny-0")
    return instance, optim.solve(instance, "greedy")


def svg_of(solution):
    html = solution._repr_html_()
    return ET.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


def test_gantt_has_a_bar_for_each_stretch_of_equal_workers(admission):
    instance, solution = admission
    (panel,) = optim.plot.gantt(instance, solution).axes
    drawn = sum(bar.get_width() * int(text.get_text()) for bar, text in zip(panel.patches, panel.texts, strict=True))
    assert drawn == solution.decision.workers[:, 3].sum()
    middles = [bar.get_x() + bar.get_width() / 2 for bar in panel.patches]
    assert [text.get_position()[0] for text in panel.texts] == middles
    assert [label.get_text() for label in panel.get_yticklabels()] == [
        instance.jobs.ids[job] for job in solution.decision.admitted
    ]


def test_the_notebooks_plan_has_a_cell_a_job_and_slot(admission):
    _, solution = admission
    cells = [title.text for title in svg_of(solution).iter("title")]
    workers = solution.decision.workers
    assert len(cells) == len({(job, slot) for job, slot, _, _ in workers.tolist()})
    assert sum(int(cell.rpartition(" ")[2]) for cell in cells) == workers[:, 3].sum()


def test_frames_hold_the_decision(admission, auction):
    instance, solution = admission
    frame = solution.to_frame(instance)
    plan = solution.decision
    assert frame[frame.side == "worker"]["count"].tolist() == plan.workers[:, 3].tolist()
    assert frame[frame.side == "ps"]["server"].tolist() == plan.ps[:, 2].tolist()
    assert set(frame.job) == {instance.jobs.ids[job] for job in plan.admitted}
    instance, solution = auction
    frame = solution.to_frame(instance)
    awarded, granted = solution.decision.awarded_gpus(6), solution.decision.granted_gpus(6)
    for number, app in enumerate(instance.apps.ids):
        mine = frame[frame.app == app]
        assert (mine.awarded.sum(), mine.granted.sum()) == (awarded[number], granted[number])
    assert len(list(svg_of(solution).iter("rect"))) == awarded.sum()


def test_footprints_are_drawn_bid_by_bid():
    instance = optim.reference_instance("spot-tiny-own")
    solution = optim.solve(instance, "greedy")
    counts = solution.decision.counts
    assert solution.to_frame()["count"].tolist() == counts[counts > 0].tolist()
    assert len(list(svg_of(solution).iter("rect"))) == counts.sum()
    (panel,) = optim.plot.footprint(instance, solution).axes
    assert [bar.get_width() for bar in panel.patches] == counts[counts > 0].tolist()
    assert panel.figure.get_figheight() == pytest.approx(0.3 * (counts > 0).sum() + 1.2)


def test_auctions_are_drawn_on_axes_of_ones_own(auction):
    instance, solution = auction
    figure = optim.plot.bids(instance)
    assert optim.plot.payments(instance, solution, axes=figure.axes[0]) is figure
    (panel,) = optim.plot.allocation(instance, solution).axes
    assert len(panel.patches) == instance.cluster.num_free


def test_without_a_decision_there_is_nothing_to_draw(admission):
    instance, solution = admission
    empty = replace(solution, decision=None)
    assert "<svg" not in empty._repr_html_()
    for draw in (lambda: optim.plot.gantt(instance, empty), empty.to_frame):
        with pytest.raises(NotAllowedError, match="found no decision"):
            draw()


def test_names_are_harmless_in_notebooks(admission):
    assert "<script>" not in replace(admission[1], instance="<script>")._repr_html_()


def test_without_matplotlib_one_line_says_how_to_install_it(admission, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for draw in (lambda: optim.plot.gantt(*admission), lambda: optim.plot.prices(admission[0])):
        with pytest.raises(MissingDependencyError, match=r"pip install 'mlcluster-optim\[plot\]'"):
            draw()
