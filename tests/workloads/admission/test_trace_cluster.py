"""The cluster of a trace's jobs, drawn from the trace's nodes."""

import numpy as np

from optim.workloads.admission.traces import TraceOptions, cluster_of_nodes
from optim.workloads.traces.job_table import NodeTable

DEMAND = np.array([[1.0, 4.0, 16.0]])


def drawn(kinds, capacity, gpus=1):
    """Return the hosts of workers and of PSs drawn for a number of GPUs, each as {type: number}."""
    nodes = NodeTable(kind=kinds, capacity=np.array(capacity))
    sides = cluster_of_nodes(nodes, gpus, DEMAND, TraceOptions(), np.random.default_rng(0))
    return [dict(zip(side.types, side.count.tolist(), strict=True)) for side in sides]


def test_a_node_of_a_single_gpu_hosts_workers_and_one_without_hosts_pss():
    assert drawn(("single", "none"), [[1.0, 8.0, 32.0], [0.0, 8.0, 32.0]]) == [{"single": 1}, {"none": 1}]


def test_nodes_that_hold_more_gpus_than_are_missing_are_left_out_while_smaller_ones_will_do():
    large, single, none = [8.0, 64.0, 256.0], [1.0, 8.0, 32.0], [0.0, 8.0, 32.0]
    found = drawn(("large", "single", "single", "none"), [large, single, single, none], gpus=2)
    assert found == [{"single": 2}, {"none": 1}]
