"""Clusters as users specify them: machines x GPUs, a topology file, Tiresias' specification, Alibaba's node list."""

from pathlib import Path

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.files import is_json
from optim.core.limits import check_limit
from optim.models.cluster.cluster import GRID, MAX_GPUS, SCHEMA, Cluster, read_topology
from optim.workloads.csv_columns import header_of, read_columns, require_columns, require_whole
from optim.workloads.traces.alibaba import SPOT_NODES, read_nodes

SPECIFICATION = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")


def read_cluster(text: str) -> Cluster:
    """Return the cluster that a text specifies: `MACHINESxGPUS` such as ``60x8``, or the path of a file.

    A file is a topology in JSON (``optim/cluster/1``), or a table: a specification of Tiresias, or Alibaba's node list (of 2023 or
    2026), whose nodes without GPUs are ignored.

    Raises
    ------
    InvalidProblemError
        If the text has neither form, the file is of none of these kinds, or the cluster has no machine.
    """
    path = Path(text)
    if GRID.fullmatch(text.strip()):
        return Cluster.grid(text)
    if not path.is_file():
        raise InvalidProblemError(
            f"{text[:100]}: no such file; a cluster is MACHINESxGPUS, such as 60x8, or a topology file"
        )
    if is_json(path):
        return read_topology(path)
    header = header_of(path)
    if set(SPECIFICATION) <= set(header):
        return _from_specification(path)
    if {"sn", "gpu"} <= set(header) or set(header) >= SPOT_NODES:
        return _from_nodes(path)
    raise InvalidProblemError(
        f"{path}: not a cluster; give MACHINESxGPUS, a topology ({SCHEMA}, .json), or a table with {', '.join(SPECIFICATION)}"
    )


def _from_specification(path: Path) -> Cluster:
    """Read a cluster's numbers of racks, machines per rack and GPUs per machine from the file's first row."""
    columns = read_columns(path, SPECIFICATION)
    require_columns(path, columns, *SPECIFICATION, least=0.0)
    racks, machines, gpus = (int(require_whole(path, name, columns[name])[0]) for name in SPECIFICATION[:3])
    check_limit("count", racks * machines, f"{path}: machines")
    if gpus > MAX_GPUS:
        raise InvalidProblemError(f"{path}: a machine has at most {MAX_GPUS} GPUs, got {gpus}")
    check_limit("gpus", racks * machines * gpus, f"{path}: GPUs of a cluster")
    total = racks * machines
    return Cluster(
        gpus=np.full(total, gpus, np.int64),
        rack=np.arange(total, dtype=np.int64) // max(1, machines),
        cpus=np.full(total, columns["num_cpu_p_node"][0]),
        memory_gb=np.full(total, columns["mem_p_node"][0]),
    )


def _from_nodes(path: Path) -> Cluster:
    nodes = read_nodes(path)
    capacity = nodes.capacity[nodes.capacity[:, 0] > 0]
    if not len(capacity):
        raise InvalidProblemError(f"{path}: no node has a GPU; give a list with GPU nodes")
    named = [kind.rpartition(" x ")[0] for kind, gpus in zip(nodes.kind, nodes.capacity[:, 0], strict=True) if gpus > 0]
    kinds = tuple(dict.fromkeys(named))
    return Cluster(
        gpus=np.rint(capacity[:, 0]).astype(np.int64),
        cpus=capacity[:, 1].copy(),
        memory_gb=capacity[:, 2].copy(),
        kind=np.array([kinds.index(name) for name in named], np.int64),
        kinds=kinds,
    )
