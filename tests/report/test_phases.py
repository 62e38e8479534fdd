"""Plots of phase models: positions of the graph's nodes."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from matplotlib.figure import Figure

from optim.phases.sequences import END, START
from optim.report.phases import draw_graph


def test_nodes_of_the_graph_go_round_the_circle_evenly_from_the_top_on():
    graph = nx.DiGraph()
    for phase, label in ((START, "start"), (0, "idle"), (1, "busy"), (END, "end")):
        graph.add_node((phase,), label=label)
    graph.add_edge((START,), (0,), probability=1.0)
    model = SimpleNamespace(graph=lambda order: graph, statistics_=SimpleNamespace(share=np.array([0.25, 0.75])))
    panel = Figure().subplots()
    draw_graph(panel, model)
    discs = [disc.get_offsets().tolist()[0] for disc in panel.collections]
    assert np.array(discs) == pytest.approx(np.array([[0, 1], [1, 0], [0, -1], [-1, 0]]))
    labels = {text.get_text(): text.xyann for text in panel.texts}
    assert labels["busy"] == pytest.approx((0, -1.22))
